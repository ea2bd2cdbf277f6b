"""segstream score: how good a model is on labelled pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segstream.cli.options import DataFolder, Device, Json, MaxSide, ModelFolder, Threads, Unlabeled, use_threads
from segstream.cli.places import check_in
from segstream.cli.shell import Shell, command
from segstream.cli.tables import WHOLE_MATRIX, confusion_table, confusions, number, scores_table

if TYPE_CHECKING:
    from segstream.classes import ClassTable
    from segstream.data import Source, Splits

EXAMPLES = """
segstream score --model models/home --data photos
segstream score --model models/home --data photos --split val --json > scores.json
"""


@command
def score(
    shell: Shell,
    model: ModelFolder,
    data: DataFolder,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="train, val or test.", show_default="test, else val, else all pictures"),
    ] = None,
    unlabeled: Unlabeled = None,
    max_side: MaxSide = 1024,
    device: Device = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Score a model on labelled pictures.

    Shows the IoU of each class, their mean, and what is taken for what. Classes are matched by name; classes that the
    model does not know count as background.
    """
    check_in(model, data)
    shell.busy("loading the model")
    use_threads(threads)
    from segstream.cli.models import open_model
    from segstream.data.datasets.folder import open_folder
    from segstream.evaluate import evaluate
    from segstream.photos import AtMost

    name, source = _part(open_folder(root=data, unlabeled=unlabeled), split, data)
    found = open_model(model, device=device)
    samples, unknown, absent = _matched(source, found.classes, data)
    _tell(shell, unknown, absent)
    with shell.meter() as meter:
        scores = evaluate(
            AtMost(found.predictor, max_side),
            (samples[i] for i in range(len(samples))),
            classes=found.classes,
            batch=4,
            progress=lambda done: meter("score", done, len(samples)),
        )
    plain = scores.to_json() | {
        "split": name,
        "images": len(samples),
        "unknown_to_model": unknown,
        "not_in_data": absent,
    }
    if json:
        shell.show_json(plain)
        return
    shell.show(f"{len(samples)} pictures of {data} ({name}), scored at their own size.", "")
    _show(shell, plain)


def _part(splits: Splits, split: str | None, data: Path) -> tuple[str, Source]:
    if split is not None:
        source = splits.part(split)
        if not len(source):
            raise ValueError(f"{data} has no pictures for --split {split}: there is no {split}.txt.")
        return split, source
    for name in ("test", "val"):
        if len(splits.part(name)):
            return name, splits.part(name)
    return "all pictures" if not (data / "train.txt").exists() else "train", splits.train


def _matched(source: Source, classes: ClassTable, data: Path) -> tuple[Any, list[str], list[str]]:
    """The pictures with slots of the model, the folder's classes it does not know, and its classes not there."""
    from segstream.classes import BACKGROUND, VOID
    from segstream.data.views import SampleSet, slot_lookup

    active = {classes.name(slot): slot for slot in classes.active}
    shared = {value: active[name] for value, name in enumerate(source.names) if value and name in active}
    unknown = [name for name in source.names[1:] if name not in active]
    absent = [name for name in active if name not in source.names]
    if not shared:
        raise ValueError(
            f"The model and {data} have no class in common. The model knows {', '.join(active) or 'none'}; "
            f"{data / 'classes.txt'} names {', '.join(source.names[1:]) or 'none'}. `segstream classes --rename` helps "
            "where only the names differ."
        )
    lookup = slot_lookup(len(source.names), shared, background=BACKGROUND, others=BACKGROUND, unlabeled=VOID)
    return SampleSet(source, range(len(source)), lookup, known=len(classes)), unknown, absent


def _tell(shell: Shell, unknown: list[str], absent: list[str]) -> None:
    if unknown:
        shell.warn(f"The model does not know {', '.join(unknown)}: their pixels count as background.")
    if absent:
        names = ", ".join(absent)
        shell.warn(f"The data do not name {names}: no IoU for that, and where the model sees it, it counts as wrong.")


def _show(shell: Shell, plain: dict[str, Any]) -> None:
    shell.show(scores_table(plain), f"{number(plain['accuracy'])} % of all pixels are right.", "")
    if len(plain["names"]) <= WHOLE_MATRIX:
        shell.show("In percent of each class's pixels: what they are (rows) and what they were called (columns)")
        shell.show(confusion_table(plain))
    else:
        shell.show("The largest mistakes (the whole matrix comes with --json):", confusions(plain))
