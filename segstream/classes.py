"""Names and slots: which number stands for which class, and what a file's numbers mean.

Four pixel states are never mixed up: labelled (slot >= 1), annotated background (slot 0: somebody said
"none of the classes known to me then"), unlabelled (nobody said anything) and void (never used).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BACKGROUND", "UNLABELED", "VOID", "ClassTable", "file_lookup"]

BACKGROUND = 0
UNLABELED = -1
VOID = -2
MAX_SLOT = 32_000  # masks are int16

Color = tuple[int, int, int]


@dataclass(frozen=True)
class ClassTable:
    """An immutable list of foreground classes; the class at position i has slot i + 1, for ever.

    Slots are only ever appended: a retired class keeps its slot, so that no stored mask changes its meaning.

    >>> table = ClassTable(("road", "sky")).extend(["sofa"])
    >>> len(table), table.slot("sofa"), table.name(0)
    (4, 3, 'background')
    >>> table.retire(["sky"]).active
    (1, 3)
    """

    names: tuple[str, ...] = ()
    retired: frozenset[int] = frozenset()
    own_colors: Mapping[int, Color] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen = {"background"}
        for name in self.names:
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"A class name must be a non-empty text, not {name!r}.")
            if name != name.strip() or any(ord(c) < 32 for c in name):
                raise ValueError(
                    f"The class name {name!r} has spaces around it or control characters in it; remove them."
                )
            if name in seen:
                raise ValueError(f"The class name {name!r} occurs twice; every class needs a name of its own.")
            seen.add(name)
        if len(self.names) > MAX_SLOT:
            raise ValueError(f"{len(self.names)} classes are more than the {MAX_SLOT} that a mask can hold.")
        if bad := [s for s in self.retired if not 1 <= s <= len(self.names)]:
            raise ValueError(f"Retired slots {bad} do not exist; slots run from 1 to {len(self.names)}.")

    def __len__(self) -> int:
        """Number of slots, background included."""
        return len(self.names) + 1

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def active(self) -> tuple[int, ...]:
        """Foreground slots that are not retired."""
        return tuple(s for s in range(1, len(self)) if s not in self.retired)

    def name(self, slot: int) -> str:
        if not 0 <= slot < len(self):
            raise ValueError(f"Slot {slot} does not exist; slots run from 0 (background) to {len(self) - 1}.")
        return "background" if slot == BACKGROUND else self.names[slot - 1]

    def slot(self, name: str) -> int:
        if name == "background":
            return BACKGROUND
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(self.names) or 'none yet'}."
            raise ValueError(f"There is no class {name!r}.{hint}")
        return self.names.index(name) + 1

    def slots(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.slot(name) for name in names)

    def extend(self, names: Sequence[str]) -> ClassTable:
        """The table with new classes appended. The only rule by which slots come into being."""
        if isinstance(names, str):
            raise ValueError(f"Give a list of class names, not the single text {names!r}.")
        for name in names:
            if name in self.names:
                state = "was retired; use another name" if self.slot(name) in self.retired else "exists already"
                raise ValueError(f"The class {name!r} {state}.")
        return replace(self, names=self.names + tuple(names))

    def retire(self, names: Iterable[str]) -> ClassTable:
        slots = self.slots(names)
        if BACKGROUND in slots:
            raise ValueError("The background cannot be retired.")
        if gone := [self.name(s) for s in slots if s in self.retired]:
            raise ValueError(f"Retired already: {', '.join(gone)}.")
        return replace(self, retired=self.retired | frozenset(slots))

    def rename(self, old: str, new: str) -> ClassTable:
        slot = self.slot(old)
        if slot == BACKGROUND:
            raise ValueError("The background cannot be renamed.")
        if new in self.names:
            raise ValueError(f"The class {new!r} exists already.")
        return replace(self, names=(*self.names[: slot - 1], new, *self.names[slot:]))

    def color(self, slot: int) -> Color:
        """The class's own colour, or one derived from its slot (the PASCAL VOC colour map)."""
        if slot in self.own_colors:
            return self.own_colors[slot]
        r = g = b = 0
        value = slot
        for shift in range(7, -1, -1):
            r |= (value & 1) << shift
            g |= (value >> 1 & 1) << shift
            b |= (value >> 2 & 1) << shift
            value >>= 3
        return r, g, b

    def palette(self) -> list[int]:
        """256 x RGB as Pillow's `putpalette` wants it; 255 is white, the colour of void."""
        flat = [v for s in range(255) for v in self.color(s)]
        return [*flat, 255, 255, 255]

    def to_json(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "retired": sorted(self.retired),
            "colors": {str(s): list(c) for s, c in sorted(self.own_colors.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ClassTable:
        colors = {int(s): (int(c[0]), int(c[1]), int(c[2])) for s, c in data.get("colors", {}).items()}
        return cls(tuple(data["names"]), frozenset(int(s) for s in data.get("retired", [])), colors)


def file_lookup(
    names: Sequence[str], table: ClassTable, *, void: int | None = 255, unlabeled: int | None = None
) -> npt.NDArray[np.int16]:
    """Lookup table from a file's mask values (0..255) to slots of `table`.

    `names[i]` is the class of value i, `names[0]` the background. A class that the table does not know, and a
    value beyond the list, become UNLABELED: what they mean is for a Scenario or the caller to decide.

    >>> file_lookup(["background", "sky", "car"], ClassTable(("car",)))[[0, 1, 2, 255]].tolist()
    [0, -1, 1, -2]
    """
    lookup = np.full(256, UNLABELED, dtype=np.int16)
    for value, name in enumerate(names):
        if value == BACKGROUND:
            lookup[value] = BACKGROUND
        elif name in table:
            lookup[value] = table.slot(name)
    if unlabeled is not None:
        lookup[unlabeled] = UNLABELED
    if void is not None:
        lookup[void] = VOID
    return lookup
