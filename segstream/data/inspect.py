"""What is in a data folder, and what is wrong with it. Reads every file once and raises for a missing folder only."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from segstream.data.datasets.folder import LISTS, Pair, check_pair, list_images, mask_path, read_classes, read_list
from segstream.data.images import read_image, read_mask, value_lookup
from segstream.data.source import DataError

__all__ = ["ClassCount", "FolderReport", "inspect_folder"]

SHOWN = 5


@dataclass(frozen=True)
class ClassCount:
    """A class of the folder: its mask value, its pixels, and the pictures of each part in which it occurs.

    >>> ClassCount(2, "car", pixels=40, images={"train": 1, "val": 0}).images["train"]
    1
    """

    value: int
    name: str
    pixels: int
    images: Mapping[str, int]


@dataclass(frozen=True)
class FolderReport:
    """What `inspect_folder` found.

    parts       pictures in train, val and test;  unlisted: pictures in no list, where there are lists
    smallest, largest   (height, width) by area, of the upright pictures that could be read
    shared      for each pair of lists, the ids that are in both
    duplicates  groups of ids whose picture files are the same byte for byte
    problems    sentences: the folder cannot be used before these are mended
    notes       sentences: it can be used, but is this meant?

    >>> FolderReport(root="photos", problems=("photos/masks/a.png does not exist.",)).ok
    False
    """

    root: str
    parts: Mapping[str, int] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()
    classes: tuple[ClassCount, ...] = ()
    void_pixels: int = 0
    unlabeled_pixels: int = 0
    smallest: tuple[int, int] | None = None
    largest: tuple[int, int] | None = None
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    duplicates: tuple[tuple[str, ...], ...] = ()
    stray_masks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the folder can be used."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


class _Reader:
    """Collects over the files what the report tells."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.counts: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}  # id to pixels of each value 0 .. 255

    def lists(self, images: Mapping[str, Path]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in LISTS:
            path = self.root / f"{name}.txt"
            if path.is_file():
                try:
                    found[name] = read_list(path, images)
                except DataError as error:
                    self.problems.append(str(error))
        return found

    def classes(self, names: Sequence[str] | None, void: int | None, unlabeled: int | None) -> tuple[str, ...] | None:
        try:
            classes = read_classes(self.root, names)
            value_lookup(len(classes), void=void, unlabeled=unlabeled)
            return classes
        except DataError as error:
            self.problems.append(str(error))
            return None

    def picture(self, key: str, image: Path) -> None:
        try:
            turn = check_pair(Pair(key, image, mask_path(self.root, key, image)))
            pixels = read_image(image)
            values = read_mask(mask_path(self.root, key, image), orientation=turn)
        except DataError as error:
            self.problems.append(str(error))
            return
        self.sizes.append((pixels.shape[1], pixels.shape[2]))
        self.counts[key] = np.bincount(values.ravel(), minlength=256)

    def beyond(self, names: Sequence[str], others: set[int | None]) -> None:
        for key, counts in self.counts.items():
            if wrong := [int(v) for v in np.flatnonzero(counts) if v >= len(names) and v not in others]:
                self.problems.append(
                    f"{self.root / 'masks' / key}.png holds the value{'s' * (len(wrong) > 1)} {_some(wrong)}, but "
                    f"there are {len(names)} classes, numbered 0 to {len(names) - 1}."
                )


def _some(items: Iterable[object]) -> str:
    shown = [str(item) for item in items]
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def _shared(lists: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    pairs = {f"{a}.txt and {b}.txt": set(lists[a]) & set(lists[b]) for a, b in combinations(lists, 2)}
    return {pair: tuple(sorted(ids)) for pair, ids in pairs.items() if ids}


def _same_files(images: Mapping[str, Path]) -> tuple[tuple[str, ...], ...]:
    by_size: dict[int, list[str]] = defaultdict(list)
    for key, path in images.items():
        by_size[path.stat().st_size].append(key)
    groups: dict[bytes, list[str]] = defaultdict(list)
    for keys in by_size.values():
        for key in keys if len(keys) > 1 else ():
            groups[hashlib.sha256(images[key].read_bytes()).digest()].append(key)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _stray_masks(root: Path, images: Mapping[str, Path]) -> tuple[str, ...]:
    base = root / "masks"
    files = (Path(folder, name) for folder, _, names in os.walk(base) for name in names if not name.startswith("."))
    return tuple(
        sorted(
            p.relative_to(base).as_posix()
            for p in files
            if p.relative_to(base).with_suffix("").as_posix() not in images
        )
    )


def _class_counts(
    reader: _Reader, names: Sequence[str] | None, parts: Mapping[str, Sequence[str]], others: set[int | None]
) -> tuple[ClassCount, ...]:
    total = sum(reader.counts.values(), np.zeros(256, dtype=np.int64))
    values = range(len(names)) if names else [int(v) for v in np.flatnonzero(total)]
    return tuple(
        ClassCount(
            value,
            names[value] if names else f"value {value}",
            int(total[value]),
            {
                part: sum(int(reader.counts[k][value] > 0) for k in ids if k in reader.counts)
                for part, ids in parts.items()
            },
        )
        for value in values
        if value not in others
    )


def _notes(report: FolderReport) -> Iterable[str]:
    for pair, ids in report.shared.items():
        yield f"{len(ids)} pictures are in both {pair}: {_some(ids)}. Scores on them would be too good."
    for group in report.duplicates:
        yield f"These pictures are the same file: {_some(group)}."
    if report.unlisted:
        yield f"{len(report.unlisted)} pictures are in no list and are not used: {_some(report.unlisted)}."
    if report.stray_masks:
        yield f"{len(report.stray_masks)} masks have no picture: {_some(report.stray_masks)}."
    if absent := [c.name for c in report.classes if c.value and not c.pixels]:
        yield f"These classes have no pixel: {_some(absent)}."
    used = [c for c in report.classes if c.pixels]
    if len(used) == 1 and used[0].value and not report.unlabeled_pixels:
        yield f"Every pixel is {used[0].name} or void: a model taught from this alone would see it everywhere."


def inspect_folder(
    root: str | Path,
    *,
    names: Sequence[str] | None = None,
    void: int | None = 255,
    unlabeled: int | None = None,
) -> FolderReport:
    """Counts classes, pixels and pictures of a folder and collects everything that is wrong with it.

    >>> inspect_folder("no/such/folder")
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder no/such/folder.
    """
    root = Path(root)
    void = None if void == unlabeled else void
    images = list_images(root)
    reader = _Reader(root)
    classes = reader.classes(names, void, unlabeled)
    lists = reader.lists(images)
    listed = {key for ids in lists.values() for key in ids}
    parts = lists if "train" in lists else {"train": [key for key in images if key not in listed], **lists}
    for key, image in images.items():
        reader.picture(key, image)
    others = {void, unlabeled} - {None}
    if classes:
        reader.beyond(classes, others)
    total = sum(reader.counts.values(), np.zeros(256, dtype=np.int64))
    by_area = sorted(reader.sizes, key=lambda size: (size[0] * size[1], size))
    report = FolderReport(
        root=str(root),
        parts={part: len(ids) for part, ids in parts.items()},
        unlisted=tuple(key for key in images if key not in listed) if "train" in lists else (),
        classes=_class_counts(reader, classes, parts, others),
        void_pixels=0 if void is None else int(total[void]),
        unlabeled_pixels=0 if unlabeled is None else int(total[unlabeled]),
        smallest=by_area[0] if by_area else None,
        largest=by_area[-1] if by_area else None,
        shared=_shared(lists),
        duplicates=_same_files(images),
        stray_masks=_stray_masks(root, images),
        problems=tuple(reader.problems),
    )
    return FolderReport(**{**vars(report), "notes": tuple(_notes(report))})
