"""iCaRL: herding against a slow reference, nearest means against loops over pixels, a cache that never goes stale."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from segstream.checks import METHOD_CHECKS, check_policy
from segstream.checks.squares import make, nothing_said, same, snapshot, square, squares
from segstream.classes import UNLABELED, VOID
from segstream.functional.nearest_mean import class_sums, nearest_mean_scores
from segstream.memory import Evidence, Memory
from segstream.memory.policies.herding import Herding
from segstream.memory.selection import Candidate
from segstream.method import Method, load
from segstream.methods.icarl import ICaRL
from segstream.methods.lwf import LwF
from segstream.models import Segmenter
from segstream.types import Batch, Sample


def started(**given_settings: Any) -> ICaRL:
    """Squares of a red base in memory, and blue ones that came later."""
    method = make(ICaRL, **given_settings)
    assert isinstance(method, ICaRL)
    method.add_classes(["blue"])
    return method


def partly(seeds: Sequence[int]) -> Batch:
    return squares(2, seeds, known=3, rest=UNLABELED, complete=[2])


# ---- herding


def image(
    name: str, arrival: int, vectors: Mapping[int, Sequence[float]], *, unmeasured: Sequence[int] = ()
) -> Candidate:
    found = {c: np.array(v, np.float32) for c, v in vectors.items()}
    labels = tuple(sorted({*vectors, *unmeasured}))
    return Candidate(name, labels, Evidence(dict.fromkeys(found, 0.5), found) if found else None, arrival)


def herded(slot: int, rest: Sequence[Candidate], chosen: Sequence[Candidate]) -> list[str]:
    """The ids of `rest` in the order that herding takes them, by loops in float64."""
    rest, chosen = list(rest), list(chosen)

    def phi(one: Candidate) -> list[float] | None:
        vector = one.vector(slot)
        return None if vector is None else [float(x) for x in vector]

    everyone = [p for one in [*rest, *chosen] if (p := phi(one)) is not None]
    order = []
    while rest:
        best: tuple[float, int, str] | None = None
        for one in rest:
            p = phi(one)
            gap = math.inf
            if p is not None:
                group = [*(q for other in chosen if (q := phi(other)) is not None), p]
                gap = 0.0
                for d in range(len(p)):
                    mu = sum(e[d] for e in everyone) / len(everyone)
                    gap += (mu - sum(g[d] for g in group) / len(group)) ** 2
            if best is None or (gap, one.arrival, one.id) < best:
                best = gap, one.arrival, one.id
        assert best is not None
        order.append(best[2])
        taken = next(one for one in rest if one.id == best[2])
        rest.remove(taken)
        chosen.append(taken)
    return order


def test_herding_by_hand() -> None:
    # mean 4; first the image at 5 (gap 1), then with 2: mean 3.5, with 1: 3, with 8: 6.5 -> 2; then 8 brings back to 5
    four = [image("a", 0, {1: [1]}), image("b", 1, {1: [2]}), image("c", 2, {1: [5]}), image("d", 3, {1: [8]})]
    assert [one.id for one in Herding().choose(four, room=3, active=(1,))] == ["c", "b", "d"]


@settings(deadline=None, max_examples=40, derandomize=True)
@given(n=st.integers(1, 9), before=st.integers(0, 3), silent=st.integers(0, 3), seed=st.integers(0, 999))
def test_herding_is_the_slow_one(n: int, before: int, silent: int, seed: int) -> None:
    dice = np.random.default_rng(seed)
    arrivals = dice.permutation(n + before).tolist()
    everyone = [image(str(a), a, {3: dice.normal(size=3).tolist()}) for a in arrivals]
    for i in range(min(silent, len(everyone))):
        everyone[i] = image(everyone[i].id, everyone[i].arrival, {}, unmeasured=[3])
    dice.shuffle(everyone)  # type: ignore[arg-type]
    chosen, rest = everyone[:before], everyone[before:]
    wanted = herded(3, rest, chosen)
    policy, found = Herding(), []
    while rest:
        one = policy.pick(3, rest, chosen, quota=99)
        found.append(one.id)
        rest = [r for r in rest if r is not one]
        chosen = [*chosen, one]
    assert found == wanted


def test_images_that_nobody_measured_come_last_and_the_first_of_equals_is_taken() -> None:
    silent = [image("s", 0, {}, unmeasured=[1]), image("t", 1, {}, unmeasured=[1])]
    equals = [image("late", 5, {1: [1.0, 0.0]}), image("early", 4, {1: [1.0, 0.0]})]
    pick = Herding().pick
    assert pick(1, [*silent, *equals], [], quota=2).id == "early"
    assert pick(1, silent[::-1], equals, quota=2).id == "s"
    assert pick(1, [equals[0]], silent, quota=2).id == "late", "what was not measured does not count as chosen at 0"


def test_quotas_are_filled_in_rounds_and_rare_classes_first() -> None:
    # B = 5, two classes: q = 2. Class 2, the rarer, is served first; "ab" counts for both; the fifth is a second round
    many = [image(f"a{i}", i, {1: [float(i)]}) for i in range(6)]  # mean with ab (2.5): 2.5
    both, few = image("ab", 6, {1: [2.5], 2: [0.0]}), image("b", 7, {2: [1.0]})
    found = [one.id for one in Herding().choose([*many, both, few], room=5, active=(1, 2))]
    assert set(found[:2]) == {"ab", "b"}
    assert found[2] == "a2", "ab fills one of class 1's two places"
    assert len(found) == 5
    assert set(found[3:]) <= {f"a{i}" for i in range(6)}
    rest = [one for one in many if one.id not in found[:3]]
    assert found[3:] == herded(1, rest, [both, many[2]])[:2]


def test_more_classes_than_places_are_served_by_ascending_count() -> None:
    common = [image(f"c{i}", i, {1: [float(i)]}) for i in range(3)]
    pair = [image(f"p{i}", 5 + i, {2: [float(i)]}) for i in range(2)]
    alone = [image("x", 9, {3: [0.0]})]
    found = [one.id for one in Herding().choose([*common, *pair, *alone], room=2, active=(1, 2, 3))]
    assert found == ["x", "p0"]


def test_the_policy_keeps_its_contract() -> None:
    check_policy("herding")


def test_the_memory_follows_herding_over_what_is_stored_and_what_comes() -> None:
    memory, dice = Memory(capacity=2, policy="herding"), torch.Generator().manual_seed(0)
    values = {"a": 0.0, "b": 10.0, "c": 4.0, "d": 6.0}
    blank, mask = torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.int16)

    def offer(names: str) -> None:
        told = [Evidence({1: 0.5}, {1: np.array([values[n]], np.float32)}) for n in names]
        memory.offer_all([Sample(blank, mask, n) for n in names], active=(1,), generator=dice, evidence=told)

    offer("ab")
    offer("cd")  # mean 5: c and d are equally near, c came first; then d brings the mean to 5
    assert set(memory.ids()) == {"c", "d"}


def test_the_method_measures_what_the_policy_needs() -> None:
    method = make(ICaRL, capacity=4)
    assert method.memory is not None
    _, tensors = method.memory.state()
    assert tensors["vectors"].shape == (4, method.segmenter.head.weight.shape[1])
    assert bool((tensors["vectors"].norm(dim=1) <= 1 + 1e-5).all())


# ---- nearest means


def directions(features: Tensor) -> Tensor:
    """[B, D, h, w] in float64, each feature divided by its length."""
    features = features.double()
    return features / features.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)


def slow_sums(features: Tensor, masks: Tensor, slots: int) -> Tensor:
    """Each pixel adds the direction of the cell in which it lies."""
    phi = directions(features)
    sums = torch.zeros(slots, features.shape[1], dtype=torch.float64)
    (h, w), (height, width) = features.shape[-2:], masks.shape[-2:]
    for i in range(len(masks)):
        for y in range(height):
            for x in range(width):
                if masks[i, y, x] >= 0:
                    sums[int(masks[i, y, x])] += phi[i, :, y * h // height, x * w // width]
    return sums


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    cells=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.sampled_from([1, 2, 4]),
    slots=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_sums_over_pixels_of_a_class(cells: tuple[int, int], stride: int, slots: int, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    features = torch.randn(2, 5, *cells, generator=dice, dtype=torch.float64)
    masks = torch.randint(VOID, slots, (2, cells[0] * stride, cells[1] * stride), generator=dice).to(torch.int16)
    found = class_sums(features, masks, slots=slots)
    assert torch.allclose(found, slow_sums(features, masks, slots), atol=1e-10)


def test_sums_by_hand() -> None:
    # two cells of 2x1 pixels with directions (1, 0) and (0.6, 0.8)
    features = torch.tensor([[[[2.0, 3.0]], [[0.0, 4.0]]]])
    masks = torch.tensor([[[1, 1], [0, VOID]]], dtype=torch.int16)
    assert torch.allclose(class_sums(features, masks, slots=3), torch.tensor([[1.0, 0.0], [1.6, 0.8], [0.0, 0.0]]))
    assert not bool(class_sums(features, torch.full((1, 2, 2), UNLABELED), slots=2).any())
    assert not bool(class_sums(torch.zeros(1, 2, 1, 1), masks, slots=2).any()), "no direction, no sum"


def test_scores_are_scaled_cosines() -> None:
    dice = torch.Generator().manual_seed(0)
    features, means = torch.randn(2, 4, 3, 2, generator=dice), 7 * torch.randn(3, 4, generator=dice)
    means[1] = 0
    found = nearest_mean_scores(features, means, scale=12.0)
    for i in range(2):
        for y in range(3):
            for x in range(2):
                for k in (0, 2):
                    f, m = features[i, :, y, x].tolist(), means[k].tolist()
                    dot = sum(a * b for a, b in zip(f, m, strict=True))
                    assert float(found[i, k, y, x]) == pytest.approx(
                        12 * dot / math.hypot(*f) / math.hypot(*m), abs=1e-5
                    )
    assert bool((found[:, 1] == -math.inf).all())


# ---- prediction


def slow_prediction(method: ICaRL, picture: Tensor) -> tuple[Tensor, Tensor]:
    """Classes and confidence, from sums over all exemplars' pixels; sides are multiples of the stride."""
    segmenter, slots = method.segmenter, len(method.segmenter.classes)
    segmenter.eval()
    total = torch.zeros(slots, segmenter.head.weight.shape[1], dtype=torch.float64)
    with torch.no_grad():
        for exemplar in method.memory_:
            total += slow_sums(segmenter.features(exemplar.image[None]), exemplar.mask[None], slots)
        phi = directions(segmenter.features(picture[None]))[0]
    there = [k for k in (0, *segmenter.classes.active) if bool(total[k].any())]
    mu = torch.stack([total[k] / total[k].norm() for k in there])
    low = segmenter.head.scale * torch.einsum("kd,dhw->khw", mu, phi)
    full = F.interpolate(low[None], size=picture.shape[1:], mode="bilinear", align_corners=False)[0]
    p, best = full.softmax(0).max(0)
    return torch.tensor(there)[best], p


