"""ADE20K of the scene parsing challenge: its layout, its classes, its lists as positions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trees import Tree, ade_tree, label_sets, save_mask

from segstream import plugins
from segstream.checks import check_dataset
from segstream.data import Scenario
from segstream.data.datasets import ade20k
from segstream.data.datasets.ade20k import NAMES, open_ade20k
from segstream.data.source import DataError

TRAINING, VALIDATION = "ADEChallengeData2016/annotations/training", "ADEChallengeData2016/annotations/validation"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return ade_tree(
        tmp_path / "data",
        train=label_sets([f"ADE_train_{k:08d}" for k in range(1, 31)], 150),
        test=label_sets([f"ADE_val_{k:08d}" for k in range(1, 11)], 150),
    )


def test_the_classes() -> None:
    assert plugins.load("datasets", "ade20k") is open_ade20k
    assert len(NAMES) == len(set(NAMES)) == 151
    assert all(name == name.strip().lower() and "," not in name for name in NAMES)
    # Some places of the challenge's order, from 1.
    for value, name in {1: "wall", 13: "person", 21: "car", 100: "buffet", 101: "poster", 150: "flag"}.items():
        assert NAMES[value] == name


def test_the_contract_holds(tree: Tree) -> None:
    check_dataset(lambda: open_ade20k(root=tree.root))


@pytest.mark.parametrize("inside", ["ADEChallengeData2016", ""])
def test_lists_and_classes(inside: str, tmp_path: Path) -> None:
    train = {f"ADE_train_{k:08d}": frozenset({k, 150}) for k in (3, 1, 2)}
    tree = ade_tree(tmp_path / "data", train=train, test={"ADE_val_00000001": frozenset({7})}, inside=inside)
    before = {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")}
    splits = open_ade20k(root=tree.root)
    assert list(splits.train.ids) == sorted(train), "positions in split files count in the sorted list"
    assert [splits.train.present(i) for i in range(3)] == [{1, 150}, {2, 150}, {3, 150}]
    assert [splits.test.present(0), len(splits.val)] == [{7}, 0]
    assert {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")} == before, "nothing is written under the root"
    if inside:
        assert open_ade20k(root=tree.root / inside).train.ids == splits.train.ids


def test_zero_is_background_and_nothing_is_void(tree: Tree) -> None:
    mask = tree.root / TRAINING / "ADE_train_00000001.png"
    save_mask(mask, np.tile(np.arange(40, dtype=np.uint8) % 2 * 150, (32, 1)))
    source = open_ade20k(root=tree.root).train
    assert source.load(0)[1].unique().tolist() == [0, 150]
    assert source.present(0) == {150}
    for value in (151, 255):
        save_mask(mask, np.full((32, 40), value, np.uint8))
        for read in (lambda s: s.load(0), lambda s: s.present(0)):
            with pytest.raises(DataError, match=rf"ADE_train_00000001\.png holds the value {value}.* 151 classes"):
                read(open_ade20k(root=tree.root).train)


def test_masks_are_enough_where_no_picture_is_wanted(tree: Tree) -> None:
    shutil.rmtree(tree.root / "ADEChallengeData2016" / "images")
    source = open_ade20k(root=tree.root, images=False).train
    assert source.present(4) == tree.train[source.ids[4]]
    with pytest.raises(DataError, match=r"images/training/ADE_train_00000001\.jpg does not exist"):
        source.load(0)
    with pytest.raises(DataError, match="30 of 30 pictures of annotations/training are not in"):
        open_ade20k(root=tree.root)


def emptied(tree: Tree) -> None:
    for path in (tree.root / VALIDATION).iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: shutil.rmtree(t.root / "ADEChallengeData2016"), "holds no ADEChallengeData2016, and is not that"),
        (lambda t: shutil.rmtree(t.root), r"no folder .*data\. segstream fetches it with data\.download=true"),
        (lambda t: shutil.rmtree(t.root / TRAINING), "has no annotations/training"),
        (lambda t: shutil.rmtree(t.root / VALIDATION), r"annotations/validation holds no masks"),
        (emptied, r"annotations/validation holds no masks"),
        (lambda t: (t.root / TRAINING / "ADE_train_00000003.png").unlink(), "1 of 30 masks of images/training is not"),
    ],
)
def test_what_is_missing_is_named(spoil: Callable[[Tree], None], words: str, tree: Tree) -> None:
    spoil(tree)
    with pytest.raises(DataError, match=words) as caught:
        open_ade20k(root=tree.root)
    assert "\n" not in str(caught.value)


def test_no_root() -> None:
    with pytest.raises(DataError, match="lies in a folder: give it"):
        open_ade20k(root="")


def test_another_length_than_usual_is_said(
    tree: Tree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ade20k(root=tree.root)
    assert "There are 30 training pictures of ADE20K instead of 20210" in caplog.text
    caplog.clear()
    monkeypatch.setattr(ade20k, "TRAIN", 30)
    monkeypatch.setattr(ade20k, "TEST", 10)
    open_ade20k(root=tree.root)
    assert not caplog.text


@pytest.mark.parametrize(
    ("notation", "sizes"), [("100-50", [100, 50]), ("100-10", [100, *[10] * 5]), ("50-50", [50] * 3)]
)
def test_its_scenarios(notation: str, sizes: list[int], tmp_path: Path) -> None:
    groups = Scenario.split(NAMES, notation).groups
    assert [len(group) for group in groups] == sizes
    assert [name for group in groups for name in group] == list(NAMES[1:])


def test_lists_as_published(tree: Tree, tmp_path: Path) -> None:
    """Positions in the sorted list of training files, one .npy for each stage."""
    lists = tmp_path / "lists"
    lists.mkdir()
    source = open_ade20k(root=tree.root).train
    early = [i for i in range(30) if max(source.present(i)) <= 20]
    late = [i for i in range(30) if i not in early]
    np.save(lists / "train-0.npy", np.array(early[::-1]))
    np.save(lists / "train-1.npy", np.array(late))
    chosen = Scenario.split(NAMES, "20-130", "files", files=str(lists)).select(source)
    assert chosen == [early, late]
