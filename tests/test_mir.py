"""mir: whole updates and the choice against a slow oracle in float64, what is retrieved, what is left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_update import State, after_sgd, assert_close, gradient, mean_over
from torch import Tensor, nn

from segstream.augment import Augment
from segstream.checks import METHOD_CHECKS
from segstream.checks.squares import make, nothing_said, same, snapshot, square, squares
from segstream.classes import BACKGROUND, UNLABELED
from segstream.memory import Memory
from segstream.method import Method
from segstream.methods.er import ER
from segstream.methods.mir import MIR, moved, steepest
from segstream.models import Segmenter
from segstream.types import Batch, Sample

VIEWS = ["ignore", "background"]


@dataclass(kw_only=True, eq=False)
class InBackground(MIR):
    """view"""

    view: Literal["ignore", "background"] = "background"


# ---- the choice


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, float("-inf")]), max_size=12), st.integers(0, 14))
@settings(deadline=None, max_examples=50, derandomize=True)
def test_the_steepest_come_first_and_of_equal_ones_the_first(rises: list[float], n: int) -> None:
    left, expected = dict(enumerate(rises)), []
    while left and len(expected) < n:
        best = max(left.values())
        expected.append(next(i for i, r in left.items() if r == best))
        del left[expected[-1]]
    assert steepest(rises, n) == expected


def test_the_virtual_step_comes_back_bit_for_bit_even_after_an_error() -> None:
    parameters = [nn.Parameter(torch.randn(50)), nn.Parameter(torch.randn(3, 3) * 1e6)]
    before, places = [p.detach().clone() for p in parameters], [p.data_ptr() for p in parameters]
    for error in (False, True):
        try:
            with moved(parameters, [torch.randn(50), torch.randn(3, 3)], lr=0.3):
                assert not any(map(torch.equal, before, parameters))
                if error:
                    raise RuntimeError("a pass failed")
        except RuntimeError:
            assert error
        assert all(map(torch.equal, before, parameters))
        assert places == [p.data_ptr() for p in parameters]


# ---- whole updates


def stepped(segmenter: Segmenter, slope: State, lr: float) -> Segmenter:
    """A copy in double precision, one plain step further: no momentum, no decay."""
    twin = copy.deepcopy(segmenter).double()
    with torch.no_grad():
        for name, p in twin.named_parameters():
            p -= lr * slope[name]
    return twin


def losses(segmenter: Segmenter, samples: Sequence[Sample], view: str) -> list[float]:
    """One pass over all of them in training mode, so that they share the statistics of a batch; image by image."""
    twin = copy.deepcopy(segmenter).double().train()
    with torch.no_grad():
        logits = twin(torch.stack([s.image for s in samples]))
        return [float(mean_over(logits[i : i + 1], [s], view)) for i, s in enumerate(samples)]


def expect(method: MIR, batch: Batch) -> tuple[State, State, list[int]]:
    """What one update makes of the method, and which of the candidates it replays."""
    dice = torch.Generator()
    dice.set_state(method.generator.get_state())
    candidates = method.memory_.draw(method.candidates, generator=dice).samples
    chosen = list(range(len(candidates)))
    if len(candidates) > len(batch):
        ahead = stepped(method.segmenter, gradient(method.segmenter, batch.samples, method.view), method.lr)
        now, then = (losses(at, candidates, method.view) for at in (method.segmenter, ahead))
        rises = [b - a for a, b in zip(now, then, strict=True)]
        chosen = sorted(chosen, key=lambda i: rises[i], reverse=True)[: len(batch)]
    joint = [*batch.samples, *(candidates[i] for i in chosen)]
    return *after_sgd(method, gradient(method.segmenter, joint, method.view)), chosen


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("network", ["tiny", "tiny_bn"])
def test_whole_updates_against_the_oracle(view: str, network: str) -> None:
    method = make(MIR, network=network, view=view, weight_decay=0.01, candidates=5)
    assert isinstance(method, MIR)
    method.add_classes(["blue"])
    choices = []
    for k in range(5):
        batch = squares(2, [k, k + 9], known=3, rest=UNLABELED, complete=[2])
        parameters, momentum, chosen = expect(method, batch)
        method.learn(batch)
        assert_close(method, parameters, momentum)
        choices.append(chosen)
    assert any(sorted(chosen) != [0, 1] for chosen in choices)  # not just those drawn first
    method.forget(method.memory_.ids()[1:])
    for exemplars in (1, 0):
        batch = squares(2, [70, 71], known=3, rest=UNLABELED, complete=[2])
        parameters, momentum, chosen = expect(method, batch)
        report = method.learn(batch)
        assert_close(method, parameters, momentum)
        assert report.replayed == len(chosen) == exemplars
        method.forget(method.memory_.ids())
    assert method.updates == 7


@pytest.mark.parametrize("view", VIEWS)
def test_ratings_against_the_oracle(view: str) -> None:
    method = make(MIR, network="tiny_bn", view=view)
    assert isinstance(method, MIR)
    batch = squares(1, [20, 21], rest=UNLABELED)
    old = [square(1, k, rest=UNLABELED if k % 2 else BACKGROUND) for k in range(5)]
    ahead = stepped(method.segmenter, gradient(method.segmenter, batch.samples, view), method.lr)
    now, then = (losses(at, old, view) for at in (method.segmenter, ahead))
    assert method.losses(method.join(old)).tolist() == pytest.approx(now, rel=1e-5)
    assert method.rises(method.join(batch), method.join(old)) == pytest.approx(
        [b - a for a, b in zip(now, then, strict=True)], rel=1e-3, abs=1e-6
    )


# ---- what is retrieved


def seen_by(method: Method) -> list[tuple[Tensor, bool]]:
    """The images of each pass from now on, and whether it was beside the update."""
    seen: list[tuple[Tensor, bool]] = []
    forward: Callable[..., Tensor] = method.forward

    def spy(images: Tensor, *, bare: bool = False) -> Tensor:
        seen.append((images.clone(), bare))
        return forward(images, bare=bare)

    method.forward = spy  # type: ignore[method-assign]
    return seen


def has(images: Tensor, image: Tensor) -> bool:
    return any(torch.equal(image, other) for other in images)


def test_what_the_batch_contradicts_is_retrieved() -> None:
    """Red squares are class 1 in memory; a batch calls red ones blue. Green squares are not concerned."""
    segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red", "blue", "green"], head="linear", seed=3)
    method = MIR(segmenter, memory=Memory(capacity=16), seed=5, lr=0.1)
    red, green = (squares(slot, range(12), rest=UNLABELED).samples for slot in (1, 3))
    for k in range(4, 10):
        method.learn(Batch((red[k], green[k])))
    method.forget(method.memory_.ids())
    method.remember(Batch((*green, *red[:4])))
    wrong = [square(1, 90 + k, rest=UNLABELED) for k in range(4)]
    batch = Batch(tuple(Sample(s.image, s.mask.masked_fill(s.mask == 1, 2), id=s.id, known=4) for s in wrong))
    seen = seen_by(method)
    report = method.learn(batch)
    learned, bare = seen[-1]
    assert not bare
    assert all(torch.equal(learned[i], s.image) for i, s in enumerate(batch))
    assert all(has(learned[4:], s.image) for s in red[:4])
    assert (len(learned), report.replayed, report.drawn) == (8, 4, {})


def test_the_crops_that_were_rated_are_learned() -> None:
    method = make(MIR, augment=Augment(crop=16))
    seen = seen_by(method)
    method.learn(squares(1, [20, 21], complete=[1]))
    (fresh, _), (now, _), (then, _), (learned, _) = seen
    assert [bare for _, bare in seen] == [True, True, True, False]
    assert torch.equal(now, then)
    assert torch.equal(fresh, learned[:2])
    assert len(learned) == 4
    assert all(has(now, image) for image in learned[2:])


def test_without_a_choice_nothing_is_rated() -> None:
    method = make(MIR, capacity=3)
    seen = seen_by(method)
    assert method.learn(squares(1, range(20, 23))).replayed == 3
    assert [(len(images), bare) for images, bare in seen] == [(6, False)]
    assert make(MIR, candidates=2).learn(squares(1, range(20, 23))).replayed == 2


def test_what_does_not_enter_ranks_last() -> None:
    method = make(MIR)
    assert isinstance(method, MIR)
    samples = [square(1, 30), nothing_said(31, void=False), square(1, 32), nothing_said(33, void=True)]
    fresh, old = method.join(squares(1, [50])), method.join(samples)
    rises = method.rises(fresh, old)
    assert [r == -float("inf") for r in rises] == [False, True, False, True]
    method.view = "background"
    assert [r == -float("inf") for r in method.rises(fresh, old)] == [False, False, False, True]


def test_both_ratings_drop_out_the_same() -> None:
    """Where the virtual step is too short to move a weight, nothing rises, whatever a dropout layer draws."""
    method = make(MIR, lr=1e-30)
    method.segmenter.body.decoder.append(nn.Dropout(0.5))  # type: ignore[operator]
    assert isinstance(method, MIR)
    fresh, old = method.join(squares(1, [50])), method.join(squares(1, range(4)).samples)
    assert method.rises(fresh, old) == [0.0] * 4
    method.lr = 0.05
    assert len(set(method.rises(fresh, old))) == 4


def test_rating_one_pass_or_image_by_image_is_the_same_without_batch_statistics() -> None:
    method = make(MIR)
    assert isinstance(method, MIR)
    samples = squares(1, range(4)).samples
    whole = method.losses(method.join(samples))
    each = torch.cat([method.losses(method.join([s])) for s in samples])
    assert whole.dtype == torch.float64
    assert torch.allclose(whole, each, rtol=1e-6)
    assert not whole.requires_grad


# ---- what is left alone


def test_batchnorm_moves_once_and_by_what_is_learned() -> None:
    method = make(MIR, network="tiny_bn")
    for k in range(2):
        seen = seen_by(method)
        before = copy.deepcopy(method.segmenter).train()
        method.learn(squares(1, [20 + k, 30 + k]))
        assert [bare for _, bare in seen[-4:]] == [True, True, True, False]
        before(seen[-1][0])
        expected, found = dict(before.named_buffers()), dict(method.segmenter.named_buffers())
        assert any("running" in name for name in found)
        assert all(torch.equal(expected[name], found[name]) for name in found)
    assert not method.segmenter.training


def test_frozen_batchnorm_stays() -> None:
    method = make(MIR, network="tiny_bn", batchnorm="frozen")
    before = {n: b.clone() for n, b in method.segmenter.named_buffers()}
    assert method.learn(squares(1, [20, 21])).updated
    assert all(torch.equal(before[n], b) for n, b in method.segmenter.named_buffers())


def test_rating_leaves_network_and_momentum_as_they_were() -> None:
    method = make(MIR, network="tiny_bn")
    assert isinstance(method, MIR)
    method.learn(squares(1, [20, 21]))
    before, places = snapshot(method), {n: p.data_ptr() for n, p in method.segmenter.named_parameters()}
    method.rises(method.join(squares(1, [50, 51])), method.join(squares(1, range(4))))
    method.generator.set_state(before["generator"])
    assert same(before, snapshot(method))
    assert places == {n: p.data_ptr() for n, p in method.segmenter.named_parameters()}
    assert all(p.requires_grad for p in method.segmenter.parameters())


@pytest.mark.parametrize("void", [True, False])
def test_where_nothing_of_the_batch_enters_nothing_changes(void: bool) -> None:
    method = make(MIR, network="tiny_bn")
    method.learn(squares(1, [20, 21]))
    before = snapshot(method)
    report = method.learn(Batch((nothing_said(0, void=void), nothing_said(1, void=True))))
    assert not report.updated
    assert same(before, snapshot(method))
    assert method.updates == 1


def test_what_is_chosen_moves_no_generator() -> None:
    states = []
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    for lr in (0.001, 0.5):  # other rises, another choice
        method = make(MIR, network="tiny_bn", lr=lr)
        method.learn(squares(1, [20, 21]))
        states.append(method.generator.get_state())
    assert torch.equal(*states)
    assert torch.equal(before, torch.random.get_rng_state())


def test_over_an_empty_memory_it_is_er() -> None:
    found = []
    for cls in (MIR, ER):
        method = make(cls, network="tiny_bn")
        method.forget(method.memory_.ids())
        assert method.learn(squares(1, [20, 21])).replayed == 0
        found.append({k: v for k, v in snapshot(method).items() if k.startswith(("weights", "optimiser"))})
    assert same(*found)


def test_only_what_is_trainable_moves() -> None:
    segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red"], head="linear", trainable="head", seed=3)
    method = MIR(segmenter, memory=Memory(capacity=4), seed=5, lr=0.05)
    method.remember(squares(1, range(4), complete=[1]))
    before = {n: v.clone() for n, v in segmenter.state_dict().items()}
    assert method.learn(squares(1, [20])).updated
    changed = {n for n, v in segmenter.state_dict().items() if not torch.equal(before[n], v)}
    assert changed == {"head.weight", "head.bias"}


@pytest.mark.parametrize("given_", [{"view": "latent"}, {"candidates": 0}])
def test_impossible_settings_are_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given_))):
        make(MIR, **given_)
    assert MIR.tunable == {"view": ("ignore", "background")}


BOTH_VIEWS = [
    check
    for check in METHOD_CHECKS
    if check.__name__ not in ("is_complete_as_a_plugin", "a_stroke_never_pushes_its_object_away")  # of `ignore` only
]


@pytest.mark.parametrize("check", BOTH_VIEWS, ids=lambda check: check.__name__)
def test_the_contract_in_the_other_view(check: Callable[[type[Method]], None]) -> None:
    check(InBackground)
