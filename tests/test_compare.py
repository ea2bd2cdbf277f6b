"""Comparisons: rows, cells and their keys, tuning, work that depends on work, and whole grids with real processes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from grids import ALONE, SMALL, Here, cells, expected
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from segstream import cli, storage
from segstream.cli.board import Board
from segstream.cli.compare import _told
from segstream.compare import Asked, Comparison, Ended, Failed, LeftOut, Moved, Pool, Round, Started, Task, Warned
from segstream.compare.asked import open_recipes
from segstream.compare.forecast import Forecast
from segstream.compare.locks import Busy, held
from segstream.compare.plan import Cell, Plan, cell_name, key_of, merged, state_of
from segstream.compare.planner import facts_of, make_plan
from segstream.compare.rows import Facts, Row, Spec, expand, parse_rows, parse_seeds
from segstream.compare.tasks import Event, perform
from segstream.compare.tune import best, chosen_text, next_trials, read_chosen, spelled
from segstream.config import load_recipe
from segstream.online import Progress
from segstream.storage import StateError

METHODS = ["em", "er", "finetune"]


@pytest.fixture(scope="module")
def facts() -> dict[str, Facts]:
    return {name: facts_of(name) for name in METHODS}


def rows(facts: dict[str, Facts], text: str, **more: Any) -> list[Row]:
    return expand(parse_rows(text, METHODS), facts, **more)


# ---- rows


def test_a_method_with_two_views_is_shown_in_both(facts: dict[str, Facts]) -> None:
    assert not facts["em"].both_views
    found = rows(facts, "em,er,joint", seeds=3, other_view_seeds=2)
    told = [(row.label, row.role, row.seeds, row.settings) for row in found]
    assert told == [
        ("em", "headline", 3, {}),
        ("er", "headline", 3, {}),
        ("er view=background", "other view", 2, {"view": "background"}),
        ("joint", "bound", 1, {}),
    ]


@pytest.mark.parametrize("where", ["chosen", "recipe"])
def test_the_view_that_was_chosen_is_the_headline(facts: dict[str, Facts], where: str) -> None:
    own = {"er": {"view": "background", "lr": 0.02}}
    first, other = rows(facts, "er", **{where: own})
    assert (first.label, first.role) == ("er", "headline")
    assert (other.label, other.role) == ("er view=ignore", "other view")
    # What tuning chose is put over the recipe; what the recipe says stands there already.
    assert first.settings == (own["er"] if where == "chosen" else {})
    assert other.settings == ({"view": "ignore", "lr": 0.02} if where == "chosen" else {"view": "ignore"})


def test_no_other_view_where_one_was_written_or_none_is_wanted(facts: dict[str, Facts]) -> None:
    assert [row.label for row in rows(facts, "er:view=ignore")] == ["er view=ignore"]
    assert [row.label for row in rows(facts, "er:memory.policy=class_balanced")] == ["er memory.policy=class_balanced"]
    assert [row.label for row in rows(facts, "er", other_view_seeds=0)] == ["er"]


def test_the_ablation_has_five_rows_that_add_one_part_each(facts: dict[str, Facts]) -> None:
    found = rows(
        facts, "ablation", chosen={"em": {"lr": 0.5}}, seeds=3, method_seeds=parse_seeds("ablation=1", METHODS)
    )
    parts = ("class_balanced", "relabelling", "cosine", "dynamic_sampling")
    on = [[part for part in parts if row.settings.get(part, True)] for row in found]
    assert on == [list(parts[:n]) for n in range(5)]
    assert [row.role for row in found] == ["variant"] * 4 + ["headline"]
    assert [row.seeds for row in found] == [1, 1, 1, 1, 3]
    assert all(row.settings["lr"] == 0.5 for row in found)


def test_em_without_relabelling_sees_as_er_was_chosen_to(facts: dict[str, Facts]) -> None:
    found = rows(facts, "ablation", chosen={"er": {"view": "background"}})
    assert [row.settings.get("view") for row in found] == ["background", "background", None, None, None]
    assert [row.settings.get("view") for row in rows(facts, "ablation")] == [None] * 5
    (own,) = rows(facts, "em:relabelling=false:view=ignore", chosen={"er": {"view": "background"}})
    assert own.settings["view"] == "ignore"


def test_rows_that_compute_the_same_are_one(facts: dict[str, Facts]) -> None:
    found = rows(facts, "er:view=background,er:view=ignore,er,em,ablation", seeds=2)
    assert [row.label for row in found][:2] == ["er view=background", "er"]
    assert [(row.role, row.seeds) for row in found][:2] == [("variant", 2), ("headline", 2)]
    assert [row.label for row in found].count("em") == 1
    (one,) = rows(facts, "em:cosine=false:balance=1,em:balance=1.0:cosine=False")
    assert one.settings == {"balance": 1.0, "cosine": False}


def test_numbers_of_runs_by_row_and_by_method(facts: dict[str, Facts]) -> None:
    wanted = parse_seeds("er=2,em:cosine=false=1,joint=3", METHODS)
    found = rows(facts, "em,em:cosine=false,er,joint,finetune", seeds=5, method_seeds=wanted, other_view_seeds=4)
    assert {row.label: row.seeds for row in found} == {
        "em": 5,
        "em cosine=false": 1,
        "er": 2,
        "er view=background": 2,
        "joint": 3,
        "finetune": 5,
        "finetune view=background": 4,
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("emm", "names 'emm'. Did you mean 'em'?"),
        ("em,,er", "has an empty part"),
        ("em:cosine", "expected method:setting=value"),
        ("all:lr=1", "stands for several rows"),
        ("er:lr=1:lr=2", "sets 'lr' twice"),
        ("er:memory.policy=a:memory.policy=b", "sets 'memory.policy' twice"),
        ("er:methods.er.lr=1", "write lr=1 behind the method"),
        ("joint:lr=1", "joint is no method"),
    ],
)
def test_rows_that_cannot_be_read_are_refused_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_rows(text, METHODS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("er:veiw=ignore", "Did you mean 'view'"),
        ("er:view=both", "'ignore' or 'background', not 'both'"),
        ("em:cosine=perhaps", "true or false"),
    ],
)
def test_settings_of_rows_are_checked(facts: dict[str, Facts], text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        rows(facts, text)


# ---- cells


def cell(out: Path | None = None, *changes: str, settings: dict[str, Any] | None = None, seed: int = 0) -> Cell:
    config = load_recipe("demo", [*SMALL, *changes]).to_dict()
    known = {"lr": 0.01, "view": "ignore"} | (settings or {})
    key = key_of(config, "er", known, seed=seed, base_seed=0)
    name = cell_name("demo", "er", str(seed))
    return Cell(name, "demo", "", config, "er", "headline", "er", {}, known, seed, "test", key=key)


def store(out: Path, one: Cell, **more: Any) -> dict[str, Any]:
    told = {"format": 1} | one.to_json() | more
    storage.write_json(one.file(out), told)
    return told


@pytest.mark.parametrize(
    "change", ["run.device=auto", "data.root=elsewhere", "title=Another", "run.gpus=1", "tune.lr=1"]
)
def test_a_key_is_not_of_where_and_how(change: str) -> None:
    assert cell(None, change).key == cell().key


@pytest.mark.parametrize(
    "change",
    [
        "base.epochs=2",
        "run.threads=2",
        "memory.capacity=7",
        "data.split=val",
        "network.head=linear",
        "run.precision=bf16-mixed",
    ],
)
def test_a_key_is_of_all_that_decides_numbers(change: str, tmp_path: Path) -> None:
    assert cell(None, change).key != cell().key
    store(tmp_path, cell())
    key, _, value = change.partition("=")
    with pytest.raises(StateError, match=rf"was computed with {key} = \S+, not \"?{value}"):
        state_of(cell(None, change), tmp_path, {})
    assert cell(settings={"lr": 0.02}).key != cell().key != cell(seed=1).key


def test_a_cell_of_an_earlier_version_counts_with_the_defaults_of_what_came_later(tmp_path: Path) -> None:
    one = cell()
    assert state_of(one, tmp_path, {}) == "open"
    told = store(tmp_path, one, key="of another version")
    assert state_of(one, tmp_path, {}) == "done"
    del told["config"]["data"]["holdout"], told["settings"]["view"]
    storage.write_json(one.file(tmp_path), told)
    assert state_of(one, tmp_path, {"view": "ignore"}) == "done"
    with pytest.raises(StateError, match=r'computed with methods.er.view = "background", not "ignore"'):
        state_of(one, tmp_path, {"view": "background"})
    storage.write_json(one.file(tmp_path), told | {"format": 2})
    with pytest.raises(StateError, match="newer"):
        state_of(one, tmp_path, {})
    (tmp_path / "cells" / "demo_er_0.json").unlink()
    storage.save_folder(one.run_folder(tmp_path), kind="run", document={}, files={})
    assert state_of(one, tmp_path, {}) == "begun"


def test_names_of_cells_are_files_on_every_system() -> None:
    assert cell_name("demo", "er view=background", "0") == "demo_er_view=background_0"
    odd = {
        cell_name("demo", label, "0") for label in ("er a=x/y", "er a=x:y", "er a=" + "x" * 300, "er a=" + "x" * 301)
    }
    assert len(odd) == 4
    assert all(len(name) < 140 and not set(name) & set('<>:"/\\|?* ') for name in odd)


def test_another_plan_for_the_same_folder_adds_to_it() -> None:
    first = {"rows": [{"label": "em"}, {"label": "er", "seeds": 1}], "recipes": ["a"], "cells": ["a_em_0", "a_er_0"]}
    plan = Plan(rows=[{"label": "er", "seeds": 2}], recipes=["b"], seeds=1, cells=["a_er_0", "b_er_0"])
    both = merged(plan, first, ["a_em_0", "a_er_0"])
    assert both.cells == ["a_em_0", "a_er_0", "b_er_0"]
    assert both.rows == [{"label": "em"}, {"label": "er", "seeds": 2}]
    assert both.recipes == ["a", "b"]
    assert merged(plan, first, ["a_er_0"]).cells == plan.cells  # what never came to its end is no longer planned


def request(tmp_path: Path, methods: str, *changes: str, **more: Any) -> dict[str, Any]:
    asked = Asked(recipes=["demo"], methods=methods, out=tmp_path, changes=[*SMALL, *changes], **more)
    comparison = Comparison(asked)
    return {
        "specs": [spec.__dict__ for spec in comparison.specs], "tables": open_recipes(asked, comparison.specs),
        "chosen": {}, "seeds": asked.seeds, "method_seeds": {}, "other_view_seeds": asked.other_view_seeds,
        "vary_base": asked.vary_base, "cache": str(tmp_path / "cache"),
    }  # fmt: skip


def planned(tmp_path: Path, methods: str, *changes: str, **more: Any) -> list[dict[str, Any]]:
    return make_plan(request(tmp_path, methods, *changes, **more), lambda at: None)["cells"]


def test_a_grid_of_memory_sizes(tmp_path: Path) -> None:
    found = planned(tmp_path, "er,finetune,joint,er:augment.flip=false", capacity=(6, 20), other_view_seeds=0, seeds=2)
    assert [c["id"] for c in found] == [
        "demo_er_0", "demo_er_1", "demo_finetune_0", "demo_finetune_1", "demo_joint_0",
        "demo_er_augment.flip=false_0", "demo_er_augment.flip=false_1",
        "demo+20_er_0", "demo+20_er_1", "demo+20_er_augment.flip=false_0", "demo+20_er_augment.flip=false_1",
    ]  # fmt: skip
    assert [c["config"]["memory"]["capacity"] for c in found] == [6] * 7 + [20] * 4
    assert len({c["key"] for c in found}) == len(found)
    assert {c["recipe"] for c in found} == {"demo"}
    flipped = {c["id"]: c["base"]["id"] for c in found if c["base"] is not None}
    assert flipped["demo_er_0"] == flipped["demo+20_er_1"] != flipped["demo_er_augment.flip=false_0"]
    assert [c["pictures"] > 0 for c in found][:2] == [True, False]


def test_cells_share_bases_by_kind_and_may_have_their_own(tmp_path: Path) -> None:
    found = planned(tmp_path, "em,em:cosine=false,er", "network.head=linear", seeds=2, other_view_seeds=0)
    assert len({c["base"]["id"] for c in found}) == 2
    assert [c["base"]["head"] for c in found] == ["cosine"] * 2 + ["linear"] * 4
    own = planned(tmp_path, "em", "network.head=linear", seeds=2, vary_base=True)
    assert [c["base"]["seed"] for c in own] == [0, 1]
    assert own[0]["key"] == found[0]["key"]
    assert own[1]["key"] != found[1]["key"]
    later = planned(tmp_path, "em", "run.seed=5", seeds=2)
    assert [(c["seed"], c["base"]["seed"]) for c in later] == [(5, 5), (6, 5)]


def test_a_plan_says_what_would_go_wrong_later(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lr=-1"):
        planned(tmp_path, "er:lr=-1")
    with pytest.raises(ValueError, match="policy"):
        planned(tmp_path, "er:memory.policy=nobody")
    with pytest.raises(ValueError, match="holdout"):
        planned(tmp_path, "er", "data.split=holdout")


# ---- tuning


axes_of = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(
    lambda sizes: {f"s{n}": list(range(size)) for n, size in enumerate(sizes)}
)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(axes_of, st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_search_keeps_to_its_budget_and_ends(axes: dict[str, list[int]], budget: int, dice: Any) -> None:
    everything = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    worth = {spelled(s): dice.random() for s in everything}
    start = {axis: values[0] for axis, values in axes.items()}
    found: dict[str, float | None] = {}
    while wanted := next_trials(axes, start, budget, found):
        assert not {spelled(s) for s in wanted} & set(found)
        found |= {spelled(s): worth[spelled(s)] for s in wanted}
    assert len(found) <= max(budget, 1)
    if len(everything) <= budget:
        assert len(found) == len(everything)
    chosen = best(axes, found)
    assert chosen is not None
    assert found[spelled(chosen)] == max(found.values())  # type: ignore[type-var]
    if len(everything) > budget:  # along the axes: every trial differs from an earlier one in one setting at most
        tried = [json.loads(text) for text in found]
        for n, one in enumerate(tried[1:], start=1):
            assert any(sum(one[a] != other[a] for a in axes) == 1 for other in tried[:n])


def test_along_the_axes_the_best_is_carried_on() -> None:
    axes = {"lr": [0.001, 0.01], "weight": [10, 30, 100]}
    start = {"lr": 0.5, "weight": 30}
    first = next_trials(axes, start, 4, {})
    assert first == [{"lr": 0.001, "weight": 30}, {"lr": 0.01, "weight": 30}]
    found: dict[str, float | None] = {spelled(first[0]): 10.0, spelled(first[1]): 20.0}
    then = next_trials(axes, start, 4, found)
    assert then == [{"lr": 0.01, "weight": 10}, {"lr": 0.01, "weight": 100}]
    assert next_trials(axes, start, 3, found) == [{"lr": 0.01, "weight": 10}]
    found |= {spelled(then[0]): None, spelled(then[1]): 15.0}
    assert next_trials(axes, start, 4, found) == []
    assert best(axes, found) == {"lr": 0.01, "weight": 30}
    assert best(axes, dict.fromkeys(found)) is None


def test_what_was_chosen_is_read_again(tmp_path: Path) -> None:
    chosen = {"er": {"lr": 0.01, "view": "ignore"}, "em": {"lr": 1e-3}}
    trials = [{"method": "er", "settings": chosen["er"], "imiou": None}]
    path = tmp_path / "chosen.toml"
    path.write_text(chosen_text(chosen, trials, where="demo, split val"))
    assert "# er: lr=0.01, view=ignore: failed" in path.read_text()
    assert read_chosen(path, METHODS) == chosen
    path.write_text("[methods.emm]\nlr = 1")
    with pytest.raises(ValueError, match="Did you mean 'em'"):
        read_chosen(path, METHODS)
    path.write_text("lr = 1")
    with pytest.raises(ValueError, match="sections"):
        read_chosen(path, METHODS)


# ---- work that depends on work


class Hand:
    """A backend whose tasks end when they are asked about, the last begun first; some fail."""

    def __init__(self, room: int, fail: Sequence[str] = ()) -> None:
        self.room, self.fail = room, fail
        self.at_work: list[Task] = []
        self.begun: list[str] = []
        self.most = 0
        self.stopped = False

    def has_room(self) -> bool:
        return len(self.at_work) < self.room

    def has_base(self, name: str) -> bool:
        return False

    def start(self, task: Task) -> None:
        self.at_work.append(task)
        self.begun.append(task.id)
        self.most = max(self.most, len(self.at_work))

    def hear(self) -> Sequence[Event]:
        task = self.at_work.pop()
        return [Failed(task, "no")] if task.id in self.fail else [Ended(task)]

    def stop(self) -> None:
        self.stopped = True


def task(name: str, needs: str | None = None) -> Task:
    return Task(name, name, "cell", {}, needs=needs)


def test_tasks_wait_for_what_they_need_and_for_nothing_else() -> None:
    tasks = [
        task("base a"),
        task("1", "base a"),
        task("2", "base a"),
        task("base b"),
        task("3", "base b"),
        task("4", "gone"),
    ]
    hand = Hand(2)
    ended = [event.task.id for event in perform(tasks, hand)]
    assert sorted(ended) == sorted(t.id for t in tasks)
    assert hand.begun[:2] == ["base a", "base b"]
    assert hand.begun.index("1") > ended.index("base a")
    assert hand.most == 2
    assert hand.stopped


def test_what_needs_a_failed_task_is_left_out_and_nothing_else() -> None:
    tasks = [task("base a"), task("1", "base a"), task("2"), task("3", "1")]
    events = list(perform(tasks, Hand(1, fail=["base a"])))
    left = {event.task.id: event.because.id for event in events if isinstance(event, LeftOut)}
    assert left == {"1": "base a", "3": "1"}
    assert [event.task.id for event in events if isinstance(event, Ended)] == ["2"]


def test_who_stops_listening_stops_the_work() -> None:
    hand = Hand(1)
    with closing(perform([task("1"), task("2")], hand)) as events:
        next(events)
    assert hand.stopped
    assert hand.begun == ["1"]


def test_the_rest_is_foretold_from_what_took_how_long() -> None:
    now = 0.0
    tasks = [Task("base", "", "base", {}, sort="base"), *(Task(str(n), "", "cell", {}, sort="er") for n in range(4))]
    forecast = Forecast(tasks, clock=lambda: now)
    assert forecast.left() is None
    forecast(Started(tasks[0]))
    now = 5.0
    assert forecast.left() is None
    forecast(Moved(tasks[0], "base", 1, 4))
    assert forecast.left() == pytest.approx(15 + 4 * 20)  # nothing is known of er: as long as what is known
    now = 20.0
    forecast(Ended(tasks[0]))
    for n in (1, 2):
        forecast(Started(tasks[n]))
    now = 30.0
    forecast(Moved(tasks[1], "er, stage 1", 1, 4))
    assert forecast.left() == pytest.approx((30 + 30 + 40 + 40) / 2)
    for n in (1, 2, 3, 4):
        forecast(Failed(tasks[n], "no"))
    assert forecast.left() == 0


def test_one_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    code = (
        "import sys, pathlib\nfrom segstream.compare.locks import held\n"
        "with held(pathlib.Path(sys.argv[1])):\n    print('mine', flush=True)\n    sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == b"mine\n"
    with pytest.raises(Busy), held(path):
        pass
    told: list[str] = []

    def waiting() -> None:
        told.append("waits")
        other.kill()

    with held(path, waiting=waiting):
        assert told == ["waits"]
    other.wait()
    other.stdin.close()
    other.stdout.close()


# ---- whole grids


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)


def go(asked: Asked, watch: Callable[[Event | Round, Pool], None] | None = None) -> list[Any]:
    """All of a comparison, in this process, or, if somebody watches, by two workers."""
    pools: list[Any] = []

    def backend_of(logs: Path) -> Any:
        pools.append(Here(asked.cache) if watch is None else Pool(workers=2, logs=logs, cache=asked.cache))
        return pools[-1]

    found = []
    with closing(Comparison(asked).go(backend_of)) as events:
        for event in events:
            found.append(event)
            if watch is not None:
                watch(event, pools[-1])
    return found


def test_a_grid_with_a_failing_and_a_dying_cell_goes_on_and_ends_as_single_runs_do(tmp_path: Path) -> None:
    """Two workers; in the first go one cell finds its folder taken, and another one's process is killed."""
    out, cache = tmp_path / "out", tmp_path / "cache"
    asked = Asked(recipes=["demo"], methods="em,er", out=out, cache=cache, changes=SMALL, other_view_seeds=0)
    taken = out / "runs" / "demo_er_0"

    def watch(event: Event | Round, pool: Pool) -> None:
        if isinstance(event, Round):
            taken.mkdir(parents=True)
            (taken / "thesis.txt").touch()
        elif isinstance(event, Started) and event.task.id == "demo_em_0":
            pool._at_work["demo_em_0"].process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    events = go(asked, watch)
    failed = {event.task.id: event for event in events if isinstance(event, Failed)}
    assert failed.keys() == {"demo_er_0", "demo_em_0"}
    assert "not of segstream" in failed["demo_er_0"].sentence
    assert "Traceback" in Path(failed["demo_er_0"].log).read_text()
    assert (taken / "thesis.txt").exists()
    if os.name == "posix":
        assert "killed by SIGKILL" in failed["demo_em_0"].sentence
    assert cells(out) == {}

    shutil.rmtree(taken)
    second = go(asked, lambda event, pool: None)
    assert {event.task.id for event in second if isinstance(event, Started)} == {"plan", "demo_em_0", "demo_er_0"}
    assert not [event for event in second if isinstance(event, Failed | LeftOut)]
    done = cells(out)
    own = expected(tmp_path / "own", ("em", {}, 0), ("er", {}, 0))
    assert [done["demo_em_0"]["scores"], done["demo_er_0"]["scores"]] == own
    assert done["demo_er_0"]["about"]["threads"] == 1


