"""VOC 2012 with SBD: its layouts, what torchvision reads in them, and what is said where something is missing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from torchvision.datasets import SBDataset, VOCSegmentation
from trees import Tree, draw, save_image, save_list, save_mask, save_mat, voc_tree

from segstream import plugins
from segstream.checks import check_dataset
from segstream.classes import VOID
from segstream.data.datasets import voc
from segstream.data.datasets.voc import NAMES, open_voc
from segstream.data.matlab import read_sbd_mask
from segstream.data.source import DataError

LAYOUTS = ("augmented", "torchvision")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=LAYOUTS)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return voc_tree(tmp_path / "data", layout=request.param)


def home(tree: Tree) -> Path:
    return tree.root / "VOCdevkit" / "VOC2012"


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.rglob("*"))}


# ---- what is in it


def test_it_is_a_plug_in() -> None:
    assert plugins.load("datasets", "voc") is open_voc
    assert len(NAMES) == len(set(NAMES)) == 21
    assert list(NAMES[1:]) == sorted(NAMES[1:]), "alphabetical: the order of the benchmarks"


def test_the_contract_holds(tree: Tree) -> None:
    check_dataset(lambda: open_voc(root=tree.root))


def test_lists_and_classes(tree: Tree) -> None:
    before = everything(tree.root)
    splits = open_voc(root=tree.root)
    assert list(splits.train.ids) == sorted(tree.train)
    assert list(splits.test.ids) == list(tree.test)
    assert len(splits.val) == 0
    for source, labels in ((splits.train, tree.train), (splits.test, tree.test)):
        assert source.names == NAMES
        assert {name: source.present(i) for i, name in enumerate(source.ids)} == labels
    assert everything(tree.root) == before, "nothing is written under the root"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("inside", "root"),
    [("VOCdevkit/VOC2012", ""), ("VOCdevkit/VOC2012", "VOCdevkit"), ("VOCdevkit/VOC2012", "VOCdevkit/VOC2012"),
     ("VOC2012", ""), ("VOC2012", "VOC2012"), ("", "")],
)  # fmt: skip
def test_every_root(layout: str, inside: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = voc_tree(tmp_path / "data", layout=layout, inside=inside)
    assert len(open_voc(root=tree.root / root).train) == 40
    monkeypatch.chdir(tree.root / root)
    assert len(open_voc(root=".").train) == 40


def test_torchvision_reads_the_same(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", layout="torchvision")
    splits = open_voc(root=tree.root)
    seen = set()
    for image_set, source in (("train", splits.train), ("val", splits.test)):
        theirs = VOCSegmentation(tree.root, image_set=image_set)
        for number, path in enumerate(theirs.images):
            seen.add(Path(path).stem)
            same(theirs[number], source.load(list(source.ids).index(Path(path).stem)))
    (tree.root / "sbd" / "img").symlink_to(home(tree) / "JPEGImages")
    for image_set in ("train", "val"):
        theirs = SBDataset(tree.root / "sbd", image_set=image_set, mode="segmentation")
        for number, path in enumerate(theirs.images):
            if Path(path).stem not in seen:  # of the others VOC's own mask is taken
                same(theirs[number], splits.train.load(list(splits.train.ids).index(Path(path).stem)))
                seen.add(Path(path).stem)
    assert seen == {*tree.train, *tree.test}


def same(theirs: tuple[Image.Image, Image.Image], ours: tuple[torch.Tensor, torch.Tensor]) -> None:
    image, mask = (np.asarray(x).astype(np.int16) for x in theirs)
    assert np.array_equal(ours[0].permute(1, 2, 0).numpy(), image)
    assert np.array_equal(np.where(ours[1].numpy() == VOID, 255, ours[1].numpy()), mask)


def test_the_training_list_that_is_made(tmp_path: Path) -> None:
    """VOC's train and all of SBD, but for VOC's validation pictures."""
    tree = voc_tree(tmp_path / "data", layout="torchvision")
    traced = {path.stem for path in (tree.root / "sbd" / "cls").iterdir()}
    assert traced & set(tree.test), "SBD has some of VOC's validation pictures"
    assert set(open_voc(root=tree.root).train.ids) == set(tree.train)
    save_list(home(tree) / "ImageSets" / "Segmentation" / "trainaug.txt", sorted(tree.train)[5:15])
    assert list(open_voc(root=tree.root).train.ids) == sorted(tree.train)[5:15], "a given list comes first"


def test_whose_mask_is_taken(tmp_path: Path) -> None:
    for layout, expected in (("augmented", 9), ("torchvision", 7)):
        tree = voc_tree(tmp_path / layout, layout=layout)
        name, size = sorted(tree.train)[0], (32, 40)
        save_mask(home(tree) / "SegmentationClass" / f"{name}.png", np.full(size, 7, np.uint8))
        save_mat(tree.root / "sbd" / "cls" / f"{name}.mat", np.full(size, 8, np.uint8))
        if layout == "augmented":
            save_mask(home(tree) / "SegmentationClassAug" / f"{name}.png", np.full(size, 9, np.uint8))
        assert open_voc(root=tree.root).train.present(0) == {expected}
        test = sorted(tree.test)[0]
        save_mask(home(tree) / "SegmentationClassAug" / f"{test}.png", np.full(size, 9, np.uint8))
        assert open_voc(root=tree.root).test.present(0) == tree.test[test], "VOC's own"
        (home(tree) / "SegmentationClass" / f"{test}.png").unlink()
        assert open_voc(root=tree.root).test.present(0) == {9}


@pytest.mark.parametrize("folder", ["Segmentation", "SegmentationAug"])
@pytest.mark.parametrize("name", ["train_aug.txt", "trainaug.txt"])
@pytest.mark.parametrize("line", ["{0}", "{0} ", "/JPEGImages/{0}.jpg /SegmentationClassAug/{0}.png"])
def test_the_list_s_names_and_forms(folder: str, name: str, line: str, tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", train={"2008_000001": frozenset({3})}, test={"2007_000001": frozenset({4})})
    sets = home(tree) / "ImageSets"
    (sets / "Segmentation" / "train_aug.txt").unlink()
    (sets / folder).mkdir(exist_ok=True)
    (sets / folder / name).write_text(line.format("2008_000001") + "\n\n")
    assert list(open_voc(root=tree.root).train.ids) == ["2008_000001"]


@pytest.mark.parametrize("place", ["SBD", "benchmark_RELEASE/dataset", "VOCdevkit/VOC2012/sbd", "VOCdevkit/sbd", "."])
def test_where_sbd_may_be(place: str, tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", layout="torchvision")
    (tree.root / place).mkdir(parents=True, exist_ok=True)
    for path in (tree.root / "sbd").iterdir():
        path.rename(tree.root / place / path.name)
    assert len(open_voc(root=tree.root).train) == len(tree.train)


def test_masks_and_lists_are_enough_where_no_picture_is_wanted(tree: Tree) -> None:
    shutil.rmtree(home(tree) / "JPEGImages")
    splits = open_voc(root=tree.root, images=False)
    assert splits.train.present(3) == tree.train[splits.train.ids[3]]
    with pytest.raises(DataError, match=r"JPEGImages.*\.jpg does not exist"):
        splits.train.load(0)
    with pytest.raises(DataError, match=r"60 of 60 pictures of VOC 2012 are not in .*JPEGImages: 2008_0000"):
        open_voc(root=tree.root)


def test_pictures_that_only_sbd_has(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", layout="torchvision")
    name = next(path.stem for path in (tree.root / "sbd" / "cls").iterdir() if path.stem in tree.train)
    (tree.root / "sbd" / "img").mkdir()
    (home(tree) / "JPEGImages" / f"{name}.jpg").rename(tree.root / "sbd" / "img" / f"{name}.jpg")
    train = open_voc(root=tree.root).train
    assert train.load(list(train.ids).index(name))[0].shape == (3, 32, 40)


def test_at_another_size(tree: Tree) -> None:
    splits = open_voc(root=tree.root, image_size=(8, 10))
    image, mask = splits.train.load(0)
    assert image.shape == (3, 8, 10)
    assert mask.shape == (8, 10)
    check_dataset(lambda: open_voc(root=tree.root, image_size=(2, 2)))  # of some classes nothing is left
    assert open_voc(root=tree.root, image_size=(2, 2)).train.present(39) < tree.train[splits.train.ids[39]]


def test_a_turned_picture_is_taken_as_it_is_stored(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data")
    path = home(tree) / "JPEGImages" / f"{sorted(tree.train)[0]}.jpg"
    before = open_voc(root=tree.root).train.load(0)[0]
    with Image.open(path) as picture:
        pixels, tags = np.asarray(picture), picture.getexif()
    tags[0x0112] = 3
    Image.fromarray(pixels).save(path, quality=95, exif=tags)
    assert (open_voc(root=tree.root).train.load(0)[0].float() - before).abs().mean() < 5


# ---- what is wrong with it


def without(*parts: str) -> Callable[[Tree], None]:
    def remove(tree: Tree) -> None:
        for part in parts:
            path = home(tree) / part if not part.startswith("sbd") else tree.root / part
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


LISTS = "ImageSets/Segmentation/"


@pytest.mark.parametrize(
    ("layout", "spoil", "words"),
    [
        ("torchvision", without("sbd"), r"VOC's own 1,464 .* 10,582.*SegmentationClassAug.*benchmark\.tgz.*data/sbd"),
        ("torchvision", without("sbd/val.txt"), r"sbd lacks SBD's list val\.txt"),
        ("torchvision", without(f"{LISTS}train.txt"), r"lacks VOC's own training list: expected ImageSets/Segm"),
        ("torchvision", without(f"{LISTS}val.txt"), r"lacks the list of validation pictures: expected ImageSets"),
        ("torchvision", without("SegmentationClass"), r"\d+ of 40 training masks are not in .*sbd/cls: 2008"),
        ("augmented", without(f"{LISTS}train_aug.txt"), r"has SegmentationClassAug, but not the list .*train_aug\.txt"),
        ("augmented", without("SegmentationClassAug"), r"26 of 40 training masks are not in .*SegmentationClass:"),
        ("augmented", without("SegmentationClassAug", "SegmentationClass"), r"SegmentationClass, which does not exist"),
        ("augmented", without("ImageSets"), r"lacks the list of validation pictures"),
    ],
)
def test_what_is_missing_is_named(layout: str, spoil: Callable[[Tree], None], words: str, tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", layout=layout)
    spoil(tree)
    with pytest.raises(DataError, match=words) as caught:
        open_voc(root=tree.root)
    assert "\n" not in str(caught.value)


def test_lists_that_are_wrong(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data")
    path = home(tree) / LISTS / "train_aug.txt"
    for ids, words in (
        ([], r"train_aug\.txt names no picture"),
        (["2008_000001", "2008_000002", "2008_000001"], "names 2008_000001 twice"),
        (["2008_000001", "2007_000001"], r"1 of the training pictures is in val\.txt too: 2007_000001"),
        (["2008_000001", "2009_999999"], r"1 of 22 pictures of VOC 2012 is not in .*JPEGImages: 2009_999999"),
    ):
        save_list(path, ids)
        with pytest.raises(DataError, match=words):
            open_voc(root=tree.root)


@pytest.mark.parametrize("root", ["", "nowhere", "here"])
def test_no_voc_at_all(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    words = {"": "lies in a folder: give it", "nowhere": "no folder nowhere", "here": "neither VOCdevkit/VOC2012 nor"}
    with pytest.raises(DataError, match=words[root]):
        open_voc(root=root)
    assert [p.name for p in tmp_path.iterdir()] == ["here"]


def test_files_that_are_wrong(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data")
    name = sorted(tree.train)[0]
    mask = home(tree) / "SegmentationClassAug" / f"{name}.png"
    save_mask(mask, np.full((32, 41), 1, np.uint8))
    with pytest.raises(DataError, match=rf"{name}\.png is 41x32 pixels .*{name}\.jpg is 40x32"):
        open_voc(root=tree.root).train.load(0)
    save_mask(mask, np.full((32, 40), 21, np.uint8))
    for read in (lambda s: s.load(0), lambda s: s.present(0)):
        with pytest.raises(DataError, match=rf"{name}\.png holds the value 21.* 21 classes, numbered 0 to 20"):
            read(open_voc(root=tree.root).train)
    content = mask.read_bytes()
    mask.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"{name}\.png cannot be read as a picture"):
        open_voc(root=tree.root).train.present(5)
    mask.unlink()
    source = (
        open_voc(root=tree.root, images=False).train
        if (home(tree) / "SegmentationClass" / mask.name).exists()
        else None
    )
    assert source is not None
    assert source.present(0) == tree.train[name]


def test_another_length_than_usual_is_said(
    tree: Tree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_voc(root=tree.root)
    assert "There are 40 training pictures of VOC 2012 with SBD instead of 10582" in caplog.text
    assert "There are 20 validation pictures of VOC 2012 instead of 1449" in caplog.text
    caplog.clear()
    monkeypatch.setattr(voc, "TRAIN", 40)
    monkeypatch.setattr(voc, "TEST", 20)
    open_voc(root=tree.root)
    assert not caplog.text


# ---- MATLAB's files


@settings(deadline=None, max_examples=25, derandomize=True)
@given(mask=arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9))), compressed=st.booleans())
def test_masks_of_sbd_are_read_as_scipy_reads_them(
    mask: np.ndarray, compressed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    save_mat(path, mask, compressed=compressed)
    found = read_sbd_mask(path)
    assert np.array_equal(found, scipy.io.loadmat(path)["GTcls"][0]["Segmentation"][0])
    assert np.array_equal(found, mask)


def test_other_files_of_matlab(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    mask = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    for compressed in (False, True):
        for text in ("abc", "abcd", "abcdefgh"):  # of several lengths: what is compressed is not padded
            several = {"other": mask, "text": text, "GTcls": {"Segmentation": mask}, "more": {"a": 1}}
            scipy.io.savemat(path, several, do_compression=compressed)
            assert np.array_equal(read_sbd_mask(path), mask), "between other variables"
    for content, words in (
        ({"GTinst": {"Segmentation": mask}}, "no GTcls with a field Segmentation"),
        ({"GTcls": {"Boundaries": mask}}, "no GTcls with a field Segmentation"),
        ({"GTcls": {"Segmentation": mask * 0.5}}, "not a plane of whole numbers"),
        ({"GTcls": {"Segmentation": np.zeros((2, 2, 2), np.uint8)}}, "not a plane of whole numbers"),
        ({"GTcls": {"Segmentation": "abc"}}, "not a plane of whole numbers"),
    ):
        scipy.io.savemat(path, content)
        with pytest.raises(DataError, match=words):
            read_sbd_mask(path)
    path.write_bytes(b"\x89HDF\r\n" + bytes(600))
    with pytest.raises(DataError, match="not in MATLAB's format 5"):
        read_sbd_mask(path)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_damaged_file_of_matlab_is_a_sentence(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    save_mat(path, draw([1, 2], size=(9, 12), seed=0, border=False)[1], compressed=compressed)
    content = path.read_bytes()
    whole, dice = read_sbd_mask(path), np.random.default_rng(0)
    for _ in range(60):
        cut = int(dice.integers(0, len(content)))
        path.write_bytes(content[:cut])
        with pytest.raises(DataError, match=r"a\.mat"):
            read_sbd_mask(path)
        spoilt = bytearray(content)
        spoilt[cut] ^= int(dice.integers(1, 256))
        path.write_bytes(spoilt)
        with contextlib.suppress(DataError):  # nothing else, and what is read is a mask
            assert read_sbd_mask(path).dtype == whole.dtype


def test_the_tree_is_what_it_says(tmp_path: Path) -> None:
    image, mask = draw([3, 7], size=(16, 24), seed=0, border=True)
    assert set(np.unique(mask)) == {0, 3, 7, 255}
    save_image(tmp_path / "a.jpg", image)
    with Image.open(tmp_path / "a.jpg") as saved:
        assert np.abs(np.asarray(saved).astype(int) - image)[4:14, 1:7].mean() < 12
