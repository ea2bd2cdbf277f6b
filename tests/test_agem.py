"""agem: the projection by hand and against numpy, whole updates against a slow oracle in float64, what it leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_update import State, after_sgd, assert_close, contradicting, gradient, mean_loss, product
from torch import Tensor

from segstream.augment import Augment
from segstream.checks import METHOD_CHECKS
from segstream.checks.squares import make, nothing_said, same, snapshot, square, squares
from segstream.classes import UNLABELED
from segstream.functional.gradients import NOTHING, dot, without_conflict
from segstream.memory import Memory
from segstream.method import Method
from segstream.methods.agem import AGEM
from segstream.methods.finetune import Finetune
from segstream.models import Segmenter
from segstream.types import Batch, Sample

VIEWS = ["ignore", "background"]


@dataclass(kw_only=True, eq=False)
class InBackground(AGEM):
    """view"""

    view: Literal["ignore", "background"] = "background"


# ---- the projection


def test_projection_by_hand() -> None:
    g, reference = [torch.tensor([3.0]), torch.tensor([[-4.0]])], [torch.tensor([0.0]), torch.tensor([[2.0]])]
    assert [t.tolist() for t in without_conflict(g, reference)] == [[3.0], [[0.0]]]
    assert [t.tolist() for t in g] == [[3.0], [[-4.0]]]  # the inputs stay
    agreeing = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    assert all(map(torch.equal, without_conflict(agreeing, reference), agreeing))
    right_angle = [torch.tensor([3.0]), torch.tensor([[0.0]])]
    assert all(map(torch.equal, without_conflict(right_angle, reference), right_angle))


def test_a_reference_that_is_next_to_nothing_asks_for_nothing() -> None:
    g = [torch.tensor([-1.0, 2.0])]
    for length, projected in ((0.0, False), (0.99e-6, False), (1.01e-6, True)):
        assert (length**2 < NOTHING) is not projected
        found = without_conflict(g, [torch.tensor([length, 0.0])])
        assert torch.equal(found[0], g[0]) is not projected
    assert torch.isfinite(found[0]).all()


def test_products_are_added_in_double_precision() -> None:
    big = torch.tensor([1e8, 1.0, -1e8])
    assert dot([big], [torch.ones(3)]) == 1.0  # in float32 the 1 is lost
    assert dot([], []) == 0.0
    with pytest.raises(ValueError, match="shorter"):
        dot([big], [])


numbers = st.lists(st.floats(-10, 10, width=32), min_size=6, max_size=6)


@given(numbers, numbers)
@settings(deadline=None, max_examples=50, derandomize=True)
def test_projection_against_numpy(a: list[float], b: list[float]) -> None:
    g, r = np.array(a), np.array(b)
    along, square_ = float(g @ r), float(r @ r)
    expected = g - along / square_ * r if along < 0 and square_ >= NOTHING else g
    split = [[torch.tensor(v[:2]), torch.tensor(v[2:]).view(2, 2)] for v in (a, b)]
    found = without_conflict(*split)
    assert [list(t.shape) for t in found] == [[2], [2, 2]]
    flat = torch.cat([t.flatten() for t in found]).double().numpy()
    np.testing.assert_allclose(flat, expected, atol=1e-4 * (1 + np.abs(expected).max()))
    assert flat @ r >= -1e-4 * (1 + np.abs(flat).max() * np.abs(r).max())  # nothing is left that works against g_ref


# ---- whole updates


def expect(method: AGEM, batch: Batch) -> tuple[State, State, bool]:
    """What one update makes of the method, and whether the gradients were in conflict."""
    dice = torch.Generator()
    dice.set_state(method.generator.get_state())
    replay = method.memory_.draw(len(batch), generator=dice).samples
    g = gradient(method.segmenter, batch.samples, method.view)
    if not replay:
        return *after_sgd(method, g), False
    r = gradient(method.segmenter, replay, method.view)
    conflict = product(g, r) < 0
    if conflict:
        share = product(g, r) / product(r, r)
        g = {n: g[n] - share * r[n] for n in g}
    return *after_sgd(method, g), conflict


def grown(network: str = "tiny_bn", **given: Any) -> Method:
    method = make(AGEM, network=network, **given)
    method.add_classes(["blue"])
    return method


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("network", ["tiny", "tiny_bn"])
def test_whole_updates_against_the_oracle(view: str, network: str) -> None:
    method = make(AGEM, network=network, view=view, weight_decay=0.01)
    assert isinstance(method, AGEM)
    method.learn(contradicting())  # so that there is momentum, and something to disagree about
    method.add_classes(["blue"])
    conflicts = []
    for k in range(3):
        batch = squares(2, [k, k + 9, k + 20], known=3, rest=UNLABELED, complete=[2])
        parameters, momentum, conflict = expect(method, batch)
        method.learn(batch)
        assert_close(method, parameters, momentum)
        conflicts.append(conflict)
    assert any(conflicts)
    method.forget(method.memory_.ids())
    batch = squares(2, [70, 71], known=3, rest=UNLABELED, complete=[2])
    parameters, momentum, _ = expect(method, batch)
    report = method.learn(batch)
    assert_close(method, parameters, momentum)
    assert (report.updated, report.replayed, method.updates) == (True, 0, 5)


# ---- what is applied


def applied(method: Method) -> list[list[Tensor]]:
    """Each list of gradients that reaches the optimiser from now on."""
    seen: list[list[Tensor]] = []
    apply: Callable[[Sequence[Tensor]], None] = method.apply

    def spy(gradients: Sequence[Tensor]) -> None:
        seen.append([g.clone() for g in gradients])
        apply(gradients)

    method.apply = spy  # type: ignore[method-assign]
    return seen


def test_what_works_against_the_memory_is_taken_out() -> None:
    method = make(AGEM, capacity=4)
    batch = contradicting()
    g = gradient(method.segmenter, batch.samples, "ignore")
    r = gradient(method.segmenter, list(method.memory_), "ignore")
    assert product(g, r) < -0.5 * (product(g, g) * product(r, r)) ** 0.5  # nearly opposite
    seen = applied(method)
    method.learn(batch)
    found = dict(zip(method.optimiser.named(), (s.double() for s in seen[0]), strict=True))
    length = (product(found, found) * product(r, r)) ** 0.5
    assert abs(product(found, r)) < 1e-5 * length
    rest = {n: g[n] - product(g, r) / product(r, r) * r[n] for n in g}
    assert all(torch.allclose(found[n], rest[n], atol=1e-6) for n in rest)
    assert product(rest, rest) < 0.75 * product(g, g)


def test_without_a_conflict_the_memory_leaves_no_trace() -> None:
    """The memory agrees with the batch: what remains is fine-tuning on the batch alone, bit for bit."""
    learned = []
    for cls in (AGEM, Finetune):
        method = make(cls, network="tiny_bn", capacity=4)
        method.learn(squares(1, range(20, 24), complete=[1]))
        learned.append({k: v for k, v in snapshot(method).items() if k.startswith(("weights", "optimiser"))})
    assert same(*learned)


def test_a_memory_that_the_network_knows_by_heart_is_not_divided_by() -> None:
    method = make(AGEM, capacity=1)
    method.forget(method.memory_.ids())
    red = square(1, 0, rest=UNLABELED)
    method.remember(Batch((red,)))
    with torch.no_grad():
        method.segmenter.head.bias[1] = 17.0  # type: ignore[index]
    batch = Batch((Sample(red.image, torch.zeros_like(red.mask), id="all background", known=2),))
    g = gradient(method.segmenter, batch.samples, "ignore")
    r = gradient(method.segmenter, [red], "ignore")
    assert 0 < product(r, r) < NOTHING
    assert product(g, r) < 0
    seen = applied(method)
    method.learn(batch)
    for name, value in zip(method.optimiser.named(), seen[0], strict=True):
        assert torch.allclose(value.double(), g[name], atol=1e-6, rtol=1e-5), name
    assert method.updates == 1


def test_the_reference_is_for_the_direction_only() -> None:
    """The loss and the pixels reported are the batch's; the exemplars are counted, not learned."""
    method = grown()
    batch = squares(2, [1, 2], known=3, rest=UNLABELED, complete=[2])
    report = method.learn(batch)
    assert report.labelled == sum(int((s.mask == 2).sum()) for s in batch)
    assert (report.replayed, report.latent, report.stored, report.memory) == (2, 0, 2, 6)
    loss = mean_loss(grown().segmenter.train(), batch.samples, "ignore")
    assert report.loss == pytest.approx(loss.item(), rel=1e-5)