def agrees(method: ICaRL, picture: Tensor) -> bool:
    masks, confidence = slow_prediction(method, picture)
    found = method.predict([picture])
    sure = found.masks[0] == masks  # where two classes are equally near, rounding decides
    return float(sure.float().mean()) > 0.99 and torch.allclose(found.confidence[0].double(), confidence, atol=1e-4)


def test_prediction_is_the_nearest_mean_of_exemplars() -> None:
    method = started()
    for k in range(3):
        method.learn(partly([k, k + 9]))
    for seed in (60, 61):
        assert agrees(method, square(2, seed).image)
    by_head = method.segmenter.predict([square(2, 60).image])
    by_mean = method.predict([square(2, 60).image])
    assert not torch.equal(by_head.confidence[0], by_mean.confidence[0])
    assert bool((by_mean.confidence[0] <= 1).all())


def test_exemplars_of_any_size_count_by_their_pixels() -> None:
    method = make(ICaRL, capacity=9)
    assert isinstance(method, ICaRL)
    for size in (21, 30):  # no multiples of the stride: what is added at the border is void
        method.remember(Batch((square(1, size, size=size, complete=[1]),)))
    total = torch.zeros(2, method.segmenter.head.weight.shape[1], dtype=torch.float64)
    method.segmenter.eval()
    for exemplar in method.memory_:
        images, masks = method.segmenter.pad(exemplar.image[None], exemplar.mask[None])
        assert masks is not None
        with torch.no_grad():
            total += slow_sums(method.segmenter.features(images), masks, 2)
    wanted = total / total.norm(dim=1, keepdim=True)
    assert torch.allclose(method.means().double(), wanted, atol=1e-5)


