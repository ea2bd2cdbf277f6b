"""What a comparison folder says: its plan and the cells that are done. Knows files; knows nothing of tables and pages.

A cell is one run of one method on one recipe with one seed. What cannot be read is left out with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segstream.report.record import Record, Score
from segstream.storage import StateError, read_json

__all__ = ["FORMAT", "Cell", "Grid", "Planned", "is_comparison", "read_grid", "section", "spelled"]

FORMAT = 1  # of the cells' files
_CAPACITY = "memory.capacity"


def spelled(row: str) -> dict[str, str]:
    """The settings that a row's name spells out.

    >>> spelled("er view=ignore augment.scale=[0.5, 2.0]")
    {'view': 'ignore', 'augment.scale': '[0.5, 2.0]'}
    """
    parts = (part.partition("=") for part in re.split(r" (?=[A-Za-z_][\w.]*=)", row)[1:])
    return {key: value for key, _, value in parts}


def without_capacity(row: str) -> str:
    """A row's name without the memory size, which tables show by column or by section.

    >>> without_capacity("er view=ignore memory.capacity=20")
    'er view=ignore'
    """
    return re.sub(rf" {re.escape(_CAPACITY)}=\S+", "", row)


@dataclass(frozen=True)
class Planned:
    """A row that a comparison is to have: its name, its role, and how many runs of it."""

    name: str
    role: str = ""
    seeds: int = 0


@dataclass(frozen=True)
class Cell:
    """One run that is done.

    row      how the command line named its line of the table, such as "er view=background"
    given    the settings and dotted recipe keys of that line;  settings: all of the method's, defaults too
    groups   the foreground classes that each stage brought, stage 0 first
    confusion  pixels by true and predicted slot after the last stage; empty where none were kept
    cost     seconds and bytes of an update;  base: the weights that it started from;  about: versions and devices
    """

    id: str
    recipe: str
    row: str
    method: str
    seed: int
    groups: tuple[tuple[str, ...], ...]
    scores: tuple[Score, ...]
    title: str = ""
    role: str = "headline"
    split: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    confusion: Sequence[Sequence[int]] = ()
    memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    finished: str = ""

    @property
    def capacity(self) -> int:
        """The memory's size in exemplars; 0 where the recipe tells none."""
        told = self.given.get(_CAPACITY, section(self.config, "memory").get("capacity", 0))
        return int(told) if str(told).isdigit() else 0

    @property
    def line(self) -> str:
        """The row's name without the memory size."""
        return without_capacity(self.row)

    @property
    def names(self) -> tuple[str, ...]:
        """Every slot's name, background first."""
        return ("background", *(name for group in self.groups for name in group))

    def record(self, folder: Path = Path()) -> Record:
        """The same for tables and plots that are made for single runs."""
        return Record(
            folder=folder / "runs" / self.id,
            method=self.method,
            label=self.line,
            config=self.config,
            about={**self.about, "seed": self.seed, "settings": dict(self.settings)},
            scores=self.scores,
            memory=self.memory,
            stages=dict(enumerate(self.groups)),
            finished=True,
        )


