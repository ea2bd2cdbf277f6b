"""A folder of files, whole or not at all. Everything durable goes through here.

A saved state is a folder with `segstream.json`, which a person can read, and the binary files that it names by their
SHA-256. New files go beside the old ones under new names and are synced; then the JSON is renamed into place. That
rename is the commit: whoever is stopped at any moment, by a kill, a full disk or a power cut, leaves the old state or
the new one. Files that no JSON names any more are swept afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from segstream.atomic import (
    TEMPORARY,
    StateError,
    append_json_line,
    locked,
    make_folder,
    put,
    read_json,
    read_json_lines,
    sync_file,
    sync_folder,
    to_json,
    truncate_json_lines,
    write_bytes,
    write_json,
    write_text,
)

__all__ = [
    "FORMAT",
    "Saved",
    "StateError",
    "append_json_line",
    "cache_folder",
    "load_folder",
    "read_json",
    "read_json_lines",
    "save_folder",
    "sync_file",
    "truncate_json_lines",
    "write_bytes",
    "write_json",
    "write_text",
]

FORMAT = 1
INDEX = "segstream.json"
_RESERVED = ("format", "kind", "files")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9]+)?")
_STORED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*-(?P<hash>[0-9a-f]{12})(\.[A-Za-z0-9]+)?")
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # O_BINARY is Windows' own


class Saved:
    """A saved folder as it was when it was opened, even if somebody saves into it again meanwhile.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_folder(folder, kind="note", document={"by": "me"}, files={"text.txt": b"hello"})
    >>> saved = load_folder(folder, kind="note")
    >>> saved.document, saved.names, saved.read("text.txt")
    ({'by': 'me'}, ('text.txt',), b'hello')
    """

    def __init__(self, folder: Path, index: Mapping[str, Any], opened: Mapping[str, int]) -> None:
        self.folder = folder
        self.kind = str(index["kind"])
        self.format = int(index["format"])
        self.document: dict[str, Any] = {k: v for k, v in index.items() if k not in _RESERVED}
        self._entries: dict[str, dict[str, Any]] = index["files"]
        self._opened = dict(opened)
        weakref.finalize(self, _close, self._opened)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def read(self, name: str) -> bytes:
        """The content of one file, checked against the hash in the JSON."""
        if name not in self._entries:
            raise StateError(f"{self.folder / INDEX} names no file {name!r}; it has {', '.join(self.names) or 'none'}.")
        entry = self._entries[name]
        descriptor = self._opened[name]
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            _damaged(self.folder / entry["file"], "was altered after it was saved")
        return data


def save_folder(folder: Path, *, kind: str, document: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Replaces what `folder` holds by `document` and `files`, in one step that either happens or does not.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> save_folder(folder, kind="note", document={"n": 1}, files={"a.bin": b"one"})
    >>> save_folder(folder, kind="note", document={"n": 2}, files={"a.bin": b"two"})
    >>> load_folder(folder).document, len(list(folder.iterdir()))
    ({'n': 2}, 2)
    """
    folder = Path(folder)
    if taken := [key for key in _RESERVED if key in document]:
        raise ValueError(f"The document's key {taken[0]!r} is reserved; the reserved ones are {', '.join(_RESERVED)}.")
    entries = {name: _entry(name, data) for name, data in files.items()}
    index = to_json({"format": FORMAT, "kind": kind, **document, "files": entries}, folder / INDEX)
    make_folder(folder)
    with locked(folder):
        earlier = _named(folder)
        try:
            for name, entry in entries.items():
                _put_once(folder / entry["file"], files[name], entry["sha256"])
            sync_folder(folder)  # a file that lay there already may owe its name to a writer killed before this
            put(folder / INDEX, index)
        finally:  # after a failure too: what a full disk kept of the new state goes, the old state stays
            _sweep(folder, earlier=earlier)


