"""segstream check: what is in a data folder, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from segstream.cli.options import Json, Unlabeled
from segstream.cli.places import check_in
from segstream.cli.shell import BAD_INPUT, Shell, command
from segstream.cli.tables import plain_table

EXAMPLES = """
segstream check photos
segstream check photos --unlabeled 254 --json
"""


@command
def check(
    shell: Shell,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with images/, masks/ and classes.txt.")],
    unlabeled: Unlabeled = None,
    json: Json = False,
) -> None:
    """Look through a data folder.

    Counts classes, pixels and pictures, and names everything that would stop a training. Ends with code 2 if the
    folder cannot be used as it is.
    """
    check_in(folder)
    shell.busy("reading the pictures")
    from segstream.data.inspect import inspect_folder

    report = inspect_folder(folder, unlabeled=unlabeled)
    if json:
        shell.show_json(report.to_json())
    else:
        _show(shell, report)
    if not report.ok:
        raise typer.Exit(BAD_INPUT)


def _show(shell: Shell, report: object) -> None:
    from segstream.data.inspect import FolderReport

    assert isinstance(report, FolderReport)
    parts = [name for name, count in report.parts.items() if count]
    shell.show(f"{report.root}: {', '.join(f'{report.parts[p]} pictures for {p}' for p in parts) or 'no pictures'}")
    if report.smallest and report.largest:
        sizes = [f"{width}x{height}" for height, width in dict.fromkeys((report.smallest, report.largest))]
        shell.show(f"Sizes (width x height): {' to '.join(sizes)}")
    shell.show("")
    total = sum(c.pixels for c in report.classes) + report.void_pixels + report.unlabeled_pixels or 1
    table = plain_table("value", "class", "of all pixels", *(f"pictures in {p}" for p in parts), right=range(2, 9))
    for entry in report.classes:
        counts = [str(entry.images.get(p, 0)) for p in parts]
        table.add_row(str(entry.value), entry.name, f"{100 * entry.pixels / total:.2f} %", *counts)
    for name, pixels in (("void", report.void_pixels), ("unlabelled", report.unlabeled_pixels)):
        if pixels:
            table.add_row("", Text(name, style="dim"), f"{100 * pixels / total:.2f} %")
    shell.show(table, "")
    for sentence in report.notes:
        shell.show(Text.assemble(("Note: ", "bold yellow"), sentence))
    for sentence in report.problems:
        shell.show(Text.assemble(("Problem: ", "bold red"), sentence))
    shell.show(_verdict(report.ok, len(report.problems)))


def _verdict(ok: bool, problems: int) -> Text:
    if ok:
        return Text("The folder can be used.", style="green")
    return Text(f"The folder cannot be used yet: {problems} {'problem' if problems == 1 else 'problems'}.", style="red")
