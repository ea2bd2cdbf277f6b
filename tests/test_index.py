"""The index of what each mask holds: made once, for these very files, and never trusted further than that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trees import Tree, save_mask, voc_tree

from segstream.data import index
from segstream.data.datasets.voc import open_voc
from segstream.data.images import read_mask
from segstream.data.index import held_values
from segstream.data.source import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def masks(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "masks" / f"{k}.png" for k in range(5)]
    for k, path in enumerate(paths):
        save_mask(path, np.array([[0, k + 1, 255]], np.uint8))
    return paths


class Reader:
    """Reads masks and counts them."""

    def __init__(self) -> None:
        self.read: list[Path] = []

    def __call__(self, path: Path) -> np.ndarray:
        self.read.append(path)
        return read_mask(path)


def rows(held: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in held]


def count(masks: list[Path], **more: object) -> int:
    """How many masks had to be read."""
    reader = Reader()
    held_values(masks, reader, **more)
    return len(reader.read)


def test_masks_are_read_once(masks: list[Path]) -> None:
    reader, told = Reader(), []
    found = [held_values(masks, reader, told=lambda *words: told.append(words)) for _ in range(3)]
    assert [rows(held) for held in found] == [[[0, k + 1, 255] for k in range(5)]] * 3
    assert sorted(reader.read) == masks
    assert told == [("masks", 5, 5)]


def test_every_value_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    save_mask(path, np.arange(256, dtype=np.uint8)[None])
    for _ in range(2):
        assert rows(held_values([path], read_mask)) == [list(range(256))]


def rewritten(masks: list[Path]) -> dict[str, object]:
    save_mask(masks[2], np.array([[0, 9, 255]], np.uint8))
    return {}


def rewritten_with_its_old_time(masks: list[Path]) -> dict[str, object]:
    status = masks[2].stat()
    rewritten(masks)
    assert masks[2].stat().st_size == status.st_size
    os.utime(masks[2], ns=(status.st_atime_ns, status.st_mtime_ns))
    return {}


def touched(masks: list[Path]) -> dict[str, object]:
    os.utime(masks[2], ns=(1, 1))
    return {}


def reordered(masks: list[Path]) -> dict[str, object]:
    masks.reverse()
    return {}


def fewer(masks: list[Path]) -> dict[str, object]:
    masks.pop()
    return {}


def moved(masks: list[Path]) -> dict[str, object]:
    masks[0].parent.rename(masks[0].parent.with_name("elsewhere"))
    masks[:] = [path.parent.with_name("elsewhere") / path.name for path in masks]
    return {}


@pytest.mark.parametrize(
    "change",
    [
        rewritten,
        rewritten_with_its_old_time,
        touched,
        reordered,
        fewer,
        moved,
        lambda masks: {"about": {"size": [2, 2]}},
    ],
)
def test_it_is_never_used_for_others(change: Callable[[list[Path]], dict[str, object]], masks: list[Path]) -> None:
    assert [count(masks), count(masks)] == [5, 0]
    more = change(masks)
    assert rows(held_values(masks, read_mask, **more)) == [np.unique(read_mask(path)).tolist() for path in masks]
    # Made for what there is now, and kept: beside the first one, not instead of it.
    assert count(masks, **more) == 0
    assert len(list((Path(os.environ["SEGSTREAM_CACHE"]) / "indexes").iterdir())) == 2


def spoilt(folder: Path) -> list[tuple[Path, bytes]]:
    """Each file of the index, in each way in which it may be broken."""
    broken = []
    for path in folder.iterdir():
        content = path.read_bytes()
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        broken += [(path, b""), (path, content[:middle]), (path, content[:-1]), (path, flipped), (path, b"{}")]
    return broken


def test_a_damaged_index_is_made_anew(masks: list[Path]) -> None:
    assert count(masks) == 5
    (folder,) = (Path(os.environ["SEGSTREAM_CACHE"]) / "indexes").iterdir()
    for path, content in spoilt(folder):
        path.write_bytes(content)
        assert rows(held_values(masks, read_mask)) == [[0, k + 1, 255] for k in range(5)]
        assert count(masks) == 0, f"{path.name} was mended"
    for name in [path.name for path in folder.iterdir()]:
        (folder / name).unlink()
        assert count(masks) == 5, f"without {name}"


def test_another_index_under_the_same_name_is_not_taken(masks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are shortened keys; the whole key stands inside."""
    monkeypatch.setattr(index, "index_folder", lambda key: Path(os.environ["SEGSTREAM_CACHE"]) / "indexes" / "one")
    assert count(masks) == 5
    save_mask(masks[0], np.array([[4, 4, 4]], np.uint8))
    assert rows(held_values(masks, read_mask))[0] == [4]


def test_a_damaged_mask_leaves_no_index(masks: list[Path]) -> None:
    whole = masks[3].read_bytes()
    masks[3].write_bytes(whole[:40])
    with pytest.raises(DataError, match=r"3\.png cannot be read as a picture"):
        held_values(masks, read_mask)
    assert not Path(os.environ["SEGSTREAM_CACHE"]).exists()
    masks[3].unlink()
    with pytest.raises(DataError, match=r"The mask .*3\.png does not exist"):
        held_values(masks, read_mask)


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    masks: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = masks[0].parent / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("SEGSTREAM_CACHE", str(blocked / "cache"))
    assert rows(held_values(masks, read_mask)) == [[0, k + 1, 255] for k in range(5)]
    assert "cannot be kept" in caplog.text


def test_where_it_lies(masks: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SEGSTREAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    count(masks)
    assert [p.name for p in (tmp_path / "user").iterdir()] == ["segstream"]


def test_datasets_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another root, another list, another size: each has its own; the parts of a tree too."""
    cache, tree = Path(os.environ["SEGSTREAM_CACHE"]), voc_tree(tmp_path / "data")
    other = voc_tree(tmp_path / "other", train={name: frozenset({3}) for name in tree.train})

    def indexes(tree: Tree, **more: object) -> int:
        splits = open_voc(root=tree.root, **more)
        for part, labels in ((splits.train, tree.train), (splits.test, tree.test)):
            if not more:
                assert [part.present(i) for i in range(len(part))] == [labels[name] for name in part.ids]
            part.present(0)
        return len(list((cache / "indexes").iterdir()))

    assert [indexes(tree), indexes(tree)] == [2, 2]
    assert [indexes(other), indexes(tree)] == [4, 4]
    assert indexes(tree, image_size=(4, 4)) == 6
    path = tree.root / "VOCdevkit/VOC2012/ImageSets/Segmentation/train_aug.txt"
    path.write_text("".join(f"{name}\n" for name in sorted(tree.train, reverse=True)))
    assert indexes(tree) == 7
