"""One file, whole or not at all, and files of lines that survive a kill. `storage` builds saved folders of these."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

__all__ = [
    "StateError",
    "append_json_line",
    "read_json",
    "read_json_lines",
    "sync_file",
    "truncate_json_lines",
    "write_bytes",
    "write_json",
    "write_text",
]

TEMPORARY = ".segstream.tmp"  # how the name of a file being written ends


class StateError(ValueError):
    """Something saved is missing, damaged or not what was asked for; the sentence names the file."""


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a whole file or none; folders above it are made.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "deep" / "file.bin"
    >>> write_bytes(path, b"12"); path.read_bytes()
    b'12'
    """
    path = Path(path)
    make_folder(path.parent)
    with locked(path.parent):
        put(path, data)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for text (UTF-8, line ends as they are).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_text(path, "für dich\\n"); path.read_text(encoding="utf-8")
    'für dich\\n'
    """
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """`write_bytes` for readable JSON. Numbers that JSON does not know (NaN, infinity) are refused.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.json"
    >>> write_json(path, {"a": [1, None]}); read_json(path)
    {'a': [1, None]}
    """
    write_bytes(path, to_json(value, path))


def read_json(path: Path) -> Any:
    """What `write_json` wrote; a sentence where there is none or where it is damaged.

    >>> read_json(Path("nothing.json"))
    Traceback (most recent call last):
    segstream.atomic.StateError: There is no file nothing.json.
    """
    try:
        return json.loads(_content(Path(path)))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"{path} is no readable JSON ({error}); it was damaged or is not of segstream.") from None


def append_json_line(path: Path, value: Mapping[str, Any]) -> None:
    """Adds one object as one line. A line that an earlier, killed writer left unfinished is dropped first.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "events.jsonl"
    >>> append_json_line(path, {"event": "start"}); append_json_line(path, {"event": "end"})
    >>> [line["event"] for line in read_json_lines(path)]
    ['start', 'end']
    """
    path = Path(path)
    line = _dump(dict(value), path, indent=None) + b"\n"
    make_folder(path.parent)
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                rest = file.read()
                start = rest.rfind(b"\n") + 1
                if _object(rest[start:]) is None:
                    file.truncate(start)
                else:  # an editor's missing last line end, not an unfinished line
                    line = b"\n" + line
        file.write(line)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """All objects of a file of lines; an unfinished last line is left out, any other damage is an error.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "events.jsonl"
    >>> _ = path.write_text('{"event": "start"}\\n{"event": "upd')
    >>> read_json_lines(path)
    [{'event': 'start'}]
    """
    return [value for value, _ in _lines(Path(path))]


def truncate_json_lines(path: Path, keep: int) -> None:
    """Leaves the first `keep` lines of a file of lines, byte for byte.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "events.jsonl"
    >>> for n in range(3): append_json_line(path, {"n": n})
    >>> truncate_json_lines(path, 1); read_json_lines(path)
    [{'n': 0}]
    """
    lines = _lines(Path(path))
    if not 0 <= keep <= len(lines):
        raise ValueError(f"{path} has {len(lines)} lines; {keep} of them cannot be kept.")
    write_bytes(path, b"".join(raw + b"\n" for _, raw in lines[:keep]))


def sync_file(path: Path) -> None:
    """Makes durable what was appended to a file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "events.jsonl"
    >>> append_json_line(path, {"event": "start"}); sync_file(path)
    """
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def to_json(value: Any, path: Path) -> bytes:
    """Readable JSON for the file `path`."""
    return _dump(value, path, indent=2) + b"\n"


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, durably."""
    missing = []
    above = folder
    while not above.exists() and above != above.parent:
        missing.append(above)
        above = above.parent
    if not above.is_dir():
        raise StateError(f"{above} is a file, so the folder {folder} cannot be made.")
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time in a folder. The lock is the folder itself: no file is left, and a kill frees it."""
    if sys.platform == "win32":  # folders cannot be locked there; two writers at once are the user's to avoid
        yield
    else:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # some network file systems have no locks; then as on Windows
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def put(path: Path, data: bytes) -> None:
    """Writes beside, syncs, renames; for whoever holds the folder's lock. The rename replaces in one step."""
    temporary = path.parent / f".{path.name}{TEMPORARY}"
    try:
        with open(temporary, "wb") as file:  # not tempfile: its files are private, and a model is often shared
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    if sys.platform != "win32":  # folders cannot be opened there; its file system keeps a journal of names
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StateError(f"There is no file {path}.") from None


def _lines(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    raw = _content(path).split(b"\n")
    found = []
    for number, line in enumerate(raw, start=1):
        value = _object(line)
        if value is not None:
            found.append((value, line))
        elif number < len(raw):
            raise StateError(f"Line {number} of {path} is damaged; remove it if the rest is still of use.")
    return found


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _dump(value: Any, path: Path, *, indent: int | None) -> bytes:
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise ValueError(f"{path} cannot hold this as JSON: {error}.") from None
