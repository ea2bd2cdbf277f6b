"""segstream fit: train a model on labelled pictures, as a base for all that comes later."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segstream.cli.options import (
    NETWORK,
    TRAINING,
    DataFolder,
    Device,
    Json,
    MaxSide,
    Overwrite,
    Resume,
    Seed,
    Threads,
    Unlabeled,
    comma_list,
    use_threads,
)
from segstream.cli.places import TRAINING as UNFINISHED
from segstream.cli.places import check_in, check_out
from segstream.cli.shell import Shell, command
from segstream.cli.tables import scores_table

if TYPE_CHECKING:
    from segstream.cli.parts import Parts
    from segstream.functional.scores import Scores
    from segstream.models import Segmenter

KIND = "segmenter"
EXAMPLES = """
segstream fit --data photos --out models/home
segstream fit --data photos --classes road,sky,car --out models/street --epochs 30 --crop 320
segstream fit --data photos --out models/home --encoder resnet34 --device cuda --precision bf16-mixed
segstream fit --data photos --out models/home --resume
"""


@command
def fit(
    shell: Shell,
    data: DataFolder,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the model goes.")],
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Learn these; the others count as background.", show_default="all of classes.txt"
        ),
    ] = None,
    unlabeled: Unlabeled = None,
    network: Annotated[
        str, typer.Option(metavar="NAME", help="One of `segstream list networks`.", rich_help_panel=NETWORK)
    ] = "deeplabv3plus",
    encoder: Annotated[
        str, typer.Option(metavar="NAME", help="Any encoder of smp or timm (tu-NAME).", rich_help_panel=NETWORK)
    ] = "tf_efficientnet_lite0",
    weights: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="imagenet, none, or a .safetensors file of your own.", rich_help_panel=NETWORK
        ),
    ] = "imagenet",
    head: Annotated[str, typer.Option(metavar="KIND", help="cosine or linear.", rich_help_panel=NETWORK)] = "cosine",
    decoder_channels: Annotated[
        int, typer.Option(min=1, metavar="N", help="Fewer are faster.", rich_help_panel=NETWORK)
    ] = 256,
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Passes over the pictures.", rich_help_panel=TRAINING)
    ] = 60,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Pictures in one update.", rich_help_panel=TRAINING)
    ] = 8,
    lr: Annotated[
        float, typer.Option(metavar="RATE", help="Learning rate at the start.", rich_help_panel=TRAINING)
    ] = 0.01,
    crop: Annotated[
        int | None,
        typer.Option(
            min=32,
            metavar="PIXELS",
            help="Side of the windows that are learned; smaller is faster.",
            show_default="up to 512",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="KIND", help="32-true, or bf16-mixed (GPU).", rich_help_panel=TRAINING)
    ] = "32-true",
    max_side: MaxSide = 1024,
    seed: Seed = 0,
    device: Device = None,
    threads: Threads = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Train a model on labelled pictures.

    Scores it at the end on val.txt, or else on a few pictures that were held back. Every epoch is kept: an
    interrupted training goes on with --resume.
    """
    names = comma_list(classes, option="--classes")
    check_in(data)
    there = check_out(out, kinds=(KIND, UNFINISHED), resume=resume, overwrite=overwrite)
    if there == KIND and resume:
        shell.note(f"The training in {out} had come to its end; there is nothing to go on with.")
        return
    shell.busy("reading the pictures")
    use_threads(threads)
    from segstream.augment import Augment
    from segstream.cli.parts import split_parts, window
    from segstream.data.datasets.folder import open_folder
    from segstream.devices import make_fabric
    from segstream.models import Segmenter
    from segstream.offline import Schedule
    from segstream.offline import fit as train

    fabric = make_fabric(device or "auto", precision=precision)
    parts = split_parts(open_folder(root=data, unlabeled=unlabeled), names, max_side=max_side, seed=seed)
    schedule = Schedule(epochs=epochs, batch=min(batch, len(parts.learn)), lr=lr)
    augment = Augment(crop=crop or window(parts.learn.source), scale=(0.5, 2.0), flip=True, border="void")
    segmenter = Segmenter.create(
        network,
        encoder=encoder,
        weights=None if weights == "none" else weights,
        classes=parts.classes.names,
        head=head,
        decoder_channels=decoder_channels,
        seed=seed,
    )
    _tell(shell, parts, segmenter)
    if overwrite and (out / UNFINISHED).exists():
        shutil.rmtree(out / UNFINISHED)
    shell.stopped = lambda: _kept(shell, out)
    with shell.meter() as meter:
        train(
            segmenter,
            parts.learn,
            schedule=schedule,
            augment=augment,
            seed=seed,
            fabric=fabric,
            checkpoint=out / UNFINISHED,
            progress=lambda p: meter("fit", p.done, p.total, f"epoch {p.epoch + 1} of {epochs}, loss {p.loss:.3f}"),
        )
    segmenter.save(out)
    shutil.rmtree(out / UNFINISHED)
    shell.stopped = lambda: f"The model is complete and kept in {out}; `segstream score` tells how good it is."
    _end(shell, out, _scores(shell, segmenter, parts, max_side), as_json=json)


def _tell(shell: Shell, parts: Parts, segmenter: Segmenter) -> None:
    for sentence in parts.sentences:
        shell.note(sentence)
    for sentence in parts.warnings:
        shell.warn(sentence)
    report = segmenter.weights_report
    if report is not None and not (report.missing or report.reshaped):  # otherwise the library has warned already
        shell.note(report.summary())


def _kept(shell: Shell, out: Path) -> str:
    if not (out / UNFINISHED).exists():
        return "Nothing was written: the first epoch had not ended."
    return f"The epochs that had ended are kept in {out}; go on with: {shell.again('--resume')}"


def _scores(shell: Shell, segmenter: Segmenter, parts: Parts, max_side: int) -> Scores | None:
    from segstream.evaluate import evaluate
    from segstream.photos import AtMost

    held = parts.held
    if held is None:
        return None
    with shell.meter() as meter:
        return evaluate(
            AtMost(segmenter, max_side),
            (held[i] for i in range(len(held))),
            classes=parts.classes,
            batch=4,
            progress=lambda done: meter("score", done, len(held)),
        )


def _end(shell: Shell, out: Path, scores: Scores | None, *, as_json: bool) -> None:
    if as_json:
        shell.show_json({"out": str(out), "scores": None if scores is None else scores.to_json()})
        return
    if scores is not None:
        shell.show(scores_table(scores.to_json()), "")
    shell.show(f"The model is in {out}. Try it: segstream predict --model {out} PICTURES --out found")