# ---- what is left alone


def test_batchnorm_moves_once_and_by_the_batch() -> None:
    method = grown()
    for k in range(2):
        batch = squares(2, [k, k + 9], known=3, rest=UNLABELED, complete=[2])
        twin = copy.deepcopy(method.segmenter).train()
        twin(torch.stack([s.image for s in batch]))
        method.learn(batch)
        expected, found = dict(twin.named_buffers()), dict(method.segmenter.named_buffers())
        assert any("running" in name for name in found)
        assert all(torch.equal(expected[name], found[name]) for name in found)
    assert not method.segmenter.training


def test_frozen_batchnorm_stays() -> None:
    method = grown(batchnorm="frozen")
    before = {n: b.clone() for n, b in method.segmenter.named_buffers()}
    assert method.learn(squares(2, [1, 2], known=3)).updated
    assert all(torch.equal(before[n], b) for n, b in method.segmenter.named_buffers())


@pytest.mark.parametrize("void", [True, False])
def test_where_nothing_of_the_batch_enters_nothing_changes(void: bool) -> None:
    method = grown()
    method.learn(squares(2, [1, 2], known=3))
    before = snapshot(method)
    report = method.learn(Batch((nothing_said(0, void=void), nothing_said(1, void=True))))
    assert not report.updated
    assert report.memory == len(method.memory_) == 6
    assert same(before, snapshot(method))
    assert method.updates == 1


