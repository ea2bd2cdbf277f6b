"""The objective against slow float64 oracles, in both of its forms."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

import segstream.functional
from segstream.functional import objective, objective_machine, objective_plain
from segstream.functional.objective import Objective, cross_entropy, em_objective

FORMS = ("quad", "plain")
# B, K, h, w, H, W
SHAPES = [
    (2, 5, 6, 7, 6, 7),  # ratio 1
    (2, 7, 5, 4, 10, 8),
    (2, 21, 5, 4, 20, 16),
    (1, 6, 3, 4, 24, 32),
    (1, 4, 2, 3, 32, 48),
    (2, 7, 5, 3, 17, 23),  # no whole number
    (1, 9, 7, 6, 9, 31),
    (1, 3, 9, 9, 4, 5),  # below 1
    (1, 5, 3, 12, 11, 5),  # above in one direction, below in the other
    (1, 2, 1, 1, 1, 1),
    (2, 21, 1, 1, 9, 9),
    (1, 5, 1, 6, 7, 3),
    (1, 6, 2, 2, 41, 37),  # many tiles in a quad
    (1, 1, 3, 3, 12, 12),
    (1, 16, 4, 4, 16, 16),  # whole vectors
    (1, 17, 4, 4, 16, 16),
    (1, 1000, 3, 3, 12, 12),
]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(objective.FORM, "plain" if request.param == "plain" else "auto")
    return str(request.param)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def problem(shape: tuple[int, ...], *, scale: float = 4.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    b, k, h, w, height, width = shape
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(b, k, h, w, generator=g) * scale
    masks = torch.randint(-2, k, (b, height, width), generator=g)
    kind = torch.rand(b, height, width, generator=g)
    masks[kind < 0.3] = -1
    masks[(kind > 0.3) & (kind < 0.5)] = 0
    excluded = torch.rand(b, 2, k, generator=g) < 0.5
    excluded[:, :, 0] = False
    return logits, masks.to(torch.int16), excluded


def dense(logits: Tensor, masks: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log p [B, K, H, W] in float64, whether a class is possible, best possible class and its p [B, H, W]."""
    full = F.interpolate(logits.double(), masks.shape[1:], mode="bilinear", align_corners=False)
    log_p = full.log_softmax(1)
    possible = ~torch.where((masks == 0)[:, None], excluded[:, 1, :, None, None], excluded[:, 0, :, None, None])
    best, slot = log_p.detach().masked_fill(~possible, -math.inf).max(1)
    return log_p, possible, slot, best.exp()


def clear_threshold(p: Tensor, wish: float = 0.5) -> float:
    """The middle of the widest gap around `wish`: no p is near it."""
    inside = p[(p > wish - 0.2) & (p < wish + 0.2)].flatten()
    ends = torch.tensor([wish - 0.2, wish + 0.2], dtype=p.dtype)
    edges = torch.cat([ends, inside]).sort().values
    widest = int(edges.diff().argmax())
    return float((edges[widest] + edges[widest + 1]) / 2)


