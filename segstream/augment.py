"""One picture of any size -> one crop of a fixed size: random scale, place and side."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from segstream.classes import VOID
from segstream.functional.resize import nearest_index, resize_image
from segstream.types import Sample

__all__ = ["Augment"]

REDRAWS = 5
MEAN_COLOR = (124, 116, 104)  # of the ImageNet pictures: about 0 after any network's normalisation
BORDERS = ("void", "reflect")


class _Span(NamedTuple):
    """One axis: `length` pixels from `start` become `size` pixels that lie at `offset` in the crop."""

    start: int
    length: int
    size: int
    offset: int


@dataclass(frozen=True)
class Augment:
    """Random scale, crop and flip; the same generator state gives the same crop.

    crop     side of the square, or (height, width); 0: the whole picture at its own size, only flipped
    scale    the picture is scaled by a factor drawn uniformly between these two
    flip     whether half of the crops are mirrored left to right
    variants  so many different crops of each picture, drawn once and for all by its id, half of them mirrored; 0: every
             one is another. With few of them the features of a frozen encoder can be kept
    border   what lies outside of a picture that is smaller than the crop: "void" (mean colour in the image, VOID in
             the mask) or "reflect" (both mirrored)

    A crop without any labelled pixel, of a picture that has some, is drawn again up to 5 times. Only the part of the
    picture that the crop shows is resized; so the factor is exact to within a pixel at the crop's sides.

    >>> sample = Sample(torch.zeros(3, 9, 7, dtype=torch.uint8), torch.ones(9, 7, dtype=torch.int16), id="a", known=2)
    >>> Augment(crop=(4, 6))(sample, generator=torch.Generator().manual_seed(0)).image.shape
    torch.Size([3, 4, 6])
    """

    crop: int | tuple[int, int] = 512
    scale: tuple[float, float] = (0.5, 2.0)
    flip: bool = True
    border: str = "void"
    variants: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.crop, int):
            object.__setattr__(self, "crop", tuple(self.crop))
        object.__setattr__(self, "scale", tuple(self.scale))
        sides = self.crop if isinstance(self.crop, tuple) else (self.crop, self.crop)
        if len(sides) != 2 or any(not isinstance(n, int) or n < 0 for n in sides) or (min(sides) == 0 < max(sides)):
            raise ValueError(f"`crop` is {self.crop}; give a side in pixels, (height, width), or 0 for no crop.")
        if len(self.scale) != 2 or not 0 < self.scale[0] <= self.scale[1] < float("inf"):
            raise ValueError(f"`scale` is {self.scale}; give the smallest and the largest factor, such as (0.5, 2.0).")
        if self.border not in BORDERS:
            raise ValueError(f"There is no border {self.border!r}; the borders are {' and '.join(BORDERS)}.")
        if self.variants < 0:
            raise ValueError(f"`variants` is {self.variants}; it counts crops of a picture, and 0 means no limit.")

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) of what comes out; None where it is the picture's own."""
        height, width = self.crop if isinstance(self.crop, tuple) else (self.crop, self.crop)
        return (height, width) if height else None

    def __call__(self, sample: Sample, *, generator: torch.Generator) -> Sample:
        variant = int(torch.randint(self.variants, (), generator=generator)) if self.variants else None
        if variant is not None:
            name = f"{sample.id}/{variant // 2 if self.flip else variant}"
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        labelled: bool | None = None
        for _ in range(1 + REDRAWS):
            factor, down, right, side = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
            factor = self.scale[0] + factor * (self.scale[1] - self.scale[0])
            spans = self._spans(sample.mask, factor, (down, right))
            mask = self._mask(sample.mask, spans)
            if bool((mask >= 1).any()):
                break
            labelled = bool((sample.mask >= 1).any()) if labelled is None else labelled
            if not labelled:
                break
        image = self._image(sample.image, spans)
        if self.flip and (side < 0.5 if variant is None else variant % 2):
            image, mask = image.flip(2), mask.flip(1)
        return replace(sample, image=image.contiguous(), mask=mask.contiguous())

    def _spans(self, mask: Tensor, factor: float, places: tuple[float, float]) -> tuple[_Span, _Span]:
        height, width = mask.shape
        if self.size is None:
            return _Span(0, height, height, 0), _Span(0, width, width, 0)
        down, right = places
        return _span(height, self.size[0], factor, down), _span(width, self.size[1], factor, right)

    def _mask(self, mask: Tensor, spans: tuple[_Span, _Span]) -> Tensor:
        rows, columns = (span.start + nearest_index(span.length, span.size) for span in spans)
        return self._framed(mask.index_select(0, rows).index_select(1, columns)[None], spans, (VOID,))[0]

    def _image(self, image: Tensor, spans: tuple[_Span, _Span]) -> Tensor:
        y, x = spans
        window = image[:, y.start : y.start + y.length, x.start : x.start + x.length]
        return self._framed(resize_image(window, (y.size, x.size)), spans, MEAN_COLOR)

    def _framed(self, part: Tensor, spans: tuple[_Span, _Span], fill: tuple[int, ...]) -> Tensor:
        """The part of the crop that shows the picture, in its place."""
        height, width = self.size or part.shape[1:]
        if part.shape[1:] == (height, width):
            return part
        y, x = spans
        if self.border == "reflect":
            return part.index_select(1, _mirrored(y, height)).index_select(2, _mirrored(x, width))
        frame = torch.tensor(fill, dtype=part.dtype)[:, None, None].repeat(1, height, width)
        frame[:, y.offset : y.offset + y.size, x.offset : x.offset + x.size] = part
        return frame


def _span(old: int, crop: int, factor: float, place: float) -> _Span:
    """`place` in [0, 1) chooses evenly among the positions that there are."""
    scaled = max(1, round(old * factor))
    if scaled <= crop:
        return _Span(0, old, scaled, int(place * (crop - scaled + 1)))
    length = min(old, max(1, round(crop / factor)))
    return _Span(int(place * (old - length + 1)), length, crop, 0)


def _mirrored(span: _Span, crop: int) -> Tensor:
    """For each pixel of the crop one of the part's, which is mirrored at its outer pixels as often as needed."""
    period = max(2 * (span.size - 1), 1)
    place = (torch.arange(crop) - span.offset) % period
    return torch.minimum(place, period - place) if span.size > 1 else torch.zeros_like(place)
