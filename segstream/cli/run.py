"""segstream run: a recipe with one method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segstream.cli.options import Device, Json, Resume, Threads, lazily
from segstream.cli.places import check_out
from segstream.cli.shell import Shell, command
from segstream.cli.tables import score_rows

if TYPE_CHECKING:
    from segstream.experiment import Experiment

EXAMPLES = """
segstream run camvid-6-1 --method em --set data.root=data/camvid
segstream run my-recipe.toml --method er --set memory.capacity=20 --set methods.er.lr=0.01 --out runs/er-20
segstream run camvid-6-1 --method em --set data.root=data/camvid --resume
"""


def _recipes() -> list[str]:
    from segstream.config import recipes

    return list(recipes())


def _methods() -> list[str]:
    from segstream.plugins import available

    return available("methods")


@command
def run(
    shell: Shell,
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A name of `segstream list recipes`, or a TOML file.",
            autocompletion=lazily(_recipes),
        ),
    ],
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="One of `segstream list methods`.", autocompletion=lazily(_methods)),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one line of the recipe; can be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run folder.", show_default="runs/RECIPE-METHOD")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Run a recipe with one method.

    Trains the base (kept for the next run), feeds the method with the stream, and scores after each stage.
    """
    from segstream.config import load_recipe

    chosen = load_recipe(recipe, settings or [])
    out = out or Path("runs") / f"{chosen.name}-{method}"
    check_out(out, kinds=("run",), resume=resume)
    shell.stopped = lambda: _kept(shell, out)
    with shell.meter() as meter:
        from segstream.experiment import Experiment

        tell = lambda p: meter(p.phase, p.done, p.total, p.text)  # noqa: E731
        experiment = Experiment(chosen, device=device, threads=threads, progress=tell)
        _check(experiment, method)
        summary = experiment.run(method, out, resume=resume)
    if json:
        shell.show_json(summary)
        return
    _show(shell, out)


def _check(experiment: Experiment, method: str) -> None:
    """What a run would stumble over after its base training is said before it."""
    from segstream.method import create
    from segstream.models import Segmenter

    recipe = experiment.recipe
    create(method, Segmenter.create("tiny", weights=None), settings=recipe.methods.get(method))
    experiment.stream(seed=recipe.run.seed)


def _kept(shell: Shell, out: Path) -> str:
    if not out.exists():
        return "Nothing was written."
    return f"What was done is kept in {out}; go on with: {shell.again('--resume')}"


def _show(shell: Shell, out: Path) -> None:
    from segstream.report.record import read
    from segstream.report.tables import score_table

    shell.show("mIoU in percent:", score_rows(score_table([read(out)])), "")
    shell.show(f"The run is in {out}; a page of it: segstream report {out}")