def test_a_comparison_is_added_to(tmp_path: Path) -> None:
    """More rows and more seeds: what is there stays as it is and is not computed again."""
    out, cache = tmp_path / "out", tmp_path / "cache"
    first = Asked(recipes=["demo"], methods="er", out=out, cache=cache, changes=SMALL, other_view_seeds=0)
    go(first)
    before = (out / "cells" / "demo_er_0.json").read_bytes()
    more = Asked(recipes=["demo"], methods="er:view=background,joint", out=out, cache=cache, changes=SMALL, seeds=2)
    events = go(more)
    begun = [event.task.id for event in events if isinstance(event, Started)]
    assert begun == ["plan", "demo_er_view=background_0", "demo_er_view=background_1", "demo_joint_0"]
    assert (out / "cells" / "demo_er_0.json").read_bytes() == before
    plan = json.loads((out / "plan.json").read_text())
    assert [row["label"] for row in plan["rows"]] == ["er", "er view=background", "joint"]
    assert plan["cells"] == ["demo_er_0", *begun[1:]]
    done = cells(out)
    assert done.keys() == set(plan["cells"])
    one, joint = done["demo_er_view=background_1"], done["demo_joint_0"]
    assert one["given"] == {"view": "background"}
    assert one["settings"]["view"] == "background"
    assert one["scores"] == expected(tmp_path / "own", ("er", {"view": "background"}, 1))[0]
    assert one["base"] == done["demo_er_0"]["base"]
    assert len(one["memory"]) == 4
    assert one["cost"]["updates"] > 3
    assert one["cost"]["total_seconds"] > one["cost"]["median_seconds"] > 0
    assert [s["stage"] for s in joint["scores"]] == [3]
    assert (joint["role"], joint["memory"], joint["groups"]) == ("bound", {}, one["groups"])
    assert not list((out / "runs").rglob("state"))
    with pytest.raises(StateError, match=r"memory.capacity = 6, not 9"):
        go(Asked(recipes=["demo"], methods="er", out=out, cache=cache, changes=[*SMALL, "memory.capacity=9"]))
    assert (out / "cells" / "demo_er_0.json").read_bytes() == before


