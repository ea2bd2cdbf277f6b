"""A source of any map-style PyTorch dataset of (image, mask)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from segstream.classes import MAX_SLOT, UNLABELED, VOID
from segstream.data.images import image_to_tensor
from segstream.data.source import DataError, present_classes

__all__ = ["MapStyle", "WrappedSource", "wrap"]


class MapStyle(Protocol):
    """A dataset with a length and items by number; every item is a pair (image, mask).

    >>> pairs: MapStyle = [(np.zeros((4, 6, 3), np.uint8), np.ones((4, 6), np.uint8))]
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class WrappedSource:
    """The pictures of a dataset; made by `wrap`.

    >>> picture = (np.zeros((4, 6, 3), np.uint8), np.ones((4, 6), np.int64))
    >>> WrappedSource([picture], ("background", "car"), void=255, unlabeled=None).load(0)[0].shape
    torch.Size([3, 4, 6])
    """

    def __init__(self, dataset: MapStyle, names: tuple[str, ...], *, void: int | None, unlabeled: int | None) -> None:
        self.dataset = dataset
        self._names = names
        self.void = void
        self.unlabeled = unlabeled
        self._present: list[frozenset[int]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def ids(self) -> Sequence[str]:
        return tuple(str(i) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.dataset)

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        image, mask = self._pair(i)
        pixels = _image(image, f"The image of item {i}")
        values = torch.from_numpy(self._slots(_mask(mask, f"The mask of item {i}"), i))
        if pixels.shape[1:] != values.shape:
            raise DataError(
                f"The image of item {i} is {list(pixels.shape[1:])} but its mask is {list(values.shape)} (H, W)."
            )
        return pixels, values

    def present(self, i: int) -> frozenset[int]:
        if self._present is None:
            masks = (self._slots(_mask(self._pair(k)[1], f"The mask of item {k}"), k) for k in range(len(self)))
            self._present = [present_classes(torch.from_numpy(mask)) for mask in masks]
        return self._present[i]

    def _pair(self, i: int) -> tuple[Any, Any]:
        item = self.dataset[i]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(f"Item {i} of the dataset is a {type(item).__name__}; expected a pair (image, mask).")
        return item[0], item[1]

    def _slots(self, values: npt.NDArray[np.int64], i: int) -> npt.NDArray[np.int16]:
        known = (values >= 0) & (values < len(self._names))
        found = np.where(known, values, UNLABELED).astype(np.int16)
        for meaning, value in ((UNLABELED, self.unlabeled), (VOID, self.void)):
            if value is not None:
                found[values == value] = meaning
                known |= values == value
        if not known.all():
            bad = int(values[~known][0])
            raise DataError(
                f"The mask of item {i} holds the value {bad}, but there are {len(self._names)} classes, numbered 0 to "
                f"{len(self._names) - 1}, void is {self.void} and unlabeled is {self.unlabeled}."
            )
        return found


def _image(image: Any, where: str) -> Tensor:
    """uint8 [3, H, W] of its own memory."""
    if isinstance(image, Image.Image):
        return image_to_tensor(image, name=where)
    if isinstance(image, np.ndarray):
        array = image[:, :, None] if image.ndim == 2 else image
        if array.ndim != 3 or array.shape[2] not in (1, 3):
            raise DataError(f"{where} is an array of shape {list(image.shape)}; expected [H, W, 3].")
        pixels = torch.tensor(array).permute(2, 0, 1)
    elif isinstance(image, Tensor):
        pixels = image.detach().as_subclass(Tensor).cpu().clone()
        if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
            raise DataError(f"{where} is a tensor of shape {list(pixels.shape)}; expected [3, H, W].")
    else:
        raise DataError(f"{where} is a {type(image).__name__}; expected a Pillow picture, a tensor or an array.")
    if pixels.is_floating_point():
        if not bool(((pixels >= 0) & (pixels <= 1)).all()):
            raise DataError(f"{where} has fractions outside 0 to 1; wrap the dataset without its normalisation.")
        pixels = (pixels * 255).round().to(torch.uint8)
    if pixels.dtype != torch.uint8:
        raise DataError(f"{where} is {pixels.dtype}; expected uint8, or fractions from 0 to 1.")
    return pixels.expand(3, -1, -1).contiguous()


def _mask(mask: Any, where: str) -> npt.NDArray[np.int64]:
    """Whole numbers [H, W]."""
    if isinstance(mask, Image.Image):
        if mask.mode in ("RGB", "RGBA", "CMYK", "YCbCr"):
            raise DataError(f"{where} holds colours (mode {mask.mode}); a mask holds class numbers.")
        array = np.asarray(mask)
    elif isinstance(mask, Tensor):
        array = mask.detach().as_subclass(Tensor).cpu().numpy()
    elif isinstance(mask, np.ndarray):
        array = mask
    else:
        raise DataError(f"{where} is a {type(mask).__name__}; expected a Pillow picture, a tensor or an array.")
    if array.dtype.kind not in "iub":
        raise DataError(f"{where} is {array.dtype}; a mask holds whole numbers, one class number for each pixel.")
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 2:
        raise DataError(f"{where} has the shape {list(array.shape)}; expected [H, W].")
    return array.astype(np.int64)


def wrap(
    dataset: MapStyle, classes: Sequence[str], *, void: int | None = 255, unlabeled: int | None = None
) -> WrappedSource:
    """A source of any map-style PyTorch dataset of (image, mask).

    dataset    items (image, mask): the image a Pillow picture, a tensor [3, H, W] or an array [H, W, 3], uint8 or
               fractions from 0 to 1, not normalised; the mask a picture, tensor or array of whole numbers [H, W]
    classes    what the mask values 0, 1, 2 ... are called; the first is "background"
    void       the mask value of pixels that are never used; `unlabeled`: of pixels about which nothing was said (if
               both are the same, there is no void)

    >>> picture = (torch.zeros(3, 4, 6, dtype=torch.uint8), torch.ones(4, 6, dtype=torch.uint8))
    >>> source = wrap([picture], ["background", "car"])
    >>> len(source), sorted(source.present(0))
    (1, [1])
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(f"{type(dataset).__name__} is not a map-style dataset: it needs a length and items by number.")
    names = tuple(classes)
    if isinstance(classes, str) or not names or names[0] != "background":
        raise DataError(f"`classes` is {classes!r}; give the names of the mask values, the first being 'background'.")
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise DataError(f"`classes` names {twice!r} twice; class names must differ.")
    if len(names) > MAX_SLOT:
        raise DataError(f"{len(names)} classes are more than the {MAX_SLOT} that a mask can hold.")
    for label, value in (("void", void), ("unlabeled", unlabeled)):
        if value is not None and 1 <= value < len(names):
            raise DataError(f"`{label}` is {value}, which is the class {names[value]!r}; take another value.")
    return WrappedSource(dataset, names, void=None if void == unlabeled else void, unlabeled=unlabeled)
