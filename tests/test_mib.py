"""MiB: its distillation and its first update against loops, how new classes start, and what it learns."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from segstream.checks.squares import make, nothing_said, same, snapshot, squares
from segstream.classes import UNLABELED, VOID
from segstream.config import load_recipe
from segstream.experiment import Experiment
from segstream.functional.distillation import unbiased_distillation
from segstream.joint import Joint
from segstream.memory import Memory
from segstream.method import Method, create, load
from segstream.methods.em import EM
from segstream.methods.mib import MiB
from segstream.models import Segmenter
from segstream.types import Batch, Sample


def full(logits: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(logits.double(), size=size, mode="bilinear", align_corners=False)


def softmax(values: Sequence[float]) -> list[float]:
    top = max(values)
    total = sum(math.exp(v - top) for v in values)
    return [math.exp(v - top) / total for v in values]


def taught_pixel(z: Sequence[float], t: Sequence[float], retired: Collection[int]) -> float:
    """-(1/n_old) sum_k q_k log p^_k, term by term."""
    active = [k for k in range(len(z)) if k not in retired]
    p = dict(zip(active, softmax([z[k] for k in active]), strict=True))
    old = [k for k in active if k < len(t)]
    q = dict(zip(old, softmax([t[k] for k in old]), strict=True))
    background = p[0] + sum(p[k] for k in active if k >= len(t))
    return -sum(q[k] * math.log(background if k == 0 else p[k]) for k in old) / len(old)


def slow(logits: Tensor, teacher: Tensor, entering: Tensor, retired: Collection[int] = ()) -> float:
    size = (entering.shape[1], entering.shape[2])
    z, t, total = full(logits, size), full(teacher, size), 0.0
    for i, y, x in entering.nonzero().tolist():
        total += taught_pixel(z[i, :, y, x].tolist(), t[i, :, y, x].tolist(), retired)
    return total / max(1, int(entering.sum()))


# ---- the distillation


def test_distillation_of_a_2x2_image_by_hand() -> None:
    student = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [7.0, 1.0, 2.0], [1.0, 0.5, 0.5]]).log()
    teacher = torch.tensor([[3.0, 1.0], [1.0, 1.0], [5.0, 1.0], [1.0, 4.0]]).log()
    z, t = (x.T.reshape(1, -1, 2, 2) for x in (student, teacher))
    entering = torch.tensor([[[True, True], [False, True]]])  # the third pixel is void
    by_hand = [
        -(3 / 4 * math.log(4 / 6) + 1 / 4 * math.log(2 / 6)) / 2,  # class 2 is new: it counts as background
        -(1 / 2 * math.log(2 / 3) + 1 / 2 * math.log(1 / 3)) / 2,
        -(1 / 5 * math.log(1.5 / 2) + 4 / 5 * math.log(0.5 / 2)) / 2,
    ]
    assert unbiased_distillation(z, t, entering).item() == pytest.approx(sum(by_hand) / 3, rel=1e-6)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.data())
def test_distillation_and_its_gradient_equal_loops_and_float64(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 5), "slots")
    known = data.draw(st.integers(1, slots), "known")
    retired = data.draw(st.sets(st.integers(1, max(1, slots - 1))), "retired") if slots > 1 else set()
    dice = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    logits = 3 * torch.randn(2, slots, 2, 3, generator=dice)
    teacher = 3 * torch.randn(2, known, 3, 2, generator=dice)
    entering = torch.rand(2, 5, 4, generator=dice) < data.draw(st.sampled_from([0.0, 0.6, 1.0]), "share")
    student = logits.clone().requires_grad_()
    found = unbiased_distillation(student, teacher, entering, retired=retired)
    assert found.item() == pytest.approx(slow(logits, teacher, entering, retired), abs=1e-5)
    found.backward()
    exact = logits.double().requires_grad_()
    autograd(exact, teacher, entering, retired).backward()
    assert student.grad is not None
    assert torch.allclose(student.grad.double(), exact.grad, atol=1e-6)  # type: ignore[arg-type]
    assert not bool(student.grad[:, list(retired)].any())


def autograd(logits: Tensor, teacher: Tensor, entering: Tensor, retired: Collection[int]) -> Tensor:
    """The formula as it stands, on full-size float64 tensors."""
    size, known = (entering.shape[1], entering.shape[2]), teacher.shape[1]
    z, t = full(logits, size), full(teacher, size)
    gone = torch.zeros(logits.shape[1], dtype=torch.bool)
    gone[list(retired)] = True
    p = z.masked_fill(gone[:, None, None], -1e30).softmax(1)
    q = t.masked_fill(gone[:known, None, None], -1e30).softmax(1)
    hat = torch.cat([p[:, :1] + p[:, known:].sum(1, keepdim=True), p[:, 1:known]], 1)
    n = int((~gone[:known]).sum())
    each = -(q * hat.clamp_min(1e-300).log()).masked_fill(gone[:known, None, None], 0.0).sum(1) / n
    return each[entering].sum() / max(1, int(entering.sum()))


def test_distillation_of_extreme_logits_stays_finite_and_right() -> None:
    logits = torch.tensor([[400.0, -400.0, 399.0], [-400.0, 400.0, 0.0]]).T.reshape(1, 3, 1, 2).requires_grad_()
    teacher = torch.tensor([[400.0, -400.0], [400.0, -400.0]]).T.reshape(1, 2, 1, 2)
    found = unbiased_distillation(logits, teacher, torch.ones(1, 1, 2, dtype=torch.bool))
    found.backward()
    assert found.item() == pytest.approx((0 + 400 / 2) / 2, rel=1e-6)  # -log(e^0 + e^-400) of the second, over n_old
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_shares_of_two_processes_add_up() -> None:
    dice = torch.Generator().manual_seed(0)
    logits, teacher = torch.randn(3, 4, 2, 2, generator=dice), torch.randn(3, 2, 2, 2, generator=dice)
    entering = torch.rand(3, 4, 4, generator=dice) < 0.7

    def whole(count: Tensor) -> Tensor:
        return torch.full_like(count, float(entering.sum()))

    parts = [unbiased_distillation(logits[s], teacher[s], entering[s], reduce=whole) for s in (slice(1), slice(1, 3))]
    assert sum(parts).item() == pytest.approx(unbiased_distillation(logits, teacher, entering).item(), rel=1e-6)  # type: ignore[union-attr]


def test_a_teacher_that_knows_more_than_its_student_is_refused() -> None:
    with pytest.raises(ValueError, match="teacher has 3 slots, its student 2"):
        unbiased_distillation(torch.zeros(1, 2, 1, 1), torch.zeros(1, 3, 1, 1), torch.ones(1, 1, 1, dtype=torch.bool))


# ---- how new classes start


def grown(*groups: Sequence[str], **made: Any) -> tuple[Method, Tensor, Tensor]:
    """A method after growth, and what its head made of some features before and makes now."""
    method = make(MiB, **made)
    for seed in range(3):
        method.learn(squares(1, [seed, seed + 9], complete=[1]))
    features = torch.randn(2, method.segmenter.head.weight.shape[1], 3, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = method.segmenter.head(features).double().softmax(1)
        for names in groups:
            method.add_classes(names)
        return method, before, method.segmenter.head(features).double().softmax(1)


@pytest.mark.parametrize("new", [1, 2, 5, 80])  # the last outgrows the head's first block
def test_new_classes_share_equally_what_was_background(new: int) -> None:
    _, before, after = grown([f"new {k}" for k in range(new)])
    assert after.shape[1] == 2 + new
    assert torch.allclose(after[:, 1], before[:, 1], atol=1e-6)
    assert torch.allclose(after[:, 0] + after[:, 2:].sum(1), before[:, 0], atol=1e-6)
    assert torch.allclose(after[:, 2:], after[:, :1].expand_as(after[:, 2:]), atol=1e-7)


def test_two_additions_without_an_update_start_as_one() -> None:
    once, _, _ = grown(["blue", "green", "white"])
    twice, _, _ = grown(["blue"], ["green", "white"])
    assert same(snapshot(once), snapshot(twice))
    later, _, _ = grown(["blue"])
    later.learn(squares(2, [1], known=3))
    bias = later.segmenter.head.bias.detach().clone()
    later.add_classes(["green"])  # another stage: blue is old now
    now = later.segmenter.head.bias.detach()
    assert torch.equal(now[1:3], bias[1:3])
    assert torch.equal(now[[0, 3]], (bias[0] - math.log(2)).expand(2))


def test_a_class_retired_before_any_update_has_no_share() -> None:
    method, _, _ = grown(["blue"])
    method.retire_classes(["blue"])
    assert method.teacher is not None
    method.add_classes(["green"])
    before, now = method.teacher.head.bias.detach(), method.segmenter.head.bias.detach()
    assert torch.equal(now[[0, 3]], (before[0] - math.log(2)).expand(2))


def test_no_names_change_nothing() -> None:
    method, before, after = grown([])
    assert torch.equal(before, after)
    assert method.newest == frozenset()


def test_the_backgrounds_row_keeps_its_momentum_and_new_rows_have_none() -> None:
    method = make(MiB)
    method.learn(squares(1, range(3)))
    before = {k: v.clone() for k, v in method.optimiser.buffers().items()}
    method.add_classes(["blue"])
    for name in ("head.weight", "head.bias"):
        now = method.optimiser.buffers()[name]
        assert torch.equal(now[:2], before[name][:2])
        assert bool(before[name][0].any())
        assert not bool(now[2].any())


def test_on_a_cosine_head_new_rows_stay_random_and_a_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    methods: list[Method] = []
    for cls in (MiB, EM):
        segmenter = Segmenter.create("tiny", weights=None, classes=["red"], head="cosine", seed=3)
        methods.append(cls(segmenter, memory=Memory(capacity=3), seed=5))
        with caplog.at_level(logging.WARNING):
            methods[-1].add_classes(["blue"])
    assert torch.equal(methods[0].segmenter.head.weight, methods[1].segmenter.head.weight)
    assert [r.message for r in caplog.records] == [
        "mib: a cosine head has no bias, so new classes start at random, not as background."
    ]
    assert methods[0].learn(squares(2, [1, 2], known=3)).updated


# ---- one update


def impossible(sample: Sample, label: int) -> set[int]:
    """X of a latent pixel, from the words of the rules."""
    return set(sample.complete) if label == UNLABELED else set(range(1, sample.known))


def unbiased_pixel(z: Sequence[float], label: int, never: Collection[int]) -> float:
    p = softmax(z)
    return -math.log(p[label] if label >= 1 else sum(p[k] for k in range(len(p)) if k not in never))


@pytest.fixture
def stage() -> Method:
    """Base images in memory with their background annotated, as in the benchmark, and growth since."""
    method = make(MiB, distillation=7.0)
    method.learn(squares(1, [40, 41], complete=[1]))
    method.add_classes(["blue", "green"])
    return method


def watched(method: Method, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What goes through `join` and `forward` of the next update, and the loss that is stepped down."""
    seen: dict[str, Any] = {}
    join, forward, step = method.join, method.forward, method.step

    def joined(*groups: Any, whole: bool = False) -> Joint:
        groups = tuple(tuple(g) for g in groups)
        seen["samples"] = [s for group in groups for s in group]
        seen["joint"] = join(*groups, whole=whole)
        return seen["joint"]  # type: ignore[no-any-return]

    def passed(images: Tensor, *, bare: bool = False) -> Tensor:
        seen["logits"] = forward(images, bare=bare)
        return seen["logits"]  # type: ignore[no-any-return]

    def stepped(loss: Tensor) -> None:
        seen["loss"] = loss.detach().clone()
        step(loss)

    for name, call in (("join", joined), ("forward", passed), ("step", stepped)):
        monkeypatch.setattr(method, name, call)
    return seen