@dataclass(frozen=True)
class Grid:
    """A comparison as far as it came.

    cells    those that are done, in the plan's order;  missing: the ids of the others
    rows     the planned lines, in order;  notes: sentences on what was left out and why
    tuning   what `tuning.json` holds; None where nothing was tuned
    """

    folder: Path
    cells: tuple[Cell, ...] = ()
    title: str = ""
    command: tuple[str, ...] = ()
    rows: tuple[Planned, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tuning: Any = None


def is_comparison(folder: Path) -> bool:
    """Whether a folder is one that `compare` fills.

    >>> is_comparison(Path("no/such/folder"))
    False
    """
    return (folder / "plan.json").is_file() or (folder / "cells").is_dir()


def read_grid(folder: Path) -> Grid:
    """Everything that a comparison folder holds, however far it came.

    >>> read_grid(Path("no/such/folder"))
    Traceback (most recent call last):
    segstream.atomic.StateError: no/such/folder is no comparison folder: it has neither plan.json nor cells/.
    """
    folder = Path(folder)
    if not is_comparison(folder):
        raise StateError(f"{folder} is no comparison folder: it has neither plan.json nor cells/.")
    notes: list[str] = []
    plan = _object(folder / "plan.json", notes)
    there = {path.stem: path for path in sorted((folder / "cells").glob("*.json"), key=lambda p: _natural(p.stem))}
    planned = [str(id) for id in _list(plan.get("cells"))] or list(there)
    found = {id: _read(there[id], notes) for id in planned if id in there}
    cells = _once([cell for cell in found.values() if cell is not None], notes)
    if others := len(set(there) - set(planned)):
        many = f"{others} cells lie" if others > 1 else "1 cell lies"
        notes.append(f"{many} in the folder without being in its plan; not shown.")
    tuning = _any(folder / "tuning.json", notes)
    recipes = list(dict.fromkeys(c.title or c.recipe for c in cells))
    return Grid(
        folder=folder,
        cells=cells,
        title=str(plan.get("title") or ", ".join(recipes) or folder.resolve().name),
        command=tuple(str(word) for word in _list(plan.get("command"))),
        rows=tuple(_row(row) for row in _list(plan.get("rows"))),
        missing=tuple(id for id in planned if id not in there),
        notes=tuple(note.replace(f"{folder}/", "") for note in notes),
        tuning=tuning,
    )


def section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of nested settings; empty where there is none."""
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _row(row: Any) -> Planned:
    """A planned line; a plan may give it by its name alone."""
    if not isinstance(row, Mapping):
        return Planned(str(row))
    seeds = row.get("seeds")
    name = str(row.get("label") or row.get("row") or row.get("method") or "")
    return Planned(name, str(row.get("role") or ""), seeds if isinstance(seeds, int) else 0)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _any(path: Path, notes: list[str]) -> Any:
    if not path.is_file():
        return None
    try:
        return read_json(path)
    except StateError as error:
        notes.append(f"{error} It was left out.")
        return None


def _object(path: Path, notes: list[str]) -> Mapping[str, Any]:
    found = _any(path, notes)
    if found is not None and not isinstance(found, Mapping):
        notes.append(f"{path} is damaged: it must hold one object. It was left out.")
    return found if isinstance(found, Mapping) else {}


def _read(path: Path, notes: list[str]) -> Cell | None:
    """One cell, or a sentence why not."""
    before = len(notes)
    data = _object(path, notes)
    if len(notes) > before:
        return None
    if data.get("format") != FORMAT:
        notes.append(f"{path} has the format {data.get('format')!r}; this version reads {FORMAT}. It was left out.")
        return None
    try:
        return _cell(data, path.stem)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        notes.append(f"{path} is damaged: {what}. It was left out.")
        return None


def _cell(data: Mapping[str, Any], id: str) -> Cell:
    groups = [tuple(str(name) for name in group) for group in data["groups"]]
    if groups and groups[0][:1] == ("background",):
        groups[0] = groups[0][1:]
    scores = tuple(_score(score) for score in sorted(data["scores"], key=lambda s: s["stage"]))
    names = ("background", *(name for group in groups for name in group))
    if not scores or scores[-1].names != names or scores[-1].stage != len(groups) - 1:
        raise ValueError("its last scores are not those of all its classes")
    last = max(data["scores"], key=lambda s: s["stage"]).get("confusion") or ()
    return Cell(
        id=id,
        recipe=str(data["recipe"]),
        row=str(data["row"]),
        method=str(data["method"]),
        seed=int(data["seed"]),
        groups=tuple(groups),
        scores=scores,
        title=str(data.get("title") or ""),
        role=str(data.get("role") or "headline"),
        split=str(data.get("split") or ""),
        confusion=last if len(last) == len(names) and all(len(row) == len(names) for row in last) else (),
        memory={int(t): dict(counts) for t, counts in (data.get("memory") or {}).items()},
        finished=str(data.get("finished") or ""),
        **{key: section(data, key) for key in ("config", "given", "settings", "cost", "base", "about")},
    )


def _score(told: Mapping[str, Any]) -> Score:
    iou = tuple(None if v is None else float(v) for v in told["iou"])
    names = tuple(str(name) for name in told["names"])
    if len(iou) != len(names):
        raise ValueError(f"stage {told['stage']} names {len(names)} classes and scores {len(iou)}")
    return Score(int(told["stage"]), names, iou, told.get("accuracy"))


def _once(cells: Sequence[Cell], notes: list[str]) -> tuple[Cell, ...]:
    """One cell for each recipe, memory size, row and seed: a second would count as one more seed."""
    kept: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        place = cell.recipe, cell.split, cell.capacity, cell.line, cell.seed
        if place in kept:
            notes.append(f"The cells {kept[place].id} and {cell.id} are of the same row and seed; the first is shown.")
        kept.setdefault(place, cell)
    return tuple(kept.values())