def test_the_view_says_what_an_unlabelled_pixel_is() -> None:
    method = grown(view="background")
    assert method.learn(Batch((nothing_said(0, void=False),))).updated
    with pytest.raises(ValueError, match="view"):
        make(AGEM, view="latent")
    assert AGEM.tunable == {"view": ("ignore", "background")}


def test_global_generators_stay_and_crops_come_from_the_seed() -> None:
    torch.manual_seed(7)
    found = []
    for noise in (0, 3):
        torch.randn(noise)
        before = torch.random.get_rng_state()
        method = grown(augment=Augment(crop=16))
        method.learn(squares(2, [1, 2], known=3, rest=UNLABELED, complete=[2]))
        assert torch.equal(before, torch.random.get_rng_state())
        found.append(snapshot(method))
    assert same(*found)


def test_only_what_is_trainable_moves() -> None:
    segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red"], head="linear", trainable="head", seed=3)
    method = AGEM(segmenter, memory=Memory(capacity=4), seed=5, lr=0.05)
    method.remember(squares(1, range(4), complete=[1]))
    before = {n: v.clone() for n, v in segmenter.state_dict().items()}
    assert method.learn(contradicting()).updated
    moved = {n for n, v in segmenter.state_dict().items() if not torch.equal(before[n], v)}
    assert moved == {"head.weight", "head.bias"}


BOTH_VIEWS = [
    check
    for check in METHOD_CHECKS
    if check.__name__ not in ("is_complete_as_a_plugin", "a_stroke_never_pushes_its_object_away")  # of `ignore` only
]


@pytest.mark.parametrize("check", BOTH_VIEWS, ids=lambda check: check.__name__)
def test_the_contract_in_the_other_view(check: Callable[[type[Method]], None]) -> None:
    check(InBackground)
