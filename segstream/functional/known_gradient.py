"""A loss whose gradient is computed along with it, so that nothing large waits for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = ["dense_sum", "with_gradient"]


def with_gradient(logits: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
    """`loss`, a scalar, as a function of `logits` whose gradient is `gradient`.

    >>> logits = torch.zeros(2, requires_grad=True)
    >>> with_gradient(logits, torch.tensor(3.0), torch.ones(2)).mul(2).backward()
    >>> logits.grad.tolist()
    [2.0, 2.0]
    """
    found: Tensor = _Known.apply(logits, loss, gradient)
    return found


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = logits.dtype
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        if slope.device.type != "cpu" or slope.item() != 1:  # a copy as large as the gradient, seldom needed
            gradient = gradient * slope
        return gradient.to(ctx.dtype), None, None


def dense_sum(logits: Tensor, size: tuple[int, int], term: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Sum over images of `term(i, z)`, a scalar, with z [K, H, W] the logits of image i at full size.

    One image's full-size logits exist at a time. Upsampling is bilinear, as everywhere (align_corners=False).

    >>> logits = torch.ones(2, 3, 1, 1, requires_grad=True)
    >>> total = dense_sum(logits, (2, 2), lambda i, z: (i + 1) * z.sum())
    >>> total.backward()
    >>> total.item(), logits.grad.flatten().tolist()
    (36.0, [4.0, 4.0, 4.0, 8.0, 8.0, 8.0])
    """
    wanted = logits.requires_grad and torch.is_grad_enabled()
    values = logits.detach()
    values = values if values.dtype == torch.float64 else values.float()
    gradient = torch.zeros_like(values, memory_format=torch.contiguous_format) if wanted else None
    total = values.new_zeros((), dtype=torch.float64 if values.device.type == "cpu" else values.dtype)
    with torch.set_grad_enabled(wanted), torch.autocast(values.device.type, enabled=False):
        for i in range(len(values)):
            low = values[i : i + 1].clone().requires_grad_(wanted)
            value = term(i, F.interpolate(low, size=size, mode="bilinear", align_corners=False)[0])
            total += value.detach()
            if gradient is not None and value.requires_grad:
                gradient[i] = torch.autograd.grad(value, low)[0][0]
    loss = total.to(values.dtype)
    return loss if gradient is None else with_gradient(logits, loss, gradient)
