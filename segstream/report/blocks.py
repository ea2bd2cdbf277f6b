"""The cells of a comparison sorted into blocks, one for each scenario and memory size, and lines, one for each row.

A line holds all seeds of a row. The measures follow from the stages: groups of slots as the paper has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from segstream.report.grid import Cell, Grid, Planned, section, spelled, without_capacity
from segstream.report.intervals import Estimate, estimate
from segstream.report.paper import PaperCell, PaperScenario, paper
from segstream.report.record import Record, Score, flatten
from segstream.report.tables import forgotten, mean, summary

__all__ = ["Block", "Group", "Line", "blocks", "groups_of", "measures"]

ENOUGH_PIXELS = 100_000_000  # the paper's test sets have more than twice as many, whatever the pictures' scaling


@dataclass(frozen=True)
class Group:
    """Slots whose mean final IoU is one number of the paper's tables."""

    label: str
    slots: tuple[int, ...]
    names: tuple[str, ...]


def groups_of(groups: Sequence[Sequence[str]]) -> tuple[Group, ...]:
    """The base with the background, all later classes together, and each later stage where there are several.

    >>> [g.label for g in groups_of([["a", "b"], ["c"], ["d", "e"]])]
    ['0-2', '3-5', '3', '4-5']
    """
    found, start = [], 0
    for t, names in enumerate(groups):
        stop = start + len(names) + (t == 0)
        found.append(_group(range(start, stop), names if t else ("background", *names)))
        start = stop
    if len(groups) > 2:
        later = [name for names in groups[1:] for name in names]
        found.insert(1, _group(range(start - len(later), start), later))
    return tuple(found)


def _group(slots: range, names: Iterable[str]) -> Group:
    label = str(slots[0]) if len(slots) == 1 else f"{slots[0]}-{slots[-1]}"
    return Group(label, tuple(slots), tuple(names))


def measures(cell: Cell) -> dict[str, float | None]:
    """What a run is judged by: both imIoU, forgetting, `all` (the final mIoU) and its parts by group.

    A class without ground truth enters no mean.

    >>> scores = (Score(0, ("background", "a"), (50.0, 70.0)), Score(1, ("background", "a", "b"), (40.0, 60.0, 5.0)))
    >>> measures(Cell("1", "r", "em", "em", 0, (("a",), ("b",)), scores))
    {'imiou': 35.0, 'imiou_with_base': 47.5, 'forgetting': 10.0, 'all': 35.0, '0-1': 50.0, '2': 5.0}
    """
    told, last = summary(cell.record()), cell.scores[-1].iou
    found = {key: told[key] for key in ("imiou", "imiou_with_base", "forgetting")}
    found["all"] = told["final"]
    return found | {group.label: mean(last[slot] for slot in group.slots) for group in groups_of(cell.groups)}


@dataclass(frozen=True)
class Line:
    """One row of a table: a method with its settings, once for each seed. Without cells it is still to come."""

    name: str
    method: str
    role: str
    cells: tuple[Cell, ...] = ()
    values: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    planned: int = 0

    @property
    def n(self) -> int:
        return len(self.cells)

    @property
    def view(self) -> str:
        return str(self.cells[0].settings.get("view") or "") if self.cells else ""

    def estimate(self, measure: str) -> Estimate | None:
        return estimate(self.values.get(measure, ()))

    def course(self) -> list[Estimate | None]:
        """mIoU after each stage."""
        stages = [summary(cell.record())["miou"] for cell in self.cells]
        return [estimate(values) for values in zip(*stages, strict=True)] if stages else []

    def lost(self) -> dict[str, float]:
        """What each class known before the last stage lost, on average over the seeds."""
        return _by_class(forgotten(cell.record()) for cell in self.cells)

    def kept(self, stage: int) -> dict[str, float]:
        """What the memory held of each class after a stage, on average over the seeds."""
        return _by_class(cell.memory.get(stage, {}) for cell in self.cells)

    def average(self) -> Record:
        """A record whose IoU are means over the seeds."""
        first = self.cells[0].record()
        by_stage = [{s.stage: s for s in cell.scores} for cell in self.cells]
        stages = [t for t in by_stage[0] if all(t in found for found in by_stage)]
        scores = []
        for t in stages:
            columns = zip(*(found[t].iou for found in by_stage), strict=True)
            scores.append(Score(t, by_stage[0][t].names, tuple(mean(column) for column in columns)))
        return Record(first.folder, self.method, self.name, scores=tuple(scores), stages=first.stages, finished=True)


def _by_class(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    told: dict[str, list[float]] = {}
    for values in found:
        for name, value in values.items():
            told.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in told.items()}


@dataclass(frozen=True)
class Block:
    """All lines that were run on one scenario with one memory size.

    scenario     what blocks of other memory sizes share with it
    original     the paper's scenario that this is; None where it is none of the paper's
    differences  in what its training differs from what the paper tells, where it is one of the paper's
    """

    recipe: str
    title: str
    capacity: int
    split: str
    groups: tuple[tuple[str, ...], ...]
    lines: tuple[Line, ...]
    scenario: str
    original: PaperScenario | None = None
    differences: tuple[str, ...] = ()

    @property
    def stages(self) -> int:
        return len(self.groups) - 1

    @property
    def names(self) -> tuple[str, ...]:
        return ("background", *(name for group in self.groups for name in group))

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for line in self.lines for cell in line.cells)

    def having(self, *roles: str) -> list[Line]:
        """The lines of these roles that have a run."""
        return [line for line in self.lines if line.role in roles and line.cells]

    @property
    def ranked(self) -> list[Line]:
        """What competes: the methods' headline lines, or where there is none the lines that somebody spelled out."""
        return self.having("headline") or self.having("variant")

    @property
    def bound(self) -> Line | None:
        return next(iter(self.having("bound")), None)

    def printed(self, line: Line, measure: str) -> PaperCell | None:
        """The paper's number for this cell of a table: methods' own lines only, since it tells no view."""
        if self.original is None or line.name != line.method:
            return None
        return paper().find(self.original.recipe, self.capacity, line.method, measure)


