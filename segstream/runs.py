"""The folder of one run: what was asked for, what happened, what came out. Reports and the service read just this.

segstream.json  marks the folder as ours          config.toml   the resolved recipe
about.json      versions, devices, method, seed   events.jsonl  one line for each thing that happened
state/          the method's checkpoint           predictions/  pictures for the report
summary.json    the scores, when it has ended
scores.csv, updates.csv, events.out.tfevents.*   what `live` makes of the events while they come
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from segstream.atomic import TEMPORARY
from segstream.schema import to_toml
from segstream.storage import (
    INDEX,
    StateError,
    append_json_line,
    load_folder,
    read_json,
    read_json_lines,
    save_folder,
    sync_file,
    truncate_json_lines,
    write_json,
    write_text,
)

__all__ = ["Run", "claim"]

ASKED = ("method", "settings", "seed", "split", "tuning_split")  # what decides a run beside its recipe
# What desktops, and a save of ours that was killed at its very first file, leave in folders that people see as empty.
CLUTTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", f".{INDEX}{TEMPORARY}"})


def claim(folder: Path, *, kind: str, replace: bool = False) -> None:
    """Makes `folder` ours, for results of that kind. A folder with anything else in it is refused and left as it is.

    With `replace` an earlier folder of the same kind is emptied first, known by its mark.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "demo"
    >>> claim(folder, kind="demo")
    >>> claim(folder, kind="demo", replace=True)
    >>> claim(folder.parent, kind="demo", replace=True)
    Traceback (most recent call last):
    segstream.atomic.StateError: ... is not empty and not of segstream; give a new or an empty folder.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise StateError(f"{folder} is a file; give a new or an empty folder.")
    found = {path for path in folder.iterdir() if path.name not in CLUTTER} if folder.exists() else set()
    mark = folder / "segstream.json"
    if found and mark not in found:
        raise StateError(f"{folder} is not empty and not of segstream; give a new or an empty folder.")
    if found:
        earlier = load_folder(folder)
        if earlier.kind != kind:
            raise StateError(f"{folder} holds a {earlier.kind}, not a {kind}; give a new or an empty folder.")
        if not replace:
            raise StateError(f"{folder} holds an earlier {kind}; continue it with --resume, or give another folder.")
    for path in found - {mark}:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    save_folder(folder, kind=kind, document={"note": "Made by segstream; what lies here may be replaced."}, files={})


