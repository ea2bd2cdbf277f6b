"""Indexed masks as PNG files, and the pictures that a run shows after each stage."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from segstream import atomic
from segstream.classes import UNLABELED, VOID, ClassTable

__all__ = ["FILE_VOID", "mask_png", "most_telling"]

FILE_VOID = 255


def mask_png(mask: Tensor, classes: ClassTable, *, unlabeled: int = FILE_VOID) -> bytes:
    """A mask of slots as an indexed PNG with the classes' colours; void is 255.

    >>> import torch
    >>> png = mask_png(torch.tensor([[0, 1, -2]], dtype=torch.int16), ClassTable(("car",)))
    >>> list(Image.open(io.BytesIO(png)).tobytes())
    [0, 1, 255]
    """
    if len(classes) > FILE_VOID:
        raise ValueError(f"An indexed PNG holds {FILE_VOID} classes at most; this model has {len(classes)} slots.")
    values: npt.NDArray[np.int16] = mask.cpu().numpy()
    file = np.where(values == VOID, FILE_VOID, np.where(values == UNLABELED, unlabeled, values)).astype(np.uint8)
    picture = Image.fromarray(file, mode="L").convert("L")
    indexed = Image.new("P", picture.size)
    indexed.putpalette(classes.palette())  # without one Pillow would write 1 bit a pixel
    indexed.frombytes(file.tobytes())
    return _png(indexed)


def image_png(image: Tensor) -> bytes:
    """A uint8 image [3, H, W] as PNG."""
    return _png(Image.fromarray(image.cpu().permute(1, 2, 0).contiguous().numpy()))


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def most_telling(present: Sequence[frozenset[int]], count: int) -> list[int]:
    """Few pictures that together show as many classes as possible, those with many classes first.

    >>> most_telling([frozenset({1}), frozenset({1, 2}), frozenset({3})], 2)
    [1, 2]
    """
    chosen: list[int] = []
    shown: frozenset[int] = frozenset()
    while len(chosen) < min(count, len(present)):
        rest = [i for i in range(len(present)) if i not in chosen]
        best = max(rest, key=lambda i: (len(present[i] - shown), len(present[i]), -i))
        if not present[best] - shown and shown:
            shown = frozenset()  # every class is shown once: begin again
            continue
        chosen.append(best)
        shown |= present[best]
    return chosen


def write_stage(
    folder: Path,
    stage: int,
    *,
    ids: Sequence[str],
    images: Sequence[Tensor],
    truths: Sequence[Tensor],
    masks: Sequence[Tensor],
    classes: ClassTable,
) -> None:
    """The run folder's `predictions`: images once, truth and prediction as they are after this stage."""
    for name, image, truth, mask in zip(ids, images, truths, masks, strict=True):
        safe = name.replace("/", "_")
        atomic.write_bytes(folder / "images" / f"{safe}.png", image_png(image))
        atomic.write_bytes(folder / "truth" / f"stage-{stage}" / f"{safe}.png", mask_png(truth, classes))
        atomic.write_bytes(folder / f"stage-{stage}" / f"{safe}.png", mask_png(mask, classes))