def blocks(grid: Grid) -> list[Block]:
    """In the order of the plan, the scenarios' memory sizes from small to large."""
    roles: dict[tuple[str, str], str] = {}
    for cell in grid.cells:
        # A memory size that was spelled out leaves a row what it is.
        role = "headline" if cell.role == "variant" and cell.line == cell.method else cell.role
        if role != "variant":
            roles.setdefault((cell.recipe, cell.line), role)
    made = [_block(cells, size, grid, roles) for size, cells in _sorted(grid.cells)]
    order = list(dict.fromkeys(block.scenario for block in made))
    return sorted(made, key=lambda block: (order.index(block.scenario), block.capacity))


def _sorted(cells: Iterable[Cell]) -> Iterator[tuple[int, list[Cell]]]:
    """Memory size and cells of each block. What keeps no memory (finetune, joint) belongs to every size."""
    scenarios: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        scenarios.setdefault((cell.recipe, cell.split, cell.groups), []).append(cell)
    for some in scenarios.values():
        sizes = list(dict.fromkeys(cell.capacity for cell in some if cell.memory))
        for size in sizes or [some[0].capacity]:
            yield size, [cell for cell in some if not cell.memory or cell.capacity == size]


def _block(cells: Sequence[Cell], size: int, grid: Grid, roles: Mapping[tuple[str, str], str]) -> Block:
    first = next((cell for cell in cells if cell.role == "headline" and cell.memory), cells[0])
    planned = _planned(cells, grid)
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        lines.setdefault(cell.line, []).append(cell)
    # Once all is done nothing is to come: a row that a call added to one recipe or size does not wait in the others.
    coming = planned if grid.missing else {}
    made = [
        _line(name, runs, roles.get((first.recipe, name), runs[0].role), coming.get(name))
        for name, runs in lines.items()
    ]
    made += [
        Line(name, name.split()[0], roles.get((first.recipe, name)) or row.role or _guess(name), planned=row.seeds)
        for name, row in coming.items()
        if name not in lines
    ]
    original = paper().scenario(first.recipe, first.config)
    return Block(
        recipe=first.recipe,
        title=first.title or first.recipe,
        capacity=size,
        split=first.split,
        groups=first.groups,
        lines=tuple(_ordered(made, list(planned))),
        scenario=_scenario(first),
        original=original,
        differences=tuple(_differences(first, cells)) if original else (),
    )


def _line(name: str, cells: Sequence[Cell], role: str, planned: Planned | None) -> Line:
    told = [measures(cell) for cell in cells]
    values = {key: tuple(t[key] for t in told) for key in told[0]}
    return Line(name, cells[0].method, role, tuple(cells), values, planned.seeds if planned else 0)


def _planned(cells: Sequence[Cell], grid: Grid) -> dict[str, Planned]:
    """The lines that the plan has for a block, done or not: those that spell out its memory size or, if its recipe has
    that size, none.
    """
    told = {spelled(cell.row).get("memory.capacity") for cell in cells}
    rows = [row for row in grid.rows if row.name and spelled(row.name).get("memory.capacity") in told]
    return {without_capacity(row.name): row for row in rows}


def _guess(name: str) -> str:
    """The role of a line of which nothing is known but its name."""
    return "bound" if name == "joint" else "variant" if "=" in name else "headline"


def _ordered(lines: Sequence[Line], names: Sequence[str]) -> list[Line]:
    """Headlines in the plan's order, each with its other views below; then variants; the bound last."""
    place = {name: i for i, name in enumerate(names)}
    heads = sorted((k for k in lines if k.role == "headline"), key=lambda k: place.get(k.name, len(place)))
    views = [k for k in lines if k.role == "other view"]
    ordered = [k for head in heads for k in (head, *(v for v in views if v.method == head.method))]
    ordered += [v for v in views if v not in ordered]
    ordered += [k for k in lines if k.role not in ("headline", "other view", "bound")]
    return ordered + [k for k in lines if k.role == "bound"]


def _scenario(cell: Cell) -> str:
    """What tells one scenario from another, whatever the memory size; the recipe's name where it tells no scenario."""
    told = {key: dict(section(cell.config, key)) for key in ("data", "scenario")}
    name = "" if told["scenario"] else cell.recipe
    return json.dumps([told, cell.groups, cell.split, name], sort_keys=True, default=str)


def _differences(first: Cell, cells: Sequence[Cell]) -> list[str]:
    config: dict[str, Any] = flatten(first.config)
    found = []
    for key, value in paper().setting.items():
        allowed = value if isinstance(value, list) else [value]
        if key in config and config[key] not in allowed:
            found.append(f"{key} {config[key]} (paper: {allowed[0]})")
    pixels = max((sum(map(sum, cell.confusion)) for cell in cells), default=0)
    if 0 < pixels < ENOUGH_PIXELS:
        found.append(f"scored on {pixels:,} pixels, far fewer than the paper's test set has")
    return found
