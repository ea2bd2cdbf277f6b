"""Any folder of images and masks.

    images/       pictures (JPEG, PNG, ...), in subfolders too
    masks/        the same paths, as PNG: 8 bit, grayscale or indexed; 255 is void
    classes.txt   one class a line; the first line is value 0, the background
    train.txt, val.txt, test.txt   one picture a line, by its path in images/, with or without the suffix

Without lists every picture is for training; without train.txt alone, every picture that no other list names.
Without test.txt the test part is empty. An image is turned upright as its EXIF data say; a mask is taken as it is,
unless its size fits only the picture as stored: then it is turned with it.
"""

from __future__ import annotations

import difflib
import glob
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from segstream.data.images import (
    IMAGE_SUFFIXES,
    check_image,
    check_mask,
    look_up,
    read_image,
    read_mask,
    value_lookup,
)
from segstream.data.source import DataError, Splits, checked_size, present_classes
from segstream.functional.resize import resize_image, resize_mask

__all__ = ["open_folder", "FolderSource", "Pair", "check_pair", "list_images", "read_classes", "read_list"]  # noqa: RUF022

log = logging.getLogger(__name__)
LISTS = ("train", "val", "test")


@dataclass(frozen=True)
class Pair:
    """One picture of a folder: its id (path in images/ without suffix) and its two files.

    >>> Pair("a", Path("images/a.jpg"), Path("masks/a.png")).id
    'a'
    """

    id: str
    image: Path
    mask: Path


class FolderSource:
    """Pictures of a folder. Opening it reads the headers of all its files; mask values are read in one pass on demand.

    >>> FolderSource([], names=("background", "car")).names
    ('background', 'car')
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        *,
        names: Sequence[str],
        void: int | None = 255,
        unlabeled: int | None = None,
        image_size: Sequence[int] = (),
    ) -> None:
        self.pairs = tuple(pairs)
        self._names = tuple(names)
        self._lookup = value_lookup(len(names), void=void, unlabeled=unlabeled)
        self._size = checked_size(image_size)
        self._turns = [check_pair(pair) for pair in self.pairs]
        self._present: list[frozenset[int]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def ids(self) -> Sequence[str]:
        return tuple(pair.id for pair in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        image, mask = read_image(self.pairs[i].image), self._mask(i)
        if image.shape[1:] != mask.shape and self._size is None:
            raise DataError(_other_size(self.pairs[i], tuple(image.shape[1:]), tuple(mask.shape)))
        return (image, mask) if self._size is None else (resize_image(image, self._size), mask)

    def present(self, i: int) -> frozenset[int]:
        if self._present is None:
            log.info("Reading %d masks to see which classes they hold.", len(self))
            self._present = [present_classes(self._mask(k)) for k in range(len(self))]
        return self._present[i]

    def validate(self) -> None:
        """Reads every mask: afterwards only a damaged image can still surprise. Raises DataError."""
        if len(self):
            self.present(0)

    def _mask(self, i: int) -> Tensor:
        path = self.pairs[i].mask
        values = read_mask(path, orientation=self._turns[i])
        mask = torch.from_numpy(look_up(values, self._lookup, names=self._names, where=str(path)))
        return mask if self._size is None else resize_mask(mask, self._size)


def check_pair(pair: Pair) -> int:
    """The EXIF orientation that the mask needs, 1 for none; from the two headers. Raises DataError.

    >>> check_pair(Pair("a", Path("none.jpg"), Path("none.png")))
    Traceback (most recent call last):
    segstream.data.source.DataError: none.jpg does not exist.
    """
    header = check_image(pair.image)
    size = check_mask(pair.mask)
    if size == header.upright:
        return 1
    if size == header.stored:
        return header.orientation
    raise DataError(_other_size(pair, header.upright, size))


def _other_size(pair: Pair, image: tuple[int, ...], mask: tuple[int, ...]) -> str:
    return (
        f"The mask {pair.mask} is {mask[1]}x{mask[0]} pixels (width x height), but its image {pair.image} is "
        f"{image[1]}x{image[0]}."
    )


def list_images(root: Path) -> dict[str, Path]:
    """Id to file of every picture below root/images, in the order of the ids.

    >>> list_images(Path("nowhere"))
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder nowhere.
    """
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.")
    base = root / "images"
    if not base.is_dir():
        raise DataError(f"{root} has no folder images/; expected images/, masks/ and classes.txt in it.")
    found: dict[str, Path] = {}
    for folder, _, files in sorted(os.walk(base)):
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith(".") or path.suffix.lower() not in IMAGE_SUFFIXES:
                continue
            key = path.relative_to(base).with_suffix("").as_posix()
            if key in found:
                raise DataError(f"{found[key]} and {path} have the same name without suffix; rename one of them.")
            found[key] = path
    if not found:
        raise DataError(f"{base} holds no pictures; known are {', '.join(sorted(IMAGE_SUFFIXES))}.")
    return dict(sorted(found.items()))


def mask_path(root: Path, key: str, image: Path) -> Path:
    """The mask of a picture, which must exist."""
    for suffix in (".png", ".PNG"):
        path = root / "masks" / f"{key}{suffix}"
        if path.is_file():
            return path
    folder, stem = (root / "masks" / key).parent, Path(key).name
    others = sorted(folder.glob(f"{glob.escape(stem)}.*")) if folder.is_dir() else []
    hint = f" ({others[0].name} is there, but a mask must be a PNG: nothing else keeps its values.)" if others else ""
    raise DataError(f"{image} has no mask; expected {folder / stem}.png.{hint}")


def read_classes(root: Path, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The class list of a folder, or `names` where they are given; the first is the background.

    >>> read_classes(Path("nowhere"), ["Background", "car"])
    ('background', 'car')
    """
    path = root / "classes.txt"
    if names is None:
        if not path.is_file():
            raise DataError(
                f"There is no {path}. It names one class a line, in the order of the mask values; the first line is "
                "background. (In Python, give names=[...].)"
            )
        names = [line.strip() for line in _text(path).rstrip().split("\n")]
        where = str(path)
    else:
        where = "`names`"
    first, *others = names or [""]
    if first.strip("_ ").lower() != "background":
        raise DataError(f"{where} must begin with background, the meaning of mask value 0, not with {first!r}.")
    lines = {"background": 1}
    for number, name in enumerate(others, start=2):
        if not name.strip():
            raise DataError(f"{where} is empty in line {number}; every value up to the last class needs a name.")
        if name in lines:
            raise DataError(f"{where} names {name!r} twice, in lines {lines[name]} and {number}; names must differ.")
        lines[name] = number
    return tuple(lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}); save it as UTF-8.") from error


