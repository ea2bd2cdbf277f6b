"""The grid on a Ray cluster of two machines (here: two nodes on this one), one of which is lost in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grids import ALONE, SMALL, Here, cells, command, environment, expected

from segstream import __version__, storage
from segstream.compare import Asked, Comparison, Ended, Task
from segstream.compare.cluster import connect
from segstream.compare.node import Board, unpack, work_here
from segstream.storage import StateError

NODE = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "memory": 2 << 30,
    "include_dashboard": False,
    "node_ip_address": "127.0.0.1",
}
SOON = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one processor each, that look for nothing outside."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "ray_bootstrap_config.yaml").touch()
    for name, value in {
        "HOME": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }.items():
        monkeypatch.setenv(name, value)
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install 'segstream[ray]'")
    two = utils.Cluster(initialize_head=True, head_node_args=NODE | {"_system_config": SOON})
    try:
        yield two
    finally:
        two.shutdown()


def test_a_cluster_that_loses_a_machine_gives_what_one_worker_gives(cluster: Any, tmp_path: Path) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    other = cluster.add_node(**NODE)
    rows = ("--methods", "em,er", "--seeds", "2", "--other-view-seeds", "0")
    words = command(out, *rows, "--ray", cluster.address, "--json")
    with open(tmp_path / "said", "w") as said, open(tmp_path / "answer", "w") as told:
        driver = subprocess.Popen(words, env=environment(cache), stdout=told, stderr=said)
    wanted = expected(tmp_path / "own", *((method, {}, seed) for method in ("em", "er") for seed in (0, 1)))
    # Lost while both machines are at work on a cell each.
    until = time.monotonic() + 120
    while driver.poll() is None and len(list(out.glob("runs/demo_*.log"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    cluster.remove_node(other, allow_graceful=False)
    assert driver.wait(180) == 0, (tmp_path / "said").read_text()
    found = cells(out)
    assert [found[f"demo_{method}_{seed}"]["scores"] for method in ("em", "er") for seed in (0, 1)] == wanted
    assert "was lost; it goes on elsewhere" in (tmp_path / "said").read_text()
    answer = json.loads((tmp_path / "answer").read_text())  # nothing of Ray's own comes between
    assert answer["failed"] == []
    assert [(row["row"], row["runs"]) for row in answer["rows"]] == [("em", 2), ("er", 2)]
    assert not list((out / "runs" / ".locks").glob("shared-*"))


# ---- what happens on a machine, without Ray


def a_task(tmp_path: Path, kind: str) -> Task:
    asked = Asked(recipes=["demo"], methods="er", out=tmp_path / "out", changes=SMALL, cache=tmp_path / "cache")
    comparison = Comparison(asked)
    for _ in comparison.plan(lambda logs: Here(asked.cache)):  # type: ignore[arg-type, return-value]
        pass
    return comparison._task(comparison.cells[0], kind)


def test_where_nothing_is_shared_the_base_is_brought_and_the_run_comes_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    said: list[dict[str, Any]] = []

    def do(kind: str, cache: Path, fetch: Any = None) -> Any:
        task = a_task(tmp_path, kind)
        errand = {
            "task": task.id, "job": dict(task.job) | {"cache": str(cache)}, "threads": 1,
            "folder": os.getcwd(), "version": __version__, "mark": str(tmp_path / "not" / "here"),
        }  # fmt: skip
        return work_here(errand, fetch, said.append)

    trained, base = do("base", tmp_path / "one")
    assert trained["result"] is not None, trained
    assert "base" in [m["progress"]["phase"] for m in said if "progress" in m]
    said.clear()
    ended, run = do("cell", tmp_path / "two", lambda: base)
    assert "base" not in [m["progress"]["phase"] for m in said if "progress" in m], "it was trained again"
    assert ended["away"]
    assert not (tmp_path / "out").exists()
    (kept,) = (path for path in (tmp_path / "two").iterdir() if path.name.startswith("base-"))
    assert storage.load_folder(kept).read("weights.safetensors") == base["files"]["weights.safetensors"]
    assert not list((tmp_path / "two" / "away").iterdir())
    assert ended["result"]["scores"] == expected(tmp_path / "own", ("er", {}, 0))[0]
    assert ended["result"]["base"]["id"] == kept.name
    unpack(run, tmp_path / "home")
    assert {"segstream.json", "events.jsonl", "config.toml"} <= {path.name for path in (tmp_path / "home").iterdir()}
    assert any(path.suffix == ".png" for path in (tmp_path / "home").rglob("*"))
    assert not (tmp_path / "home" / "state").exists()


def test_another_version_on_a_machine_is_refused(tmp_path: Path) -> None:
    ended, _ = work_here({"version": "0.0.1"}, None, lambda message: None)
    assert ended["bad_input"]
    assert "has segstream" in ended["sentence"]


def test_files_of_a_run_stay_in_its_folder(tmp_path: Path) -> None:
    for name in ("../a", "/a", "b/../../a"):
        with pytest.raises(StateError, match="outside"):
            unpack({name: b""}, tmp_path / "run")
    board = Board()
    board.put("a", {"started": True})
    assert json.loads(json.dumps(board.take())) == [["a", {"started": True}]]
    assert board.take() == []


def test_nobody_waits_for_a_cluster_that_is_not_there() -> None:
    with pytest.raises(StateError, match=r"No Ray cluster answers at 127\.0\.0\.1:1"), connect("127.0.0.1:1"):
        pass
    assert Ended(Task("a", "", "cell", {})).result == {}
