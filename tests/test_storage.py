"""A saved folder is the old state or the new one, whatever happens to the writer."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segstream import atomic, storage
from segstream.storage import StateError, load_folder, save_folder

WRITER = """
import sys
from pathlib import Path
from segstream.storage import save_folder
folder = Path(sys.argv[1])
for n in range(int(sys.argv[2]), 10**9):
    files = {"weights.safetensors": (b"%d " % n) * 40_000, "memory.safetensors": b"%d" % (n // 3), "encoder.bin": b"e"}
    save_folder(folder, kind="method", document={"n": n}, files=files)
    if n == int(sys.argv[2]):
        print("going", flush=True)
"""

STOPPED = """
import os, sys
from pathlib import Path
from segstream.storage import save_folder
stop = int(sys.argv[2])
calls = 0
def watched(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == stop:
            os._exit(9)
        return function(*args, **kwargs)
    return call
os.fsync, os.replace, Path.unlink = watched(os.fsync), watched(os.replace), watched(Path.unlink)
save_folder(Path(sys.argv[1]), kind="method", document={"n": 2}, files={"a.bin": b"two", "b.bin": b"second"})
"""


def state(folder: Path) -> tuple[int, dict[str, bytes]]:
    saved = load_folder(folder, kind="method")
    return saved.document["n"], {name: saved.read(name) for name in saved.names}


def save(folder: Path, n: int, **files: bytes) -> None:
    save_folder(folder, kind="method", document={"n": n}, files={f"{k}.bin": v for k, v in files.items()})


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,8}(\.[a-z]{1,5})?", fullmatch=True)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    document=st.dictionaries(st.text().filter(lambda k: k not in ("format", "kind", "files")), plain, max_size=4),
    files=st.dictionaries(names, st.binary(max_size=50), max_size=4),
)
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, document: dict, files: dict) -> None:
    folder = tmp_path_factory.mktemp("s")
    save_folder(folder, kind="method", document={"old": 1}, files={"gone.bin": b"x"})
    save_folder(folder, kind="method", document=document, files=files)
    saved = load_folder(folder, kind="method")
    assert saved.document == document
    assert {name: saved.read(name) for name in saved.names} == files
    distinct = {f"{Path(n).stem}-{hashlib.sha256(d).hexdigest()[:12]}{Path(n).suffix}" for n, d in files.items()}
    assert {p.name for p in folder.iterdir()} == {"segstream.json", *distinct}


def test_the_index_is_for_people(tmp_path: Path) -> None:
    save(tmp_path, 3, a=b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    text = (tmp_path / "segstream.json").read_text()
    entry = {"file": f"a-{digest[:12]}.bin", "sha256": digest, "bytes": 3}
    assert json.loads(text) == {"format": 1, "kind": "method", "n": 3, "files": {"a.bin": entry}}
    assert list(json.loads(text)) == ["format", "kind", "n", "files"]
    assert text.startswith('{\n  "format": 1,\n  "kind": "method",\n')
    assert text.endswith("}\n")


def test_others_may_read_what_was_saved(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save(tmp_path / "m", 1, a=b"1")
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "m").iterdir()} == {0o644}


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_while_saving(tmp_path: Path, kills: int) -> None:
    chance = random.Random(0)
    folder = tmp_path / "model"
    n = 0
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(n)], stdout=subprocess.PIPE, cwd=Path.cwd()
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"going\n"
            time.sleep(chance.uniform(0, 0.08))
            writer.send_signal(signal.SIGKILL)
        found, files = state(folder)
        assert found >= n
        assert files["weights.safetensors"] == (b"%d " % found) * 40_000
        assert files["memory.safetensors"] == b"%d" % (found // 3)
        n = found + 1
    save_folder(folder, kind="method", document={"n": 0}, files={})
    assert [p.name for p in folder.iterdir()] == ["segstream.json"], "what the killed writers left was swept"


def test_stopped_before_each_step(tmp_path: Path) -> None:
    """Whatever step the writer does not live to take, the whole old or the whole new state is there."""
    outcomes = []
    for step in range(1, 40):
        folder = tmp_path / str(step)
        save(folder, 1, a=b"one", b=b"first")
        done = subprocess.run([sys.executable, "-c", STOPPED, str(folder), str(step)], check=False)
        n, files = state(folder)
        assert files == ({"a.bin": b"one", "b.bin": b"first"} if n == 1 else {"a.bin": b"two", "b.bin": b"second"})
        outcomes.append(n)
        save(folder, 3, a=b"three")
        assert state(folder) == (3, {"a.bin": b"three"})
        assert len(list(folder.iterdir())) == 2
        if done.returncode == 0:
            break
        assert done.returncode == 9
    assert outcomes == sorted(outcomes), "the commit is one step"
    assert outcomes.count(1) >= 6
    assert outcomes.count(2) >= 3


def test_order_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content before its name, all names before the JSON that relies on them, the JSON's name before sweeping."""
    save(tmp_path, 1, a=b"one")
    steps: list[str] = []
    fsync, replace, unlink = os.fsync, os.replace, Path.unlink

    def watch_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append("sync folder" if path == tmp_path else f"sync {path.name[1]}")
        fsync(descriptor)

    def watch_replace(source: Path, target: Path) -> None:
        steps.append(f"name {target.name[0]}")
        replace(source, target)

    def watch_unlink(path: Path, missing_ok: bool = False) -> None:
        steps.append(f"remove {path.name[0]}")
        unlink(path, missing_ok=missing_ok)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to tell what is synced")
    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "replace", watch_replace)
    monkeypatch.setattr(Path, "unlink", watch_unlink)
    save(tmp_path, 2, a=b"two")
    wanted = ["sync a", "name a", "sync folder", "sync folder", "sync s", "name s", "sync folder", "remove a"]
    assert steps == wanted


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("what", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, what: str) -> None:
    folder = tmp_path / "model"
    save(folder, 1, a=b"one", b=b"first")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    real, calls = getattr(os, what), []

    def full(*args: object) -> None:
        calls.append(args)
        if len(calls) > at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args)

    monkeypatch.setattr(os, what, full)
    failed = False
    try:
        save(folder, 2, a=b"two", b=b"second")
    except OSError:
        failed = True
    monkeypatch.undo()
    assert failed == (len(calls) > at)
    n, files = state(folder)
    if n == 1:
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    else:
        assert files == {"a.bin": b"two", "b.bin": b"second"}
        assert len(list(folder.iterdir())) == 3


def test_a_first_save_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 1, a=b"one")
    assert list(tmp_path.iterdir()) == []


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    """A reader sees one state, never a mixture, though each save sweeps the files before it."""
    save(tmp_path, 0, a=b"0" * 999, b=b"0")
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            save(tmp_path, n, a=b"%d" % n * 999, b=b"%d" % n)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            saved = load_folder(tmp_path)
            time.sleep(0.001)
            n = saved.document["n"]
            assert saved.read("a.bin") == b"%d" % n * 999
            assert saved.read("b.bin") == b"%d" % n
    finally:
        stop.set()
        writer.join()
    assert n > 0


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_save_while_the_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    save(tmp_path, 1, a=b"one", b=b"first")
    real, calls = os.open, []

    def meanwhile(path: Path, flags: int) -> int:
        calls.append(path)
        if len(calls) == after + 1:
            monkeypatch.undo()
            save(tmp_path, 2, a=b"two", b=b"second")
            monkeypatch.setattr(storage.os, "open", meanwhile)
        return real(path, flags)

    monkeypatch.setattr(storage.os, "open", meanwhile)
    n, files = state(tmp_path)
    assert (n, files["a.bin"], files["b.bin"]) == ((1, b"one", b"first") if after == 2 else (2, b"two", b"second"))