def oracle(
    logits: Tensor, masks: Tensor, excluded: Tensor, *, threshold: float, latent_weight: float, normalise: str = "joint"
) -> tuple[float, Tensor, dict[str, list[float]]]:
    """Loss and sums by a loop over pixels, the gradient by autograd; all in float64 at full size."""
    leaf = logits.double().detach().requires_grad_()
    log_p, possible, slot, p_best = dense(leaf, masks, excluded)
    values = log_p.detach()
    k = logits.shape[1]
    found: dict[str, list[float]] = {n: [0.0] * k for n in ("kept", "candidates", "confidence_sum", "confidence_count")}
    label_terms, latent_terms, counts = [], [], {"labelled": 0, "latent": 0}
    for b in range(masks.shape[0]):
        for i in range(masks.shape[1]):
            for j in range(masks.shape[2]):
                mask, here = int(masks[b, i, j]), possible[b, :, i, j]
                if mask == -2:
                    continue
                if mask >= 0:
                    found["confidence_sum"][mask] += math.exp(float(values[b, mask, i, j]))
                    found["confidence_count"][mask] += 1
                if mask >= 1 or int(here.sum()) == 1:
                    counts["labelled"] += 1
                    label_terms.append(log_p[b, max(mask, 0), i, j])
                    continue
                counts["latent"] += 1
                best = int(slot[b, i, j])
                found["candidates"][best] += 1
                if float(p_best[b, i, j]) > threshold:
                    found["kept"][best] += 1
                    label_terms.append(log_p[b, best, i, j])
                latent_terms.append(log_p[b, here, i, j].logsumexp(0))
    zero = leaf.sum() * 0
    n_label = n_latent = len(latent_terms) + counts["labelled"]
    if normalise == "per_term":
        n_label, n_latent = len(label_terms), len(latent_terms)
    loss = zero - sum(label_terms, zero) / max(1, n_label) - latent_weight * sum(latent_terms, zero) / max(1, n_latent)
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad, {**found, **{n: [c] for n, c in counts.items()}}


def run(logits: Tensor, masks: Tensor, excluded: Tensor, **settings: Any) -> tuple[Objective, Tensor]:
    leaf = logits.clone(memory_format=torch.preserve_format).requires_grad_()
    found = em_objective(leaf, masks, excluded, **settings)
    found.loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == logits.dtype
    return found, leaf.grad


def bits(found: Objective, gradient: Tensor) -> tuple[bytes, ...]:
    values = (found.loss, found.kept, found.candidates, found.confidence_sum, found.confidence_count, gradient)
    return tuple(v.detach().contiguous().numpy().tobytes() for v in values)


def compare(found: Objective, gradient: Tensor, expected: tuple[float, Tensor, dict[str, list[float]]]) -> None:
    loss, slope, sums = expected
    assert found.loss.item() == pytest.approx(loss, rel=1e-5, abs=1e-7)
    assert (gradient - slope).norm() <= 1e-5 * slope.norm() + 1e-8
    assert (gradient - slope).abs().max() <= 1e-5 * slope.abs().max() + 1e-8
    assert found.kept.tolist() == sums["kept"]
    assert found.candidates.tolist() == sums["candidates"]
    assert found.confidence_count.tolist() == sums["confidence_count"]
    assert found.confidence_sum.tolist() == pytest.approx(sums["confidence_sum"], rel=1e-5, abs=1e-5)
    assert [found.labelled.item(), found.latent.item()] == [*sums["labelled"], *sums["latent"]]
    assert found.nonvoid.item() == found.labelled.item() + found.latent.item()
    assert found.confidence_sum.dtype == torch.float64


def check(shape: tuple[int, ...], *, scale: float = 4.0, normalise: str = "joint", seed: int = 0) -> None:
    given = problem(shape, scale=scale, seed=seed)
    threshold = clear_threshold(dense(*given)[3])
    arguments: dict[str, Any] = {"threshold": threshold, "latent_weight": 0.3, "normalise": normalise}
    compare(*run(*given, **arguments), oracle(*given, **arguments))


def hand() -> tuple[Tensor, Tensor, Tensor]:
    """p = 1/8, 2/8, 5/8 at four pixels: labelled 1, background that may be 0 or 1, unlabelled 0 or 2, void."""
    logits = torch.tensor([1.0, 2.0, 5.0]).log().reshape(1, 3, 1, 1)
    masks = torch.tensor([[[1, 0], [-1, -2]]], dtype=torch.int16)
    excluded = torch.tensor([[[False, True, False], [False, False, True]]])
    return logits, masks, excluded


