"""segstream compare: a grid of recipes, methods and seeds, as tables beside the paper's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from segstream.cli.options import Json, comma_list, lazily
from segstream.cli.places import check_in, check_out
from segstream.cli.shell import ARGUMENTS, FAILURE, Shell, command
from segstream.cli.tables import number, plain_table

if TYPE_CHECKING:
    from segstream.compare import Asked, Comparison
    from segstream.compare.tasks import Backend

EXAMPLES = """
segstream compare demo --methods em,er,finetune,joint --seeds 3 --out runs/demo-grid --workers 2
segstream compare camvid-6-1 camvid-6-5 --methods all,joint --tune --set data.root=data/camvid --out results/camvid
segstream compare camvid-6-1 --methods em,er,er:memory.policy=class_balanced --capacity 20,50,100 --out runs/sizes
segstream compare camvid-6-1 --methods ablation --settings results/camvid/chosen.toml --out runs/ablation
segstream compare camvid-6-1 --methods em,mib --seeds 3 --ray auto --out shared/grid
"""
OFTEN = 20  # a report is written again when so many times as long as it takes has passed
PRIVATE = ("data.root=", "scenario.files=")  # whose values tell where somebody keeps things


def _recipes() -> list[str]:
    from segstream.config import recipes

    return list(recipes())


@command
def compare(
    shell: Shell,
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Names of `segstream list recipes`, or TOML files.",
            autocompletion=lazily(_recipes),
        ),
    ],
    methods: Annotated[
        str,
        typer.Option(
            metavar="ROWS",
            help="Methods, each with settings if need be (er:view=background, em:cosine=false, "
            "er:memory.policy=class_balanced); all, ablation (of em) or joint (the bound).",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where it all goes.")] = Path("runs/compare"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one line of the recipes; can be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each row.")] = 1,
    method_seeds: Annotated[
        str | None, typer.Option(metavar="ROW=N,...", help="Other numbers for some rows.", show_default=False)
    ] = None,
    other_view_seeds: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Runs of the view of unlabelled pixels that a method does not use."),
    ] = 1,
    capacity: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Sizes of the memory, each for every recipe.", show_default="the recipe's"),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="First choose learning rate and view of each method.", show_default=False),
    ] = False,
    tune_on: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Where to choose them.", show_default="the first")
    ] = None,
    chosen: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Take what an earlier --tune chose: its chosen.toml."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at a time on this machine.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Spread the runs over a Ray cluster: host:port, auto or local."),
    ] = None,
    vary_base: Annotated[
        bool, typer.Option("--vary-base", help="Train a base of its own for every seed.", show_default=False)
    ] = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep what every run has learned.", show_default=False)
    ] = False,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The report's title.", show_default="the recipes'")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and what is done.", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Compare methods: every row of a table with several seeds, then the tables beside the paper's.

    Stopped anywhere, the same command goes on: what is done is not done again. With more methods, recipes or seeds it
    adds to what is there.
    """
    from segstream.compare import Asked, Comparison

    check_in(chosen)
    check_out(out, kinds=("comparison",), resume=True)
    if ray is not None and workers != 1:
        raise ValueError("--workers is for this machine, --ray for a cluster, which knows its own size; give one.")
    asked = Asked(
        recipes=recipes,
        methods=methods,
        out=out,
        changes=settings or (),
        capacity=_sizes(capacity),
        seeds=seeds,
        method_seeds=method_seeds,
        other_view_seeds=other_view_seeds,
        vary_base=vary_base,
        tune=tune,
        tune_on=tune_on,
        settings=chosen,
        keep_models=keep_models,
        title=title or "",
        command=_told(ARGUMENTS.get()),
    )
    comparison = Comparison(asked)
    shell.stopped = lambda: _kept(shell, out)
    if tune and len(recipes) > 1:
        shell.note(f"Settings are chosen on {tune_on or recipes[0]} and carried to the other recipes.")
    with _backend(shell, asked, workers=workers, ray=ray) as backend_of:
        if dry_run:
            _show_plan(shell, comparison, backend_of, json=json)
            return
        _run(shell, comparison, backend_of)
    _show(shell, comparison, json=json)


# ---- what is asked


def _sizes(text: str | None) -> tuple[int, ...]:
    names = comma_list(text, option="--capacity") or ()
    if wrong := [name for name in names if not name.isdigit()]:
        raise ValueError(f"--capacity takes numbers of exemplars, not {wrong[0]!r}.")
    return tuple(int(name) for name in names)


def _told(arguments: Sequence[str]) -> list[str]:
    """The command for the report, without what tells where somebody keeps things."""
    words = ["segstream"]
    for before, word in zip(("", *arguments), arguments, strict=False):
        for start in PRIVATE:
            if start in word:
                word = word[: word.index(start) + len(start)] + "PATH"
        if before in ("--out", "--settings", "--ray") and (Path(word).is_absolute() or before == "--ray"):
            word = {"--ray": "ADDRESS"}.get(before, Path(word).name)
        words.append(word)
    return words


@contextmanager
def _backend(shell: Shell, asked: Asked, *, workers: int, ray: str | None) -> Iterator[Callable[[Path], Backend]]:
    """Who does the work, given the folder for logs."""
    from segstream.compare import Pool

    if ray is None:
        yield lambda logs: Pool(workers=workers, logs=logs, cache=asked.cache)
        return
    from segstream.compare.cluster import Cluster, connect

    shell.busy("connecting to the cluster")
    with connect(ray) as link:
        yield lambda logs: Cluster(link, out=asked.out)


