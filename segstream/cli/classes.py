"""segstream classes: what a model knows, and changes to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from segstream.classes import ClassTable
from segstream.cli.options import Json, comma_list, pairs
from segstream.cli.shell import Shell, command
from segstream.cli.tables import plain_table, swatch

EXAMPLES = """
segstream classes models/home
segstream classes models/home --rename bicyclist=cyclist --rename sign="traffic sign"
segstream classes models/home --retire fence
"""


@command
def classes(
    shell: Shell,
    model: Annotated[Path, typer.Argument(metavar="DIR", help="What fit or teach saved.")],
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Give a class another name; can be repeated.")
    ] = None,
    retire: Annotated[
        str | None, typer.Option(metavar="A,B", help="Classes that shall never be predicted again. Cannot be undone.")
    ] = None,
    json: Json = False,
) -> None:
    """Show, rename or retire classes of a model.

    A class that is retired keeps its number, and its name is not given to another one.
    """
    from segstream import storage

    changes, gone = pairs(rename, option="--rename"), comma_list(retire, option="--retire") or ()
    saved = storage.load_folder(model)
    if "segmenter" not in saved.document:
        raise ValueError(f"{model} holds a {saved.kind}, not a model or a method.")
    table = ClassTable.from_json(saved.document["segmenter"]["classes"])
    for old, new in changes:  # all of it is tried on the table first
        table = table.rename(old, new)
    table = table.retire(gone) if gone else table
    if changes or gone:
        shell.busy("changing the model")
        _change(model, saved.kind, saved.document, changes, gone)
        shell.note(f"Saved to {model}.")
    if json:
        shell.show_json(_plain(table))
        return
    shown = plain_table("slot", "class", "colour", "", right=(0,))
    for row in _plain(table)["classes"]:
        shown.add_row(str(row["slot"]), row["name"], swatch(row["color"]), "retired" if row["retired"] else "")
    shell.show(shown)


def _plain(table: ClassTable) -> dict[str, Any]:
    rows = [
        {"slot": s, "name": table.name(s), "color": list(table.color(s)), "retired": s in table.retired}
        for s in range(len(table))
    ]
    return {"classes": rows}


def _change(
    folder: Path, kind: str, document: dict[str, Any], changes: list[tuple[str, str]], gone: tuple[str, ...]
) -> None:
    """Through the same verbs as any program, and saved whole."""
    from segstream import method
    from segstream.devices import make_fabric
    from segstream.models import Segmenter

    if kind == "method":
        learned = method.load(folder, fabric=make_fabric("cpu"))
        for old, new in changes:
            learned.segmenter.rename_class(old, new)
        if gone:
            learned.retire_classes(gone)
        learned.save(folder, extra=document.get("extra"))
        return
    segmenter = Segmenter.load(folder)
    for old, new in changes:
        segmenter.rename_class(old, new)
    if gone:
        segmenter.retire_classes(gone)
    segmenter.save(folder)
