"""One page, four tables' files and two CSV from a comparison folder: `write_comparison`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from segstream import __version__
from segstream.report.blocks import Block, blocks
from segstream.report.grid import Grid, read_grid
from segstream.report.grid_export import cells_csv, grid_csv
from segstream.report.grid_extras import ablation_sheet, cost_sheet
from segstream.report.grid_facts import provenance, tuning
from segstream.report.grid_parts import scenario_part
from segstream.report.grid_tables import class_sheet, group_sheet, memory_sheet, overview_sheet, score_sheet
from segstream.report.grid_words import lead, progress
from segstream.report.latex import latex
from segstream.report.markdown import markdown
from segstream.report.sheet import Sheet, flat, shown, signed, spans
from segstream.report.tables import text
from segstream.report.theme import method_colors
from segstream.storage import write_text

__all__ = ["write_comparison"]

SHOWN = ("em", "mib", "lwf")  # as in the paper's figure


def write_comparison(
    folder: Path, out: Path | None = None, *, title: str | None = None, shown: Sequence[str] = SHOWN
) -> Path:
    """Write the report on a comparison folder; returns the path of its page.

    report.html             needs no other file
    tables.md, tables.tex   the tables; the latter for \\input, with booktabs
    scores.csv, cells.csv   every score, and every run, as one line

    out    where they go; the comparison folder itself if not given
    shown  the methods whose pictures, confusion matrices and histories the page holds

    >>> write_comparison(Path("no/such/folder"))
    Traceback (most recent call last):
    segstream.atomic.StateError: no/such/folder is no comparison folder: it has neither plan.json nor cells/.
    """
    grid = read_grid(Path(folder))
    out = Path(folder) if out is None else Path(out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"The report goes into a folder, but {str(out)!r} is a file.")
    made = blocks(grid)
    title = title or grid.title
    sheets = _sheets(made)
    words = [*lead(main_blocks(made)), *progress(grid, made)]
    page = _page(grid, made, title=title, shown=shown)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "scores.csv", grid_csv(grid.cells))
    write_text(out / "cells.csv", cells_csv(grid.cells))
    write_text(out / "tables.md", markdown(sheets, title=title, notes=words))
    write_text(out / "tables.tex", latex(sheets, notes=[title, *words]))
    write_text(out / "report.html", page)
    return out / "report.html"


def main_blocks(made: Sequence[Block]) -> list[Block]:
    """One block for each scenario: the memory size with most rows, of equals the largest."""
    found: dict[str, Block] = {}
    for block in made:
        rival = found.get(block.scenario)
        if rival is None or (len(block.ranked), block.capacity) > (len(rival.ranked), rival.capacity):
            found[block.scenario] = block
    return list(found.values())


def _sizes(made: Sequence[Block], block: Block) -> list[Block]:
    return [other for other in made if other.scenario == block.scenario]


def _sheets(made: Sequence[Block]) -> list[Sheet]:
    """Every table in the order in which the files have them."""
    main = main_blocks(made)
    found: list[Sheet | None] = [overview_sheet(main)]
    for block in main:
        sizes = _sizes(made, block)
        found += [score_sheet(block), group_sheet(block), memory_sheet(sizes)]
        found += [ablation_sheet(size) for size in sizes]
        found += [score_sheet(size) for size in sizes if size is not block]
        found += [class_sheet(block), cost_sheet(block)]
    return [sheet for sheet in found if sheet is not None]


def _page(grid: Grid, made: Sequence[Block], *, title: str, shown: Sequence[str]) -> str:
    main = main_blocks(made)
    lines = [line for block in main for line in block.ranked]
    colors = method_colors([k.method for k in lines], [k.name for k in lines])
    said = lead(main)
    scenarios = [
        scenario_part(grid, block, _sizes(made, block), colors=colors, shown=shown, number=i, alone=len(main) == 1)
        for i, block in enumerate(main)
    ]
    context: dict[str, Any] = {
        "title": title,
        "sentences": [_unbroken(s) for s in said],
        "notes": progress(grid, made),
        "version": __version__,
        "date": f"{datetime.now():%d %B %Y, %H:%M}".lstrip("0"),
        "colors": colors,
        "overview": overview_sheet(main),
        "scenarios": scenarios,
        "costs": [sheet for block in main if (sheet := cost_sheet(block))],
        "tuning": tuning(grid.tuning),
        "facts": provenance(grid, main),
    }
    context["sections"] = _sections(context)
    environment = _environment()
    style = environment.loader.get_source(environment, "style.css")[0] if environment.loader else ""
    context["style"] = Markup(style)  # ours, no user's text in it
    return environment.get_template("comparison.html.j2").render(context)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("segstream.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": text, "shown": shown, "signed": signed, "unbroken": _unbroken}
    environment.globals |= {"spans": spans, "flat": flat}
    return environment


def _unbroken(sentence: str) -> str:
    """No line ends between a number and its sign.

    >>> _unbroken("5 % ± 1 (n = 3)").count(" ")
    1
    """
    return re.sub(r" (?=[%±=])|(?<=[±=]) ", "\N{NO-BREAK SPACE}", sentence)


def _sections(context: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [("overview", "Overview")] if context["overview"] else []
    found += [(part["id"], part["short"]) for part in context["scenarios"]]
    found += [("cost", "Cost")] if context["costs"] else []
    found += [("tuning", "Tuning")] if context["tuning"] else []
    return [*found, ("facts", "Settings and versions")] if context["scenarios"] else found
