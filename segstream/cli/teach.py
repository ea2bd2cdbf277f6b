"""segstream teach: new classes from a folder in which just these are labelled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from segstream.cli.options import (
    DataFolder,
    Device,
    Json,
    Overwrite,
    Resume,
    Seed,
    Threads,
    Unlabeled,
    comma_list,
)
from segstream.cli.places import TRAINING as UNFINISHED
from segstream.cli.places import check_in, check_out
from segstream.cli.progress import duration
from segstream.cli.shell import Shell, command
from segstream.cli.tables import number, plain_table

if TYPE_CHECKING:
    from segstream.teach import TeachResult

KIND = "method"
NOTABLE = 2.0  # points of IoU that are coloured
_WHAT = {"all": "the whole network", "decoder": "decoder and head", "head": "the head"}
EXAMPLES = """
segstream teach --data photos --classes car --out models/cars
segstream teach --model models/home --data more --classes sofa,lamp --out models/more --base-data photos
segstream teach --model models/home --data strokes --classes sofa --unlabeled 254 --out models/more
"""


@command
def teach(
    shell: Shell,
    data: DataFolder,
    classes: Annotated[str, typer.Option(metavar="A,B", help="The classes to learn, by their names in classes.txt.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the taught model goes.")],
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="What shall learn them.", show_default="a new one over ImageNet features"),
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How often each picture is seen.", show_default="chosen by size"),
    ] = None,
    trainable: Annotated[
        str | None,
        typer.Option(metavar="PART", help="What may change: head, decoder or all.", show_default="as measured"),
    ] = None,
    unlabeled: Unlabeled = None,
    complete: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Classes whose every pixel is labelled in every picture.",
            show_default="all of --classes without --unlabeled, else none",
        ),
    ] = None,
    base_data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Pictures of the old classes to rehearse, for a model that has none stored."
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    threads: Threads = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Teach a model new classes.

    Only these need to be labelled in the pictures. What the model knew is rehearsed from its memory. Holds back a few
    pictures and shows the quality before and after, for new and for old classes; warns if old ones lost.
    """
    names = comma_list(classes, option="--classes") or ()
    finished = comma_list(complete, option="--complete")
    check_in(data, model, base_data)
    there = check_out(out, kinds=(KIND, UNFINISHED), resume=resume, overwrite=overwrite)
    if there == KIND and resume:
        shell.note(f"The lesson in {out} had come to its end; there is nothing to go on with.")
        return
    shell.stopped = lambda: _kept(shell, out)
    with shell.meter() as meter:
        from segstream import teach as library

        result = library.teach(
            model=model,
            data=data,
            classes=names,
            out=out,
            passes=passes,
            trainable=trainable,
            unlabeled=unlabeled,
            complete=finished,
            base_data=base_data,
            device=device or "auto",
            threads=threads,
            resume=resume,
            seed=seed,
            progress=lambda p: meter(p.phase, p.done, p.total, p.text),
        )
    for sentence in result.warnings:
        shell.warn(sentence)
    if json:
        shell.show_json({"out": str(out)} | result.to_json())
        return
    _show(shell, out, result)


def _kept(shell: Shell, out: Path) -> str:
    if not (out / UNFINISHED).exists():
        return "Nothing was written yet."
    return f"What was learned is kept in {out}; go on with: {shell.again('--resume')}"


def _show(shell: Shell, out: Path, result: TeachResult) -> None:
    how = (
        f"{result.learned} pictures, {result.passes} times each, {result.updates} updates of {_WHAT[result.trainable]}"
    )
    shell.show(f"Taught {', '.join(result.new)} from {how} in {duration(result.seconds)}.", "")
    table = plain_table("class", "", "IoU % before", "after", "change", right=(2, 3, 4))
    for names, kind in ((result.new, "new"), (result.old, "old")):
        for name in names:
            before, after = result.before.get(name), result.after.get(name)
            table.add_row(name, kind, number(before), number(after), _change(before, after))
    if result.after:
        shell.show(table)
    shell.show(*result.scored_on, "")
    shell.show(f"The model is in {out}. Try it: segstream predict --model {out} PICTURES --out found")


def _change(before: float | None, after: float | None) -> Text:
    if before is None or after is None:
        return Text("")
    style = "green" if after - before >= NOTABLE else "red" if before - after >= NOTABLE else ""
    return Text(f"{after - before:+.1f}", style=style)
