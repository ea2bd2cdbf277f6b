"""Archives: fetched whole or not at all, gone on with where they were cut off, unpacked whole or not at all."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from trees import ade_tree, voc_tree

from segstream.data import download
from segstream.data.datasets import ade20k, voc
from segstream.data.datasets.ade20k import open_ade20k
from segstream.data.datasets.voc import open_voc
from segstream.data.download import Archive, fetch, unpack
from segstream.data.source import DataError

CONTENT = bytes(range(256)) * 8


class Server(ThreadingHTTPServer):
    """Files from memory. `cut`: after so many bytes the connection ends; `parts`: whether it knows ranges."""

    files: dict[str, bytes]
    cut: int
    parts: bool
    asked: list[str]

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "bytes=0-")
        self.server.asked.append(asked)
        content = self.server.files.get(self.path[1:])
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if self.server.parts else 0
        if content is None:
            self.send_error(404)
        elif start >= len(content):
            self.send_error(416)
        else:
            self.send_response(206 if self.server.parts else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: self.server.cut])

    def log_message(self, *words: object) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.files, server.cut, server.parts, server.asked = {"a.bin": CONTENT}, 1 << 30, True, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGSTREAM_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def archive(server: Server, name: str = "a.bin", *more: str) -> Archive:
    content = server.files.get(name, CONTENT)
    return Archive(name, hashlib.md5(content).hexdigest(), (server.address(name), *more))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- fetching


def test_a_file_is_fetched_checked_and_told(server: Server, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    path = fetch(archive(server), tmp_path / "data", told=lambda *words: told.append(words))
    assert path.read_bytes() == CONTENT
    assert names(tmp_path / "data") == ["a.bin"]
    assert [what for what, _, _ in told] == ["fetch a.bin (MiB)", "check a.bin (MiB)"]
    fetch(archive(server), tmp_path / "data")
    assert len(server.asked) == 1, "what is there is not fetched again"


@pytest.mark.parametrize("parts", [True, False])
def test_it_goes_on_where_it_was_cut_off(parts: bool, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:500])
    server.parts = parts
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=500-"]


def test_short_connections_are_taken_up_again(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.cut = 600
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=0-", "bytes=600-", "bytes=1200-", "bytes=1800-"]
    shutil.rmtree(tmp_path)
    monkeypatch.setattr(download, "TRIES", 2)
    with pytest.raises(
        DataError, match=r"a\.bin cannot be fetched .*ended after 1200 of 2048 bytes.*kept in .*a\.bin\.part"
    ):
        fetch(archive(server), tmp_path)
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:1200]
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT, "the next call goes on"


def test_killed_between_the_last_byte_and_the_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["a.bin"]


def test_the_next_place_is_tried(server: Server, tmp_path: Path) -> None:
    found = Archive("a.bin", archive(server).md5, (server.address("gone"), server.address("a.bin")))
    assert fetch(found, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("start", [b"", b"x" * 500, b"x" * 5000])
def test_another_content_is_never_taken(start: bytes, server: Server, tmp_path: Path) -> None:
    wanted = archive(server)
    if start:
        (tmp_path / "a.bin.part").write_bytes(start)
    else:
        server.files["a.bin"] = CONTENT[::-1]
    with pytest.raises(
        DataError, match=r"a\.bin\.part is not the file that was published: its MD5 is \w+, not .*removed"
    ):
        fetch(wanted, tmp_path)
    assert names(tmp_path) == []
    server.files["a.bin"] = CONTENT
    assert fetch(wanted, tmp_path).read_bytes() == CONTENT


def test_a_wrong_file_of_the_user_stays(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"data.*|a\.bin is not the file that was published.*Remove it, or fetch"):
        fetch(archive(server), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"
    assert not server.asked


def test_without_a_network(server: Server, tmp_path: Path) -> None:
    closed = Archive("a.bin", "0" * 32, ("http://127.0.0.1:9/a.bin", server.address("gone")))
    with pytest.raises(DataError) as caught:
        fetch(closed, tmp_path / "data")
    said = str(caught.value)
    for words in (
        "a.bin cannot be fetched",
        "127.0.0.1:9/a.bin",
        "gone: Not Found",
        "offline?",
        f"into {tmp_path / 'data'}",
    ):
        assert words in said
    assert names(tmp_path / "data") == []


# ---- unpacking


def packed(path: Path, files: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("top/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    return path


KINDS = pytest.mark.parametrize("kind", ["a.tar", "a.tgz", "a.zip"])


def top(name: str) -> str | None:
    return name.removeprefix("top/") if name.startswith("top/") else None


@KINDS
def test_unpacking(kind: str, tmp_path: Path) -> None:
    path = packed(tmp_path / kind, {"top/a.txt": b"a", "top/deep/b.txt": b"b", "else/c.txt": b"c"})
    told: list[tuple[str, int, int]] = []
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "stale.txt").touch()  # of an earlier one that was killed
    unpack(path, tmp_path / "out", pick=top, told=lambda *words: told.append(words))
    assert sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*")) == [
        "a.txt", "deep", "deep/b.txt",
    ]  # fmt: skip
    assert names(tmp_path) == [kind, "out"]
    assert told[-1][1] == told[-1][2]
    with pytest.raises(DataError, match="out is there already, but not whole; remove or rename it"):
        unpack(path, tmp_path / "out", pick=top)


@KINDS
@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "c:evil.txt", "a\\..\\evil.txt"])
def test_nothing_is_written_outside(kind: str, name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / kind, {name: b"x"})
    with pytest.raises(DataError, match="outside its folder"):
        unpack(path, tmp_path / "deep" / "out", pick=lambda name: name)
    assert not (tmp_path / "deep" / "out").exists()
    assert not list(tmp_path.rglob("evil.txt"))


@KINDS
def test_a_damaged_archive(kind: str, tmp_path: Path) -> None:
    path = packed(tmp_path / kind, {f"top/{k}.bin": CONTENT + bytes([k]) * 9000 for k in range(9)})
    content = path.read_bytes()
    for cut in (len(content) // 3, len(content) // 2):
        path.write_bytes(content[:cut])
        with pytest.raises(DataError, match="is damaged"):
            unpack(path, tmp_path / "out", pick=top)
        assert not (tmp_path / "out").exists()


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"other.txt": b"x"})
    with pytest.raises(DataError, match="none of the files that were expected"):
        unpack(path, tmp_path / "out", pick=top)


# ---- the datasets


@pytest.fixture
def published(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small archives of the real forms, on a host of our own."""

    def files(root: Path, prefix: str = "") -> dict[str, bytes]:
        found = (p for p in sorted(root.rglob("*")) if p.is_file())
        return {prefix + p.relative_to(root).as_posix(): p.read_bytes() for p in found}

    tree = voc_tree(tmp_path / "there", layout="torchvision", size=(16, 20))
    inner = files(tree.root / "sbd", "benchmark_RELEASE/dataset/") | {"benchmark_RELEASE/dataset/img/a.jpg": b"x"}
    ade = ade_tree(tmp_path / "ade", train={"a": frozenset({1})}, test={"b": frozenset({2})})
    for module, attribute, name, content in (
        (voc, "VOC_ARCHIVE", "VOCtrainval_11-May-2012.tar", files(tree.root / "VOCdevkit", "VOCdevkit/")),
        (voc, "SBD_ARCHIVE", "benchmark.tgz", inner),
        (ade20k, "ARCHIVE", "ADEChallengeData2016.zip", files(ade.root)),
    ):
        server.files[name] = packed(tmp_path / name, content).read_bytes()
        monkeypatch.setattr(module, attribute, archive(server, name))