def test_means_come_from_evaluation_mode_and_leave_the_mode_alone() -> None:
    method = make(ICaRL, network="tiny_bn")
    assert isinstance(method, ICaRL)
    method.learn(squares(1, [1, 2]))
    wanted = method.means()
    method.segmenter.training_mode("train")
    method._means, before = None, snapshot(method)
    assert torch.equal(method.means(), wanted)
    assert same(before, snapshot(method))
    assert method.segmenter.training
    assert not method.means().requires_grad


def test_a_class_without_exemplars_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    method = started()
    method.learn(partly([1, 2]))
    method.add_classes(["green", "white"])
    with caplog.at_level(logging.WARNING):
        found = method.predict([square(2, 60).image])
        method.learn(partly([3]))
        method.predict([square(2, 60).image])
    assert [r.getMessage() for r in caplog.records] == [
        "The memory shows no pixel of green, white; icarl cannot predict it."
    ]
    assert int(found.masks[0].max()) <= 2
    caplog.clear()
    method.remember(squares(3, [1], known=5))
    with caplog.at_level(logging.WARNING):
        method.predict([square(2, 60).image])
    assert [r.getMessage() for r in caplog.records] == ["The memory shows no pixel of white; icarl cannot predict it."]


def test_the_background_comes_from_annotated_background_only(caplog: pytest.LogCaptureFixture) -> None:
    method = started()
    method.forget(method.memory_.ids())
    method.remember(partly([1, 2]))
    method.remember(squares(1, [5], rest=VOID, known=2))
    assert not bool(method.means()[0].any()), "unlabelled and void pixels are no background"
    with caplog.at_level(logging.WARNING):
        assert bool((method.predict([square(2, 60).image]).masks[0] > 0).all())
    assert "no pixel of background" in caplog.text


