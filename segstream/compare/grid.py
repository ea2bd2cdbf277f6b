"""A whole comparison in its folder: planned, tuned if that was asked for, run, and gone on with when called again."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from segstream import plugins, storage
from segstream.compare.asked import Asked, open_recipes, open_trials
from segstream.compare.locks import Busy, held
from segstream.compare.plan import Cell, Plan, State, merged, state_of
from segstream.compare.rows import JOINT, Spec, parse_rows, parse_seeds
from segstream.compare.tasks import Backend, Ended, Event, Failed, LeftOut, Task, perform
from segstream.compare.tune import best, chosen_text, mean_later, next_trials, read_chosen, spelled
from segstream.runs import claim
from segstream.storage import StateError

__all__ = ["Comparison", "Round"]

KIND = "comparison"
BackendOf = Callable[[Path], Backend]


@dataclass(frozen=True)
class Round:
    """Now these tasks are worked on; of `cells`, so many were `done` before.

    >>> Round("cells", cells=10, done=4, tasks=()).done
    4
    """

    name: str
    cells: int
    done: int
    tasks: Sequence[Task]


Events = Generator[Event | Round, None, None]
Scores = dict[str, float | None]


@dataclass
class Comparison:
    """A comparison. Making one checks what was asked for, but for the data; nothing is written.

    cells     the grid, known once it is planned, and their states;  chosen: settings that tuning or a file gives
    problems  what went wrong and did not end the rest

    >>> Comparison(Asked(recipes=["demo"], methods="em,er:veiw=ignore", out=Path("x"))).specs[1].settings
    {'veiw': 'ignore'}
    """

    asked: Asked
    specs: tuple[Spec, ...] = ()
    cells: list[Cell] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)
    tuned: dict[str, Any] | None = None
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[Failed | LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked, methods = self.asked, plugins.available("methods")
        if asked.seeds < 1 or asked.other_view_seeds < 0:
            raise ValueError(f"seeds={asked.seeds}, other_view_seeds={asked.other_view_seeds}: too few.")
        if asked.tune and asked.settings is not None:
            raise ValueError("--tune searches settings, --settings takes those of a file; give one of the two.")
        self.specs = parse_rows(asked.methods, methods)
        self._seeds = parse_seeds(asked.method_seeds, methods)
        rows = {name for spec in self.specs for name in (spec.text, spec.method)}
        if idle := [name for name in self._seeds if name not in rows]:
            raise ValueError(f"--method-seeds gives a number for {idle[0]!r}, which --methods does not name.")
        self._tables = open_recipes(asked, self.specs)
        self._trial_table = open_trials(asked) if asked.tune else None
        if asked.settings is not None:
            self.chosen = read_chosen(asked.settings, methods)
            self.tuned = {"file": asked.settings.name}

    # ---- planning

    def plan(self, backend_of: BackendOf) -> Events:
        """Opens the data, and finds the trials of the search, if there is one to do, or else the cells."""
        searching = self._trial_table is not None and self.tuned is None
        request = {
            "kind": "plan",
            "specs": [asdict(spec) for spec in self.specs],
            "tables": self._tables,
            "trials": self._trial_table if searching else None,
            "chosen": self.chosen,
            "seeds": self.asked.seeds,
            "method_seeds": self._seeds,
            "other_view_seeds": self.asked.other_view_seeds,
            "vary_base": self.asked.vary_base,
            "cache": self._cache,
        }
        run = next(iter(self._tables[0]["variants"].values()))["run"]
        task = Task("plan", "the plan", "plan", request, **_resources(run))
        answer: Mapping[str, Any] = {}
        with (
            tempfile.TemporaryDirectory(prefix="segstream-", ignore_cleanup_errors=True) as logs,
            closing(perform([task], backend_of(Path(logs)))) as events,
        ):
            for event in events:
                if isinstance(event, Ended):
                    answer = event.result
                elif isinstance(event, Failed):
                    raise _as_error(event)
                else:
                    yield event
        self.defaults = dict(answer["defaults"])
        if searching:
            self.trials = dict(answer["trials"])
        else:
            self.rows = list(answer["rows"])
            self.cells = [Cell.from_json(cell) for cell in answer["cells"]]
            self.states = {cell.id: self._state(cell) for cell in self.cells}

    def foresee(self, backend_of: BackendOf) -> Events:
        """The plan, and where a search has ended before, the cells that follow from it. Writes nothing."""
        yield from self.plan(backend_of)
        if self.trials:
            scores, wanted = self._standing(frozenset())
            if not wanted:
                self._choose(scores)
                yield from self.plan(backend_of)

    def _state(self, cell: Cell) -> State:
        return state_of(cell, self.asked.out, self.defaults.get(cell.method, {}))

    @property
    def _cache(self) -> str | None:
        return None if self.asked.cache is None else str(self.asked.cache)

    # ---- running

    def go(self, backend_of: BackendOf) -> Events:
        """All of it. Whoever stops listening stops the work; called again it goes on."""
        out = self.asked.out
        if (out / storage.INDEX).exists():
            with _alone(out):  # who would be refused in the end is refused at once
                pass
        yield from self.plan(backend_of)
        _claim(out)
        with _alone(out):
            backend = backend_of(out / "runs")
            if self._trial_table is not None:
                yield from self._tune(backend)
                yield from self.plan(backend_of)
            self._write_plan()
            open_cells = [cell for cell in self.cells if self.states[cell.id] != "done"]
            yield from self._work("cells", self.cells, open_cells, backend)

    def _work(self, name: str, cells: Sequence[Cell], wanted: Sequence[Cell], backend: Backend) -> Events:
        tasks: dict[str, Task] = {}
        for cell in wanted:
            needs = None
            if cell.base is not None and not backend.has_base(cell.base.id):
                needs = cell.base.id
                tasks.setdefault(needs, self._task(cell, "base"))
            tasks[cell.id] = self._task(cell, "cell", needs)
        yield Round(name, len(cells), len(cells) - len(wanted), tuple(tasks.values()))
        with closing(perform(list(tasks.values()), backend)) as events:
            for event in events:
                if isinstance(event, Ended) and event.task.kind == "cell":
                    self.states[event.task.id] = "done"
                if isinstance(event, Failed | LeftOut):
                    self.problems.append(event)
                yield event

    def _task(self, cell: Cell, kind: str, needs: str | None = None) -> Task:
        job: dict[str, Any] = {"kind": kind, "cell": cell.to_json(), "out": str(self.asked.out), "cache": self._cache}
        job |= {"keep_models": self.asked.keep_models}
        resources = _resources(cell.config["run"])
        if kind == "cell":
            return Task(cell.id, cell.label, kind, job, cell.method, needs, **resources)
        assert cell.base is not None
        label = f"{cell.recipe} base, {cell.base.head}" + (", sigmoid" if cell.base.loss == "sigmoid" else "")
        return Task(cell.base.id, label, kind, job, "base", **resources)

    # ---- tuning

    def _tune(self, backend: Backend) -> Events:
        """Trials in rounds: what is tried next may depend on what was found; then chosen.toml."""
        tried: set[str] = set()
        while wanted := self._standing(tried)[1]:
            yield from self._work("trials", wanted, wanted, backend)
            tried |= {cell.id for cell in wanted}
        scores, _ = self._standing(tried)
        self._choose(scores)
        self._write_choice(scores)

    def _standing(self, tried: Set[str]) -> tuple[dict[str, Scores], list[Cell]]:
        """The scores of all trials that are done, or were tried in vain, and the trials to do next."""
        scores: dict[str, Scores] = {name: {} for name in self.trials}
        wanted: list[Cell] = []
        for name, search in self.trials.items():
            cells = self._trial_cells(name)
            while some := next_trials(search["axes"], search["start"], search["budget"], scores[name]):
                asked = [cells[spelled(settings)] for settings in some]
                missing = [c for c in asked if c.id not in tried and self._state(c) != "done"]
                if missing:
                    wanted += missing
                    break
                scores[name] |= {spelled(cell.own): _score(cell, self.asked.out) for cell in asked}
        return scores, wanted

    def _trial_cells(self, name: str) -> dict[str, Cell]:
        cells = (Cell.from_json(cell) for cell in self.trials[name]["cells"])
        return {spelled(cell.own): cell for cell in cells}

    def _choose(self, scores: Mapping[str, Scores]) -> None:
        assert self._trial_table is not None
        found = {name: best(search["axes"], scores[name]) for name, search in self.trials.items()}
        self.chosen = {name: settings for name, settings in found.items() if settings is not None}
        # A method without a trial that came to its end has no settings: it is left out, the others go on.
        self.specs = tuple(s for s in self.specs if s.method == JOINT or s.method in self.chosen)
        if not self.specs:
            raise StateError(f"No trial came to its end; see the logs in {self.asked.out / 'runs'}.")
        recipe, split = self._trial_table["recipe"], self._trial_table["split"]
        self.tuned = {"recipe": recipe, "split": split, "file": "chosen.toml"}

    def _write_choice(self, scores: Mapping[str, Scores]) -> None:
        assert self.tuned is not None
        out, recipe, split = self.asked.out, self.tuned["recipe"], self.tuned["split"]
        trials = []
        for name, some in scores.items():
            cells = self._trial_cells(name)
            for text, score in some.items():
                trials.append({"method": name, "settings": json.loads(text), "imiou": score, "id": cells[text].id})
            for cell in cells.values():
                shutil.rmtree(cell.run_folder(out), ignore_errors=True)
        told = {"format": 1, "recipe": recipe, "split": split, "trials": trials, "chosen": self.chosen}
        storage.write_json(out / "tuning.json", told)
        text = chosen_text(self.chosen, trials, where=f"{recipe}, split {split}")
        storage.write_text(out / "chosen.toml", text)

    # ---- the plan's file

    def _write_plan(self) -> None:
        out, names = self.asked.out, list(dict.fromkeys(table["recipe"] for table in self._tables))
        titles = list(dict.fromkeys(cell.title or cell.recipe for cell in self.cells))
        title = self.asked.title or "; ".join(titles)
        cells = [cell.id for cell in self.cells]
        plan = Plan(self.rows, names, self.asked.seeds, cells, title, list(self.asked.command), self.tuned)
        path = out / "plan.json"
        if path.exists():
            there = [file.stem for file in (out / "cells").glob("*.json")]
            plan = merged(plan, storage.read_json(path), there)
        storage.write_json(path, plan.to_json())


def _score(cell: Cell, out: Path) -> float | None:
    path = cell.file(out)
    return mean_later(storage.read_json(path)["scores"]) if path.exists() else None


def _resources(run: Mapping[str, Any]) -> dict[str, Any]:
    return {"threads": run["threads"], "gpus": run["gpus"], "memory_gb": run["memory_gb"]}


def _as_error(event: Failed) -> Exception:
    if event.bad_input:
        return ValueError(event.sentence)
    error = RuntimeError(event.sentence)
    error.add_note(event.trace)
    return error


def _claim(out: Path) -> None:
    """The folder is ours, or becomes it."""
    if (out / storage.INDEX).exists() and storage.load_folder(out).kind == KIND:
        return
    claim(out, kind=KIND)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    try:
        with held(out / "runs" / ".locks" / "compare"):
            yield
    except Busy:
        raise StateError(
            f"Another `segstream compare` is at work in {out}; wait for it, or give another --out."
        ) from None