def test_an_unfinished_run_of_other_settings_begins_anew(tmp_path: Path) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    asked = Asked(recipes=["demo"], methods="em", out=out, cache=cache, changes=SMALL, keep_models=True)
    go(asked)
    assert (out / "runs" / "demo_em_0" / "state").is_dir()
    (out / "cells" / "demo_em_0.json").unlink()
    other = Asked(recipes=["demo"], methods="em", out=out, cache=cache, changes=[*SMALL, "methods.em.lr=0.02"])
    go(other)
    done = cells(out)["demo_em_0"]
    assert done["settings"]["lr"] == 0.02
    assert done["scores"] == expected(tmp_path / "own", ("em", {}, 0), changes=("methods.em.lr=0.02",))[0]


def test_a_comparison_is_tuned_first_and_the_choice_is_carried(tmp_path: Path) -> None:
    """Trials count as done; their best settings reach the cells; the same command computes nothing again."""
    out, cache = tmp_path / "out", tmp_path / "cache"
    changes = [*SMALL, "tune.lr=0.002,0.05"]
    asked = Asked(recipes=["demo"], methods="em", out=out, cache=cache, changes=changes, tune=True)
    names = [event.name for event in go(asked) if isinstance(event, Round)]
    assert names == ["trials", "cells"]
    told = json.loads((out / "tuning.json").read_text())
    assert {trial["settings"]["lr"] for trial in told["trials"]} == {0.002, 0.05}
    winner = max(told["trials"], key=lambda trial: trial["imiou"])
    assert told["chosen"] == {"em": winner["settings"]}
    assert told["split"] == "val"
    assert read_chosen(out / "chosen.toml", METHODS) == told["chosen"]
    (done,) = cells(out).values()
    assert done["given"] == winner["settings"]
    assert done["settings"]["lr"] == winner["settings"]["lr"]
    trials = cells(out, "tuning").values()
    assert all(trial["split"] == "val" and trial["role"] == "trial" for trial in trials)
    assert not (out / "runs" / "tuning").exists() or not list((out / "runs" / "tuning").iterdir())
    again = go(asked)
    assert {event.task.kind for event in again if isinstance(event, Started)} == {"plan"}
    foreseen = Comparison(asked)
    with closing(foreseen.foresee(lambda logs: Here(cache))) as events:
        assert len(list(events)) == 2, "two plans"
    assert foreseen.states == {"demo_em_0": "done"}
    assert foreseen.chosen == told["chosen"]
    more = Asked(
        recipes=["demo"], methods="em", out=out, cache=cache, changes=[*changes, "tune.lr=0.002,0.05,0.5"], tune=True
    )
    foreseen = Comparison(more)
    with closing(foreseen.foresee(lambda logs: Here(cache))) as events:
        assert len(list(events)) == 1, "what follows from a search that has not ended is not known"
    assert foreseen.cells == []


