"""Picture files to arrays: upright, 8 bit, checked. Whatever goes wrong becomes a sentence with the file's name."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from segstream.classes import UNLABELED, VOID
from segstream.data.source import DataError

__all__ = [
    "IMAGE_SUFFIXES",
    "Header",
    "check_image",
    "check_mask",
    "image_to_tensor",
    "look_up",
    "read_image",
    "read_mask",
    "value_lookup",
]

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})
INVALID = VOID - 1  # a value that stands for nothing
TAIL = 4096  # some cameras write a few bytes behind the end of the picture

_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
_TURNS = {  # the EXIF orientation tag: how to bring the stored picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_HOW_TO_SAVE = "Save it as an 8-bit grayscale or indexed (palette) PNG whose values are line numbers of classes.txt."


@dataclass(frozen=True)
class Header:
    """What a picture file says about itself: (height, width) as stored and the EXIF orientation.

    >>> Header((480, 640), orientation=6).upright
    (640, 480)
    """

    stored: tuple[int, int]
    orientation: int

    @property
    def upright(self) -> tuple[int, int]:
        return self.stored[::-1] if self.orientation >= 5 else self.stored


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The picture at `path`; whatever Pillow raises while it is in use becomes a DataError."""
    try:
        with Image.open(path) as image:
            yield image
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist.") from error
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read as a picture ({error}); replace it or take it out.") from error


def _orientation(image: Image.Image) -> int:
    # Asking a PNG for EXIF data decodes all of it unless they came before the pixels.
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & image.info.keys():
        return 1
    value = image.getexif().get(0x0112, 1)
    return value if value in _TURNS else 1


