"""Pictures of a published benchmark: lists say which, and an index says which classes each mask holds."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from segstream.data.images import INVALID, look_up, read_image, read_mask, value_lookup
from segstream.data.index import held_values
from segstream.data.matlab import read_sbd_mask
from segstream.data.source import DataError, Told, checked_size, unheard
from segstream.functional.resize import resize_image, resize_mask

__all__ = ["Listed", "ListedSource", "check_there", "files_in", "usual_count"]

log = logging.getLogger(__name__)
SHOWN = 3


@dataclass(frozen=True)
class Listed:
    """One picture of a list with its two files. The picture's file need not be there until it is loaded.

    >>> Listed("a", Path("a.jpg"), Path("a.png")).id
    'a'
    """

    id: str
    image: Path
    mask: Path


class ListedSource:
    """Pictures of a list. Opening it reads no file; which classes a mask holds is looked up in an index on demand.

    void   the mask value of pixels that are never used; None: there is none
    told   hears of the index being made

    Masks are 8-bit PNGs, or MATLAB files as SBD has them. Pictures are taken as they are stored, whatever their EXIF
    data say, because the masks of a benchmark lie on the stored pixels.

    >>> ListedSource([], names=("background", "car")).names
    ('background', 'car')
    """

    def __init__(
        self,
        pictures: Sequence[Listed],
        *,
        names: Sequence[str],
        void: int | None = 255,
        image_size: Sequence[int] = (),
        told: Told = unheard,
    ) -> None:
        self.pictures = tuple(pictures)
        self.void = void
        self._names = tuple(names)
        self._ids = tuple(picture.id for picture in self.pictures)
        self._lookup = value_lookup(len(names), void=void, unlabeled=None)
        self._size = checked_size(image_size)
        self._told = told
        self._present: list[frozenset[int]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def ids(self) -> Sequence[str]:
        return self._ids

    def __len__(self) -> int:
        return len(self.pictures)

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        picture = self.pictures[i]
        image, values = read_image(picture.image, upright=False), _mask_values(picture.mask)
        if image.shape[1:] != values.shape:
            raise DataError(
                f"The mask {picture.mask} is {values.shape[1]}x{values.shape[0]} pixels (width x height), but its "
                f"image {picture.image} is {image.shape[2]}x{image.shape[1]}."
            )
        mask = torch.from_numpy(look_up(values, self._lookup, names=self._names, where=str(picture.mask)))
        if self._size is None:
            return image, mask
        return resize_image(image, self._size), resize_mask(mask, self._size)

    def present(self, i: int) -> frozenset[int]:
        if self._present is None:
            self._present = self._indexed()
        return self._present[i]

    def _indexed(self) -> list[frozenset[int]]:
        about = {"ids": self.ids, "size": self._size}
        held = held_values([picture.mask for picture in self.pictures], self._values, about=about, told=self._told)
        for row, value in np.argwhere(held & (self._lookup == INVALID))[:1]:
            void = "" if self.void is None else f", and {self.void} is void"
            raise DataError(
                f"The mask {self.pictures[row].mask} holds the value {value}, but there are {len(self._names)} "
                f"classes, numbered 0 to {len(self._names) - 1}{void}."
            )
        held = held[:, 1 : len(self._names)]
        return [frozenset((np.flatnonzero(row) + 1).tolist()) for row in held]

    def _values(self, path: Path) -> npt.NDArray[np.uint8]:
        """What the index holds: with a size, what is left of a class at that size."""
        values = _mask_values(path)
        if self._size is None:
            return values
        return resize_mask(torch.from_numpy(values.astype(np.int16)), self._size).numpy().astype(np.uint8)


def _mask_values(path: Path) -> npt.NDArray[np.uint8]:
    return read_sbd_mask(path) if path.suffix == ".mat" else read_mask(path)


def files_in(folder: Path, suffix: str) -> dict[str, Path]:
    """The files of a folder with that suffix, by their names without it; none where there is no such folder.

    >>> files_in(Path("no/such/folder"), ".png")
    {}
    """
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:  # the fastest there is for 17,000 names
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return {stem: folder / name for name in sorted(names) for stem, end in [os.path.splitext(name)] if end == suffix}


def check_there(ids: Iterable[str], found: Mapping[str, Path], *, what: str, where: str) -> None:
    """A sentence if some of the files are missing.

    >>> check_there(["a", "b"], {"a": Path("a.jpg")}, what="pictures of train.txt", where="JPEGImages")
    Traceback (most recent call last):
    segstream.data.source.DataError: 1 of 2 pictures of train.txt is not in JPEGImages: b.
    """
    wanted = list(ids)
    if missing := [name for name in wanted if name not in found]:
        some = ", ".join(missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
        are = "is" if len(missing) == 1 else "are"
        raise DataError(f"{len(missing)} of {len(wanted)} {what} {are} not in {where}: {some}.")


def usual_count(found: int, usual: int, *, what: str) -> None:
    """A warning where a list is not as long as the one that everybody uses.

    >>> usual_count(1449, 1449, what="validation pictures of VOC 2012")
    """
    if found != usual:
        log.warning("There are %d %s instead of %d: scores cannot be compared with published ones.", found, what, usual)
