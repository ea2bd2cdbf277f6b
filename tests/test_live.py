"""Scores while a run goes on: files that grow, that follow from the record alone, and that TensorBoard itself reads."""

from __future__ import annotations

import csv
import json
import math
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segstream.config import load_recipe
from segstream.experiment import Experiment
from segstream.live import SCORE_COLUMNS, UPDATE_COLUMNS, Live, crc32c, framed, scalars
from segstream.report.export import scores_csv
from segstream.report.record import labelled, read
from segstream.runs import Run

NAMES = ["background", "road/way", "道路"]


def update(n: int, **more: Any) -> dict[str, Any]:
    told = {"updated": True, "loss": 1 / (n + 1), "seconds": 0.25, "memory": n, "labelled": 9, "latent": 1}
    return {"event": "update", "stage": 1, "batch": n, **told, "replayed": 4, "stored": 1, **more}


def score(stage: int) -> dict[str, Any]:
    scores = {"names": NAMES, "iou": [10.0 * stage, None, 30.0], "miou": 20.0 + stage, "accuracy": 50.0}
    return {"event": "score", "stage": stage, "scores": scores}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---- the record format


def slow_crc(data: bytes) -> int:
    """Bit by bit, as a polynomial's remainder."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            top = (crc ^ byte >> bit) & 1
            crc = crc >> 1 ^ (0x82F63B78 if top else 0)
    return crc ^ 0xFFFFFFFF


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.binary(max_size=80))
def test_checksum_against_a_slow_loop(data: bytes) -> None:
    assert crc32c(data) == slow_crc(data)


def test_checksums_that_are_published() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def unframed(data: bytes) -> list[bytes]:
    found = []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        assert data[: 16 + size] == framed(data[12 : 12 + size])
        found.append(data[12 : 12 + size])
        data = data[16 + size :]
    return found


def decoded(data: bytes) -> dict[str, Any]:
    """An Event by the rules of protocol buffers: a key of field number and wire type, then the value."""

    def fields(data: bytes) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        at = 0

        def varint() -> int:
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        while at < len(data):
            key = varint()
            kind = key & 7
            if kind == 0:
                found.append((key >> 3, varint()))
            elif kind == 1:
                found.append((key >> 3, struct.unpack("<d", data[at : at + 8])[0]))
                at += 8
            elif kind == 5:
                found.append((key >> 3, struct.unpack("<f", data[at : at + 4])[0]))
                at += 4
            else:
                assert kind == 2
                size = varint()
                found.append((key >> 3, data[at : at + size]))
                at += size
        return found

    event = dict(fields(data))
    told: dict[str, Any] = {"wall": event[1], "step": event.get(2, 0), "values": {}}
    for number, value in fields(event.get(5, b"")):
        assert number == 1
        one = dict(fields(value))
        told["values"][one[1].decode()] = one[2]
    return told


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    st.integers(0, 2**62),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.floats(width=32)),
)
def test_an_event_is_what_protocol_buffers_say(step: int, values: dict[str, float]) -> None:
    told = decoded(scalars(step, values, 12.5))
    assert (told["step"], told["wall"]) == (step, 12.5)
    assert told["values"].keys() == values.keys()
    for tag, value in values.items():
        assert told["values"][tag] == value or (math.isnan(value) and math.isnan(told["values"][tag]))


def test_a_loss_beyond_float32_is_infinite() -> None:
    assert decoded(scalars(0, {"a": 1e300, "b": -1e300}, 0.0))["values"] == {"a": math.inf, "b": -math.inf}


# ---- files that grow


def board(folder: Path) -> Path:
    *earlier, path = sorted(folder.glob("events.out.tfevents.*"))
    assert [p.stat().st_size for p in earlier] in ([], [0])
    return path


def test_files_hold_what_happened(tmp_path: Path) -> None:
    live = Live(tmp_path, method="em", view="latent", seed=3)
    for event in ({"event": "start"}, score(0), update(0), update(1, loss=None), {"event": "memory"}, score(1)):
        live.add(event)
    scores = rows(tmp_path / "scores.csv")
    assert list(scores[0]) == list(SCORE_COLUMNS)
    assert {(x["run"], x["method"], x["view"], x["seed"]) for x in scores} == {("em", "em", "latent", "3")}
    told = [(x["stage"], x["measure"], x["class"], x["slot"], x["percent"]) for x in scores]
    assert told[5:] == [
        ("1", "iou", "background", "0", "10.0"),
        ("1", "iou", "road/way", "1", ""),
        ("1", "iou", "道路", "2", "30.0"),
        ("1", "accuracy", "", "", "50.0"),
        ("1", "miou", "", "", "21.0"),
    ]
    updates = rows(tmp_path / "updates.csv")
    assert list(updates[0]) == list(UPDATE_COLUMNS)
    assert [(x["update"], x["loss"], x["memory"], x["seconds"]) for x in updates] == [
        ("0", "1.0", "0", "0.25"),
        ("1", "", "1", "0.25"),
    ]
    events = [decoded(e) for e in unframed(board(tmp_path).read_bytes())[2:]]
    assert [(e["step"], e["values"]) for e in events] == [
        (0, {"stage/miou": 20.0, "stage/accuracy": 50.0, "iou/background": 0.0, "iou/道路": 30.0}),
        (0, {"update/loss": 1.0, "update/seconds": 0.25, "update/memory": 0.0}),
        (1, {"update/seconds": 0.25, "update/memory": 1.0}),
        (1, {"stage/miou": 21.0, "stage/accuracy": 50.0, "iou/background": 10.0, "iou/道路": 30.0}),
    ]


def test_updates_wait_and_scores_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(tmp_path, method="em")
    live.add(update(0))
    assert not rows(tmp_path / "updates.csv")
    monkeypatch.setattr("segstream.live.FLUSH_SECONDS", -1.0)
    live.add(update(1))
    assert len(rows(tmp_path / "updates.csv")) == 2
    monkeypatch.setattr("segstream.live.FLUSH_SECONDS", 60.0)
    live.add(update(2))
    live.add(score(1))
    assert len(rows(tmp_path / "updates.csv")) == 3
    assert len(rows(tmp_path / "scores.csv")) == 5


def without_time(data: bytes) -> list[tuple[int, Mapping[str, float]]]:
    return [(e["step"], e["values"]) for e in map(decoded, unframed(data))]


@settings(deadline=None, max_examples=25, derandomize=True)
@given(checkpoint=st.integers(0, 7), stopped=st.integers(0, 7), torn=st.integers(0, 30))
def test_a_resumed_run_leaves_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: int, stopped: int, torn: int
) -> None:
    """Stopped after some events, the files torn, rewound to a checkpoint, gone on with."""
    events = [score(0), *(update(n) for n in range(5)), score(1), {"event": "end"}]
    stopped = max(checkpoint, stopped)
    folder = tmp_path_factory.mktemp("live")
    whole = Live(folder / "whole", method="em", seed=0)
    for event in events:
        whole.add(event)
    first = Live(folder / "run", method="em", seed=0)
    for event in events[:stopped]:
        first.add(event)
    for path in (folder / "run").iterdir():
        path.write_bytes(path.read_bytes()[: -torn or None])
    again = Live(folder / "run", events[:checkpoint], method="em", seed=0)
    for event in events[checkpoint:]:
        again.add(event)
    for name in ("scores.csv", "updates.csv"):
        assert (folder / "run" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    assert without_time(board(folder / "run").read_bytes()) == without_time(board(folder / "whole").read_bytes())
    assert board(folder / "run").name > board(folder / "whole").name  # TensorBoard reads the files in this order


def test_tensorboard_reads_the_files(tmp_path: Path) -> None:
    """Its own reader, also while it watches: a run that is gone on with replaces what it told before."""
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    live = Live(tmp_path, method="em")
    for event in (score(0), update(0), update(1), update(2), score(1), score(2)):
        live.add(event)
    watching = module.EventAccumulator(str(tmp_path)).Reload()
    assert set(watching.Tags()["scalars"]) == {
        "update/loss", "update/seconds", "update/memory", "stage/miou", "stage/accuracy", "iou/background", "iou/道路",
    }  # fmt: skip
    losses = [(e.step, e.value) for e in watching.Scalars("update/loss")]
    assert losses == [(n, pytest.approx(1 / (n + 1))) for n in range(3)]
    assert [(e.step, e.value) for e in watching.Scalars("stage/miou")] == [(0, 20.0), (1, 21.0), (2, 22.0)]
    assert abs(watching.Scalars("stage/miou")[0].wall_time - time.time()) < 600
    again = Live(tmp_path, [score(0), update(0)], method="em")
    again.add(update(1, loss=7.0))
    again.add({"event": "end"})
    watching.Reload()
    fresh = module.EventAccumulator(str(tmp_path)).Reload()
    assert fresh.Scalars("update/loss") == watching.Scalars("update/loss")
    assert [(e.step, e.value) for e in watching.Scalars("update/loss")] == [(0, 1.0), (1, 7.0)]
    assert [e.step for e in watching.Scalars("stage/miou")] == [0]


# ---- as part of a run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run from end to end."""
    small = [
        "data.train_size=40", "data.val_size=4", "data.test_size=8", "data.image_size=[32, 32]", "network.name=tiny",
        "network.weights=", "augment.crop=32", "base.epochs=1", "run.device=cpu", "run.threads=1", "memory.capacity=6",
    ]  # fmt: skip
    place = tmp_path_factory.mktemp("run")
    Experiment(load_recipe("demo", small), cache=place / "cache").run("em", place / "em", pictures=1)
    return place / "em"


