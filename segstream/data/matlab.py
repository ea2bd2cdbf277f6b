"""Masks in MATLAB files, as the Semantic Boundaries Dataset (SBD) has them.

A reader for one array only: a megabyte-sized library would otherwise be needed for 9,000 small files whose form is
fixed, and would also unpack the twenty sparse boundary maps that lie beside each mask.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from segstream.data.source import DataError

__all__ = ["read_sbd_mask"]

HEADER = 128  # bytes of text, version and byte order before the first element
MATRIX, COMPRESSED, UINT8 = 14, 15, 2  # kinds of elements
STRUCT = 2  # class of a matrix; the classes of plain numbers begin with
FIRST_NUMERIC = 6
LARGEST = 1 << 28  # bytes that one variable may unpack to
WHOLE_ALONE = "Copy it again from the archive benchmark.tgz."


@dataclass(frozen=True)
class _Element:
    """One piece of the file: what it is, and its bytes."""

    kind: int
    data: memoryview


class _Reader:
    """Elements one after the other, each padded to eight bytes."""

    def __init__(self, data: memoryview, order: str) -> None:
        self.data = data
        self.order = order
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def next(self) -> _Element:
        first, size = struct.unpack_from(f"{self.order}II", self.data, self.at)
        start, end = self.at + 8, self.at + 8 + size
        if first >> 16:  # a small one: kind and size share the first word, the bytes follow at once
            first, size = first & 0xFFFF, first >> 16
            start, end = self.at + 4, self.at + 8
            if size > 4:
                raise ValueError("an element does not fit its place")
        if end > len(self.data):
            raise ValueError("an element ends behind the file")
        self.at = end if first == COMPRESSED else -(-end // 8) * 8
        return _Element(first, self.data[start : start + size])

    def inside(self, element: _Element) -> _Reader:
        return _Reader(element.data, self.order)

    def whole_numbers(self) -> tuple[int, ...]:
        data = self.next().data
        return struct.unpack(f"{self.order}{len(data) // 4}i", data)


def read_sbd_mask(path: Path | str) -> npt.NDArray[np.uint8]:
    """The class numbers [H, W] of a file of SBD's folder cls/: the field `Segmentation` of its variable `GTcls`.

    >>> read_sbd_mask("none.mat")
    Traceback (most recent call last):
    segstream.data.source.DataError: none.mat does not exist.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist.") from error
    try:
        found = _variable(data)
    except (ValueError, struct.error, zlib.error) as error:
        raise DataError(f"{path} cannot be read as a MATLAB file of SBD ({error}). {WHOLE_ALONE}") from error
    if found is None:
        raise DataError(f"{path} holds no mask of SBD (no GTcls with a field Segmentation). {WHOLE_ALONE}")
    return found


def _variable(data: bytes) -> npt.NDArray[np.uint8] | None:
    order = {b"IM": "<", b"MI": ">"}.get(data[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("it is not in MATLAB's format 5")
    reader = _Reader(memoryview(data)[HEADER:], order)
    while reader:
        element = reader.next()
        if element.kind == COMPRESSED:
            unpacker = zlib.decompressobj()
            element = _Reader(memoryview(unpacker.decompress(element.data, LARGEST)), order).next()
        if element.kind == MATRIX and (found := _segmentation(reader.inside(element))) is not None:
            return found
    return None


def _segmentation(reader: _Reader) -> npt.NDArray[np.uint8] | None:
    """The mask of a variable, if it is the structure that holds one."""
    flags, _shape, name = reader.whole_numbers(), reader.whole_numbers(), bytes(reader.next().data)
    if flags[0] & 0xFF != STRUCT or name != b"GTcls":
        return None
    (length,) = reader.whole_numbers()
    text = bytes(reader.next().data)
    fields = [text[i : i + length].rstrip(b"\0") for i in range(0, len(text), length)]
    for field in fields:
        element = reader.next()
        if field == b"Segmentation":
            return _numbers(reader.inside(element))
    return None


def _numbers(reader: _Reader) -> npt.NDArray[np.uint8]:
    flags, shape = reader.whole_numbers(), reader.whole_numbers()
    reader.next()  # its name, which a field does not have
    values = reader.next()
    if flags[0] & 0xFF < FIRST_NUMERIC or len(shape) != 2 or values.kind != UINT8:
        raise ValueError("the mask is not a plane of whole numbers from 0 to 255")
    plane = np.frombuffer(values.data, np.uint8).reshape(shape, order="F")  # MATLAB writes column by column
    return np.ascontiguousarray(plane)
