"""Scores while a run goes on: two CSV files and one that TensorBoard reads, in the run folder.

scores.csv   every score of every class, a line each, in the columns of the report's file of that name
updates.csv  one line for each update: loss, seconds, memory
events.out.tfevents.*  the same for `tensorboard --logdir`

All of it follows from events.jsonl. So none of it is state: a run that is gone on with writes it anew.
"""

from __future__ import annotations

import csv
import io
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from segstream.atomic import write_bytes

__all__ = ["SCORE_COLUMNS", "UPDATE_COLUMNS", "Live", "crc32c", "framed", "scalars", "score_lines"]

SCORE_COLUMNS = ("run", "method", "view", "seed", "stage", "measure", "class", "slot", "percent")
UPDATE_COLUMNS = ("update", "stage", "batch", "loss", "seconds", "memory", "labelled", "latent", "replayed", "stored")
_SHOWN = ("loss", "seconds", "memory")  # of an update, in TensorBoard
FLUSH_SECONDS = 2.0
_PREFIX = "events.out.tfevents."


def score_lines(
    stage: int, names: Sequence[str], iou: Sequence[float | None], accuracy: float | None, miou: float | None
) -> Iterator[tuple[Any, ...]]:
    """stage, measure, class, slot, percent of all that was scored after a stage.

    >>> list(score_lines(1, ["background", "car"], [None, 50.0], 70.0, 50.0))[1:3]
    [(1, 'iou', 'car', 1, 50.0), (1, 'accuracy', None, None, 70.0)]
    """
    for slot, (name, value) in enumerate(zip(names, iou, strict=True)):
        yield stage, "iou", name, slot, value
    yield stage, "accuracy", None, None, accuracy
    yield stage, "miou", None, None, miou


class Live:
    """The files of one run. `add` takes what the run records; it is on disk two seconds later or with the next score.

    events  what was recorded so far: the files begin with it, whatever stood in them

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> live = Live(folder, method="em", seed=0)
    >>> live.add({"event": "update", "stage": 1, "batch": 0, "loss": 0.5, "seconds": 0.1, "memory": 50})
    >>> live.flush(); (folder / "updates.csv").read_text().splitlines()[1]
    '0,1,0,0.5,0.1,50,,,,'
    """

    def __init__(
        self,
        folder: Path,
        events: Iterable[Mapping[str, Any]] = (),
        *,
        method: str,
        view: str | None = None,
        seed: int | None = None,
    ) -> None:
        self._start = (method, method, view, seed)
        self._updates = 0
        earlier = sorted(folder.glob(f"{_PREFIX}*"))
        # A new name each time: a TensorBoard that watches goes on to the next file, and forgets what the earlier told.
        # The earlier stays, empty: from a file that is gone it would not go on.
        number = 1 + max((int(p.suffixes[-1][1:]) for p in earlier if p.suffixes[-1][1:].isdigit()), default=0)
        self._paths = {
            "scores": folder / "scores.csv",
            "updates": folder / "updates.csv",
            "board": folder / f"{_PREFIX}{number:06d}",
        }
        self._waiting = {
            "scores": [_line(SCORE_COLUMNS)],
            "updates": [_line(UPDATE_COLUMNS)],
            "board": [_begin(time.time())],
        }
        self._flushed = time.monotonic()
        for event in events:
            self._take(event)
        for name, path in self._paths.items():
            write_bytes(path, b"".join(self._waiting[name]))
            self._waiting[name] = []
        for path in earlier[:-1]:
            path.unlink()
        for path in earlier[-1:]:
            write_bytes(path, b"")

    def add(self, event: Mapping[str, Any]) -> None:
        """One more thing that happened."""
        self._take(event)
        if event["event"] != "update" or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """What waits is appended."""
        for name, path in self._paths.items():
            if self._waiting[name]:
                with open(path, "ab") as file:
                    file.write(b"".join(self._waiting[name]))
                self._waiting[name] = []
        self._flushed = time.monotonic()

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "update":
            self._waiting["updates"].append(_line([self._updates, *(event.get(key) for key in UPDATE_COLUMNS[1:])]))
            told = {f"update/{key}": event.get(key) for key in _SHOWN}
            self._show(self._updates, told)
            self._updates += 1
        elif event["event"] == "score":
            stage, scores = event["stage"], event["scores"]
            names, iou = scores["names"], scores["iou"]
            lines = score_lines(stage, names, iou, scores.get("accuracy"), scores.get("miou"))
            self._waiting["scores"] += [_line([*self._start, *line]) for line in lines]
            told = {"stage/miou": scores.get("miou"), "stage/accuracy": scores.get("accuracy")}
            self._show(stage, told | {f"iou/{name}": value for name, value in zip(names, iou, strict=True)})

    def _show(self, step: int, told: Mapping[str, float | None]) -> None:
        known = {tag: float(value) for tag, value in told.items() if value is not None}
        if known:
            self._waiting["board"].append(framed(scalars(step, known, time.time())))


def _line(values: Iterable[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue().encode()


# ---- TensorBoard's files: TFRecord frames around protocol buffers of the type Event, written by hand


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """A record of a file: its length and itself, each with a checksum.

    >>> framed(b"").hex()
    '000000000000000029039807d8ea82a2'
    """
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    """Rotated and shifted, as TensorFlow does it so that a checksum of data with checksums stays a good one."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def scalars(step: int, values: Mapping[str, float], seconds: float) -> bytes:
    """An Event: wall_time = 1 (double), step = 2 (int64), summary = 5, whose value = 1 has tag = 1, simple_value = 2.

    >>> scalars(3, {"a": 1.0}, 0.0).hex()
    '09000000000000000010032a0a0a080a0161150000803f'
    """
    summary = b"".join(
        _field(1, _field(1, tag.encode()) + b"\x15" + struct.pack("<f", _single(value)))
        for tag, value in values.items()
    )
    return b"\x09" + struct.pack("<d", seconds) + b"\x10" + _varint(step) + _field(5, summary)


def _begin(seconds: float) -> bytes:
    """What a file begins with: its version (field 3); then that a session starts at step 0 (field 7, status 1).

    The second makes a TensorBoard that watches forget what an earlier file told of these steps.
    """
    now = b"\x09" + struct.pack("<d", seconds)
    return framed(now + _field(3, b"brain.Event:2")) + framed(now + b"\x10\x00" + _field(7, b"\x08\x01"))


def _single(value: float) -> float:
    """What a float32 cannot hold becomes infinite."""
    return value if abs(value) < 3.4e38 else float("inf") * value


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
