"""The same pictures after every stage: masks and photographs of run folders, as data that a page can hold."""

from __future__ import annotations

import base64
import io
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from segstream.classes import ClassTable
from segstream.report.record import Record

__all__ = ["Gallery", "Mask", "Picture", "gallery", "hex_color"]

MOST = 6  # pictures on one page; the rest stays in the run folders
SIDE = 384  # pixels that are stored of a side: twice what is shown
VOID_VALUE = 255

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mask:
    """A mask ready for the page: its data URI, what it shows in words, and how much of it is right."""

    uri: str
    words: str
    right: float | None = None


@dataclass(frozen=True)
class Picture:
    """One photograph, its truth as known after each stage, and what every run made of it (label -> stage -> mask)."""

    id: str
    image: str | None
    stages: tuple[int, ...]
    truth: Mapping[int, Mask]
    found: Mapping[str, Mapping[int, Mask]]


@dataclass(frozen=True)
class Gallery:
    """Pictures, the colours of the classes that occur in them, and what could not be shown."""

    pictures: tuple[Picture, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    left: int = 0
    unreadable: tuple[str, ...] = field(default=())


def hex_color(color: Sequence[int]) -> str:
    """
    >>> hex_color((255, 0, 16))
    '#ff0010'
    """
    return "#" + "".join(f"{v:02x}" for v in color[:3])


@dataclass
class _Desk:
    """What is collected while the masks are read."""

    names: tuple[str, ...]
    colors: dict[int, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def gallery(records: Sequence[Record], *, most: int = MOST) -> Gallery:
    """What the folders `predictions/` of these runs hold, at most so many pictures. Give labelled runs.

    >>> gallery([Record(Path("nowhere"), "em", "em")]).pictures
    ()
    """
    names = max((r.names for r in records), key=len, default=())
    desk = _Desk(names)
    ids = _ids(records)
    pictures = [_picture(id, records, desk) for id in ids[:most]]
    legend = tuple(
        ("void, not scored" if v == VOID_VALUE else names[v] if v < len(names) else f"class {v}", color)
        for v, color in sorted(desk.colors.items())
    )
    return Gallery(tuple(pictures), legend, max(0, len(ids) - most), tuple(desk.unreadable))


def _ids(records: Sequence[Record]) -> list[str]:
    """Names of the pictures, those that most runs have first."""
    often = Counter(
        id for record in records for id in {path.stem for path in (record.folder / "predictions").glob("**/*.png")}
    )
    return sorted(often, key=lambda id: (-often[id], _natural(id)))


def _natural(name: str) -> list[tuple[int, str]]:
    """So that picture 10 comes after picture 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _picture(id: str, records: Sequence[Record], desk: _Desk) -> Picture:
    image: str | None = None
    truth: dict[int, npt.NDArray[np.uint8]] = {}
    shown_truth: dict[int, Mask] = {}
    found: dict[str, dict[int, Mask]] = {}
    for record in records:
        place = record.folder / "predictions"
        image = image or _photograph(place / "images" / f"{id}.png", desk)
        for stage, path in _by_stage(place / "truth", id).items():
            if stage not in truth and (read := _mask(path, desk)):
                truth[stage], shown_truth[stage] = read[0], _shown(*read, desk)
        found[record.label] = {
            stage: _shown(*read, desk, truth.get(stage))
            for stage, path in _by_stage(place, id).items()
            if (read := _mask(path, desk))
        }
    stages = sorted({*truth, *(t for masks in found.values() for t in masks)})
    return Picture(id, image, tuple(stages), shown_truth, found)


def _by_stage(folder: Path, id: str) -> dict[int, Path]:
    paths = {}
    for place in folder.glob("stage-*"):
        number = place.name.removeprefix("stage-")
        if number.isdigit() and (path := place / f"{id}.png").is_file():
            paths[int(number)] = path
    return dict(sorted(paths.items()))


def _photograph(path: Path, desk: _Desk) -> str | None:
    if not path.is_file():
        return None
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (OSError, UnidentifiedImageError, ValueError) as error:
        _unreadable(path, error, desk)
        return None
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return _uri(image)


def _mask(path: Path, desk: _Desk) -> tuple[npt.NDArray[np.uint8], list[int]] | None:
    """Class numbers and palette of an indexed picture; one without a palette gets the classes' own colours."""
    try:
        with Image.open(path) as opened:
            opened.load()
            if opened.mode not in {"P", "L"}:
                raise ValueError(f"it is {opened.mode}, not an indexed picture")
            values = np.asarray(opened, dtype=np.uint8).copy()
            palette = list(opened.getpalette("RGB") or []) if opened.mode == "P" else []
    except (OSError, UnidentifiedImageError, ValueError) as error:
        _unreadable(path, error, desk)
        return None
    whole = ClassTable(desk.names[1:]).palette()
    palette = palette + whole[len(palette) :]
    for value in np.unique(values).tolist():
        desk.colors.setdefault(value, hex_color(palette[3 * value : 3 * value + 3]))
    return values, palette


def _unreadable(path: Path, error: Exception, desk: _Desk) -> None:
    logger.warning("%s cannot be shown: %s", path, error)
    desk.unreadable.append(path.as_posix())


def _shown(
    values: npt.NDArray[np.uint8], palette: Sequence[int], desk: _Desk, truth: npt.NDArray[np.uint8] | None = None
) -> Mask:
    image = Image.fromarray(values)
    image.putpalette(list(palette))
    image.thumbnail((SIDE, SIDE), Image.Resampling.NEAREST)
    right = None
    if truth is not None and truth.shape == values.shape:
        scored = truth != VOID_VALUE
        right = float(100 * (values == truth)[scored].mean()) if scored.any() else None
    return Mask(_uri(image), _words(values, desk.names), right)


def _words(values: npt.NDArray[np.uint8], names: Sequence[str]) -> str:
    """What somebody who cannot see the mask should hear of it.

    >>> _words(np.array([[0, 0, 1, 1]], dtype=np.uint8), ("background", "sky"))
    'background 50 %, sky 50 %'
    """
    counts = np.bincount(values.ravel(), minlength=256)
    counts[VOID_VALUE] = 0
    told = [
        f"{names[v] if v < len(names) else f'class {v}'} {100 * counts[v] / values.size:.0f} %"
        for v in np.argsort(-counts, kind="stable")[:4].tolist()
        if counts[v] * 100 >= values.size
    ]
    return ", ".join(told) or "nothing but void"


def _uri(image: Image.Image) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