def test_two_at_once_in_one_folder_and_folders_of_others_are_refused(tmp_path: Path) -> None:
    storage.save_folder(tmp_path, kind="comparison", document={}, files={})
    asked = Asked(recipes=["demo"], methods="em", out=tmp_path, changes=SMALL)
    with held(tmp_path / "runs" / ".locks" / "compare"), pytest.raises(StateError, match="Another `segstream compare`"):
        go(asked)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").touch()
    assert cli.main(["compare", "demo", "--methods", "em", "--out", str(other)]) == 2
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demo", "--methods", "emm"], "Did you mean 'em'"),
        (["demoo", "--methods", "em"], "no recipe 'demoo'"),
        (["demo", "--methods", "em:memory.polcy=a"], "Did you mean 'memory.policy'"),
        (["demo", "--methods", "em", "--set", "data.sise=1"], "Unknown key 'data.sise'"),
        (["demo", "demo", "--methods", "em"], "Two recipes are called 'demo'"),
        (["demo", "--methods", "em", "--capacity", "20,many"], "not 'many'"),
        (["demo", "--methods", "em", "--method-seeds", "er=2"], "--methods does not name"),
        (["demo", "--methods", "em", "--method-seeds", "em"], "expected name=number"),
        (
            ["demo", "--methods", "em", "--tune", "--set", "tune.split=val", "--set", "data.split=val"],
            "the list that is scored",
        ),
        (["demo", "--methods", "em", "--ray", "auto", "--workers", "2"], "give one"),
        (["demo", "--methods", "em", "--ray", "nowhere"], "takes host:port"),
        (["demo", "--methods", "em", "--settings", "no.toml"], "no file or folder no.toml"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["compare", *words, "--out", str(out)]) == 2
    assert told in capsys.readouterr().err
    assert not out.exists()


