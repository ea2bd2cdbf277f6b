"""Dataset `scenes`: drawn pictures with pixel-exact masks. No download; each depends on seed, split and number alone.

Sixteen classes that differ in shape and texture but not in colour stand in nine kinds of places, in company, partly
hidden by each other and by clutter that is no class. A picture drawn smaller is the same picture, seen coarser.
An object of which less than a thousandth of the picture shows is void in the mask: nobody could name it, and
calling it background would be false.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from segstream.data.scenery.compose import NAMES, picture
from segstream.data.scenery.dice import Dice
from segstream.data.source import DataError, Splits, checked_size, present_classes

__all__ = ["open_scenes", "Scenes", "render"]  # noqa: RUF022 (the first name is the plug-in)

SPLITS = ("train", "val", "test")
SIZES = (400, 80, 120)
IMAGE_SIZE = (192, 192)
SMALLEST = 32


def open_scenes(
    *,
    root: str = "",
    train_size: int = 0,
    val_size: int = 0,
    test_size: int = 0,
    image_size: Sequence[int] = (),
    seed: int = 0,
) -> Splits:
    """The three parts of the dataset. A size of 0 means the default: 400, 80 and 120 pictures of 192 x 192.

    `root` is there because every dataset has it; nothing is read from it.

    >>> splits = open_scenes(train_size=3, image_size=(64, 96))
    >>> splits.train.ids, splits.train.names[:3]
    (('train-00000', 'train-00001', 'train-00002'), ('background', 'tree', 'flower'))
    >>> image, mask = splits.train.load(0)
    >>> image.shape, mask.shape
    (torch.Size([3, 64, 96]), torch.Size([64, 96]))
    """
    del root
    shape = checked_size(image_size) or IMAGE_SIZE
    train, val, test = (
        Scenes(split=split, size=size or default, image_size=shape, seed=seed)
        for split, size, default in zip(SPLITS, (train_size, val_size, test_size), SIZES, strict=True)
    )
    return Splits(train, val, test)


def render(
    seed: int, index: int, *, size: tuple[int, int] = IMAGE_SIZE, split: str = "train"
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int16]]:
    """Draw one picture: image [H, W, 3] and mask [H, W]. `size` is (height, width).

    >>> image, mask = render(0, 7, size=(48, 64))
    >>> image.shape, image.dtype, mask.shape, mask.dtype
    ((48, 64, 3), dtype('uint8'), (48, 64), dtype('int16'))
    """
    if split not in SPLITS:
        raise DataError(f"There is no split {split!r}; the splits are {', '.join(SPLITS)}.")
    _check(seed, size)
    if index < 0:
        raise DataError(f"The number of a picture is {index}; it must be 0 or more.")
    return picture(Dice(seed, SPLITS.index(split), index), size)


def _check(seed: int, size: tuple[int, int]) -> None:
    if seed < 0:
        raise DataError(f"The seed of scenes is {seed}; it must be 0 or more.")
    if min(size) < SMALLEST:
        raise DataError(f"A picture of {size[0]} x {size[1]} pixels is too small to draw; give at least {SMALLEST}.")


class Scenes:
    """One split, drawn when asked for. Pictures are kept in memory while `max_bytes` lasts.

    >>> scenes = Scenes(split="val", size=2, image_size=(64, 64))
    >>> len(scenes), scenes.present(1) == present_classes(scenes.load(1)[1])
    (2, True)
    """

    names = NAMES

    def __init__(
        self,
        *,
        split: str = "train",
        size: int = SIZES[0],
        image_size: tuple[int, int] = IMAGE_SIZE,
        seed: int = 0,
        max_bytes: int = 1 << 30,
    ) -> None:
        if size < 1:
            raise DataError(f"The {split} part of scenes cannot have {size} pictures; give a number above 0.")
        _check(seed, image_size)
        self.split, self.image_size, self.seed, self.max_bytes = split, image_size, seed, max_bytes
        self.ids: tuple[str, ...] = tuple(f"{split}-{i:05d}" for i in range(size))
        self._pictures: dict[int, tuple[Tensor, Tensor]] = {}
        self._present: dict[int, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        """Image uint8 [3, H, W] and mask int16 [H, W]. Nobody writes into them."""
        if not 0 <= i < len(self):
            raise IndexError(f"Picture {i} does not exist; the {self.split} part has {len(self)}, counted from 0.")
        if i in self._pictures:
            return self._pictures[i]
        pixels, labels = render(self.seed, i, size=self.image_size, split=self.split)
        image, mask = torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), torch.from_numpy(labels)
        self._present[i] = present_classes(mask)
        if (len(self._pictures) + 1) * (image.nbytes + mask.nbytes) <= self.max_bytes:
            self._pictures[i] = image, mask
        return image, mask

    def present(self, i: int) -> frozenset[int]:
        """The classes that can be seen in picture i."""
        if i not in self._present:
            self.load(i)
        return self._present[i]