class Run:
    """A run folder that is there. `create` makes one.

    >>> import tempfile
    >>> run = Run.create(Path(tempfile.mkdtemp()), config="", about={"method": "em"})
    >>> run.event("start"); run.event("stage", stage=1, classes=["car"], batches=3)
    >>> run.events("stage")
    [{'event': 'stage', 'stage': 1, 'classes': ['car'], 'batches': 3}]
    >>> run.last_position, run.finished
    (2, False)
    """

    listener: Callable[[Mapping[str, Any]], None] | None = None  # is told of every event, once it is in the record

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise StateError(f"There is no run folder {self.folder}.")
        if (self.folder / "segstream.json").exists():
            load_folder(self.folder, kind="run")
        elif not self._about.exists():
            raise StateError(f"{self.folder} is no run folder: it has neither segstream.json nor about.json.")

    @classmethod
    def create(cls, folder: Path, *, config: str, about: Mapping[str, Any], replace: bool = False) -> Run:
        """A new run folder; `config` is the resolved recipe as TOML, `about` what `segstream.about` says and more."""
        claim(folder, kind="run", replace=replace)
        run = cls(folder)
        run._begin(config, about)
        return run

    def _begin(self, config: str, about: Mapping[str, Any]) -> None:
        write_text(self.folder / "config.toml", config)
        write_json(self._about, dict(about))

    @classmethod
    def resume(cls, folder: Path, *, config: str, about: Mapping[str, Any]) -> Run:
        """The run that was started there with the same recipe, method and seed; anything else is refused.

        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = Run.create(folder, config="[base]\\nepochs = 3", about={"method": "em"})
        >>> _ = Run.resume(folder, config="[base]\\nepochs = 4", about={"method": "em"})
        Traceback (most recent call last):
        segstream.atomic.StateError: ... was started with base.epochs = 3, not 4; ...
        """
        run = cls(folder)
        if not run._about.exists():  # stopped between its first file and its last
            run._begin(config, about)
        before, now = (
            _flat({**recipe, **{key: facts.get(key) for key in ASKED}})
            for recipe, facts in ((run.config, run.about), (tomllib.loads(config), about))
        )
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key):
                raise StateError(
                    f"{run.folder} was started with {key} = {_shown(before.get(key))}, not {_shown(now.get(key))}; "
                    "ask for the same, or give another folder."
                )
        return run

    @property
    def _about(self) -> Path:
        return self.folder / "about.json"

    @property
    def _events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def state(self) -> Path:
        """Where the method's checkpoint lies."""
        return self.folder / "state"

    @property
    def predictions(self) -> Path:
        """Where pictures for the report lie."""
        return self.folder / "predictions"

    @property
    def config(self) -> dict[str, Any]:
        """The resolved recipe as plain data; empty where none was written."""
        path = self.folder / "config.toml"
        try:
            return tomllib.loads(path.read_bytes().decode()) if path.exists() else {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StateError(f"{path} is not valid TOML: {error}.") from None

    @property
    def about(self) -> dict[str, Any]:
        """Versions, devices, method, seed; empty where the run was stopped before it wrote them."""
        about = read_json(self._about) if self._about.exists() else {}
        if not isinstance(about, dict):
            raise StateError(f"{self._about} is damaged: it must hold one object.")
        return about

    def event(self, kind: str, **data: Any) -> None:
        """Adds one line to the record."""
        append_json_line(self._events, {"event": kind, **data})
        if self.listener is not None:
            self.listener({"event": kind, **data})

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What happened so far, all of it or of one kind. A line that is just being written is left out."""
        lines = read_json_lines(self._events) if self._events.exists() else []
        if bad := [n for n, line in enumerate(lines, start=1) if not isinstance(line.get("event"), str)]:
            raise StateError(f"Line {bad[0]} of {self._events} is damaged: it does not say which `event` it is.")
        return [line for line in lines if kind in (None, line["event"])]

    @property
    def finished(self) -> bool:
        return bool(self.events("end"))

    @property
    def last_position(self) -> int:
        """How many events there are."""
        return len(self.events())

    def mark(self) -> int:
        """The position for a checkpoint that is about to be saved; the events before it are on disk by then."""
        if self._events.exists():
            sync_file(self._events)
        return self.last_position

    def rewind(self, position: int) -> None:
        """Drops the events after a checkpoint's position, so that going on writes the record of a run never stopped.

        >>> import tempfile
        >>> run = Run.create(Path(tempfile.mkdtemp()), config="", about={})
        >>> run.event("start"); checkpoint = run.mark(); run.event("update", stage=1, batch=0)
        >>> run.rewind(checkpoint); run.events()
        [{'event': 'start'}]
        """
        there = self.last_position
        if position > there:
            raise StateError(f"{self._events} has {there} events, but the checkpoint was saved after {position}.")
        if self._events.exists():
            truncate_json_lines(self._events, position)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes the scores of the ended run."""
        write_json(self.folder / "summary.json", dict(summary))

    @property
    def summary(self) -> dict[str, Any] | None:
        """What `write_summary` wrote; None before."""
        path = self.folder / "summary.json"
        found: dict[str, Any] | None = read_json(path) if path.exists() else None
        return found


def _flat(data: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat.update(_flat(value, f"{section}{key}.") if isinstance(value, Mapping) else {f"{section}{key}": value})
    return flat


def _shown(value: Any) -> str:
    return "nothing" if value is None else to_toml({"x": value}).removeprefix("x = ").strip()
