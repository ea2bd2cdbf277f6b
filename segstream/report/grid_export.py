"""A comparison for other programs: every score as one line, and every cell as one line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from segstream.live import score_lines
from segstream.report.blocks import measures
from segstream.report.grid import Cell, section
from segstream.report.paper import paper
from segstream.report.tables import summary

__all__ = ["CELL_COLUMNS", "SCORE_COLUMNS", "cells_csv", "grid_csv"]

START = ("source", "recipe", "memory", "row", "method", "role", "seed")
SCORE_COLUMNS = (*START, "stage", "measure", "class", "slot", "percent")
CELL_COLUMNS = (
    "cell", *START[1:], "view", "lr", "split", "imiou", "imiou_with_base", "all", "forgetting", "updates",
    "median_seconds", "total_seconds", "peak_bytes", "base", "segstream", "finished",
)  # fmt: skip


def grid_csv(cells: Sequence[Cell]) -> str:
    """Every IoU after every stage of every run, what is derived from them, and what the paper prints for the same.

    An unknown value is an empty field.

    >>> grid_csv([]).splitlines()
    ['source,recipe,memory,row,method,role,seed,stage,measure,class,slot,percent']
    """
    lines: list[tuple[Any, ...]] = []
    for cell in cells:
        start = "run", cell.recipe, cell.capacity, cell.line, cell.method, cell.role, cell.seed
        lines += [(*start, *line) for line in _lines(cell)]
    return _table(SCORE_COLUMNS, [*lines, *_printed(cells)])


def _lines(cell: Cell) -> Iterator[tuple[Any, ...]]:
    """stage, measure, class, slot, percent"""
    miou = summary(cell.record())["miou"]
    for score in cell.scores:
        yield from score_lines(score.stage, score.names, score.iou, score.accuracy, miou[score.stage])
    for measure, value in measures(cell).items():
        yield None, measure, None, None, value


def _printed(cells: Sequence[Cell]) -> Iterator[tuple[Any, ...]]:
    """The paper's numbers for the scenarios and memory sizes that were run."""
    there: dict[tuple[str, int], str] = {}
    for cell in cells:
        if original := paper().scenario(cell.recipe, cell.config):
            there.setdefault((original.recipe, cell.capacity), cell.recipe)
    for printed in paper().cells:
        recipe = there.get((printed.recipe, printed.memory))
        if recipe is not None:
            row = printed.method
            if printed.components is not None:
                row += " with " + (" ".join(sorted(printed.components)) or "none")
            start = (
                "paper",
                recipe,
                printed.memory,
                row,
                printed.method,
                "contradictory" if printed.contradiction else "",
            )
            yield (*start, None, None, printed.measure, None, None, printed.percent)


def cells_csv(cells: Sequence[Cell]) -> str:
    """One line for each run: what it was, how good, how costly.

    >>> cells_csv([]).startswith("cell,recipe,memory,row,method,role,seed,view,lr")
    True
    """
    return _table(CELL_COLUMNS, [_facts(cell) for cell in cells])


def _facts(cell: Cell) -> tuple[Any, ...]:
    told = measures(cell)
    return (
        cell.id, cell.recipe, cell.capacity, cell.line, cell.method, cell.role, cell.seed,
        cell.settings.get("view"), cell.settings.get("lr"), cell.split,
        *(told[key] for key in ("imiou", "imiou_with_base", "all", "forgetting")),
        *(cell.cost.get(key) for key in ("updates", "median_seconds", "total_seconds", "peak_bytes")),
        cell.base.get("id"), cell.about.get("segstream") or section(cell.about, "versions").get("segstream"),
        cell.finished,
    )  # fmt: skip


def _table(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(columns)
    table.writerows(lines)
    return out.getvalue()