def test_two_writers_take_turns(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for n in range(first, 60, 2):
            save(tmp_path, n, a=b"%d" % n, **{f"own{n}": b"x"})

    writers = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    n, files = state(tmp_path)
    assert files == {"a.bin": b"%d" % n, f"own{n}.bin": b"x"}
    assert len(list(tmp_path.iterdir())) == 3


def test_the_same_content_is_written_once(tmp_path: Path) -> None:
    save(tmp_path, 1, encoder=b"frozen", head=b"1")
    path = only(tmp_path, "encoder-*.bin")
    before = path.stat()
    save(tmp_path, 2, encoder=b"frozen", head=b"2")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    path.write_bytes(b"frozeN")
    save(tmp_path, 3, encoder=b"frozen", head=b"2")
    assert state(tmp_path)[1]["encoder.bin"] == b"frozen", "an altered file of the same size is written again"


def test_the_users_own_files_stay(tmp_path: Path) -> None:
    own = ["photo-0123456789ab.png", "weights-0123456789ab.safetensors", "notes.txt", ".segstream.json.swp", "a.tmp"]
    for name in own:
        (tmp_path / name).write_text("mine")
    (tmp_path / "deep-0123456789ab").mkdir()
    left = tmp_path / f"weights-{hashlib.sha256(b'left').hexdigest()[:12]}.safetensors"
    left.write_bytes(b"left")
    (tmp_path / ".weights-0123456789ab.safetensors.segstream.tmp").write_bytes(b"half")
    save(tmp_path, 1, a=b"1")
    assert {p.name for p in tmp_path.iterdir()} == {
        *own, "deep-0123456789ab", "segstream.json", only(tmp_path, "a-*").name
    }  # fmt: skip


def test_damaged_files_get_a_sentence(tmp_path: Path) -> None:
    def damaged(how: str) -> Path:
        folder = tmp_path / how
        save(folder, 1, weights=b"0123456789")
        return folder

    path = only(damaged("truncated"), "weights-*")
    path.write_bytes(b"01234")
    with pytest.raises(StateError, match=rf"{path.name} has 5 bytes instead of 10; copy the whole folder again"):
        load_folder(path.parent)
    path = only(damaged("altered"), "weights-*")
    path.write_bytes(b"012345678X")
    with pytest.raises(StateError, match=rf"{path.name} was altered after it was saved; copy the whole folder again"):
        load_folder(path.parent).read("weights.bin")
    path = only(damaged("missing"), "weights-*")
    path.unlink()
    with pytest.raises(StateError, match=rf"{path.name} is missing; copy the whole folder again"):
        load_folder(path.parent)
    with pytest.raises(StateError, match=r"names no file 'memory.bin'; it has weights.bin"):
        load_folder(damaged("unnamed")).read("memory.bin")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"format": 2, "kind": "method", "files": {}}', "written by a newer segstream"),
        ('{"format": 0, "kind": "method", "files": {}}', "never existed"),
        ('{"format": 1, "kind": "method", "fil', "no readable JSON"),
        ("", "no readable JSON"),
        ("\x00\x00", "no readable JSON"),
        ("[1]", "not a file of segstream"),
        ('{"kind": "method", "files": {}}', "not a file of segstream"),
        ('{"format": true, "kind": "method", "files": {}}', "not a file of segstream"),
        ('{"format": 1, "files": {}}', "not a file of segstream"),
        ('{"format": 1, "kind": "method"}', "no list of `files`"),
        ('{"format": 1, "kind": "method", "files": {"a": "a-0123456789ab"}}', "names no file of this folder"),
        (
            '{"format": 1, "kind": "m", "files": {"a": {"file": "../../a-0123456789ab", "sha256": "", "bytes": 1}}}',
            "names no file of this folder",
        ),
    ],
)
def test_a_damaged_index_gets_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    save(tmp_path, 1, a=b"1")
    (tmp_path / "segstream.json").write_text(text)
    with pytest.raises(StateError, match=sentence) as caught:
        load_folder(tmp_path)
    assert "segstream.json" in str(caught.value)
    save(tmp_path, 2, a=b"2")
    assert state(tmp_path) == (2, {"a.bin": b"2"})


