"""segstream demo: everything once, on made pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from segstream.cli.options import Json, Seed
from segstream.cli.shell import Shell, command
from segstream.cli.tables import score_rows

EXAMPLES = """
segstream demo
segstream demo --seed 1 --out runs/demo-1
"""


@command
def demo(
    shell: Shell,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where it all goes.")] = Path("runs/demo"),
    json: Json = False,
) -> None:
    """See it work in three minutes.

    Needs no download. Trains a base on made pictures, lets three methods learn the same stream of new classes, and
    compares them. Always starts afresh: an earlier demo in the same folder is replaced.
    """
    shell.stopped = lambda: f"A demo is not continued; it starts afresh with: {shell.again()}"
    with shell.meter() as meter:
        from segstream.demo import run_demo

        summary = run_demo(out=out, seed=seed, progress=lambda p: meter(p.phase, p.done, p.total, p.text))
    if json:
        shell.show_json(summary)
        return
    _show(shell, out, summary)


def _show(shell: Shell, out: Path, summary: dict[str, Any]) -> None:
    from segstream.report.headline import headline
    from segstream.report.record import labelled, read
    from segstream.report.tables import score_table

    folders = [out / name for name in summary["runs"].values()]
    records = labelled([read(folder) for folder in folders])
    bound = {"label": "joint (bound)", "miou": summary["joint"]}
    shell.show("mIoU in percent after each stage; * marks the best:", score_rows(score_table(records, bound)), "")
    for sentence in headline(records, {"label": "joint", "miou": summary["joint"]}):
        shell.show(sentence)
    pictures = folders[-1] / "predictions" / "images"
    shell.show(
        "",
        f"The page with curves and pictures: {out / 'report.html'}",
        f"Try the model that em ended with: segstream predict --model {out / 'model'} {pictures} --out {out}-found",
    )
