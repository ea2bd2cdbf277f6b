"""A comparison of seconds, for the tests of comparisons: what it is asked, and what must come out of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from segstream.compare import Ended, Failed, Started, Task
from segstream.compare.tasks import Event
from segstream.compare.worker import JOBS
from segstream.config import load_recipe
from segstream.experiment import Experiment
from segstream.runs import Run

SMALL = [
    *("data.train_size=24", "data.val_size=6", "data.test_size=8", "data.image_size=[32, 32]", "augment.crop=32"),
    *("network.name=tiny", "network.weights=", "network.decoder_channels=8", "base.epochs=1", "base.batch=8"),
    *("scenario.max_images=8", "memory.capacity=6", "run.device=cpu", "run.threads=1", "run.memory_gb=0.5"),
    *("tune.split=val", "methods.em.lr=0.05", "methods.er.lr=0.05"),
]
ALONE = {"OMP_NUM_THREADS": "1", "SEGSTREAM_OBJECTIVE": "plain"}  # compiled code would take seconds to load


def scores(cell: dict[str, Any]) -> dict[str, Any]:
    """Of a cell all that must be the same however it was computed."""
    return {key: cell[key] for key in ("key", "scores", "memory", "groups", "settings", "given", "role", "seed")}


def cells(out: Path, group: str = "cells") -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((out / group).glob("*.json"))}


def expected(folder: Path, *asked: tuple[str, dict[str, Any], int], changes: tuple[str, ...] = ()) -> list[Any]:
    """The scores of these runs (method, settings, seed), each by itself in this process, without any comparison."""
    found = []
    for number, (method, settings, seed) in enumerate(asked):
        experiment = Experiment(load_recipe("demo", [*SMALL, *changes]), cache=folder / "cache")
        run = folder / str(number)
        experiment.run(method, run, settings=settings, seed=seed)
        found.append([{"stage": e["stage"], **e["scores"]} for e in Run(run).events("score")])
    return found


class Here:
    """A backend that does each task at once, in this process."""

    def __init__(self, cache: Path | None) -> None:
        self.cache = cache
        self._heard: list[Event] = []

    def has_room(self) -> bool:
        return not self._heard

    def has_base(self, name: str) -> bool:
        return self.cache is not None and (self.cache / name / "segstream.json").exists()

    def start(self, task: Task) -> None:
        self._heard.append(Started(task))
        job = json.loads(json.dumps(dict(task.job)))
        try:
            self._heard.append(Ended(task, JOBS[task.kind](job, lambda at: None)))
        except ValueError as error:
            self._heard.append(Failed(task, str(error), bad_input=True))

    def hear(self) -> list[Event]:
        heard, self._heard = self._heard, []
        return heard

    def stop(self) -> None:
        pass


def command(out: Path, *words: str) -> list[str]:
    sets = [word for change in SMALL for word in ("--set", change)]
    # A shell starts what it puts into the background with interrupts ignored, and that is inherited.
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start += "from segstream.cli import main; sys.exit(main())"
    return [sys.executable, "-c", start, "compare", "demo", *sets, "--out", str(out), *words]


def environment(cache: Path) -> dict[str, str]:
    return os.environ | ALONE | {"SEGSTREAM_CACHE": str(cache)}


def compare(out: Path, *words: str, cache: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """`segstream compare` to its end."""
    return subprocess.run(
        command(out, *words), env=environment(cache), check=False, capture_output=True, text=True, timeout=timeout
    )