def _ends_well(path: Path, kind: str | None) -> bool:
    """Whether the file's end mark is where it belongs. Only JPEG and PNG have one that is cheap to find."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - TAIL, 0))
        tail = file.read()
    return b"\xff\xd9" in tail if kind == "JPEG" else tail.endswith(b"IEND\xaeB`\x82") and kind == "PNG"


def check_image(path: Path) -> Header:
    """The header of a picture file. One that does not end as it should is decoded, to find out if it is truncated.

    >>> check_image(Path("none.jpg"))
    Traceback (most recent call last):
    segstream.data.source.DataError: none.jpg does not exist.
    """
    with _opened(path) as image:
        if not _ends_well(path, image.format):
            image.load()
        return Header((image.height, image.width), _orientation(image))


def check_mask(path: Path) -> tuple[int, int]:
    """(height, width) of a mask file, after the same look at its end; refuses what cannot hold class numbers.

    >>> check_mask(Path("none.png"))
    Traceback (most recent call last):
    segstream.data.source.DataError: none.png does not exist.
    """
    with _opened(path) as image:
        _refuse_colours(image, path)
        if not _ends_well(path, image.format):
            image.load()
        return image.height, image.width


def _refuse_colours(image: Image.Image, path: Path) -> None:
    if image.format != "PNG":
        raise DataError(f"The mask {path} is a {image.format} file. {_HOW_TO_SAVE}")
    if image.mode in ("1", "L", "P"):
        return
    if image.mode.startswith("I"):
        what = "has 16 bits a pixel"
    elif image.mode in ("RGB", "RGBA"):
        what = "holds colours (it is saved as RGB), not class numbers"
    else:
        what = f"is saved in mode {image.mode}, which does not hold plain class numbers"
    raise DataError(f"The mask {path} {what}. {_HOW_TO_SAVE}")


def image_to_tensor(image: Image.Image, *, name: str) -> Tensor:
    """Any Pillow picture as uint8 [3, H, W].

    Gray is repeated, transparent parts lie on white, of 16 bits the upper 8 stay. `name` is for error messages.

    >>> image_to_tensor(Image.new("L", (4, 2), 9), name="gray").shape
    torch.Size([3, 2, 4])
    """
    if image.mode == "F":
        raise DataError(f"{name} holds fractions (mode F); save it with 8 bits for each colour.")
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min() < 0 or wide.max() > 65535:
            raise DataError(f"{name} holds values from {wide.min()} to {wide.max()}; a picture has 8 or 16 bits.")
        gray = torch.from_numpy((wide >> 8).astype(np.uint8))
        return gray.expand(3, -1, -1).contiguous()
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    pixels = np.array(image.convert("RGB"))  # H W 3
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def read_image(path: Path | str, *, upright: bool = True) -> Tensor:
    """A picture file as uint8 [3, H, W], turned upright as its EXIF data say unless `upright` is false.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (4, 2)).save(f"{folder}/a.png")
    ...     read_image(f"{folder}/a.png").shape
    torch.Size([3, 2, 4])
    """
    path = Path(path)
    with _opened(path) as image:
        image.load()
        turn = _TURNS.get(_orientation(image)) if upright else None
        return image_to_tensor(image if turn is None else image.transpose(turn), name=str(path))


def _bits(path: Path) -> int:
    with path.open("rb") as file:
        return file.read(25)[24]


def read_mask(path: Path | str, *, orientation: int = 1) -> npt.NDArray[np.uint8]:
    """The numbers in a mask file, [H, W]: indices of a palette PNG, never its colours.

    `orientation` turns it as EXIF would: for a mask that was drawn on the picture as stored.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (3, 1), 7).save(f"{folder}/a.png")
    ...     read_mask(f"{folder}/a.png").tolist()
    [[7, 7, 7]]
    """
    path = Path(path)
    with _opened(path) as image:
        _refuse_colours(image, path)
        turn = _TURNS.get(orientation)
        values = np.array(image if turn is None else image.transpose(turn)).astype(np.uint8, copy=False)
        if image.mode == "L" and (bits := _bits(path)) in (2, 4):
            values //= {2: 85, 4: 17}[bits]  # Pillow stretches 2 and 4 bits of gray to the range 0 .. 255
        return values


def value_lookup(count: int, *, void: int | None, unlabeled: int | None) -> npt.NDArray[np.int16]:
    """For each value 0 .. 255 of a mask file: itself if one of `count` classes has it, UNLABELED, VOID or INVALID.

    >>> value_lookup(2, void=255, unlabeled=254)[[0, 1, 2, 254, 255]].tolist()
    [0, 1, -3, -1, -2]
    """
    for label, value in (("void", void), ("unlabeled", unlabeled)):
        if value is not None and not 0 <= value <= 255:
            raise DataError(f"`{label}` is {value}; an 8-bit mask holds values from 0 to 255.")
    if unlabeled is not None and 1 <= unlabeled < count:
        raise DataError(f"`unlabeled` is {unlabeled}, but that value is a class of classes.txt (1 to {count - 1}).")
    if void == unlabeled:
        void = None  # whoever names 255 as unlabelled means that there is no void
    if count > 256 or (void is not None and void < count):
        raise DataError(f"{count} classes leave no room for the void value {void} in an 8-bit mask.")
    lookup = np.full(256, INVALID, dtype=np.int16)
    lookup[:count] = np.arange(count)
    if unlabeled is not None:
        lookup[unlabeled] = UNLABELED
    if void is not None:
        lookup[void] = VOID
    return lookup


def look_up(
    values: npt.NDArray[np.uint8], lookup: npt.NDArray[np.int16], *, names: Sequence[str], where: str
) -> npt.NDArray[np.int16]:
    """The mask in file numbering; a value that stands for nothing is an error that names it and the file.

    >>> look_up(np.uint8([[0, 7]]), value_lookup(2, void=255, unlabeled=7), names=("background", "car"), where="a.png")
    array([[ 0, -1]], dtype=int16)
    """
    found: npt.NDArray[np.int16] = np.take(lookup, values)
    if found.size and found.min() == INVALID:
        bad = values[found == INVALID]
        raise DataError(
            f"{where} holds the value {int(bad.min())} (in {int((bad == bad.min()).sum())} pixels), but there are "
            f"{len(names)} classes, numbered 0 to {len(names) - 1}. Name it in classes.txt or repair the mask."
        )
    return found
