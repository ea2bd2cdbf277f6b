"""People's own pictures: found, brought to a size that a network likes, and shown with what was found on them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional as F

from segstream.classes import BACKGROUND, ClassTable
from segstream.data.images import IMAGE_SUFFIXES
from segstream.data.source import DataError, Derived, Source
from segstream.evaluate import Predictor
from segstream.functional.resize import resize_image, resize_mask
from segstream.types import Prediction

__all__ = ["MAX_SIDE", "AtMost", "Smaller", "bounded", "enlarge_mask", "find_photos", "overlay_png"]

MAX_SIDE = 1024
"""Pictures are brought down to this longer side, for learning and for prediction alike."""


def find_photos(places: Sequence[Path], *, leave_out: Path | None = None) -> dict[str, Path]:
    """Name to file of all pictures that are named, or lie in or below the folders that are named.

    A file's name is its stem; in a folder it is the path from there. Of a data folder, its `images/` is taken. What
    lies below `leave_out` (where the answers go) is passed over.

    >>> find_photos([Path("nowhere.jpg")])
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no file or folder nowhere.jpg.
    """
    found: dict[str, Path] = {}
    shut = None if leave_out is None else leave_out.resolve()
    for place in places:
        if not place.exists():
            raise DataError(f"There is no file or folder {place}.")
        if shut is not None and place.resolve().is_relative_to(shut):
            raise DataError(f"{place} lies in {leave_out}, where the answers go; give another folder for these.")
        inside = list(_pictures_below(place, shut)) if place.is_dir() else [(place.stem, place)]
        if not inside:
            raise DataError(f"{place} holds no pictures; known are {', '.join(sorted(IMAGE_SUFFIXES))}.")
        for name, path in inside:
            if path.suffix.lower() not in IMAGE_SUFFIXES:
                raise DataError(
                    f"{path} is no picture that can be read; known are {', '.join(sorted(IMAGE_SUFFIXES))}."
                )
            if name in found and found[name].resolve() != path.resolve():
                raise DataError(f"{found[name]} and {path} would both be called {name!r}; rename one of them.")
            found[name] = path
    return found


def _pictures_below(folder: Path, shut: Path | None) -> Iterable[tuple[str, Path]]:
    base = folder / "images" if (folder / "images").is_dir() else folder
    for here, folders, files in os.walk(base):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and Path(here, f).resolve() != shut)
        for file in sorted(files):
            path = Path(here, file)
            if not file.startswith(".") and path.suffix.lower() in IMAGE_SUFFIXES:
                yield path.relative_to(base).with_suffix("").as_posix(), path


def bounded(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    """(height, width) of the same shape whose longer side is at most `max_side`.

    >>> bounded((3000, 4000), 1024), bounded((30, 40), 1024), bounded((2, 9000), 100)
    ((768, 1024), (30, 40), (1, 100))
    """
    longer = max(size)
    if longer <= max_side:
        return size
    return max(1, round(size[0] * max_side / longer)), max(1, round(size[1] * max_side / longer))


def enlarge_mask(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """int16 [h, w] to [H, W] with smooth outlines: each class is enlarged as a soft shape, the highest one counts.

    >>> enlarge_mask(torch.tensor([[1, 4]], dtype=torch.int16), (2, 4)).tolist()
    [[1, 1, 4, 4], [1, 1, 4, 4]]
    """
    if tuple(mask.shape) == tuple(size):
        return mask
    best = torch.full(size, -1.0)
    found = torch.zeros(size, dtype=torch.int16)
    here = torch.bincount(mask.flatten().to(torch.int64)).nonzero().flatten().tolist()
    for slot in here:  # few, however many classes there are
        shape = F.interpolate((mask == slot).float()[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]
        higher = shape > best
        best = torch.where(higher, shape, best)
        found[higher] = slot
    return found


@dataclass(frozen=True)
class AtMost:
    """A predictor that sees pictures of at most `max_side` and answers in the size that they came in.

    >>> class Blank:
    ...     def predict(self, images):
    ...         sizes = [tuple(i.shape[1:]) for i in images]
    ...         return Prediction(tuple(torch.ones(s, dtype=torch.int16) for s in sizes), tuple(map(torch.ones, sizes)))
    >>> found = AtMost(Blank(), max_side=8).predict([torch.zeros(3, 30, 20, dtype=torch.uint8)])
    >>> found.masks[0].shape, found.confidence[0].shape
    (torch.Size([30, 20]), torch.Size([30, 20]))
    """

    predictor: Predictor
    max_side: int = MAX_SIDE

    def predict(self, images: Sequence[Tensor], /) -> Prediction:
        sizes = [(int(i.shape[1]), int(i.shape[2])) for i in images]
        small = [resize_image(i, bounded(size, self.max_side)) for i, size in zip(images, sizes, strict=True)]
        found = self.predictor.predict(small)
        return Prediction(
            tuple(enlarge_mask(m.cpu(), size) for m, size in zip(found.masks, sizes, strict=True)),
            tuple(_enlarge(c.cpu(), size) for c, size in zip(found.confidence, sizes, strict=True)),
        )


def _enlarge(values: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(values.shape) == size:
        return values
    return F.interpolate(values[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]


class Smaller(Derived):
    """A source whose large pictures come scaled to `max_side`.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 4, 8, dtype=torch.uint8), torch.ones(4, 8, dtype=torch.uint8))
    >>> Smaller(wrap([picture], ["background", "car"]), 4).load(0)[0].shape
    torch.Size([3, 2, 4])
    """

    def __init__(self, source: Source, max_side: int = MAX_SIDE) -> None:
        if max_side < 1:
            raise DataError(f"The longer side of a picture cannot be {max_side} pixels.")
        super().__init__(source)
        self.max_side = max_side

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        image, mask = self.source.load(i)
        size = bounded((int(image.shape[1]), int(image.shape[2])), self.max_side)
        return resize_image(image, size), resize_mask(mask, size)


def overlay_png(image: Tensor, mask: Tensor, classes: ClassTable, *, strength: float = 0.5) -> bytes:
    """The picture tinted by class, with outlines, and below it a legend of what was found and how much of it.

    >>> image, mask = torch.zeros(3, 8, 40, dtype=torch.uint8), torch.ones(8, 40, dtype=torch.int16)
    >>> picture = Image.open(io.BytesIO(overlay_png(image, mask, ClassTable(("car",)))))
    >>> picture.width, picture.height > 8
    (40, True)
    """
    found = mask.to(torch.int64)
    colors = torch.tensor([classes.color(s) for s in range(len(classes))], dtype=torch.float32)
    tint = colors[found]  # H W 3
    opacity = torch.where(found == BACKGROUND, 0.0, strength)
    opacity[_outline(found) & (found != BACKGROUND)] = 1.0
    plain = image.permute(1, 2, 0).float()
    blended = (plain + opacity[..., None] * (tint - plain)).round().to(torch.uint8)
    picture = _with_legend(Image.fromarray(blended.numpy()), found, classes)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=3)  # a third of the time of the default, a tenth larger
    return buffer.getvalue()


def _outline(mask: Tensor) -> Tensor:
    """Pixels beside another class; thicker on large pictures, so that it stays visible."""
    edge = torch.zeros_like(mask, dtype=torch.bool)
    for step in range(1, 2 + max(mask.shape) // 1200):
        beside, below = mask[:, step:] != mask[:, :-step], mask[step:] != mask[:-step]
        edge[:, step:] |= beside
        edge[:, :-step] |= beside
        edge[step:] |= below
        edge[:-step] |= below
    return edge


def _with_legend(picture: Image.Image, found: Tensor, classes: ClassTable) -> Image.Image:
    shares = torch.bincount(found.flatten(), minlength=len(classes)).double() / found.numel()
    slots = sorted(
        (s for s in range(len(classes)) if shares[s] > 0), key=lambda s: (s == BACKGROUND, -float(shares[s]))
    )
    size = max(11, picture.width // 55)
    font = ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)
    rows, line, right = [], list[tuple[int, int, str]](), size // 2
    for slot in slots:
        text = f"{classes.name(slot)} {_percent(float(shares[slot]))}"
        width = round(font.getlength(text)) + 3 * size
        if line and right + width > picture.width:
            rows.append(line)
            line, right = [], size // 2
        line.append((right, slot, text))
        right += width
    rows.append(line)
    step = 2 * size
    whole = Image.new("RGB", (picture.width, picture.height + step * len(rows)), "white")
    whole.paste(picture)
    draw = ImageDraw.Draw(whole)
    for number, row in enumerate(rows):
        top = picture.height + number * step + size // 2
        for x, slot, text in row:
            fill = classes.color(slot) if slot != BACKGROUND else (255, 255, 255)
            draw.rectangle((x, top, x + size, top + size), fill=fill, outline=(90, 90, 90))
            draw.text((x + round(1.5 * size), top + size / 2), text, fill=(30, 30, 30), font=font, anchor="lm")
    return whole


def _percent(share: float) -> str:
    return "<1%" if share < 0.005 else f"{100 * share:.0f}%"