@pytest.mark.usefixtures("published")
def test_voc_comes_whole(server: Server, tmp_path: Path) -> None:
    root, told = tmp_path / "new" / "data", []
    splits = open_voc(root=root, download=True, told=lambda what, *rest: told.append(what))
    assert (len(splits.train), len(splits.test)) == (40, 20)
    splits.train.load(0)
    assert names(root) == ["VOCdevkit", "sbd"], "the archives are gone"
    assert names(root / "sbd") == ["cls", "train.txt", "val.txt"]
    assert {what.split()[0] for what in told} == {"fetch", "check", "unpack"}
    asked = len(server.asked)
    open_voc(root=root, download=True)
    assert len(server.asked) == asked, "nothing was missing"


@pytest.mark.usefixtures("published")
def test_only_what_is_missing_of_voc_comes(server: Server, tmp_path: Path) -> None:
    open_voc(root=tmp_path / "data", download=True)
    shutil.rmtree(tmp_path / "data" / "sbd")
    server.asked.clear()
    open_voc(root=tmp_path / "data" / "VOCdevkit" / "VOC2012", download=True)
    assert len(server.asked) == 1
    assert (tmp_path / "data" / "VOCdevkit" / "VOC2012" / "sbd" / "cls").is_dir(), "never above the root"
    given = voc_tree(tmp_path / "given", size=(16, 20))
    server.asked.clear()
    open_voc(root=given.root, download=True)
    assert not server.asked
    shutil.rmtree(given.root / "VOCdevkit" / "VOC2012" / "SegmentationClassAug")  # a list without its masks
    open_voc(root=given.root, download=True)
    assert len(server.asked) == 1


@pytest.mark.usefixtures("published")
def test_ade20k_comes_whole(server: Server, tmp_path: Path) -> None:
    splits = open_ade20k(root=tmp_path / "data", download=True)
    assert (splits.train.ids, splits.test.ids) == (("a",), ("b",))
    assert names(tmp_path / "data") == ["ADEChallengeData2016"]
    open_ade20k(root=tmp_path / "data" / "ADEChallengeData2016", download=True)
    assert len(server.asked) == 1


@pytest.mark.usefixtures("published")
def test_several_runs_that_start_together(server: Server, tmp_path: Path) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(open_voc(root=tmp_path / "data", download=True).train)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [40] * 4
    assert len(server.asked) == 2, "each archive once"


@pytest.mark.usefixtures("published")
def test_killed_while_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = download._write

    def dies(content: io.BytesIO, path: Path) -> None:
        written(content, path)
        if path.suffix == ".mat":
            raise KeyboardInterrupt

    monkeypatch.setattr(download, "_write", dies)
    with pytest.raises(KeyboardInterrupt):
        open_voc(root=tmp_path / "data", download=True)
    assert not (tmp_path / "data" / "sbd").exists()
    monkeypatch.setattr(download, "_write", written)
    assert len(open_voc(root=tmp_path / "data", download=True).train) == 40
    assert names(tmp_path / "data") == ["VOCdevkit", "sbd"]