def _kept(shell: Shell, out: Path) -> str:
    if not (out / "plan.json").exists():
        return "Nothing was computed yet."
    return f"What is done is kept in {out}; go on with: {shell.again()}"


# ---- how it goes


def _run(shell: Shell, comparison: Comparison, backend_of: Callable[[Path], Backend]) -> None:
    from segstream.cli.board import Board
    from segstream.compare import Ended, Round

    meter = shell.meter()
    board = Board(meter.console, mode=meter.mode, warn=shell.warn)
    rounds = ""
    with _Report(comparison.asked.out) as report:
        with board, closing(comparison.go(backend_of)) as events:
            for event in events:
                board(event)
                if isinstance(event, Round):
                    rounds = event.name
                elif isinstance(event, Ended) and event.task.kind == "cell" and rounds == "cells":
                    report.now_and_then()
        shell.busy("writing the report")
        report.write()


class _Report:
    """The report, written anew as cells come in, by a process of its own: nobody waits for it, or falls with it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._writer: subprocess.Popen[bytes] | None = None
        self._began = self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait()
            self._writer = None

    def now_and_then(self) -> None:
        """As often as it costs little."""
        now = time.monotonic()
        if self._writer is not None and self._writer.poll() is not None:
            self._writer, self._next = None, now + OFTEN * (now - self._began)
        if self._writer is None and now >= self._next:
            words = [sys.executable, "-c", "from segstream.cli import main; main()", "report", str(self.out)]
            quiet = subprocess.DEVNULL
            self._writer = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
            self._began = now

    def write(self) -> None:
        """The last one."""
        from segstream.report import write_comparison

        self.__exit__()
        if any((self.out / "cells").glob("*.json")):
            write_comparison(self.out)


# ---- what is shown


def _show_plan(shell: Shell, comparison: Comparison, backend_of: Callable[[Path], Backend], *, json: bool) -> None:
    shell.busy("opening the data")
    with closing(comparison.foresee(backend_of)) as events:
        for _ in events:
            pass
    cells = [{"id": cell.id, "row": cell.row, "state": comparison.states[cell.id]} for cell in comparison.cells]
    if json:
        trials = {name: min(search["budget"], len(search["cells"])) for name, search in comparison.trials.items()}
        shell.show_json({"trials": trials, "cells": cells})
        return
    if not cells:
        for name, search in comparison.trials.items():
            axes = ", ".join(f"{key} {'|'.join(map(str, values))}" for key, values in search["axes"].items())
            tried = min(search["budget"], len(search["cells"]))
            shell.show(f"{name}: at most {tried} trials over {axes}")
        shell.show("The cells follow from what is chosen.")
        return
    table = plain_table("cell", "seed", "", right=(1,))
    for cell in comparison.cells:
        table.add_row(cell.id, str(cell.seed), comparison.states[cell.id])
    done = sum(state == "done" for state in comparison.states.values())
    bases = {cell.base.id for cell in comparison.cells if cell.base and comparison.states[cell.id] != "done"}
    last = f"; the others start from {len(bases)} {'base' if len(bases) == 1 else 'bases'}" if bases else ""
    shell.show(table, "", f"{len(cells)} cells, {done} done{last}.")


def _show(shell: Shell, comparison: Comparison, *, json: bool) -> None:
    out = comparison.asked.out
    lines = _lines(comparison)
    if json:
        failed = [event.task.id for event in comparison.problems]
        shell.show_json({"out": str(out), "rows": lines, "failed": failed, "report": str(out / "report.html")})
    else:
        table = plain_table("mIoU in percent", "row", "runs", "last", "imIoU", right=(2, 3, 4))
        for line in lines:
            table.add_row(line["recipe"], line["row"], str(line["runs"]), number(line["miou"]), number(line["imiou"]))
        shell.show(table, "", f"The page with all tables: {out / 'report.html'}")
    if comparison.problems:
        many = len(comparison.problems)
        said = "1 task is" if many == 1 else f"{many} tasks are"
        shell.fail(f"{said} not done (see above). When the cause is gone, go on with: {shell.again()}")
        raise typer.Exit(FAILURE)


def _lines(comparison: Comparison) -> list[dict[str, Any]]:
    """Means over the runs that are done, by recipe with its size of the memory, and row."""
    from segstream.compare.plan import finished
    from segstream.compare.tune import mean_later

    found: dict[tuple[str, str], list[tuple[float | None, float | None]]] = {}
    sizes = len({cell.config["memory"]["capacity"] for cell in comparison.cells}) > 1
    for cell in comparison.cells:
        told = finished(cell, comparison.asked.out)
        if told is not None:
            name = f"{cell.recipe}, memory {cell.config['memory']['capacity']}" if sizes else cell.recipe
            scores = told["scores"]
            later = mean_later(scores) if len(scores) > 1 else None
            found.setdefault((name, cell.row), []).append((scores[-1]["miou"], later))
    lines = []
    for (name, row), runs in found.items():
        last, later = _mean(miou for miou, _ in runs), _mean(imiou for _, imiou in runs)
        lines.append({"recipe": name, "row": row, "runs": len(runs), "miou": last, "imiou": later})
    return lines


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
