"""What an image's two facts, `complete` and `known`, and a method's view make of pixels without a label.

B: images   H W: full size   K: slots, background included   X: classes that a pixel cannot be
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import torch
from torch import Tensor

from segstream.classes import BACKGROUND, UNLABELED, VOID

__all__ = ["View", "impossible", "targets"]

View = Literal["latent", "background", "ignore"]


def impossible(
    complete: Sequence[Collection[int]], known: Sequence[int], *, slots: int, retired: Collection[int] = ()
) -> Tensor:
    """X of each image's unlabelled pixels (row 0) and of its annotated background (row 1), as bool [B, 2, K].

    An unlabelled pixel is none of the classes that were annotated exhaustively. Annotated background is none of
    the classes known when it was annotated; it may be any that came later. Nothing is ever a retired class.

    >>> impossible([{3}], [3], slots=5).int().tolist()
    [[[0, 0, 0, 1, 0], [0, 1, 1, 0, 0]]]
    """
    if len(complete) != len(known):
        raise ValueError(f"{len(complete)} `complete` but {len(known)} `known`; every image needs one of each.")
    out = torch.zeros(len(known), 2, slots, dtype=torch.bool)
    for i, (classes, count) in enumerate(zip(complete, known, strict=True)):
        if beyond := [c for c in classes if not 1 <= c < slots]:
            raise ValueError(
                f"`complete` of image {i} names slots {beyond}; foreground slots run from 1 to {slots - 1}."
            )
        if not 1 <= count <= slots:
            raise ValueError(f"`known` of image {i} is {count}; the model has {slots} slots.")
        out[i, 0, list(classes)] = True
        out[i, 1, 1:count] = True
    out[:, :, list(retired)] = True
    if bool(out[:, :, BACKGROUND].any()):
        raise ValueError("The background (slot 0) is never impossible.")
    return out


def targets(masks: Tensor, view: View) -> Tensor:
    """Labels for plain cross entropy in a view; a new tensor, the masks stay as they are.

    >>> targets(torch.tensor([[2, 0, -1, -2]], dtype=torch.int16), "background").tolist()
    [[2, 0, 0, -2]]
    >>> targets(torch.tensor([[2, 0, -1, -2]], dtype=torch.int16), "ignore").tolist()
    [[2, 0, -2, -2]]
    """
    if view == "background":
        return masks.masked_fill(masks == UNLABELED, BACKGROUND)
    if view == "ignore":
        return masks.masked_fill(masks == UNLABELED, VOID)
    raise ValueError(f"The view {view!r} has no targets for cross entropy; choose 'background' or 'ignore'.")
