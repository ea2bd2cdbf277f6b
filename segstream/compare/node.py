"""What runs on a machine of a cluster: the same worker process as here, its base brought along, its results sent home.

Ray's own process stays light: it starts the worker, passes on what that says, and ends with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from segstream import __version__, storage
from segstream.compare.plan import Cell
from segstream.compare.process import Outcome, Worker

__all__ = ["Board", "Fetch", "Say", "Sent", "base_there", "keep_base", "unpack", "work_here"]

Fetch = Callable[[], Mapping[str, Any]]
Say = Callable[[dict[str, Any]], None]
Sent = tuple[dict[str, Any], Any]


class Board:
    """Where workers anywhere write how far they are, until the parent reads it.

    >>> board = Board()
    >>> board.put("demo_er_0", {"warning": "slow"}); board.take(), board.take()
    ([('demo_er_0', {'warning': 'slow'})], [])
    """

    def __init__(self) -> None:
        self._lines: list[tuple[str, dict[str, Any]]] = []

    def put(self, task: str, message: dict[str, Any]) -> None:
        self._lines.append((task, message))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self._lines = self._lines, []
        return taken


def work_here(errand: Mapping[str, Any], fetch: Fetch | None, say: Say) -> Sent:
    """Does one task on this machine.

    errand   `task`: its name;  `job`, `threads`: for the worker;  `folder`: where the parent was started;  `version`;
             `mark`: a file that is seen where the comparison's folder is shared
    fetch    gives the base, if it has to be brought
    say      is told what the worker says

    Returns how it ended, and what belongs to it: a base's folder, or a run's where the folder is not shared.
    """
    say({"started": True})
    if errand["version"] != __version__:
        told = f"This machine of the cluster has segstream {__version__}, the one that asks {errand['version']}."
        return asdict(Outcome(sentence=told, bad_input=True)), None
    if Path(errand["folder"]).is_dir():
        os.chdir(errand["folder"])  # so that relative paths mean the same, where they are there
    job = dict(errand["job"])
    if job["kind"] == "plan":
        with tempfile.TemporaryDirectory(prefix="segstream-", ignore_cleanup_errors=True) as logs:
            return asdict(_done(job, errand, Path(logs) / "plan.log", say)), None
    cell = Cell.from_json(job["cell"])
    away = not Path(errand["mark"]).exists()
    if away:  # what is done here stays here until it is whole, and is gone on with if this machine tries again
        job["out"] = str(_cache(job) / "away" / f"{cell.id}-{cell.key[:16]}")
    if (
        job["kind"] == "cell"
        and cell.base is not None
        and fetch is not None
        and not base_there(_cache(job), cell.base.id)
    ):
        keep_base(_cache(job), cell.base.id, fetch())
    out = Path(job["out"])
    ended = _done(job, errand, out / "runs" / f"{errand['task']}.log", say)
    if ended.result is None:
        return asdict(ended) | {"away": away}, None
    sent: dict[str, Any] | None = None
    if job["kind"] == "base":
        sent = _packed_base(Path(ended.result["folder"]))
    elif away:
        sent = _packed(cell.run_folder(out))
    if away:
        shutil.rmtree(out, ignore_errors=True)
    return asdict(ended) | {"away": away}, sent


def _done(job: Mapping[str, Any], errand: Mapping[str, Any], log: Path, say: Say) -> Outcome:
    worker = Worker(job, threads=errand["threads"], log=log)
    try:
        for message in worker.messages():
            say(message)
    finally:
        worker.stop()
    return worker.outcome


def _cache(job: Mapping[str, Any]) -> Path:
    return storage.cache_folder() if job["cache"] is None else Path(job["cache"])


# ---- what travels


def base_there(cache: Path, name: str) -> bool:
    """Whether the base lies here.

    >>> base_there(Path("no/cache"), "base-0123")
    False
    """
    return (cache / name / storage.INDEX).exists()


def keep_base(cache: Path, name: str, sent: Mapping[str, Any]) -> None:
    """Puts a base that was sent into the cache."""
    storage.save_folder(cache / name, kind=sent["kind"], document=sent["document"], files=sent["files"])


def _packed_base(folder: Path) -> dict[str, Any]:
    saved = storage.load_folder(folder)
    files = {name: saved.read(name) for name in saved.names}
    return {"kind": saved.kind, "document": saved.document, "files": files}


def _packed(folder: Path) -> dict[str, bytes]:
    """All files of a run but for its state, by their place in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    places = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: path.read_bytes() for name, path in places.items() if not name.startswith("state/")}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes a run's files as they were packed, in place of what lies there.

    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> unpack({"predictions/a.png": b"1"}, folder); (folder / "predictions" / "a.png").read_bytes()
    b'1'
    """
    if outside := [name for name in files if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]:
        raise storage.StateError(f"{outside[0]!r} would lie outside the run's folder.")
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        storage.write_bytes(folder / name, content)