def test_a_run_writes_them(finished: Path) -> None:
    events = Run(finished).events()
    updates = [e for e in events if e["event"] == "update"]
    assert [(x["stage"], x["batch"]) for x in rows(finished / "updates.csv")] == [
        (str(e["stage"]), str(e["batch"])) for e in updates
    ]
    assert [x["loss"] for x in rows(finished / "updates.csv")] == [
        "" if e["loss"] is None else str(e["loss"]) for e in updates
    ]
    assert board(finished).stat().st_size > 1000


def test_its_csv_is_the_reports_but_for_what_is_derived(finished: Path) -> None:
    reported = scores_csv(labelled([read(finished)])).splitlines()
    live = (finished / "scores.csv").read_text(encoding="utf-8").splitlines()
    stages = [
        line for line in reported if ",,imiou" not in line and ",,final" not in line and ",,forgetting" not in line
    ]
    assert live == stages
    assert len(reported) == len(live) + 4


def test_it_costs_next_to_nothing(tmp_path: Path) -> None:
    """Of a run with 150 classes, whose updates take a tenth of a second at the very least."""
    live = Live(tmp_path, method="em")
    names = [f"class {i}" for i in range(151)]
    scores = {"names": names, "iou": [50.0] * 151, "miou": 50.0, "accuracy": 50.0}
    spent = []
    for _ in range(3):
        started = time.process_time()
        for n in range(300):
            live.add(update(n))
        live.add({"event": "score", "stage": 0, "scores": scores})
        spent.append(time.process_time() - started)
    assert min(spent) < 0.01 * 300 * 0.1


def test_it_needs_no_torch() -> None:
    code = "import sys, segstream.live; assert not {'torch', 'numpy', 'tensorboard'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_record_of_another_kind_is_no_trouble(tmp_path: Path) -> None:
    live = Live(tmp_path, method="em")
    live.add(json.loads('{"event": "update", "stage": 0, "batch": 0}'))
    live.flush()
    assert rows(tmp_path / "updates.csv")[0]["loss"] == ""
