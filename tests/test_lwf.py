"""LwF.MC: its targets pixel by pixel, the loss against loops, one update against SGD by hand, and the sigmoid base."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from segstream.checks import METHOD_CHECKS
from segstream.checks.squares import make, nothing_said, same, snapshot, squares
from segstream.classes import UNLABELED, VOID
from segstream.functional.distillation import sigmoid_cross_entropy
from segstream.functional.objective import Objective, cross_entropy
from segstream.functional.soft_targets import entering, hard_and_soft, soft, soft_targets, softmax_and_soft
from segstream.joint import taught
from segstream.method import Method, create, load
from segstream.methods.lwf import LwF
from segstream.models import Segmenter
from segstream.offline import Schedule, fit
from segstream.types import Batch

FORMS = ("soft", "hard", "softmax")


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def entropy(z: float, target: float) -> float:
    """Cross entropy between sigmoid(z) and a target."""
    return -target * math.log(sigmoid(z)) - (1 - target) * math.log(1 - sigmoid(z))


def log_softmax(z: list[float], k: int) -> float:
    return z[k] - math.log(sum(math.exp(x) for x in z))


def pixel(form: str, z: list[float], u: list[float], label: int, retired: Collection[int]) -> tuple[float, float]:
    """What a pixel that is not void adds to the sums: what its label says, and what its teacher says."""
    slots, old = [k for k in range(len(z)) if k not in retired], [k for k in range(len(u)) if k not in retired]
    soft_part = sum(entropy(z[k], 0.0 if k == 0 and label >= len(u) else sigmoid(u[k])) for k in old)
    if form == "soft":
        new = [k for k in slots if k >= len(u)]
        return 0.0, soft_part + (sum(entropy(z[k], float(k == label)) for k in new) if label >= 0 else 0.0)
    if form == "hard":
        return (sum(entropy(z[k], float(k == label)) for k in slots) if label >= 0 else 0.0), soft_part
    plain = -log_softmax([z[k] for k in slots], slots.index(label)) if label >= 0 else 0.0
    p, q = ([log_softmax([x[k] for k in old], j) for j in range(len(old))] for x in (z, u))
    return plain, sum(math.exp(b) * (b - a) for a, b in zip(p, q, strict=True))


def slow(
    form: str, logits: Tensor, teacher: Tensor | None, labels: Tensor, weight: float, retired: Collection[int]
) -> float:
    """The loss in loops, float64, logits upsampled first."""
    size = (labels.shape[1], labels.shape[2])
    full = F.interpolate(logits.double(), size=size, mode="bilinear", align_corners=False)
    said = None if teacher is None else F.interpolate(teacher.double(), size=size, mode="bilinear", align_corners=False)
    sums, labelled, nonvoid = [0.0, 0.0], 0, 0
    for i in range(len(labels)):
        for y in range(size[0]):
            for x in range(size[1]):
                label = int(labels[i, y, x])
                if label == VOID or (teacher is None and label == UNLABELED):
                    continue
                u = [] if said is None else said[i, :, y, x].tolist()
                first, second = pixel(form, full[i, :, y, x].tolist(), u, label, retired)
                sums = [sums[0] + first, sums[1] + second]
                labelled, nonvoid = labelled + (label >= 0), nonvoid + 1
    factor = 1.0 if form == "soft" else weight
    return sums[0] / max(labelled, 1) + factor * sums[1] / max(nonvoid, 1)


def fast(
    form: str,
    logits: Tensor,
    teacher: Tensor | None,
    labels: Tensor,
    *,
    weight: float = 10.0,
    retired: Collection[int] = (),
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> Objective:
    if form == "soft":
        return soft(logits, teacher, labels, retired=retired, reduce=reduce)
    both = hard_and_soft if form == "hard" else softmax_and_soft
    return both(logits, teacher, labels, distillation=weight, retired=retired, reduce=reduce)


def random_logits(seed: int, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_labels(seed: int, slots: int, *shape: int, retired: Collection[int] = ()) -> Tensor:
    labels = torch.randint(VOID, slots, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int16)
    return labels.masked_fill(torch.isin(labels, torch.tensor(sorted(retired), dtype=torch.int16)), UNLABELED)


# ---- the targets


def test_four_pixels_by_hand() -> None:
    # background, old class 1, new class 2; the teacher knows the first two
    labels = torch.tensor([[2, 1], [UNLABELED, VOID]], dtype=torch.int16)
    said = torch.tensor([[[0.0, 1.0], [2.0, 3.0]], [[-1.0, 0.5], [-2.0, 4.0]]])
    target, asked = soft_targets(labels, said, slots=3)
    # labelled new: the teacher's background is overruled, its class 1 is not, the new output is one-hot
    assert target[:, 0, 0].tolist() == pytest.approx([0.0, sigmoid(-1.0), 1.0])
    assert asked[:, 0, 0].tolist() == [True, True, True]
    # labelled old: the teacher's word on both old outputs, although there is a label
    assert target[:, 0, 1].tolist() == pytest.approx([sigmoid(1.0), sigmoid(0.5), 0.0])
    assert asked[:, 0, 1].tolist() == [True, True, True]
    # unlabelled: the teacher's word, and nothing about the new class
    assert target[:2, 1, 0].tolist() == pytest.approx([sigmoid(2.0), sigmoid(-2.0)])
    assert asked[:, 1, 0].tolist() == [True, True, False]
    assert asked[:, 1, 1].tolist() == [False, False, False]


def test_annotated_background_says_that_no_new_class_is_there() -> None:
    target, asked = soft_targets(torch.tensor([[0]]), torch.tensor([[[1.0]], [[-1.0]]]), slots=4)
    assert target.flatten().tolist() == pytest.approx([sigmoid(1.0), sigmoid(-1.0), 0.0, 0.0])
    assert bool(asked.all())


def test_without_a_teacher_targets_are_one_hot_and_unlabelled_pixels_take_no_part() -> None:
    target, asked = soft_targets(torch.tensor([[1, UNLABELED, VOID]]), None, slots=3)
    assert target[:, 0, 0].tolist() == [0.0, 1.0, 0.0]
    assert asked[:, 0].T.tolist() == [[True] * 3, [False] * 3, [False] * 3]


def test_retired_slots_are_asked_nothing() -> None:
    _, asked = soft_targets(torch.tensor([[1, 4, UNLABELED]]), torch.zeros(3, 1, 3), slots=5, retired={2, 3})
    assert asked[:, 0].T.tolist() == [[True, True, False, False, True]] * 2 + [[True, True, False, False, False]]


def test_views_with_and_without_a_teacher() -> None:
    mask = torch.tensor([[2, 0, UNLABELED, VOID]], dtype=torch.int16)
    anyone = torch.zeros(1, 2, 1, 1)
    assert entering(mask, "ignore", taught=anyone).tolist() == [[2, 0, UNLABELED, VOID]]
    assert entering(mask, "ignore", taught=None).tolist() == [[2, 0, VOID, VOID]]
    for teacher in (anyone, None):
        assert entering(mask, "background", taught=teacher).tolist() == [[2, 0, 0, VOID]]
    with pytest.raises(ValueError, match="'background' or 'ignore'"):
        entering(mask, "latent", taught=None)


# ---- the loss


def test_the_loss_by_hand() -> None:
    logits = torch.tensor([0.3, -0.2, 0.7]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    said = torch.tensor([1.0, -1.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    labels = torch.tensor([[[2, 1], [UNLABELED, VOID]]], dtype=torch.int16)
    new = entropy(0.3, 0.0) + entropy(-0.2, sigmoid(-1.0)) + entropy(0.7, 1.0)
    old = entropy(0.3, sigmoid(1.0)) + entropy(-0.2, sigmoid(-1.0))
    found = soft(logits, said, labels)
    assert found.loss.item() == pytest.approx((new + old + entropy(0.7, 0.0) + old) / 3, rel=1e-6)
    assert (found.labelled.item(), found.latent.item(), found.nonvoid.item()) == (2, 1, 3)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    form=st.sampled_from(FORMS),
    slots=st.integers(2, 5),
    known=st.integers(0, 5),
    low=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    retire=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_loss_is_a_loop_over_pixels(
    form: str, slots: int, known: int, low: tuple[int, int], size: tuple[int, int], retire: bool, seed: int
) -> None:
    known = min(known, slots)
    retired = {1 + seed % (slots - 1)} if retire else set()
    logits = random_logits(seed, 2, slots, *low)
    teacher = random_logits(seed + 1, 2, known, *low) if known else None
    labels = random_labels(seed, slots, 2, *size, retired=retired)
    if teacher is None:
        labels = entering(labels, "ignore", taught=None)
    found = fast(form, logits, teacher, labels, weight=3.0, retired=retired)
    assert float(found.loss) == pytest.approx(slow(form, logits, teacher, labels, 3.0, retired), rel=1e-7, abs=1e-10)
    assert found.labelled.item() == int((labels >= 0).sum())
    assert len(found.kept) == slots


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_the_slope_of_the_loop(form: str) -> None:
    logits, teacher = random_logits(1, 1, 4, 2, 2), random_logits(2, 1, 3, 2, 2)
    labels = torch.tensor([[[3, 1, 0], [UNLABELED, VOID, 3], [1, UNLABELED, 0]]], dtype=torch.int16)
    leaf = logits.clone().requires_grad_()
    fast(form, leaf, teacher, labels, retired={2}).loss.backward()
    assert leaf.grad is not None
    assert not bool(leaf.grad[:, 2].any()), "a retired class takes no part"
    assert bool(leaf.grad[:, [0, 1, 3]].flatten(2).any(dim=2).all())
    step = 1e-5
    for at in range(0, logits.numel(), 3):
        up, down = logits.flatten().clone(), logits.flatten().clone()
        up[at], down[at] = up[at] + step, down[at] - step
        rise = [slow(form, x.view_as(logits), teacher, labels, 10.0, {2}) for x in (up, down)]
        assert float(leaf.grad.flatten()[at]) == pytest.approx((rise[0] - rise[1]) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_shares_of_processes_add_up(form: str) -> None:
    logits, teacher = random_logits(1, 4, 3, 2, 2), random_logits(2, 4, 2, 2, 2)
    labels = random_labels(3, 3, 4, 4, 4)
    labels[0] = VOID
    parts = (slice(0, 1), slice(1, 2), slice(2, 4))
    counts: list[list[Tensor]] = []

    def noting(n: Tensor) -> Tensor:
        counts[-1].append(n)
        return n

    for part in parts:
        counts.append([])
        fast(form, logits[part], teacher[part], labels[part], reduce=noting)
    assert 1 <= len(counts[0]) == len(counts[1]) == len(counts[2]), "all take part in every sum, void or not"

    def share(part: slice) -> Tensor:
        totals = iter([torch.stack(same_sum).sum(0) for same_sum in zip(*counts, strict=True)])
        return fast(form, logits[part], teacher[part], labels[part], reduce=lambda n: next(totals)).loss

    whole = fast(form, logits, teacher, labels).loss
    assert float(sum(share(part) for part in parts)) == pytest.approx(float(whole), rel=1e-10)


def test_without_a_teacher_the_forms_are_plain_cross_entropies() -> None:
    logits, labels = random_logits(1, 2, 3, 2, 2), entering(random_labels(2, 3, 2, 5, 5), "ignore", taught=None)
    for form in ("soft", "hard"):
        wanted = sigmoid_cross_entropy(logits, labels).loss
        assert float(fast(form, logits, None, labels).loss) == pytest.approx(float(wanted), rel=1e-12)
    wanted = cross_entropy(logits, labels).loss
    assert float(fast("softmax", logits, None, labels).loss) == pytest.approx(float(wanted), rel=1e-12)


# ---- the method


def started(*, network: str = "tiny", **given_settings: Any) -> LwF:
    method = make(LwF, network=network, **given_settings)
    assert isinstance(method, LwF)
    method.add_classes(["blue"])
    return method


def partly(seeds: list[int]) -> Batch:
    return squares(2, seeds, known=3, rest=UNLABELED, complete=[2])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("view", ["ignore", "background"])
def test_an_update_is_one_step_down_the_loop(form: str, view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = started(form=form, view=view, momentum=0.0, weight_decay=0.01)
    for k in range(2):
        method.learn(partly([k, k + 9]))  # away from the teacher
    twin = copy.deepcopy(method.segmenter).double()
    teacher = copy.deepcopy(method.teacher)
    assert teacher is not None
    seen = []
    join = method.join

    def noted(*groups: Any, whole: bool = False) -> Any:
        seen.append(join(*groups, whole=whole))
        return seen[-1]

    monkeypatch.setattr(method, "join", noted)
    report = method.learn(partly([5, 6]))
    images, masks = seen[0].images, seen[0].masks
    assert len(images) == 4, "as many are replayed as came"
    labels = masks.masked_fill(masks == UNLABELED, 0) if view == "background" else masks
    with torch.no_grad():
        said = teacher.double()(images)
    twin.train()
    loss = fast(form, twin(images), said, labels).loss
    loss.backward()
    assert report.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    for (name, now), before in zip(method.segmenter.named_parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        wanted = before - method.lr * (before.grad + 0.01 * before)
        assert torch.allclose(now.double(), wanted, atol=2e-6), name
    assert report.latent == int((labels == UNLABELED).sum())


def test_the_teacher_pulls_back() -> None:
    """After drifting away, images without any label bring old outputs nearer to what they were, and no new one."""
    method = started(weight_decay=0.0, momentum=0.0, batchnorm="frozen")
    for k in range(6):
        method.learn(partly([k, k + 9]))
    method.forget(method.memory_.ids())
    unsaid = Batch((nothing_said(1, void=False), nothing_said(2, void=False)))
    images = torch.stack(list(unsaid.images))

    def distance() -> float:
        assert method.teacher is not None
        with torch.no_grad():
            now, then = method.segmenter(images)[:, :2].sigmoid(), method.teacher(images).sigmoid()
        return float((now - then).square().sum())

    far, row = distance(), method.segmenter.head.weight[2].detach().clone()
    for _ in range(20):
        assert method.learn(unsaid).updated
    assert distance() < 0.5 * far
    assert torch.equal(row, method.segmenter.head.weight[2].detach()), "nothing was said about the new class"


def test_the_view_decides_about_new_outputs_on_unlabelled_pixels() -> None:
    rows = {}
    for view in ("ignore", "background"):
        method = started(view=view, weight_decay=0.0)
        method.forget(method.memory_.ids())
        row = method.segmenter.head.weight[2].detach().clone()
        assert method.learn(Batch((nothing_said(1, void=False),))).updated
        rows[view] = not torch.equal(row, method.segmenter.head.weight[2].detach())
    assert rows == {"ignore": False, "background": True}


def test_without_a_teacher_nothing_is_learned_from_unlabelled_images() -> None:
    method = make(LwF)
    method.forget(method.memory_.ids())
    before = snapshot(method)
    assert not method.learn(Batch((nothing_said(1, void=False),))).updated
    assert same(before, snapshot(method))


def test_a_network_that_knows_no_class_is_no_teacher() -> None:
    method = LwF(Segmenter.create("tiny", weights=None), seed=0)
    method.add_classes(["red"])
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    assert method.teacher is not None
    assert taught(method.teacher, images, method.fabric_) is None
    method.learn(squares(1, [1, 2]))
    method.add_classes(["blue"])
    said = taught(method.teacher, images, method.fabric_)
    assert said is not None
    assert said.shape[1] == 2
    assert not said.requires_grad


def test_the_teacher_is_the_network_before_the_stage() -> None:
    method = make(LwF)
    method.learn(squares(1, [1, 2]))
    before = {n: p.detach().clone() for n, p in method.segmenter.named_parameters()}
    method.add_classes(["blue"])
    method.add_classes(["green"])  # no update in between: one stage
    for k in range(2):
        method.learn(partly([k]))
    assert method.teacher is not None
    assert method.teacher.classes.names == ("red",)
    for name, parameter in method.teacher.named_parameters():
        assert torch.equal(parameter, before[name]), name
    assert not method.teacher.training


def test_a_retired_class_s_output_rests() -> None:
    method = started(weight_decay=0.0, momentum=0.0)
    method.remember(squares(2, [1, 2, 3], known=3))
    method.retire_classes(["red"])
    rows = method.segmenter.head.weight.detach().clone()
    assert method.learn(partly([4, 5])).updated
    now = method.segmenter.head.weight.detach()
    assert torch.equal(rows[1], now[1])
    assert not torch.equal(rows[2], now[2])


@pytest.mark.parametrize("setting", [{"form": "sharp"}, {"view": "latent"}, {"distillation": -1.0}])
def test_impossible_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        create("lwf", Segmenter.create("tiny", weights=None), settings=setting)


def test_what_an_experiment_must_know() -> None:
    assert (LwF.wants_teacher, LwF.base_loss, LwF.default_policy) == (True, "sigmoid", "reservoir")
    assert LwF.tunable == {"view": ("ignore", "background")}
    assert make(LwF).head() is None


def test_a_saved_method_has_its_teacher(tmp_path: Path) -> None:
    method = started(form="hard", view="background", network="tiny_bn")
    method.learn(partly([1, 2]))
    method.save(tmp_path)
    again = load(tmp_path)
    assert isinstance(again, LwF)
    assert (again.form, again.view) == ("hard", "background")
    assert again.teacher is not None
    assert method.teacher is not None
    assert not again.teacher.training
    images = squares(2, [7]).images[0][None]
    with torch.no_grad():
        assert torch.equal(again.teacher(images), method.teacher(images))
    for m in (method, again):
        m.learn(partly([3, 4]))
    assert same(snapshot(method), snapshot(again))


# The two that cannot hold: a subclass is no plug-in, and `background` tells a stroke's surroundings to be background.
EXCEPT = {"background": ("is_complete_as_a_plugin", "a_stroke_never_pushes_its_object_away")}


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize(("view", "form"), [("background", "soft"), ("ignore", "hard"), ("ignore", "softmax")])
def test_the_contract_holds_in_the_other_settings(
    view: str, form: str, check: Callable[[type[Method]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if check.__name__ in EXCEPT.get(view, ("is_complete_as_a_plugin",)):
        return

    class Other(LwF):
        """In other settings."""

        def __init__(self, segmenter: Segmenter, **given: Any) -> None:
            super().__init__(segmenter, **({"view": view, "form": form} | given))

    check(Other)


# ---- the base that it starts from


def test_a_sigmoid_base_is_trained_by_sigmoid_cross_entropy() -> None:
    """One epoch of one batch is one step down the mean over labelled pixels of the sum over outputs."""
    segmenter = Segmenter.create("tiny", weights=None, classes=["red", "blue"], head="linear", seed=1)
    twin = copy.deepcopy(segmenter).double()
    data = [*squares(1, [1, 2]).samples, *squares(2, [3], rest=UNLABELED, known=3).samples, nothing_said(4, void=True)]
    schedule = Schedule(epochs=1, batch=4, lr=0.3, momentum=0.9, weight_decay=0.01)
    mean = fit(segmenter, data, schedule=schedule, loss="sigmoid")
    twin.train()
    logits = twin(torch.stack([s.image for s in data]))
    full = F.interpolate(logits, size=(24, 24), mode="bilinear", align_corners=False)
    labels = torch.stack([s.mask for s in data]).long()
    total = torch.zeros((), dtype=torch.float64)
    for k in range(3):
        g, here = full[:, k].sigmoid(), labels >= 0
        total = total - torch.where(labels == k, g, 1 - g).log()[here].sum()
    loss = total / int((labels >= 0).sum())
    loss.backward()
    assert mean == pytest.approx(float(loss.detach()), rel=1e-5)
    for (name, now), before in zip(segmenter.named_parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        assert torch.allclose(now.double(), before - 0.3 * (before.grad + 0.01 * before), atol=2e-6), name


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="loss"):
        fit(Segmenter.create("tiny", weights=None, classes=["red"]), squares(1, [1]).samples, loss="hinge")
