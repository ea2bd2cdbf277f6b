"""Where labelled pictures come from, and small ways to combine them. Masks here are in the file's own numbering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from segstream.functional.resize import resize_image, resize_mask

__all__ = [
    "Cached",
    "DataError",
    "Derived",
    "Resized",
    "Source",
    "Splits",
    "Subset",
    "Told",
    "checked_size",
    "hold_back",
    "origin",
    "present_classes",
    "unheard",
]

Told = Callable[[str, int, int], None]  # progress: what is being done, how much of it, of how much


def unheard(what: str, done: int, total: int) -> None:
    """Progress that nobody follows."""


class DataError(ValueError):
    """Something is wrong with the data; the message names the file and says what to do.

    >>> issubclass(DataError, ValueError)
    True
    """


@runtime_checkable
class Source(Protocol):
    """Labelled pictures by number.

    names      the file's class list: names[v] is the class of mask value v, names[0] is "background"
    ids        one name for each picture, all different
    load(i)    image uint8 [3, H, W] and mask int16 [H, W] with values 0 .. len(names) - 1, UNLABELED or VOID;
               nobody writes into them
    present(i) the values >= 1 that occur in mask i; cheap after the first call

    >>> from segstream.data.wrap import wrap
    >>> isinstance(wrap([], ["background"]), Source)
    True
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def ids(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def load(self, i: int) -> tuple[Tensor, Tensor]: ...

    def present(self, i: int) -> frozenset[int]: ...


@dataclass(frozen=True)
class Splits:
    """The parts of a dataset; a part may be empty. `holdout` is what was taken out of the training list.

    >>> from segstream.data.wrap import wrap
    >>> empty = wrap([], ["background"])
    >>> Splits(empty, empty, empty).part("test") is empty
    True
    """

    train: Source
    val: Source
    test: Source
    holdout: Source | None = None

    def part(self, name: str) -> Source:
        """The part of that name: "train", "val", "test" or "holdout"."""
        if name == "holdout" and self.holdout is None:
            raise DataError("Nothing is held back from the training list; set data.holdout to a share, such as 0.2.")
        parts = {"train": self.train, "val": self.val, "test": self.test}
        parts |= {} if self.holdout is None else {"holdout": self.holdout}
        if name not in parts:
            *most, last = parts
            raise DataError(f"There is no split {name!r}; the splits are {', '.join(most)} and {last}.")
        return parts[name]


def present_classes(mask: Tensor) -> frozenset[int]:
    """The foreground classes that occur in a mask.

    >>> sorted(present_classes(torch.tensor([[0, 3], [-1, 1]], dtype=torch.int16)))
    [1, 3]
    """
    counts = torch.bincount(mask.flatten().clamp_min(0).to(torch.int32))
    return frozenset(int(v) for v in counts.nonzero().flatten().tolist() if v >= 1)


def checked_size(size: Sequence[int]) -> tuple[int, int] | None:
    """(height, width) from a setting; an empty one means "as it is".

    >>> checked_size([180, 240]), checked_size([])
    ((180, 240), None)
    """
    if len(size) == 0:
        return None
    if len(size) != 2 or any(not isinstance(n, int) or n < 1 for n in size):
        raise DataError(
            f"`image_size` is {list(size)}; give [height, width] in pixels, such as [180, 240], or nothing."
        )
    return size[0], size[1]


class Subset:
    """Some pictures of a source, in the order given.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.uint8))
    >>> Subset(wrap([picture] * 3, ["background", "car"]), [2, 0]).ids
    ('2', '0')
    """

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        if bad := [i for i in indices if not 0 <= i < len(source)]:
            raise DataError(f"Picture {bad[0]} does not exist; the source has {len(source)}, counted from 0.")
        self.source = source
        self.indices = tuple(indices)

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    @property
    def ids(self) -> Sequence[str]:
        every = self.source.ids
        return tuple(every[i] for i in self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        return self.source.load(self.indices[i])

    def present(self, i: int) -> frozenset[int]:
        return self.source.present(self.indices[i])


class Derived:
    """A source with the pictures of another one, changed in some way; `load` says how.

    `present` looks at what `load` gives, once for each picture.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 4, 4, dtype=torch.uint8), torch.ones(4, 4, dtype=torch.uint8))
    >>> Derived(wrap([picture], ["background", "car"])).names
    ('background', 'car')
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._present: dict[int, frozenset[int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    @property
    def ids(self) -> Sequence[str]:
        return self.source.ids

    def __len__(self) -> int:
        return len(self.source)

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        return self.source.load(i)

    def present(self, i: int) -> frozenset[int]:
        if i not in self._present:
            self._present[i] = present_classes(self.load(i)[1])
        return self._present[i]


class Resized(Derived):
    """A source with every image and mask at one size; `present` tells what is left of a class at that size.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 4, 4, dtype=torch.uint8), torch.ones(4, 4, dtype=torch.uint8))
    >>> Resized(wrap([picture], ["background", "car"]), (2, 3)).load(0)[0].shape
    torch.Size([3, 2, 3])
    """

    def __init__(self, source: Source, size: tuple[int, int]) -> None:
        if (checked := checked_size(size)) is None:
            raise DataError("`size` is empty; give (height, width) in pixels.")
        super().__init__(source)
        self.size = checked

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        image, mask = self.source.load(i)
        return resize_image(image, self.size), resize_mask(mask, self.size)


class Cached(Derived):
    """A source whose decoded pictures are kept in memory while `max_bytes` lasts: for training over many epochs.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 4, 4, dtype=torch.uint8), torch.ones(4, 4, dtype=torch.uint8))
    >>> kept = Cached(wrap([picture], ["background", "car"]))
    >>> kept.load(0)[0] is kept.load(0)[0]
    True
    """

    def __init__(self, source: Source, *, max_bytes: int = 2 << 30) -> None:
        super().__init__(source)
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        if i in self._kept:
            return self._kept[i]
        image, mask = self.source.load(i)
        if self.nbytes + image.nbytes + mask.nbytes <= self.max_bytes:
            self._kept[i] = image, mask
            self.nbytes += image.nbytes + mask.nbytes
        return image, mask

    def present(self, i: int) -> frozenset[int]:
        return self.source.present(i)


def origin(source: Source) -> Source:
    """The source that a part, a resized or a cached form was made of: what lists of the dataset speak about.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.uint8))
    >>> whole = wrap([picture] * 3, ["background", "car"])
    >>> origin(Cached(Subset(whole, [2, 0]))) is whole
    True
    """
    while isinstance(source, (Subset, Derived)):
        source = source.source
    return source


def hold_back(
    source: Source, *, count: int | None = None, fraction: float | None = None, seed: int = 0
) -> tuple[Subset, Subset]:
    """Two parts of a source: what stays, and some pictures held back by a seeded draw. At least one stays.

    >>> from segstream.data.wrap import wrap
    >>> picture = (torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.uint8))
    >>> rest, held = hold_back(wrap([picture] * 10, ["background", "car"]), fraction=0.2)
    >>> len(rest), len(held)
    (8, 2)
    """
    if (count is None) == (fraction is None):
        raise DataError(f"Give either `count` or `fraction` to hold back, not count={count} and fraction={fraction}.")
    if fraction is not None and not 0 <= fraction < 1:
        raise DataError(f"`fraction` is {fraction}; it must be at least 0 and below 1.")
    wanted = round(len(source) * fraction) if fraction is not None else int(count or 0)
    if wanted < 0 or wanted >= max(len(source), 1):
        raise DataError(f"{wanted} of {len(source)} pictures cannot be held back; at least one must stay.")
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed)).tolist()
    held = set(order[:wanted])
    return Subset(source, [i for i in range(len(source)) if i not in held]), Subset(source, sorted(held))