def test_not_a_saved_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    save(tmp_path / "model", 1)
    for place, sentence in [
        ("none", "There is no folder"),
        ("file", "is a file"),
        ("empty", "has no segstream.json"),
        ("model", "holds a method, not a segmenter"),
    ]:
        with pytest.raises(StateError, match=sentence) as caught:
            load_folder(tmp_path / place, kind="segmenter")
        assert place in str(caught.value)
    for place in ("file", "file/deeper/still"):
        with pytest.raises(StateError, match="is a file, so the folder"):
            save(tmp_path / place, 1)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    save(tmp_path / "m", 1, a=b"1")
    (tmp_path / "m").chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            save(tmp_path / "m", 2, a=b"2")
        assert state(tmp_path / "m") == (1, {"a.bin": b"1"})
    finally:
        (tmp_path / "m").chmod(0o700)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, a=b"1")
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0

    def forbidden(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(storage.os, "open", forbidden)
    with pytest.raises(PermissionError, match="Permission denied"):
        load_folder(tmp_path)
    monkeypatch.undo()
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_wrong_use_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    for document, files, sentence in [
        ({"kind": 1}, {}, "'kind' is reserved"),
        ({"loss": float("nan")}, {}, "cannot hold this as JSON"),
        ({}, {"../a": b""}, "cannot be a file's name"),
        ({}, {"a/b": b""}, "cannot be a file's name"),
        ({}, {".hidden": b""}, "cannot be a file's name"),
        ({}, {"": b""}, "cannot be a file's name"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            save_folder(folder, kind="method", document=document, files=files)
    assert not folder.exists()


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to count open files")
    save(tmp_path, 1, a=b"1", b=b"2")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        load_folder(tmp_path).read("a.bin")
    assert len(os.listdir("/proc/self/fd")) == before


def test_lines_survive_a_kill_at_any_byte(tmp_path: Path) -> None:
    whole = b'{"n": 0}\n{"n": 1, "text": "\xc3\xa4\\n"}\n{"n": 2}\n'
    first, second = 9, whole.index(b'{"n": 2}')
    for cut in range(len(whole) + 1):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(whole[:cut])
        values = [line["n"] for line in storage.read_json_lines(path)]
        done = sum(cut >= end for end in (first - 1, second - 1, len(whole) - 1))
        assert values == list(range(done))
        storage.append_json_line(path, {"n": 9})
        assert [line["n"] for line in storage.read_json_lines(path)] == [*range(done), 9]


def test_other_damage_in_lines_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for damage in (b'{"n": 0}\n{"n": \n{"n": 2}\n', b'{"n": 0}\n[1]\n', b'{"n": 0}\n\n{"n": 1}\n'):
        path.write_bytes(damage)
        with pytest.raises(StateError, match=r"Line 2 of .*events.jsonl is damaged"):
            storage.read_json_lines(path)
    with pytest.raises(StateError, match="There is no file"):
        storage.read_json_lines(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="cannot hold this as JSON"):
        storage.append_json_line(path, {"loss": float("inf")})


def test_lines_are_cut_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"n":   0}\n{"n": 1}\n{"n": 2}\n{"n"')
    storage.truncate_json_lines(path, 2)
    assert path.read_bytes() == b'{"n":   0}\n{"n": 1}\n'
    with pytest.raises(ValueError, match="has 2 lines; 3 of them cannot be kept"):
        storage.truncate_json_lines(path, 3)
    storage.truncate_json_lines(path, 0)
    assert path.read_bytes() == b""


def test_single_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "b.json"
    storage.write_json(path, {"z": 1, "a": [1.5, "ä"]})
    assert path.read_text(encoding="utf-8") == '{\n  "z": 1,\n  "a": [\n    1.5,\n    "ä"\n  ]\n}\n'
    with pytest.raises(ValueError, match=r"b.json cannot hold this"):
        storage.write_json(path, float("nan"))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.write_json(path, {"new": 1})
    monkeypatch.undo()
    assert storage.read_json(path) == {"z": 1, "a": [1.5, "ä"]}
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    storage.write_text(path, "a\r\nb")
    assert path.read_bytes() == b"a\r\nb"
    with pytest.raises(StateError, match="no readable JSON"):
        storage.read_json(path)