def read_list(path: Path, images: Mapping[str, Path]) -> list[str]:
    """The ids that a list names, in its order; lines may hold ids or file names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "train.txt")
    ...     _ = path.write_text("b.jpg" + chr(10) + "a")
    ...     read_list(path, {"a": Path("a.jpg"), "b": Path("b.jpg")})
    ['b', 'a']
    """
    by_name = {f"{key}{image.suffix}": key for key, image in images.items()}
    found: dict[str, int] = {}
    for number, line in enumerate(_text(path).splitlines(), start=1):
        name = line.strip().replace("\\", "/")
        if not name:
            continue
        key = name if name in images else by_name.get(name)
        if key is None:
            near = difflib.get_close_matches(name, images, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise DataError(f"{path} names {name!r} in line {number}, but images/ holds no such picture.{hint}")
        if key in found:
            raise DataError(f"{path} names {key!r} twice, in lines {found[key]} and {number}.")
        found[key] = number
    if not found:
        raise DataError(f"{path} names no picture; fill it or delete it.")
    return list(found)


def read_lists(root: Path, images: Mapping[str, Path]) -> dict[str, list[str]]:
    """The ids of the three parts. What train.txt would name if it were there is every picture of no other list."""
    parts = {name: read_list(root / f"{name}.txt", images) for name in LISTS if (root / f"{name}.txt").is_file()}
    if "train" not in parts:
        elsewhere = {key for ids in parts.values() for key in ids}
        parts["train"] = [key for key in images if key not in elsewhere]
    return {name: parts.get(name, []) for name in LISTS}


def open_folder(
    *,
    root: str | Path,
    train_size: int = 0,
    val_size: int = 0,
    test_size: int = 0,
    image_size: Sequence[int] = (),
    seed: int = 0,
    names: Sequence[str] | None = None,
    void: int | None = 255,
    unlabeled: int | None = None,
) -> Splits:
    """The three parts of a folder of images and masks; raises DataError, a sentence, where it is not right.

    A folder has the pictures that it has: `train_size`, `val_size`, `test_size` and `seed` are for datasets that are
    drawn. `image_size` (height, width) resizes every picture; `void` and `unlabeled` are mask values, and if both are
    the same, there is no void.

    >>> open_folder(root="no/such/folder")
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder no/such/folder.
    """
    root = Path(root)
    images = list_images(root)
    classes = read_classes(root, names)
    parts = {
        name: FolderSource(
            [Pair(key, images[key], mask_path(root, key, images[key])) for key in ids],
            names=classes,
            void=void,
            unlabeled=unlabeled,
            image_size=image_size,
        )
        for name, ids in read_lists(root, images).items()
    }
    return Splits(**parts)
