"""Samples of any size -> one dense stack that a network takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from segstream.classes import VOID
from segstream.types import Sample

__all__ = ["collate"]

GREY = 124  # near the mean of natural images, so that padding lies near 0 after normalisation


def collate(samples: Sequence[Sample], *, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Images uint8 [B, 3, H, W] and masks int16 [B, H, W] of the largest size, rounded up; the padding is VOID.

    >>> one = Sample(torch.zeros(3, 5, 9, dtype=torch.uint8), torch.ones(5, 9, dtype=torch.int16), id="a", known=2)
    >>> images, masks = collate([one], multiple=8)
    >>> list(images.shape), int((masks == VOID).sum())
    ([1, 3, 8, 16], 83)
    """
    if not samples:
        raise ValueError("A batch needs at least one image.")
    height, width = (max(s.mask.shape[side] for s in samples) for side in (0, 1))
    height, width = (-(-side // multiple) * multiple for side in (height, width))
    if all(s.mask.shape == (height, width) for s in samples):
        return torch.stack([s.image for s in samples]), torch.stack([s.mask for s in samples])
    images = torch.full((len(samples), 3, height, width), GREY, dtype=torch.uint8)
    masks = torch.full((len(samples), height, width), VOID, dtype=torch.int16)
    for i, sample in enumerate(samples):
        h, w = sample.mask.shape
        images[i, :, :h, :w] = sample.image
        masks[i, :h, :w] = sample.mask
    return images, masks
