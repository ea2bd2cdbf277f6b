"""Losses that bring their gradient along, against float64 autograd over full-size logits, and loops over pixels."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from segstream.classes import UNLABELED, VOID
from segstream.functional.distillation import one_hot, over, sigmoid_cross_entropy, sigmoid_sum
from segstream.functional.known_gradient import dense_sum, with_gradient

sides = st.integers(1, 5)


def random_logits(seed: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


def curved(i: int, z: Tensor) -> Tensor:
    """A term that differs by image and is linear in nothing."""
    return (i + 1) * (z.log_softmax(0)[0] * z[-1].tanh()).sum()


def naive(
    logits: Tensor, size: tuple[int, int], term: Callable[[int, Tensor], Tensor], slope: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The sum and its gradient, all images at full size at once, in float64."""
    leaf = logits.detach().double().requires_grad_()
    full = F.interpolate(leaf, size=size, mode="bilinear", align_corners=False)
    total = torch.stack([term(i, z) for i, z in enumerate(full)]).sum()
    (gradient,) = torch.autograd.grad(slope * total, leaf)
    return total.detach(), gradient


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    images=st.integers(1, 3),
    slots=st.integers(1, 4),
    low=st.tuples(sides, sides),
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 999),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_dense_sum_is_autograd_over_full_size_logits(
    images: int, slots: int, low: tuple[int, int], size: tuple[int, int], seed: int, dtype: torch.dtype
) -> None:
    logits = random_logits(seed, (images, slots, *low), dtype).requires_grad_()
    total = dense_sum(logits, size, curved)
    (2.5 * total).backward()
    value, gradient = naive(logits, size, curved, slope=2.5)
    assert logits.grad is not None
    assert total.dtype == logits.grad.dtype == dtype
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-4}
    assert torch.allclose(total.double(), value, **close)  # type: ignore[arg-type]
    assert torch.allclose(logits.grad.double(), gradient, **close)  # type: ignore[arg-type]


def test_dense_sum_of_other_layouts_and_half_precision() -> None:
    plain = random_logits(1, (2, 3, 4, 5), torch.float32)
    value, gradient = naive(plain, (7, 6), curved)
    for logits in (plain.contiguous(memory_format=torch.channels_last), plain.transpose(2, 3).contiguous().mT):
        leaf = logits.detach().requires_grad_()
        dense_sum(leaf, (7, 6), curved).backward()
        assert leaf.grad is not None
        assert torch.allclose(leaf.grad.double(), gradient, atol=1e-4)
    half = plain.bfloat16().requires_grad_()
    total = dense_sum(half, (7, 6), curved)
    total.backward()
    assert total.dtype == torch.float32, "sums of half precision are kept in float32"
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    wanted, _ = naive(half.detach(), (7, 6), curved)
    assert float(total.detach()) == pytest.approx(float(wanted), rel=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = dense_sum(plain, (7, 6), lambda i, z: (z @ z.mT).sum())
    assert float(inside) == pytest.approx(float(naive(plain, (7, 6), lambda i, z: (z @ z.mT).sum())[0]), rel=1e-4)
    assert float(value) == pytest.approx(float(dense_sum(plain, (7, 6), curved)), rel=1e-4)


def test_dense_sum_without_gradient_keeps_no_graph() -> None:
    logits = random_logits(2, (2, 3, 2, 2)).requires_grad_()
    asked: list[bool] = []

    def noted(i: int, z: Tensor) -> Tensor:
        asked.append(z.requires_grad)
        return curved(i, z)

    with torch.no_grad():
        quiet = dense_sum(logits, (5, 5), noted)
    assert not quiet.requires_grad
    assert asked == [False, False]
    assert not dense_sum(logits.detach(), (5, 5), curved).requires_grad
    assert float(quiet) == pytest.approx(float(dense_sum(logits, (5, 5), curved).detach()), rel=1e-12)
    nothing = dense_sum(logits, (5, 5), lambda i, z: torch.zeros((), dtype=z.dtype))
    nothing.backward()
    assert logits.grad is not None
    assert bool((logits.grad == 0).all()), "a term that asks nothing of the logits has no gradient"


def test_dense_sum_sees_one_image_at_a_time_and_reaches_what_lies_before() -> None:
    weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    seen: list[tuple[int, tuple[int, ...]]] = []

    def term(i: int, z: Tensor) -> Tensor:
        seen.append((i, tuple(z.shape)))
        return z.square().sum()

    values = random_logits(3, (3, 2, 2, 2))
    dense_sum(weight * values, (4, 6), term).backward()
    assert seen == [(0, (2, 4, 6)), (1, (2, 4, 6)), (2, (2, 4, 6))]
    full = F.interpolate(values, size=(4, 6), mode="bilinear", align_corners=False)
    assert float(weight.grad) == pytest.approx(float(4.0 * full.square().sum()), rel=1e-10)  # type: ignore[arg-type]


def test_a_known_gradient_is_handed_on_times_what_comes_from_above() -> None:
    logits = torch.zeros(3, requires_grad=True)
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 0.0, 0.0])
    total = 0.5 * with_gradient(logits, torch.tensor(4.0), first) + with_gradient(logits, torch.tensor(1.0), second)
    total.backward()
    assert total.item() == 3.0
    assert logits.grad is not None
    assert logits.grad.tolist() == [10.5, 1.0, 1.5]
    assert first.tolist() == [1.0, 2.0, 3.0]


