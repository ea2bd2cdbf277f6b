"""Gradients as lists of tensors, one for each parameter: which way two of them point, and what one takes from another.

g      what an update is about to apply;  g_ref: the gradient that it must not work against
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["NOTHING", "dot", "without_conflict"]

NOTHING = 1e-12  # a squared length below this gives no direction: dividing by it would only blow up rounding errors


def dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """Sum of all products. In float64, since millions of terms of both signs cancel; MPS, which has none, in float32.

    >>> dot([torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])], [torch.tensor([1.0, 1.0]), torch.tensor([[-2.0]])])
    -3.0
    """
    # Each pair where it lies and only the sums to the host, all at once: gradients are as large as the network.
    sums = [_dot(x, y) for x, y in zip(a, b, strict=True)]
    return float(torch.stack(sums).cpu().double().sum()) if sums else 0.0


def without_conflict(gradient: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
    """g if it agrees with g_ref; otherwise what is left of it at a right angle to g_ref.

        g - (g . g_ref / g_ref . g_ref) g_ref   if g . g_ref < 0

    A reference whose square is below `NOTHING` asks for nothing. The inputs stay as they are.

    >>> without_conflict([torch.tensor([-1.0, 2.0])], [torch.tensor([2.0, 0.0])])
    [tensor([0., 2.])]
    >>> without_conflict([torch.tensor([1.0, 2.0])], [torch.tensor([2.0, 0.0])])
    [tensor([1., 2.])]
    """
    along, square = dot(gradient, reference), dot(reference, reference)
    if along >= 0 or square < NOTHING:
        return list(gradient)
    return [g - (along / square) * r for g, r in zip(gradient, reference, strict=True)]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    wide = torch.float32 if a.device.type == "mps" else torch.float64
    return (a.to(wide) * b.to(wide)).sum()