def test_a_memory_without_exemplars_leaves_it_to_the_head(caplog: pytest.LogCaptureFixture) -> None:
    method = started()
    method.forget(method.memory_.ids())
    picture = square(1, 60).image
    found, wanted = method.predict([picture]), method.segmenter.predict([picture])
    assert torch.equal(found.masks[0], wanted.masks[0])
    assert torch.equal(found.confidence[0], wanted.confidence[0])
    assert not caplog.records


def test_retired_classes_are_left_out_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    method = started()
    method.learn(partly([1, 2]))
    method.remember(squares(2, [8], known=3))  # some annotated background stays
    method.retire_classes(["red"])
    found = method.predict([square(1, 60).image])
    assert not bool((found.masks[0] == 1).any())
    assert not caplog.records
    assert agrees(method, square(1, 60).image)


# ---- the cache


CHANGES: dict[str, Callable[[ICaRL], object]] = {
    "step": lambda m: m.step(m.forward(square(2, 1).image[None]).square().sum()),
    "learn": lambda m: m.learn(partly([3, 4])),
    "remember": lambda m: m.remember(squares(2, [30], known=3)),
    "forget": lambda m: m.forget([m.memory_.ids()[-1]]),
    "retire_classes": lambda m: m.retire_classes(["blue"]),
    "add_classes": lambda m: m.add_classes(["green"]),
}