# ---- sigmoid cross entropy


def entropy(z: float, target: float) -> float:
    """-t log g - (1 - t) log(1 - g) with g = sigmoid(z)."""
    log_g, log_rest = -math.log1p(math.exp(-z)), -z - math.log1p(math.exp(-z))
    return -target * log_g - (1 - target) * log_rest


def test_sigmoid_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[[[1.0, -2.0], [0.5, 9.0]], [[-1.0, 0.3], [2.0, 9.0]]]], requires_grad=True)
    found = sigmoid_cross_entropy(logits, torch.tensor([[[0, 1], [0, VOID]]], dtype=torch.int16))
    pixels = [((1.0, -1.0), 0), ((-2.0, 0.3), 1), ((0.5, 2.0), 0)]
    wanted = sum(entropy(z, float(k == label)) for zs, label in pixels for k, z in enumerate(zs)) / 3
    assert found.loss.item() == pytest.approx(wanted, rel=1e-6)
    assert (found.labelled.item(), found.latent.item(), found.nonvoid.item()) == (3, 0, 3)
    found.loss.backward()
    assert logits.grad is not None
    slope = logits.grad[0, :, 0, 1].tolist()  # (g - t) / 3
    assert slope == pytest.approx([1 / (1 + math.exp(2)) / 3, (1 / (1 + math.exp(-0.3)) - 1) / 3], rel=1e-5)
    assert logits.grad[0, :, 1, 1].tolist() == [0.0, 0.0]


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    slots=st.integers(1, 4),
    low=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 999),
)
def test_sigmoid_cross_entropy_is_a_loop_over_pixels(
    slots: int, low: tuple[int, int], size: tuple[int, int], seed: int
) -> None:
    dice = torch.Generator().manual_seed(seed)
    targets = torch.randint(-1, slots, (2, *size), generator=dice).to(torch.int16)
    targets[targets == UNLABELED] = VOID
    logits = random_logits(seed, (2, slots, *low)).requires_grad_()
    found = sigmoid_cross_entropy(logits, targets)
    full = F.interpolate(logits.detach(), size=size, mode="bilinear", align_corners=False)
    total, count = 0.0, 0
    for i in range(2):
        for y in range(size[0]):
            for x in range(size[1]):
                label = int(targets[i, y, x])
                if label != VOID:
                    count += 1
                    total += sum(entropy(float(full[i, k, y, x]), float(k == label)) for k in range(slots))
    assert float(found.loss.detach()) == pytest.approx(total / max(count, 1), rel=1e-9, abs=1e-12)
    found.loss.backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())

    def term(i: int, z: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(z, one_hot(targets[i], slots).double(), reduction="none")
        return (each * (targets[i] != VOID)).sum() / max(count, 1)

    assert torch.allclose(logits.grad, naive(logits, size, term)[1], atol=1e-12)


def test_sigmoid_sum_weights_each_output_of_each_pixel() -> None:
    logits = random_logits(4, (1, 2, 2, 2))
    target, weight = random_logits(5, (2, 2, 2)).sigmoid(), random_logits(6, (2, 2, 2)).abs()
    found = float(sigmoid_sum(logits, (2, 2), lambda i: (target, weight)))
    z, t, w = (x.flatten().tolist() for x in (logits, target, weight))
    assert found == pytest.approx(sum(wi * entropy(zi, ti) for zi, ti, wi in zip(z, t, w, strict=True)), rel=1e-9)


def test_far_logits_stay_finite() -> None:
    logits = torch.tensor([3e4, -3e4]).view(1, 2, 1, 1).requires_grad_()
    found = sigmoid_cross_entropy(logits, torch.ones(1, 1, 1, dtype=torch.int16))
    found.loss.backward()
    assert found.loss.item() == pytest.approx(6e4)
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == [1.0, -1.0]


def test_pixels_are_counted_over_all_processes() -> None:
    logits = random_logits(5, (4, 3, 2, 2))
    targets = torch.randint(0, 3, (4, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.int16)
    targets[0], targets[1, 0] = VOID, VOID
    whole = sigmoid_cross_entropy(logits, targets).loss
    total = (targets != VOID).sum().double().reshape(1)
    parts = (slice(0, 1), slice(1, 2), slice(2, 4))
    shares = [sigmoid_cross_entropy(logits[p], targets[p], reduce=lambda n: total).loss for p in parts]
    assert float(torch.stack(shares).sum()) == pytest.approx(float(whole), rel=1e-10)
    assert shares[0].item() == 0.0
    assert over(torch.tensor(3), lambda n: n + 5) == 1 / 8
    assert over(torch.tensor(0), lambda n: n) == 0.0


def test_one_hot_is_silent_where_nothing_is_labelled() -> None:
    found = one_hot(torch.tensor([[2, UNLABELED, VOID, 0]], dtype=torch.int16), 3)
    assert found.dtype == torch.float32
    assert found[:, 0].T.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
