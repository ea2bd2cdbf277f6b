"""`segstream compare` killed at random moments and started again gives what it gives when nobody kills it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from grids import cells, command, compare, environment, expected

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SIGKILL, and /proc to look for what is left")

ROWS = ("--methods", "em,er", "--other-view-seeds", "0", "--workers", "2")
LINES = 15  # of the record of a run, which has some more
ORPHANS_END_IN = 5.0  # seconds


def below(process: int) -> list[int]:
    """The processes that it has started."""
    try:
        return [int(n) for n in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def started(out: Path, since: float) -> int:
    """How many workers have begun at something since then."""
    return sum(log.stat().st_mtime >= since for log in out.glob("runs/*.log"))


def recorded(out: Path, since: float) -> int:
    """How many lines the longest record has that a worker has written to since then."""
    records = [record for record in out.glob("runs/*/events.jsonl") if record.stat().st_mtime >= since]
    return max((record.read_bytes().count(b"\n") for record in records), default=0)


def kill_in(out: Path, cache: Path, moment: tuple[str, int, float]) -> tuple[bool, int]:
    """Starts the comparison, and kills it so many seconds after so many tasks were begun, or lines were written in the
    record of a run; whether it was still going, and how many workers it left alone."""
    what, count, seconds = moment
    since = time.time()
    process = subprocess.Popen(
        command(out, *ROWS), env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    seen = {"tasks": started, "lines": recorded}[what]
    while process.poll() is None and seen(out, since) < count:
        time.sleep(0.02)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        orphans = below(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + ORPHANS_END_IN
        while (left := [o for o in orphans if alive(o)]) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, "a worker outlives who started it"
        return True, len(orphans)
    return False, 0


def ends_well(out: Path, cache: Path, wanted: list[Any], moments: list[tuple[str, int, float]]) -> None:
    """Lets it end, and compares."""
    last = compare(out, *ROWS, cache=cache)
    assert last.returncode == 0, last.stderr
    found = cells(out)
    assert found.keys() == {"demo_em_0", "demo_er_0"}
    same = [found["demo_em_0"]["scores"], found["demo_er_0"]["scores"]] == wanted
    assert same, f"killed after {moments}: other scores"
    assert (out / "report.html").exists()
    assert not list(out.rglob("*.segstream.tmp"))


def test_killed_three_times_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    wanted = expected(tmp_path / "own", ("em", {}, 0), ("er", {}, 0))
    dice = random.Random()
    moments = [("tasks", dice.randint(0, 1), dice.uniform(0.0, 3.0))]
    moments += [("lines", dice.randint(1, LINES), 0.0) for _ in range(2)]
    for moment in moments:
        kill_in(out, cache, moment)
    ends_well(out, cache, wanted, moments)


def test_interrupted_it_stops_its_workers_and_says_how_to_go_on(tmp_path: Path) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    since = time.time()
    process = subprocess.Popen(command(out, *ROWS), env=environment(cache), stderr=subprocess.PIPE, text=True)
    while started(out, since) < 1:
        assert process.poll() is None
        time.sleep(0.02)
    workers = below(process.pid)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"What is done is kept in {out}; go on with: segstream compare demo" in told
    assert workers
    assert not [worker for worker in workers if alive(worker)]
    assert "Traceback" not in told


@pytest.mark.slow
def test_killed_fifty_times_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Whenever it comes to its end before it is killed, it starts afresh."""
    wanted = expected(tmp_path / "own", ("em", {}, 0), ("er", {}, 0))
    dice = random.Random()
    moments: list[tuple[str, int, float]] = []
    whole = done = orphans = 0
    while done < 50:
        out, cache = tmp_path / f"out-{whole}", tmp_path / f"cache-{whole}"
        if dice.random() < 0.5:
            moments.append(("tasks", dice.randint(0, 2), dice.uniform(0.0, 4.0)))
        else:
            moments.append(("lines", dice.randint(1, LINES), dice.uniform(0.0, 0.3)))
        killed, workers = kill_in(out, cache, moments[-1])
        done += killed
        orphans += workers
        if not killed or done == 50:
            ends_well(out, cache, wanted, moments)
            whole += 1
            moments.clear()
    assert orphans > 10, "it was hardly ever killed while anything was at work"
    assert whole > 1