def mixed() -> Batch:
    """Images of the stage: one exhaustive, one of strokes, one with void and with background from after the growth."""
    whole, strokes, third = squares(2, [1, 2, 3], known=4)
    exhaustive = Sample(whole.image, whole.mask.masked_fill(whole.mask == 0, UNLABELED), "a", frozenset({2, 3}), 4)
    mask = torch.full_like(strokes.mask, UNLABELED)
    mask[::5] = strokes.mask[::5]
    old = third.mask.clone()
    old[:6] = VOID
    return Batch((exhaustive, Sample(strokes.image, mask, "b", known=4), Sample(third.image, old, "c", known=3)))


def test_the_loss_of_an_update_is_that_of_slow_loops(stage: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage.teacher is not None
    seen = watched(stage, monkeypatch)
    before = {k: v.clone() for k, v in stage.teacher.to_state()[1].items()}
    report = stage.learn(mixed())
    logits, masks, samples = seen["logits"].detach(), seen["joint"].masks, seen["samples"]
    assert len(samples) == 6
    assert {s.known for s in samples[3:]} == {2}  # annotated as background before blue and green came
    size = (masks.shape[1], masks.shape[2])
    z, label_sum, labelled, nonvoid = full(logits, size), 0.0, 0, masks != VOID
    for i, y, x in nonvoid.nonzero().tolist():
        label = int(masks[i, y, x])
        never = impossible(samples[i], label)
        label_sum += unbiased_pixel(z[i, :, y, x].tolist(), label, never)
        labelled += label >= 1 or len(never) == 3  # what can be background alone is labelled so
    with torch.no_grad():
        taught = stage.teacher(seen["joint"].images)
    expected = label_sum / int(nonvoid.sum()) + 7.0 * slow(logits, taught, nonvoid)
    assert report.loss == pytest.approx(expected, rel=1e-5)
    assert seen["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert (report.labelled, report.latent) == (labelled, int(nonvoid.sum()) - labelled)
    assert report.kept == {}
    assert same(before, stage.teacher.to_state()[1])
    assert not stage.teacher.training


def test_the_teacher_decides_the_distillation_alone(
    stage: Method, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.save(tmp_path / "saved")
    twin = load(tmp_path / "saved")
    assert twin.teacher is not None
    with torch.no_grad():
        twin.teacher.head.weight[1] += 1.0
    found = []
    for method in (stage, twin):
        seen = watched(method, monkeypatch)
        method.learn(mixed())
        with torch.no_grad():
            taught = method.teacher(seen["joint"].images)  # type: ignore[misc]
        term = unbiased_distillation(seen["logits"].detach(), taught, seen["joint"].masks != VOID)
        found.append((float(seen["loss"]), float(term)))
    (first, own), (second, other) = found
    assert second - first == pytest.approx(7.0 * (other - own), rel=1e-3)
    assert abs(other - own) > 1e-3


def gradients(stage: Method, sample: Sample) -> Tensor:
    """Of the label terms at full-size logits that are all 0."""
    logits = torch.zeros(1, 4, *sample.mask.shape, requires_grad=True)
    assert isinstance(stage, MiB)
    joint = Joint.of([sample], classes=stage.segmenter.classes, multiple=4)
    stage.distillation = 0.0
    stage.objective(joint, logits).loss.backward()
    assert logits.grad is not None
    return logits.grad[0]


def test_no_old_label_counts_as_background(stage: Method) -> None:
    """Slots: 1 red is old, 2 and 3 are new. What goes down has a gradient above 0."""
    replayed = squares(1, [1], known=2, complete=[1]).samples[0]
    up = gradients(stage, replayed) < 0
    red, rest = replayed.mask == 1, replayed.mask == 0
    assert up[:, red].any(1).tolist() == [False, True, False, False]  # not the background: it is labelled as red
    assert up[:, rest].all(1).tolist() == [True, False, True, True]  # anything that came since, but surely no red
    new = squares(2, [1], rest=UNLABELED, known=4, complete=[2, 3]).samples[0]
    up = gradients(stage, new) < 0
    assert up[:, new.mask == UNLABELED].all(1).tolist() == [True, True, False, False]
    late = squares(2, [1], known=4).samples[0]  # its background was annotated when all four slots were known
    assert (gradients(stage, late) < 0)[:, late.mask == 0].any(1).tolist() == [True, False, False, False]


def test_a_retired_class_takes_no_part_in_distillation(stage: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.retire_classes(["red"])
    seen = watched(stage, monkeypatch)
    stage.learn(squares(2, [1, 2], rest=UNLABELED, known=4, complete=[2, 3]))
    assert stage.teacher is not None
    logits, nonvoid = seen["logits"].detach(), seen["joint"].masks != VOID
    with torch.no_grad():
        taught = stage.teacher(seen["joint"].images)
    assert slow(logits, taught, nonvoid, {1}) == pytest.approx(0.0, abs=1e-6)  # the background is all that is left
    z = full(logits, (24, 24))
    loss = 0.0
    for i, y, x in nonvoid.nonzero().tolist():
        label = int(seen["joint"].masks[i, y, x])
        loss += unbiased_pixel(z[i, :, y, x].tolist(), label, {1, 2, 3})
    assert seen["loss"].item() == pytest.approx(loss / int(nonvoid.sum()), rel=1e-5)


def test_before_any_growth_it_is_em_without_pseudo_labels() -> None:
    plain = {"class_balanced": False, "cosine": False, "dynamic_sampling": False}
    found: list[Method] = []
    for cls, chosen in ((MiB, {}), (EM, {"threshold": 1.0, "latent_weight": 1.0, **plain})):
        segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red"], head="linear", seed=3)
        found.append(cls(segmenter, memory=Memory(capacity=6), seed=5, lr=0.05, **chosen))
        found[-1].remember(squares(1, range(4), complete=[1]))
        for k in range(3):
            found[-1].learn(squares(1, [k, k + 20], rest=UNLABELED))
    assert same(snapshot(found[0]), snapshot(found[1]))


def test_a_batch_of_unlabelled_pixels_is_learned_and_one_of_void_is_not(stage: Method) -> None:
    stage.forget(stage.memory_.ids())
    assert stage.learn(Batch((nothing_said(1, void=False),))).updated
    assert not stage.learn(Batch((nothing_said(2, void=True),))).updated


def test_the_teacher_is_saved_and_goes_on_teaching(stage: Method, tmp_path: Path) -> None:
    stage.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert same(snapshot(stage), snapshot(again))
    for method in (stage, again):
        method.add_classes(["white"])  # still the same stage: all three share what was background
    assert same(snapshot(stage), snapshot(again))
    assert stage.segmenter.head.bias is not None
    assert len(set(stage.segmenter.head.bias[[0, 2, 3, 4]].tolist())) == 1


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_impossible_weights_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="distillation="):
        make(MiB, distillation=value)


def test_a_search_can_use_what_is_tunable() -> None:
    for key, values in MiB.tunable.items():
        for value in values:
            assert create("mib", Segmenter.create("tiny", weights=None), settings={key: value}).settings()[key] == value


# ---- it learns

COLORS = {1: (210, 40, 40), 2: (40, 60, 210), 3: (220, 210, 40), 4: (40, 190, 60)}


@pytest.fixture(scope="module")
def colored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset's folder: two squares of different colours on noise in each picture."""
    root, dice = tmp_path_factory.mktemp("colored"), np.random.default_rng(0)
    for name in ("images", "masks"):
        (root / name).mkdir()
    for i in range(272):
        image, mask = dice.integers(90, 160, (32, 32, 3)), np.zeros((32, 32), np.uint8)
        for side, slot in enumerate((1 + i % 4, 1 + (i + 1 + i // 4 % 3) % 4)):
            top, left = dice.integers(0, 20), dice.integers(0, 4) + 16 * side
            place = np.s_[top : top + 12, left : left + 12]
            image[place], mask[place] = np.array(COLORS[slot]) + dice.integers(-20, 20, (12, 12, 3)), slot
        Image.fromarray(image.astype(np.uint8)).save(root / "images" / f"{i}.png")
        Image.fromarray(mask).save(root / "masks" / f"{i}.png")
    (root / "classes.txt").write_text("background\nred\nblue\nyellow\ngreen\n")
    (root / "train.txt").write_text("\n".join(map(str, range(256))) + "\n")
    (root / "val.txt").write_text("\n".join(map(str, range(256, 272))) + "\n")
    return root


SMALL = [
    *("data.dataset=folder", "data.split=val", "augment.crop=32", "augment.scale=[1.0, 1.0]", "scenario.max_images=0"),
    *("scenario.base=['red', 'blue', 'yellow']", "scenario.stages=[['green']]", "memory.capacity=16"),
    *("network.name=tiny_bn", "network.weights=", "network.decoder_channels=16", "network.head=linear"),
    *("base.epochs=4", "base.batch=8", "base.lr=0.1", "run.device=cpu", "run.threads=1"),
]


def final(root: Path, name: str, **chosen: Any) -> tuple[float, float]:
    """Mean IoU of the three old classes, and that of the new one, after the stream."""
    experiment = Experiment(load_recipe("demo", [*SMALL, f"data.root={root}"]), cache=root.parent / "cache")
    out = root.parent / f"{name}-{len(list(root.parent.iterdir()))}"
    iou = experiment.run(name, out, settings={"lr": 0.05, **chosen}, pictures=0)["iou"]
    return sum(iou[c] for c in ("red", "blue", "yellow")) / 3, iou["green"]


@pytest.mark.parametrize("name", ["er", "mib", "coriseg"])
def test_an_experiment_learns_a_class_and_keeps_the_old_ones(colored: Path, name: str) -> None:
    old, new = final(colored, name)
    assert old > 70
    assert new > 40


def test_an_experiment_without_memory_or_teacher_forgets(colored: Path) -> None:
    old, new = final(colored, "finetune", view="background")
    assert old < 20
    assert new > 40