@pytest.mark.parametrize("normalise", ["joint", "per_term"])
def test_two_by_two_by_hand(form: str, normalise: str) -> None:
    found, gradient = run(*hand(), threshold=0.6, latent_weight=0.5, normalise=normalise)
    labels = -math.log(2 / 8) - math.log(5 / 8)  # the labelled one and the unlabelled one, kept as 2
    latent = -math.log(6 / 8) - math.log(3 / 8)
    n, m = (3, 3) if normalise == "joint" else (2, 2)
    assert found.loss.item() == pytest.approx(labels / n + 0.5 * latent / m, rel=1e-6)
    p = torch.tensor([1, 2, 5]) / 8
    unlabelled, background = torch.tensor([1, 0, 5]) / 6, torch.tensor([1, 2, 0]) / 3
    label_slope = 2 * p - torch.tensor([0, 1, 1])
    expected = label_slope / n + 0.5 * (2 * p - unlabelled - background) / m
    torch.testing.assert_close(gradient.flatten(), expected, rtol=1e-5, atol=1e-6)
    assert (found.labelled.item(), found.latent.item(), found.nonvoid.item()) == (1, 2, 3)
    assert found.kept.tolist() == [0, 0, 1]
    assert found.candidates.tolist() == [0, 1, 1]
    assert found.confidence_sum.tolist() == pytest.approx([1 / 8, 2 / 8, 0])
    assert found.confidence_count.tolist() == [1, 1, 0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_oracle(form: str, shape: tuple[int, ...]) -> None:
    check(shape)


@pytest.mark.parametrize("normalise", ["joint", "per_term"])
@pytest.mark.parametrize("scale", [0.01, 30.0, 60.0])
def test_equals_oracle_at_any_scale(form: str, scale: float, normalise: str) -> None:
    """60: logits of a linear head up to 200; 30: quads for the short way beside quads for the long one."""
    check((2, 7, 5, 4, 17, 12), scale=scale, normalise=normalise, seed=3)


def test_linear_head_up_to_200(form: str) -> None:
    logits, masks, excluded = problem((1, 12, 4, 4, 16, 13), seed=5)
    logits = logits / logits.abs().max() * 200
    arguments: dict[str, Any] = {"threshold": clear_threshold(dense(logits, masks, excluded)[3]), "latent_weight": 0.3}
    compare(*run(logits, masks, excluded, **arguments), oracle(logits, masks, excluded, **arguments))


def test_possible_classes_far_below_the_others(form: str) -> None:
    logits = torch.tensor([0.0, -3.0, 150.0]).reshape(1, 3, 1, 1).expand(1, 3, 2, 2).contiguous()
    masks = torch.full((1, 4, 4), -1, dtype=torch.int16)
    excluded = torch.tensor([[False, False, True]])
    found, gradient = run(logits, masks, excluded, threshold=0.5, latent_weight=1.0)
    assert found.loss.item() == pytest.approx(150 - math.log1p(math.exp(-3)), rel=1e-6)
    q = 1 / (1 + math.exp(-3))
    assert gradient.sum((2, 3)).flatten().tolist() == pytest.approx([-q, q - 1, 1], abs=1e-6)


def test_the_exponential_within_3e_7() -> None:
    """Where it is needed, and through the same flags, which may reorder what was meant to be exact."""
    exponential = objective_machine._exp

    @numba.njit(**objective_machine.FLAGS)
    def fill(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = exponential(x[i])

    x = np.linspace(-86, 87, 100_000, dtype=np.float32)
    y = np.empty_like(x)
    fill(x, y)
    assert np.abs(y / np.exp(x.astype(np.float64)) - 1).max() < 3e-7


@pytest.mark.parametrize("size", [(512, 8), (8, 512), (64, 64)], ids=str)
def test_rounding_does_not_add_up_over_large_quads(size: tuple[int, int]) -> None:
    logits, masks, excluded = problem((1, 8, 2, 2, *size), scale=8.0)
    threshold = clear_threshold(dense(logits, masks, excluded)[3])
    found, gradient = run(logits, masks, excluded, threshold=threshold, latent_weight=0.5)
    exact, slope = run(logits.double(), masks, excluded, threshold=threshold, latent_weight=0.5)
    assert found.loss.item() == pytest.approx(exact.loss.item(), rel=3e-7)
    assert (gradient - slope).norm() <= 1e-6 * slope.norm()
    torch.testing.assert_close(found.confidence_sum, exact.confidence_sum, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    st.tuples(*[st.integers(1, n) for n in (2, 40, 6, 6, 24, 24)]),
    st.integers(0, 1000),
    st.sampled_from([1.0, 8.0, 50.0]),
)
def test_quad_equals_plain_in_float64(shape: tuple[int, ...], seed: int, scale: float) -> None:
    logits, masks, excluded = problem(shape, scale=scale, seed=seed)
    threshold = clear_threshold(dense(logits, masks, excluded)[3])
    short, gradient = run(logits, masks, excluded, threshold=threshold, latent_weight=0.5)
    long, exact = run(logits.double(), masks, excluded, threshold=threshold, latent_weight=0.5)
    assert short.loss.item() == pytest.approx(long.loss.item(), rel=1e-5, abs=1e-7)
    assert (gradient - exact).norm() <= 1e-5 * exact.norm() + 1e-9
    assert short.kept.equal(long.kept)
    assert short.candidates.equal(long.candidates)
    torch.testing.assert_close(short.confidence_sum, long.confidence_sum, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalise", ["joint", "per_term"])
def test_gradient_by_differences(normalise: str) -> None:
    logits, masks, excluded = problem((2, 4, 3, 2, 7, 5), scale=1.0)
    threshold = clear_threshold(dense(logits, masks, excluded)[3])

    def loss(values: Tensor) -> Tensor:
        return em_objective(
            values,
            masks,
            excluded,
            threshold=threshold,
            latent_weight=0.7,
            normalise=normalise,  # type: ignore[arg-type]
        ).loss

    assert torch.autograd.gradcheck(loss, (logits.double().requires_grad_(),))


def test_threshold_is_exceeded_not_met(form: str) -> None:
    logits, masks, excluded = (
        torch.zeros(1, 2, 1, 1),
        torch.full((1, 1, 1), -1, dtype=torch.int16),
        torch.zeros(1, 2) > 0,
    )
    assert run(logits, masks, excluded, threshold=0.5, latent_weight=1.0)[0].kept.tolist() == [0, 0]
    found, _ = run(logits, masks, excluded, threshold=0.499, latent_weight=1.0)
    assert found.kept.tolist() == [1, 0]  # a tie goes to the lowest slot


def test_near_the_threshold_only_pixels_within_rounding_may_differ(form: str) -> None:
    logits, masks, excluded = problem((1, 6, 4, 4, 32, 32), scale=1.0)
    p = dense(logits, masks, excluded)[3][masks < 1]
    p = p[masks[masks < 1] > -2]
    threshold = float(p.median())  # exactly one pixel's p
    found, _ = run(logits, masks, excluded, threshold=threshold, latent_weight=0.1)
    doubtful = int(((p - threshold).abs() < 1e-5).sum())
    assert doubtful < 5
    assert abs(int(found.kept.sum()) - int((p > threshold).sum())) <= doubtful


@pytest.mark.parametrize("normalise", ["joint", "per_term"])
def test_all_void(form: str, normalise: str) -> None:
    logits, masks, excluded = problem((2, 4, 3, 3, 9, 9))
    found, gradient = run(logits, masks.fill_(-2), excluded, threshold=0.5, latent_weight=0.5, normalise=normalise)
    assert found.loss.item() == 0
    assert gradient.eq(0).all()
    assert found.nonvoid.item() == 0


def test_nothing_excluded_costs_nothing(form: str) -> None:
    """All classes possible and none kept: strokes push nothing away on what was not painted."""
    logits, masks, excluded = problem((1, 5, 3, 3, 12, 12))
    found, gradient = run(
        logits, masks.fill_(-1), torch.zeros_like(excluded), threshold=1.0, latent_weight=5.0, normalise="per_term"
    )
    assert found.loss.item() == 0
    assert gradient.eq(0).all()
    assert found.latent.item() == int(found.candidates.sum()) == 144


def test_all_latent(form: str) -> None:
    logits, masks, excluded = problem((1, 5, 3, 3, 12, 12), seed=2)
    arguments: dict[str, Any] = {"threshold": 0.99, "latent_weight": 0.5, "normalise": "per_term"}
    compare(*run(logits, masks.fill_(-1), excluded, **arguments), oracle(logits, masks, excluded, **arguments))


def test_one_row_of_excluded_means_both(form: str) -> None:
    logits, masks, excluded = problem((2, 6, 4, 4, 16, 16))
    twice = excluded[:, :1].expand_as(excluded)
    one = run(logits, masks, excluded[:, 0], threshold=0.4, latent_weight=0.5)
    assert bits(*one) == bits(*run(logits, masks, twice, threshold=0.4, latent_weight=0.5))


@pytest.mark.parametrize("value", [0, -1])
def test_the_only_possible_class_is_the_label(form: str, value: int) -> None:
    logits, masks, excluded = problem((1, 4, 3, 3, 9, 9))
    excluded[:] = torch.arange(4) > 0
    found, gradient = run(logits, masks.fill_(value), excluded, threshold=0.0, latent_weight=7.0)
    labels = cross_entropy(logits, torch.zeros_like(masks))
    assert found.loss.item() == labels.loss.item()
    assert (found.labelled.item(), found.latent.item(), int(found.candidates.sum())) == (81, 0, 0)
    assert int(found.confidence_count.sum()) == (81 if value == 0 else 0)  # only a label that was given counts
    assert gradient.abs().sum() > 0


def test_cross_entropy_is_the_same_machine(form: str) -> None:
    logits, masks, excluded = problem((2, 9, 4, 4, 14, 17))
    masks[masks == -1] = -2
    excluded[:] = torch.arange(9) > 0
    leaf = logits.clone().requires_grad_()
    found = cross_entropy(leaf, masks)
    found.loss.backward()
    assert leaf.grad is not None
    assert bits(found, leaf.grad) == bits(*run(logits, masks, excluded, threshold=0.8, latent_weight=0.5))
    exact = logits.double().requires_grad_()
    full = F.interpolate(exact, masks.shape[1:], mode="bilinear", align_corners=False)
    F.cross_entropy(full, masks.long(), ignore_index=-2).backward()
    assert exact.grad is not None
    assert (leaf.grad - exact.grad).norm() < 1e-6 * exact.grad.norm()


@pytest.mark.parametrize("normalise", ["joint", "per_term"])
def test_several_processes_share_one_denominator(form: str, normalise: str) -> None:
    logits, masks, excluded = problem((4, 6, 4, 4, 12, 12))
    masks[3] = -2  # the last process has nothing
    arguments: dict[str, Any] = {"threshold": 0.5, "latent_weight": 0.3, "normalise": normalise}
    whole, gradient = run(logits, masks, excluded, **arguments)
    parts = [slice(0, 1), slice(1, 3), slice(3, 4)]
    seen: list[Tensor] = []

    def note(counts: Tensor) -> Tensor:
        assert counts.dtype == torch.float64
        seen.append(counts)
        return counts

    for part in parts:
        run(logits[part], masks[part], excluded[part], reduce=note, **arguments)
    assert len(seen) == 3  # once in every process, whatever its pixels
    total = torch.stack(seen).sum(0)
    shares = [run(logits[p], masks[p], excluded[p], reduce=lambda _: total, **arguments) for p in parts]
    assert sum(s.loss.item() for s, _ in shares) == pytest.approx(whole.loss.item(), rel=1e-6)
    torch.testing.assert_close(torch.cat([g for _, g in shares]), gradient, rtol=1e-6, atol=1e-9)
    assert shares[2][0].loss.item() == 0


def test_backward_can_be_repeated_and_scaled(form: str) -> None:
    logits, masks, excluded = problem((1, 4, 3, 3, 9, 9))
    _, gradient = run(logits, masks, excluded, threshold=0.5, latent_weight=0.5)
    leaf = logits.clone().requires_grad_()
    loss = em_objective(leaf, masks, excluded, threshold=0.5, latent_weight=0.5).loss
    loss.backward(retain_graph=True)
    assert leaf.grad is not None
    leaf.grad.zero_()  # what was returned is not what is kept
    (loss * 3).backward()
    torch.testing.assert_close(leaf.grad, 3 * gradient)
    with torch.no_grad():
        assert not em_objective(leaf, masks, excluded, threshold=0.5, latent_weight=0.5).loss.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_computed_in_float32(form: str, dtype: torch.dtype) -> None:
    logits, masks, excluded = problem((1, 4, 3, 3, 9, 9))
    logits = logits.to(dtype)
    found, gradient = run(logits, masks, excluded, threshold=0.5, latent_weight=0.5)
    single, exact = run(logits.float(), masks, excluded, threshold=0.5, latent_weight=0.5)
    assert found.loss.dtype == torch.float32
    assert found.loss.item() == single.loss.item()
    assert gradient.equal(exact.to(dtype))


def test_autocast_does_not_reach_inside(form: str) -> None:
    given = problem((1, 4, 3, 3, 9, 9))
    expected = bits(*run(*given, threshold=0.5, latent_weight=0.5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bits(*run(*given, threshold=0.5, latent_weight=0.5)) == expected


def test_same_bits_again_and_with_any_number_of_threads(form: str) -> None:
    for shape, scale in (((3, 37, 9, 8, 36, 30), 3.0), ((1, 20, 6, 6, 50, 50), 60.0)):
        given = problem(shape, scale=scale)
        first = bits(*run(*given, threshold=0.5, latent_weight=0.5))
        assert bits(*run(*given, threshold=0.5, latent_weight=0.5)) == first
        if form == "quad":
            for threads in (2, 3):
                torch.set_num_threads(threads)
                assert bits(*run(*given, threshold=0.5, latent_weight=0.5)) == first
            torch.set_num_threads(1)


def test_two_python_threads_at_once() -> None:
    cases = [problem((2, 30, 6, 6, 40, 40), seed=s) for s in range(4)]
    torch.set_num_threads(2)
    alone = [bits(*run(*c, threshold=0.5, latent_weight=0.5)) for c in cases]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda c: bits(*run(*c, threshold=0.5, latent_weight=0.5)), cases * 3))
    assert together == alone * 3


def test_memory_order_of_the_logits_is_of_no_account(form: str) -> None:
    logits, masks, excluded = problem((2, 6, 4, 5, 16, 20))
    expected = bits(*run(logits, masks, excluded, threshold=0.5, latent_weight=0.5))
    orders = (logits.to(memory_format=torch.channels_last), torch.stack([logits, logits], -1)[..., 0])
    for other in orders:
        assert not other.is_contiguous()
        turned = masks.transpose(1, 2).contiguous().transpose(1, 2)
        assert bits(*run(other, turned, excluded, threshold=0.5, latent_weight=0.5)) == expected


def test_plain_form_holds_no_full_size_image(monkeypatch: pytest.MonkeyPatch) -> None:
    class Largest(TorchFunctionMode):
        numel = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                self.numel = max(self.numel, result.numel())
            return result

    monkeypatch.setenv(objective.FORM, "plain")
    monkeypatch.setitem(objective_plain.BLOCK_BYTES, "cpu", 40_000)
    given = problem((1, 40, 8, 8, 64, 64))
    expected = run(*(t.double() if t.is_floating_point() else t for t in given), threshold=0.5, latent_weight=0.5)[1]
    with Largest() as largest:
        gradient = run(*given, threshold=0.5, latent_weight=0.5)[1]
    assert largest.numel <= 10_000  # a block; the image has 163,840
    assert (gradient - expected).norm() < 1e-6 * expected.norm()


def test_one_line_says_when_the_plain_form_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Numba is not there: the plain form serves, and says so once."""
    caplog.set_level(logging.INFO)
    for name in ("segstream.functional.objective_quad", "segstream.functional.objective_machine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(segstream.functional, name.rpartition(".")[2], raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    objective._quad.cache_clear()
    objective._say_plain.cache_clear()
    try:
        for _ in range(2):
            found, _ = run(*hand(), threshold=0.6, latent_weight=0.5)
            assert found.kept.tolist() == [0, 0, 1]
        objective.warm_up()
    finally:
        objective._quad.cache_clear()
    assert len(caplog.records) == 1
    assert "plain form" in caplog.text
    assert "numba" in caplog.text


def test_an_unknown_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(objective.FORM, "fast")
    with pytest.raises(ValueError, match="SEGSTREAM_OBJECTIVE is 'fast'; choose 'auto' or 'plain'"):
        cross_entropy(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, dtype=torch.int16))


def broken() -> list[tuple[str, Any]]:
    logits, masks, excluded = hand()
    first = excluded.clone()
    first[0, 1, 0] = True
    nan, infinite = logits.clone(), logits.clone()
    nan[0, 1] = math.nan
    infinite[0, 2] = -math.inf
    good = {"logits": logits, "masks": masks, "excluded": excluded, "threshold": 0.5, "latent_weight": 0.5}
    return [
        ("`excluded` names slot 0", good | {"excluded": first}),
        ("expected bool \\[1, 2, 3\\]", good | {"excluded": excluded.float()}),
        ("expected bool", good | {"excluded": excluded[:, :, :2]}),
        ("A mask holds slot 3, but there are logits for slots 0 to 2", good | {"masks": masks.clone().fill_(3)}),
        ("A mask holds -3", good | {"masks": masks.clone().fill_(-3)}),
        ("masks are torch.float32", good | {"masks": masks.float()}),
        ("masks are torch.int16 of shape \\[2, 2\\]", good | {"masks": masks[0]}),
        ("logits of 1 images but masks of 2", good | {"masks": masks.repeat(2, 1, 1)}),
        ("logits are torch.int64", good | {"logits": logits.long()}),
        ("logits are torch.float32 of shape \\[3, 1, 1\\]", good | {"logits": logits[0]}),
        ("logits are .* \\[1, 0, 1, 1\\]", good | {"logits": logits[:, :0]}),
        ("not finite \\(the first: image 0, slot 1, row 0, column 0\\)", good | {"logits": nan}),
        ("not finite \\(the first: image 0, slot 2", good | {"logits": infinite}),
        ("threshold is nan", good | {"threshold": math.nan}),
        ("latent_weight is -1", good | {"latent_weight": -1.0}),
        ("normalise is 'mean'; choose 'joint' or 'per_term'", good | {"normalise": "mean"}),
    ]


@pytest.mark.parametrize(("sentence", "arguments"), broken(), ids=[s for s, _ in broken()])
def test_bad_input_gets_a_sentence(sentence: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=sentence):
        em_objective(**arguments)


def test_cross_entropy_refuses_unlabelled_pixels() -> None:
    logits, masks, _ = hand()
    with pytest.raises(ValueError, match="hold -1"):
        cross_entropy(logits, masks)


@pytest.mark.slow
def test_compiled_here_or_loaded_from_disk_gives_the_same_bits(tmp_path: Any) -> None:
    digests = {_digest_in_a_new_process(tmp_path) for _ in range(3)}
    assert len(digests) == 1


def _digest_in_a_new_process(cache: Any) -> str:
    code = (
        "import hashlib, tests.test_objective as t\n"
        "runs = [t.run(*t.problem(s, scale=c), threshold=0.5, latent_weight=0.5) for s in t.SHAPES for c in (3, 50)]\n"
        "print(hashlib.sha256(b''.join(b for r in runs for b in t.bits(*r))).hexdigest())"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert len(done.stdout.strip()) == len(hashlib.sha256().hexdigest())
    return done.stdout