def test_the_command_in_the_report_tells_no_place() -> None:
    words = [
        "compare",
        "demo",
        "--set",
        "data.root=/home/me/data",
        "--out",
        "/home/me/results/grid",
        "--ray",
        "10.0.0.1:6379",
    ]
    told = _told(words)
    assert told == ["segstream", "compare", "demo", "--set", "data.root=PATH", "--out", "grid", "--ray", "ADDRESS"]
    assert _told(["--set=data.root=/home/me"]) == ["segstream", "--set=data.root=PATH"]


def test_no_torch_for_who_only_waits() -> None:
    code = (
        "import sys\nimport segstream.compare.cluster, segstream.compare.node\n"
        "import segstream.cli.board, segstream.cli.compare\n"
        "assert not {'torch', 'ray', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- what a person sees


def seen(
    events: Sequence[Event | Round], mode: Any = "lines", ticks: Iterator[float] | None = None
) -> tuple[str, list[str]]:
    file, warned = StringIO(), []
    clock = (lambda: next(ticks)) if ticks else (lambda: 0.0)
    with Board(Console(file=file, width=200), mode=mode, warn=warned.append, clock=clock) as board:
        for event in events:
            board(event)
    return file.getvalue(), warned


def test_the_board_tells_what_was_done_and_what_went_wrong() -> None:
    base = Task("base-1", "demo base, cosine", "base", {}, sort="base")
    one, two = (Task(f"demo_er_{n}", f"demo er, seed {n}", "cell", {}, sort="er", needs="base-1") for n in range(2))
    result = {"scores": [{"stage": 0, "miou": 60.0}, {"stage": 1, "miou": 50.0}, {"stage": 2, "miou": 40.0}]}
    events = [
        Round("cells", 5, 3, (base, one, two)), Started(base), Moved(base, "base", 1, 2, "loss 1"), Ended(base),
        Started(one), Warned(one, "few exemplars"), Started(one, again=True), Warned(one, "few exemplars"),
        Ended(one, result), Started(two), Failed(two, "no.", "two.log"),
    ]  # fmt: skip
    text, warned = seen(events)
    assert text.splitlines()[0] == "5 cells, 3 of them done; 1 base to train first"
    assert text.splitlines()[2] == "demo er, seed 0: mIoU 40.0, imIoU 45.0, 0.0 s (4 of 5)"
    assert warned == [
        "few exemplars",
        "demo er, seed 0: its machine or its process was lost; it goes on elsewhere.",
        "demo er, seed 1 failed: no. See two.log.",
    ]
    assert seen(events, "off") == ("", warned)
    bars, _ = seen(events, "bars")
    assert "demo er, seed 0: mIoU 40.0" in bars


def test_a_file_gets_a_line_when_nothing_was_said_for_long() -> None:
    one = Task("demo_er_0", "demo er, seed 0", "cell", {}, sort="er")
    events = [
        Round("cells", 1, 0, (one,)),
        Started(one),
        Moved(one, "er, stage 1", 1, 4),
        Moved(one, "er, stage 1", 2, 4),
    ]
    ticks = iter([0.0, 0.0, 0.0, 0.0, 30.0, 100.0, 100.0])
    text, _ = seen(events, ticks=ticks)
    assert "at work: demo er, seed 0, er, stage 1: 2 of 4" in text.splitlines()[-1]


def test_progress_of_the_plan_is_not_taken_for_that_of_cells() -> None:
    plan = Task("plan", "the plan", "plan", {})
    text, warned = seen([Started(plan), Moved(plan, "index", 1, 2), Ended(plan, {})])
    assert (text, warned) == ("", [])


def test_progress_has_the_form_that_workers_send() -> None:
    assert vars(Progress("base", 1, 2, "x")).keys() == {"phase", "done", "total", "text"}
    assert Spec("er", {}, (), "all").word == "all"
