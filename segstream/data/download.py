"""Archives of published datasets: fetched whole and checked, or not at all; unpacked whole, or not at all.

What is under way lies beside its place under a name of its own: a fetch that was cut off goes on where it ended.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import shutil
import ssl
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from segstream.data.source import DataError, Told, unheard

__all__ = ["Archive", "fetch", "unpack"]

log = logging.getLogger(__name__)
MIB = 1 << 20
TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # connections in a row that end early, each with something new

_CUT_OFF = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


@dataclass(frozen=True)
class Archive:
    """A file that others publish: its name, the MD5 of its content, and where it is, the best place first.

    >>> Archive("a.zip", "0" * 32, ("https://example.org/a.zip",)).hosts
    'example.org'
    """

    name: str
    md5: str
    urls: tuple[str, ...]

    @property
    def hosts(self) -> str:
        return " and ".join(dict.fromkeys(urllib.parse.urlsplit(url).hostname or url for url in self.urls))


def fetch(archive: Archive, folder: Path, *, told: Told = unheard) -> Path:
    """The archive in `folder`, fetched unless it lies there. Raises DataError, with what to do, where it cannot be had.

    >>> import tempfile
    >>> empty = Archive("empty.txt", hashlib.md5(b"").hexdigest(), ())
    >>> folder = Path(tempfile.mkdtemp()); (folder / "empty.txt").touch()
    >>> fetch(empty, folder).name
    'empty.txt'
    """
    target, part = folder / archive.name, folder / f"{archive.name}.part"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _receive(archive, part, told)
    found = target if target.exists() else part
    if (md5 := _md5(found, archive.name, told)) != archive.md5:
        if found == part:
            part.unlink()
        raise DataError(
            f"{found} is not the file that was published: its MD5 is {md5}, not {archive.md5}. "
            f"{'It is removed; try again' if found == part else 'Remove it'}, or fetch {archive.name} by other means."
        )
    return found if found == target else part.rename(target)


def _receive(archive: Archive, part: Path, told: Told) -> None:
    failed = []
    for url in archive.urls:
        for _ in range(TRIES):
            before = part.stat().st_size if part.exists() else 0
            try:
                return _go_on(url, part, told)
            except _CUT_OFF as error:
                reason = getattr(error, "reason", None) or error
                failed.append(f"{url}: {reason or type(error).__name__}")
                if isinstance(error, urllib.error.HTTPError) or not part.exists() or part.stat().st_size <= before:
                    break  # nothing came: another place may have it
    kept = f" What came so far is kept in {part}; the same command goes on with it." if part.exists() else ""
    raise DataError(
        f"{archive.name} cannot be fetched ({'; '.join(dict.fromkeys(failed))}). Is this machine offline?{kept} "
        f"Or put the file into {part.parent} by other means."
    )


def _go_on(url: str, part: Path, told: Told) -> None:
    """Receives what is missing of a file, to its end."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "segstream", "Range": f"bytes={start}-"})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return  # all of it had come
            raise
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            start = 0  # this host does not know parts
        length = response.headers.get("Content-Length")
        whole = start + int(length) if length else 0
        name = f"fetch {part.stem} (MiB)"
        with part.open("ab" if start else "wb") as file:
            while block := response.read(MIB):
                file.write(block)
                start += len(block)
                told(name, start // MIB, max(whole, start) // MIB)
    if start < whole:
        raise ConnectionError(f"the connection ended after {start} of {whole} bytes")


def _md5(path: Path, name: str, told: Told) -> str:
    digest, size, done = hashlib.md5(usedforsecurity=False), path.stat().st_size, 0
    with path.open("rb") as file:
        while block := file.read(16 * MIB):
            digest.update(block)
            done += len(block)
            told(f"check {name} (MiB)", done // MIB, size // MIB)
    return digest.hexdigest()


def unpack(archive: Path, into: Path, *, pick: Callable[[str], str | None], told: Told = unheard) -> None:
    """Files of a tar or zip archive into a new folder, which appears when all are there.

    pick   a file's name in the archive to its path in the folder; None: it stays out

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with zipfile.ZipFile(folder / "a.zip", "w") as packed: packed.writestr("top/a.txt", "hello")
    >>> unpack(folder / "a.zip", folder / "a", pick=lambda name: name.removeprefix("top/"))
    >>> (folder / "a" / "a.txt").read_text()
    'hello'
    """
    if into.exists():
        raise DataError(f"{into} is there already, but not whole; remove or rename it, then try again.")
    building = into.with_name(f".{into.name}.part")
    shutil.rmtree(building, ignore_errors=True)  # of an earlier try that was killed
    try:
        for name, content in _files(archive, told):
            with content:
                if (inside := pick(name)) is not None:
                    _write(content, building / _safe(inside, archive))
        if not building.exists():
            raise DataError(f"{archive} holds none of the files that were expected.")
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive} is damaged ({error}); remove it and fetch it again.") from error
    into.parent.mkdir(parents=True, exist_ok=True)
    building.rename(into)


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise DataError(f"{archive} holds a file {name!r}, which would lie outside its folder.")
    return path


def _write(content: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(content, file)


def _files(archive: Path, told: Told) -> Iterator[tuple[str, IO[bytes]]]:
    """Every plain file: name and content. Links and devices are no part of a dataset."""
    doing = f"unpack {archive.name}"
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if not member.is_dir()]
            for number, entry in enumerate(members, start=1):
                yield entry.filename, packed.open(entry)
                told(doing, number, len(members))
        return
    size = archive.stat().st_size
    with archive.open("rb") as raw, tarfile.open(fileobj=raw) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content
                told(f"{doing} (MiB)", raw.tell() // MIB, size // MIB)
    told(f"{doing} (MiB)", size // MIB, size // MIB)
