"""segstream report: one page from run folders, or from a comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from segstream.cli.places import check_in
from segstream.cli.shell import Shell, command

EXAMPLES = """
segstream report runs/camvid-6-1-em
segstream report runs/camvid-6-1-em runs/camvid-6-1-er --out runs/compared
segstream report runs/comparison
"""


@command
def report(
    shell: Shell,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, folders that hold some, or one comparison.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where the page goes.", show_default="the run, or above the runs"),
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The page's title.", show_default="the runs' names")
    ] = None,
) -> None:
    """Make a page from run folders, or from the folder that `segstream compare` filled.

    Writes report.html, which needs no other file, and scores.csv; of a comparison also its tables as Markdown and
    LaTeX. What is still going on is welcome.
    """
    check_in(*runs)
    shell.busy("drawing")
    from segstream.report.grid import is_comparison
    from segstream.report.grid_page import write_comparison
    from segstream.report.page import write_report

    comparisons = [place for place in runs if is_comparison(place)]
    if comparisons and len(runs) > 1:
        raise ValueError(f"{comparisons[0]} is a comparison, which has a page of its own; give it alone.")
    if comparisons:
        shell.show(str(write_comparison(comparisons[0], out, title=title)))
        return
    folders = [run for place in runs for run in _runs(place)]
    if out is None:
        out = folders[0] if len(folders) == 1 else Path(os.path.commonpath([f.resolve().parent for f in folders]))
    page = write_report(folders, out, title=title or ", ".join(dict.fromkeys(f.resolve().name for f in folders)))
    shell.show(str(page))


def _runs(place: Path) -> list[Path]:
    """The place itself, or the runs in it."""
    if not place.is_dir() or (place / "events.jsonl").exists():
        return [place]
    inside = sorted(p.parent for p in place.glob("*/events.jsonl"))
    if not inside:
        raise ValueError(f"{place} is no run folder and holds none: there is no events.jsonl in it.")
    return inside
