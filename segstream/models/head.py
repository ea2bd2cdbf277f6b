"""The last layer: one row for each class, more rows as classes come."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["BLOCK", "KINDS", "Head"]

BLOCK = 64  # rows are allocated in blocks: a new Parameter would escape the optimiser and every wrapper
STEP = 16  # a product with few rows rounds otherwise than one with many: whole steps keep an old row's bits
SHORTEST = 1e-4  # shorter vectors are divided by this, so that the gradient at a zero vector stays finite
SMALL = 0.01  # deviation of a new linear row: its logits start near 0, whatever the present rows have grown to
KINDS = ("cosine", "linear")


class Head(nn.Module):
    """Features [B, D, h, w] -> logits [B, K, h, w] in float32, also under autocast.

    `cosine`: scale * cos(u_k, F), without bias, so |logit| <= scale; a new row u is a seeded random direction with
    |u| = 1. `linear`: w_k F + b_k; a new row has small random weights and bias 0.

    `weight` [capacity, D] has rows in stock, all zero; `count` of them are classes. Growth writes rows and raises the
    count; the Parameter stays the same object until its block is full.

    >>> head = Head(8, kind="cosine", scale=12.0)
    >>> head.grow(3, generator=torch.Generator().manual_seed(0))
    False
    >>> logits = head(torch.randn(1, 8, 2, 2))
    >>> list(logits.shape), bool(logits.abs().max() <= 12.0001), list(head.weight.shape)
    ([1, 3, 2, 2], True, [64, 8])
    """

    def __init__(self, channels: int, *, kind: str = "cosine", scale: float = 12.0, count: int = 0) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"There is no head {kind!r}; the heads are {', '.join(KINDS)}.")
        if not scale > 0:
            raise ValueError(f"The head's scale is {scale}; it must be above 0.")
        self.kind = kind
        self.scale = float(scale)
        self.count = count
        capacity = _rounded(max(count, 1), BLOCK)
        self.weight = nn.Parameter(torch.zeros(capacity, channels))
        self.bias = nn.Parameter(torch.zeros(capacity)) if kind == "linear" else None

    @property
    def rows(self) -> Tensor:
        """The rows in use, [count, D]: a view of the Parameter."""
        return self.weight[: self.count]

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            dtype = torch.promote_types(self.weight.dtype, torch.float32)
            x = features.to(dtype)
            used = _rounded(max(self.count, 1), STEP)  # rows in stock get a zero gradient: they are cut off below
            weight = self.weight[:used].to(dtype)
            if self.bias is not None:
                logits = F.conv2d(x, weight[:, :, None, None], self.bias[:used].to(dtype))
            else:
                length = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(SHORTEST)  # B 1 h w   |F|
                logits = F.conv2d(x, _unit(weight)[:, :, None, None]) * (self.scale / length)
        return logits[:, : self.count]

    @torch.no_grad()
    def grow(self, n: int, *, generator: torch.Generator) -> bool:
        """Add n rows. True if the head outgrew its block, so that its Parameters are new objects."""
        if n < 0:
            raise ValueError(f"A head cannot grow by {n} rows.")
        first, self.count = self.count, self.count + n
        replaced = self.count > len(self.weight)
        if replaced:
            self._reallocate(_rounded(self.count, BLOCK))
        for row in range(first, self.count):  # row by row: one growth by two is two growths by one
            drawn = torch.randn(self.weight.shape[1], generator=generator, device=generator.device).to(self.weight)
            self.weight[row] = _unit(drawn) if self.kind == "cosine" else drawn * SMALL
            if self.bias is not None:
                self.bias[row] = 0.0
        return replaced

    @torch.no_grad()
    def normalise_rows(self) -> None:
        """Rescale each row of a cosine head to |u| = 1. The logits stay; the step that a gradient takes does not."""
        if self.kind == "cosine":
            self.rows.copy_(_unit(self.rows))

    def _reallocate(self, capacity: int) -> None:
        for name in ("weight", "bias"):
            old = getattr(self, name)
            if old is not None:
                new = old.new_zeros(capacity, *old.shape[1:])
                new[: len(old)] = old
                setattr(self, name, nn.Parameter(new, requires_grad=old.requires_grad))

    def extra_repr(self) -> str:
        return f"{self.kind}, rows={self.count} of {len(self.weight)}, channels={self.weight.shape[1]}"


def _rounded(n: int, step: int) -> int:
    return -(-n // step) * step


def _unit(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / length.clamp_min(SHORTEST)