def load_folder(folder: Path, *, kind: str | None = None) -> Saved:
    """Opens a saved folder; `kind` is what it has to be.

    >>> load_folder(Path("no/such/folder"))
    Traceback (most recent call last):
    segstream.atomic.StateError: There is no folder no/such/folder.
    """
    folder = Path(folder)
    while True:
        version = _version(folder / INDEX)
        index = _read_index(folder)
        if kind is not None and index["kind"] != kind:
            raise StateError(f"{folder} holds a {index['kind']}, not a {kind}.")
        opened: dict[str, int] = {}
        try:
            for name, entry in index["files"].items():
                opened[name] = os.open(folder / entry["file"], _READ)
        except OSError as error:
            _close(opened)
            if not isinstance(error, FileNotFoundError):
                raise
            if _version(folder / INDEX) != version:
                continue  # somebody saved in between and swept the files of the JSON read above
            _damaged(Path(error.filename), "is missing")
        saved = Saved(folder, index, opened)
        for name, entry in index["files"].items():
            if (size := os.fstat(opened[name]).st_size) != entry["bytes"]:
                _damaged(folder / entry["file"], f"has {size} bytes instead of {entry['bytes']}")
        return saved


def _entry(name: str, data: bytes) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a file's name here; use letters, digits, '_', '-' and one suffix.")
    digest = hashlib.sha256(data).hexdigest()
    path = Path(name)
    return {"file": f"{path.stem}-{digest[:12]}{path.suffix}", "sha256": digest, "bytes": len(data)}


def _damaged(path: Path, what: str) -> NoReturn:
    raise StateError(f"{path} {what}; copy the whole folder again from where it came, or save the model anew.")


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not folder.exists():
        raise StateError(f"There is no folder {folder}.")
    if not folder.is_dir():
        raise StateError(f"{folder} is a file; a saved folder was expected.")
    if not path.exists():
        raise StateError(f"{folder} has no {INDEX}, so nothing was saved there by segstream.")
    index = read_json(path)
    if not isinstance(index, dict) or type(index.get("format")) is not int or not isinstance(index.get("kind"), str):
        raise StateError(f"{path} is not a file of segstream: it has no `format` number and no `kind`.")
    if index["format"] > FORMAT:
        raise StateError(
            f"{path} was written by a newer segstream (format {index['format']}; this one reads up to {FORMAT}); "
            "install a newer version."
        )
    if index["format"] < 1:
        raise StateError(f"{path} has format {index['format']}, which never existed.")
    _check_entries(index.get("files"), path)
    return index


def _check_entries(entries: Any, path: Path) -> None:
    kinds = {"file": str, "sha256": str, "bytes": int}
    if not isinstance(entries, dict):
        raise StateError(f"{path} is damaged: it has no list of `files`.")
    for name, entry in entries.items():
        whole = isinstance(entry, dict) and all(type(entry.get(key)) is kind for key, kind in kinds.items())
        if not whole or not _STORED.fullmatch(entry["file"]):  # nor may it point out of the folder
            raise StateError(f"{path} is damaged: its entry for {name!r} names no file of this folder.")


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns


def _close(opened: dict[str, int]) -> None:
    for descriptor in opened.values():
        os.close(descriptor)
    opened.clear()


def _put_once(path: Path, data: bytes, digest: str) -> None:
    """Writes a file unless the very same lies there: a frozen encoder is not written at every checkpoint."""
    if not (path.is_file() and path.stat().st_size == len(data) and _digest(path) == digest):
        put(path, data)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named(folder: Path) -> frozenset[str] | None:
    """The files that the committed JSON names; None where it is damaged and does not tell."""
    if not (folder / INDEX).exists():
        return frozenset()
    try:
        return frozenset(entry["file"] for entry in _read_index(folder)["files"].values())
    except StateError:
        return None


def _sweep(folder: Path, *, earlier: frozenset[str] | None) -> None:
    """Removes files of ours that the committed JSON does not name. A user's file is never ours."""
    kept = _named(folder)
    if kept is None:
        return
    for path in folder.iterdir():
        if path.name not in kept and (path.name in (earlier or ()) or _is_ours(path)):
            with contextlib.suppress(OSError):  # open in another program (Windows): the next save sweeps it
                path.unlink()


def _is_ours(path: Path) -> bool:
    """Whether a file was left by a save that was killed: half written, or whole, when its name tells its hash."""
    if path.name.endswith(TEMPORARY):
        name = path.name.removeprefix(".").removesuffix(TEMPORARY)
        return name == INDEX or _STORED.fullmatch(name) is not None
    parts = _STORED.fullmatch(path.name)
    return parts is not None and path.is_file() and _digest(path).startswith(parts["hash"])


def cache_folder() -> Path:
    """Where what can be made again is kept: $SEGSTREAM_CACHE, or the user's cache folder.

    >>> cache_folder().name == "segstream" or "SEGSTREAM_CACHE" in os.environ
    True
    """
    if given := os.environ.get("SEGSTREAM_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segstream"