@pytest.mark.parametrize("verb", CHANGES)
def test_every_verb_that_changes_something_drops_the_means(verb: str) -> None:
    method = started(capacity=20)
    method.learn(partly([1, 2]))
    first = method.means()
    assert method.means() is first, "asked twice, computed once"
    CHANGES[verb](method)
    now = method.means()
    assert now is not first
    assert not torch.equal(now, first)
    method._means = None
    assert torch.equal(now, method.means())
    assert agrees(method, square(1, 60).image)


def test_a_batch_that_says_nothing_keeps_the_means() -> None:
    method = started()
    method.forget(method.memory_.ids()[1:])
    method.remember(squares(1, [3], complete=[1]))
    before = method.means()
    found = method.learn(Batch((nothing_said(1, void=True),)))
    assert found.updated, "exemplars are replayed beside it"
    assert method.means() is not before
    method.forget(method.memory_.ids())
    empty = method.means()
    assert not method.learn(Batch((nothing_said(1, void=True),))).updated
    assert method.means() is empty


def test_means_are_no_state(tmp_path: Path) -> None:
    method = started()
    method.learn(partly([1, 2]))
    method.save(tmp_path / "without")
    before = snapshot(method)
    picture = square(2, 60).image
    shown = method.predict([picture])
    method.save(tmp_path / "with")
    assert same(before, snapshot(method))
    for name in ("without", "with"):
        again = load(tmp_path / name)
        assert isinstance(again, ICaRL)
        found = again.predict([picture])
        assert torch.equal(found.masks[0], shown.masks[0])
        assert torch.equal(found.confidence[0], shown.confidence[0])
    names = [sorted(p.name.split(".")[0] for p in (tmp_path / n).iterdir()) for n in ("without", "with")]
    assert names[0] == names[1]


def test_a_saved_run_goes_on_choosing_as_if_never_stopped(tmp_path: Path) -> None:
    through, stopped = started(network="tiny_bn"), started(network="tiny_bn")
    for method in (through, stopped):
        method.learn(partly([1, 2]))
    stopped.save(tmp_path)
    again = load(tmp_path)
    assert isinstance(again, ICaRL)
    assert again.teacher is not None
    for k in range(3, 9):
        for method in (through, again):
            method.learn(partly([k, k + 20]))
        assert again.memory_.ids() == through.memory_.ids()
    assert same(snapshot(through), snapshot(again))
    assert torch.equal(through.means(), again.means())


# ---- the loss is lwf's


@pytest.mark.parametrize("view", ["ignore", "background"])
def test_it_learns_what_lwf_learns_from_the_same_memory(view: str) -> None:
    methods: list[Method] = []
    for cls in (ICaRL, LwF):
        segmenter = Segmenter.create("tiny", weights=None, classes=["red"], head="linear", seed=3)
        methods.append(cls(segmenter, memory=Memory(capacity=4, policy="herding"), seed=5, lr=0.05, view=view))  # type: ignore[call-arg]
    for method in methods:
        method.remember(squares(1, range(4), complete=[1]))
        method.add_classes(["blue"])
        for k in range(3):
            method.learn(partly([k, k + 9]))
        method.retire_classes(["red"])
        method.learn(partly([20]))
    assert same(snapshot(methods[0]), snapshot(methods[1]))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="view"):
        make(ICaRL, view="latent")


def test_what_an_experiment_must_know() -> None:
    assert (ICaRL.wants_teacher, ICaRL.base_loss, ICaRL.default_policy) == (True, "sigmoid", "herding")
    assert ICaRL.tunable == {"view": ("ignore", "background")}


# A subclass is no plug-in, and `background` tells a stroke's surroundings to be background.
EXCEPT = ("is_complete_as_a_plugin", "a_stroke_never_pushes_its_object_away")


@pytest.mark.parametrize("check", [c for c in METHOD_CHECKS if c.__name__ not in EXCEPT], ids=lambda c: c.__name__)
def test_the_contract_holds_in_the_other_view(check: Callable[[type[Method]], None]) -> None:
    class Other(ICaRL):
        """In the other view."""

        def __init__(self, segmenter: Segmenter, **given: Any) -> None:
            super().__init__(segmenter, **({"view": "background"} | given))

    check(Other)
