"""What the page says of one scenario: its tables, drawings, pictures and what its runs recorded while they learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from segstream.report import plots
from segstream.report.blocks import Block, Line
from segstream.report.confusion import Confusion, confusion
from segstream.report.course import history
from segstream.report.grid import Cell, Grid
from segstream.report.grid_extras import ablation_sheet
from segstream.report.grid_order import order
from segstream.report.grid_tables import class_sheet, group_sheet, memory_sheet, score_sheet
from segstream.report.grid_words import block_words
from segstream.report.pictures import Gallery, gallery
from segstream.report.record import Record, read
from segstream.report.tables import text
from segstream.report.theme import svg
from segstream.storage import StateError

__all__ = ["scenario_part"]

PICTURES = 3  # of one scenario; of several one each, or the page grows beyond what opens at once


def scenario_part(
    grid: Grid,
    block: Block,
    sizes: Sequence[Block],
    *,
    colors: Mapping[str, int],
    shown: Sequence[str],
    number: int,
    alone: bool,
) -> dict[str, Any]:
    """All of it, as the template takes it."""
    chosen = _chosen(block, shown)
    notes: list[str] = []
    found = order(block)
    return {
        "id": f"scenario-{number}",
        "title": block.title,
        "short": block.title if not alone else "Scores",
        "alone": alone,
        "about": _about(block),
        "sentences": [] if alone else block_words(block),
        "differences": block.differences,
        "scores": score_sheet(block),
        "others": [score_sheet(size) for size in sizes if size is not block],
        "groups": group_sheet(block),
        "sizes": memory_sheet(sizes),
        "ablations": [sheet for size in sizes if (sheet := ablation_sheet(size))],
        "plots": _plots(block, colors),
        "order": found,
        "reversals": [r.sentence() for r in found.reversals] if found else [],
        "classes": class_sheet(block),
        "confusions": _confusions(block, chosen),
        "gallery": _gallery(grid, chosen, notes, most=PICTURES if alone else 1),
        "labels": [line.name for line in chosen],
        "memory": _memory(block),
        "histories": _histories(grid, chosen, notes),
        "notes": notes,
    }


def _chosen(block: Block, shown: Sequence[str]) -> list[Line]:
    """The lines that pictures are shown of: those asked for, and in the place of what was not run, others."""
    asked = [line for name in shown for line in block.ranked if line.name == name]
    return [*asked, *(line for line in block.ranked if line not in asked)][: max(1, len(shown))]


def _about(block: Block) -> str:
    many = ", ".join(str(len(group)) for group in block.groups[1:])
    later = f"then {many}" if block.stages else "and no later stage"
    return f"{len(block.groups[0])} classes at stage 0, {later}; {block.capacity} exemplars in memory."


def _plots(block: Block, colors: Mapping[str, int]) -> dict[str, Markup | None]:
    found = [
        plots.Curve(line.name, colors[line.name], [(t, e.mean, e.half) for t, e in enumerate(line.course()) if e])
        for line in block.ranked
    ]
    found = [curve for curve in found if len(curve.points) > 1]
    limit = block.bound.estimate("all") if block.bound else None
    bound = {"label": "joint", "miou": limit.mean} if limit else None
    lost = {line.name: line.lost() for line in block.ranked}
    ends = "; ".join(f"{c.label} {', '.join(text(v) for _, v, _ in c.points)}" for c in found)
    means = "; ".join(f"{name} {text(sum(v.values()) / len(v))}" for name, v in lost.items() if v)
    return {
        "curves": _drawn(
            plots.draw_curves(found, block.stages, bound) if found else None, f"mIoU by stage on {block.title}. {ends}"
        ),
        "forgetting": _drawn(plots.forgetting(lost, colors), f"Points lost on {block.title}, means: {means}"),
    }


def _drawn(drawing: Figure | None, description: str) -> Markup | None:
    return None if drawing is None else Markup(svg(drawing, description=description))


def _confusions(block: Block, chosen: Sequence[Line]) -> list[Confusion]:
    found = (confusion(line.name, [cell.confusion for cell in line.cells], block.groups) for line in chosen)
    return [matrix for matrix in found if matrix is not None]


def _gallery(grid: Grid, chosen: Sequence[Line], notes: list[str], *, most: int) -> Gallery:
    records: list[Record] = []
    for line in chosen:
        cell = _with(grid, line, "predictions")
        if cell is None:
            notes.append(f"No pictures of {line.name}: no run of it has a folder runs/…/predictions here.")
        else:
            records.append(replace(cell.record(grid.folder), label=line.name))
    return gallery(records, most=most)


def _with(grid: Grid, line: Line, name: str) -> Cell | None:
    """The first run of a line whose folder has this."""
    return next((cell for cell in line.cells if (grid.folder / "runs" / cell.id / name).exists()), None)


def _memory(block: Block) -> dict[str, Any] | None:
    """What every line's memory holds at the end, by class."""
    kept = {line.name: line.kept(block.stages) for line in block.ranked}
    kept = {name: counts for name, counts in kept.items() if counts}
    if not kept:
        return None
    rows = [(name, [counts.get(name) for counts in kept.values()]) for name in block.names[1:]]
    top = max((n for _, counts in rows for n in counts if n), default=1)
    return {"labels": list(kept), "rows": rows, "top": top}


def _histories(grid: Grid, chosen: Sequence[Line], notes: list[str]) -> list[dict[str, Any]]:
    found = []
    for line in chosen:
        cell = _with(grid, line, "events.jsonl")
        if cell is None:
            continue
        try:
            told = history(replace(read(grid.folder / "runs" / cell.id), label=line.name))
        except StateError as error:
            notes.append(str(error).replace(f"{grid.folder}/", ""))
            continue
        if told:
            found.append({**told, "seed": cell.seed})
    return found
