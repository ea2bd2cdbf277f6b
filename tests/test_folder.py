"""Folders of images and masks: what is accepted, and a sentence for everything that is not."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from segstream import plugins
from segstream.classes import UNLABELED, VOID
from segstream.data import DataError, Source
from segstream.data.datasets.folder import FolderSource, Pair, open_folder
from segstream.data.images import read_image, read_mask
from segstream.data.inspect import inspect_folder

CLASSES = "background\nroad\ncar\n"
ORIENTATION = 0x0112


def save_mask(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(path)


def save_image(path: Path, size: tuple[int, int] = (4, 6), seed: int = 0, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four pictures of 4 x 6 pixels: a and b for training, c for validation, d for testing."""
    for number, name in enumerate("abcd"):
        save_image(tmp_path / "images" / f"{name}.{'jpg' if name == 'b' else 'png'}", seed=number)
        values = np.zeros((4, 6))
        values[number, :3] = (1, 2, 255)
        save_mask(tmp_path / "masks" / f"{name}.png", values)
    (tmp_path / "classes.txt").write_text(CLASSES)
    for part, ids in (("train", "a\nb\n"), ("val", "c\n"), ("test", "d.png\n")):
        (tmp_path / f"{part}.txt").write_text(ids)
    return tmp_path


def test_folder_is_a_plugin() -> None:
    assert plugins.load("datasets", "folder") is open_folder


def no_lists(root: Path) -> None:
    for part in ("train", "val", "test"):
        (root / f"{part}.txt").unlink()


# -- what is accepted ---------------------------------------------------------------------------------------------


def test_reads_what_was_saved(root: Path) -> None:
    splits = open_folder(root=root)
    assert [list(splits.part(p).ids) for p in ("train", "val", "test")] == [["a", "b"], ["c"], ["d"]]
    source = splits.train
    assert isinstance(source, Source)
    assert source.names == ("background", "road", "car")
    image, mask = source.load(0)
    with Image.open(root / "images" / "a.png") as original:
        assert torch.equal(image.permute(1, 2, 0), torch.from_numpy(np.array(original)))
    assert (image.dtype, mask.dtype) == (torch.uint8, torch.int16)
    assert mask[0].tolist() == [1, 2, VOID, 0, 0, 0]
    assert source.present(1) == {1, 2}
    assert image.is_contiguous()


def test_unlabelled_and_other_void_values(root: Path) -> None:
    mask = open_folder(root=root, unlabeled=0).train.load(0)[1]
    assert mask[0].tolist() == [1, 2, VOID, UNLABELED, UNLABELED, UNLABELED]
    save_mask(root / "masks" / "a.png", np.full((4, 6), 255))
    save_mask(root / "masks" / "b.png", np.full((4, 6), 200))
    assert int(open_folder(root=root, unlabeled=255).train.load(0)[1].max()) == UNLABELED
    counts = inspect_folder(root, unlabeled=255)
    assert (counts.void_pixels, counts.unlabeled_pixels) == (0, 26)
    splits = open_folder(root=root, unlabeled=255, void=200)
    assert set(splits.train.load(0)[1].flatten().tolist()) == {UNLABELED}
    assert set(splits.train.load(1)[1].flatten().tolist()) == {VOID}
    assert splits.train.present(0) == splits.train.present(1) == frozenset()


def test_without_lists_all_is_for_training(root: Path) -> None:
    no_lists(root)
    splits = open_folder(root=root)
    assert list(splits.train.ids) == ["a", "b", "c", "d"]
    assert len(splits.val) == len(splits.test) == 0


def test_without_train_list_the_rest_is_for_training(root: Path) -> None:
    (root / "train.txt").unlink()
    assert list(open_folder(root=root).train.ids) == ["a", "b"]
    (root / "test.txt").unlink()
    splits = open_folder(root=root)
    assert list(splits.train.ids) == ["a", "b", "d"]
    assert len(splits.test) == 0


def test_small_things_do_not_matter(root: Path) -> None:
    """A byte order mark, Windows line ends, blank lines at the end, hidden files, capital suffixes, subfolders."""
    (root / "classes.txt").write_bytes(b"\xef\xbb\xbfBackground\r\nroad\r\n car \r\n\r\n")
    (root / "images" / ".DS_Store").write_text("x")
    (root / "images" / "._a.png").write_text("x")
    (root / "images" / "notes.md").write_text("x")
    save_image(root / "images" / "town" / "x.1.JPEG")
    save_mask(root / "masks" / "town" / "x.1.PNG", np.zeros((4, 6)))
    (root / "train.txt").write_text("town\\x.1\r\n\r\n  a  \r\n")
    train = open_folder(root=root).train
    assert train.names == ("background", "road", "car")
    assert list(train.ids) == ["town/x.1", "a"]
    assert train.load(0)[0].shape == (3, 4, 6)
    assert inspect_folder(root).ok


def test_names_serve_where_there_is_no_class_list(root: Path) -> None:
    (root / "classes.txt").unlink()
    assert open_folder(root=root, names=["background", "x", "y"]).train.names == ("background", "x", "y")


def test_image_size(root: Path) -> None:
    save_mask(root / "masks" / "a.png", np.repeat(np.array([[1, 1, 2, 1, 1, 1]]), 4, axis=0))
    source = open_folder(root=root, image_size=[2, 3]).train
    image, mask = source.load(0)
    assert image.shape == (3, 2, 3)
    assert mask.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert source.present(0) == {1}, "a class that the small mask no longer shows is not there"
    for wrong in ([2], [0, 3], [2.0, 3]):
        with pytest.raises(DataError, match="image_size"):
            open_folder(root=root, image_size=wrong)  # type: ignore[arg-type]


def test_palette_masks_are_read_by_index(root: Path) -> None:
    for bits in (8, 2):
        image = Image.fromarray(np.full((4, 6), 2, np.uint8))
        image = image.convert("P")
        image.putdata([2] * 24)
        image.putpalette([9, 9, 9, 200, 0, 0, 1, 1, 1, 0, 0, 0])
        image.save(root / "masks" / "a.png", bits=bits)
        assert set(open_folder(root=root).train.load(0)[1].flatten().tolist()) == {2}


def gray_png(path: Path, rows: list[list[int]], bits: int) -> None:
    """A grayscale PNG of few bits, which Pillow does not write."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    lines = b"".join(
        b"\0" + int("".join(f"{v:0{bits}b}" for v in row).ljust(8, "0"), 2).to_bytes(len(row) * bits // 8 or 1, "big")
        for row in rows
    )
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), bits, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


@pytest.mark.parametrize(("bits", "rows"), [(1, [[0, 1, 1, 0]]), (2, [[0, 1, 2, 3]]), (4, [[0, 1, 2, 11]])])
def test_gray_masks_of_few_bits_keep_their_numbers(tmp_path: Path, bits: int, rows: list[list[int]]) -> None:
    gray_png(tmp_path / "m.png", rows, bits)
    assert read_mask(tmp_path / "m.png").tolist() == rows


IMAGE_MODES: dict[str, tuple[Callable[[], Image.Image], tuple[int, int, int]]] = {
    "L": (lambda: Image.new("L", (6, 4), 90), (90, 90, 90)),
    "1": (lambda: Image.new("1", (6, 4), 1), (255, 255, 255)),
    "LA": (lambda: Image.new("LA", (6, 4), (90, 255)), (90, 90, 90)),
    "RGBA": (lambda: Image.new("RGBA", (6, 4), (10, 20, 30, 255)), (10, 20, 30)),
    "RGBA clear": (lambda: Image.new("RGBA", (6, 4), (10, 20, 30, 0)), (255, 255, 255)),
    "P": (lambda: Image.new("RGB", (6, 4), (255, 0, 51)).quantize(4), (255, 0, 51)),
    "I;16": (lambda: Image.fromarray(np.full((4, 6), 0x5AFF, np.uint16)), (0x5A, 0x5A, 0x5A)),
}


@pytest.mark.parametrize("mode", list(IMAGE_MODES))
def test_images_of_every_mode(tmp_path: Path, mode: str) -> None:
    make, color = IMAGE_MODES[mode]
    make().save(tmp_path / "x.png")
    image = read_image(tmp_path / "x.png")
    assert image.shape == (3, 4, 6)
    assert tuple(image[:, 1, 2].tolist()) == color


def test_cmyk_and_tiff(tmp_path: Path) -> None:
    Image.new("RGB", (6, 4), (200, 100, 50)).convert("CMYK").save(tmp_path / "x.jpg", quality=95)
    assert np.allclose(read_image(tmp_path / "x.jpg")[:, 1, 1], (200, 100, 50), atol=6)
    Image.fromarray(np.full((4, 6), 70_000, np.int32)).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=r"x\.tif holds values from 70000"):
        read_image(tmp_path / "x.tif")
    Image.fromarray(np.full((4, 6), 0.5, np.float32)).save(tmp_path / "y.tif")
    with pytest.raises(DataError, match=r"y\.tif holds fractions"):
        read_image(tmp_path / "y.tif")


# -- EXIF orientation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_honoured(root: Path, orientation: int, suffix: str) -> None:
    """A picture is saved turned, with the tag that undoes it; its mask once upright, once as stored."""
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    values = np.zeros((8, 16), np.uint8)
    values[:4, 8:] = 1
    upright = Image.fromarray(np.repeat(values[:, :, None] * 200, 3, axis=2))
    stored, stored_mask = (x if undo is None else x.transpose(undo) for x in (upright, Image.fromarray(values)))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    no_lists(root)
    shutil.rmtree(root / "images")
    (root / "images").mkdir()
    stored.save(root / "images" / f"a.{suffix}", exif=exif, quality=100)
    masks = [Image.fromarray(values), stored_mask] if orientation >= 5 else [Image.fromarray(values)]
    for mask in masks:
        mask.save(root / "masks" / "a.png")
        image, found = open_folder(root=root).train.load(0)
        assert np.array_equal(found.numpy(), values)
        assert np.array_equal(image[0].numpy() > 100, values == 1)
        small = open_folder(root=root, image_size=[4, 8]).train.load(0)
        assert np.array_equal(small[1].numpy(), values[1::2, 1::2])


# -- a sentence for everything else -------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def replace_line(path: Path, text: str) -> None:
    path.write_text(text)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda r: shutil.rmtree(r), "There is no folder .*"),
    "no images": (lambda r: shutil.rmtree(r / "images"), "no folder images/"),
    "empty images": (lambda r: [shutil.move(f, r) for f in (r / "images").iterdir()], "holds no pictures"),
    "no mask": (lambda r: (r / "masks/a.png").unlink(), r"images/a\.png has no mask; expected .*masks/a\.png"),
    "no masks": (lambda r: shutil.rmtree(r / "masks"), "has no mask"),
    "jpeg mask": (
        lambda r: (r / "masks/a.png").rename(r / "masks/a.jpg"),
        r"a\.jpg is there, but a mask must be a PNG",
    ),
    "jpeg in png": (
        lambda r: Image.new("L", (6, 4)).save(r / "masks/a.png", format="JPEG"),
        r"mask .*a\.png is a JPEG file",
    ),
    "mask size": (
        lambda r: save_mask(r / "masks/a.png", np.zeros((4, 5))),
        r"masks/a\.png is 5x4 .*images/a\.png is 6x4",
    ),
    "turned mask": (lambda r: save_mask(r / "masks/a.png", np.zeros((6, 4))), r"a\.png is 4x6 .* is 6x4"),
    "no classes": (lambda r: (r / "classes.txt").unlink(), r"There is no .*classes\.txt"),
    "twice": (
        lambda r: replace_line(r / "classes.txt", "background\ncar\nroad\ncar\n"),
        r"classes\.txt names 'car' twice, in lines 2 and 4",
    ),
    "background twice": (lambda r: replace_line(r / "classes.txt", "_background_\nbackground\n"), "'background' twice"),
    "no background": (lambda r: replace_line(r / "classes.txt", "road\ncar\n"), r"classes\.txt must begin .*'road'"),
    "empty classes": (lambda r: replace_line(r / "classes.txt", ""), "must begin with background"),
    "gap": (lambda r: replace_line(r / "classes.txt", "background\n\ncar\n"), r"classes\.txt is empty in line 2"),
    "latin-1": (lambda r: (r / "classes.txt").write_bytes(b"background\nstra\xdfe\n"), "UTF-8"),
    "many classes": (
        lambda r: replace_line(r / "classes.txt", "background\n" + "\n".join(map(str, range(255)))),
        "256 classes leave no room for the void value 255",
    ),
    "empty list": (lambda r: replace_line(r / "val.txt", "\n \n"), r"val\.txt names no picture"),
    "unknown id": (lambda r: replace_line(r / "train.txt", "a\nbee\n"), r"train\.txt names 'bee' in line 2"),
    "id twice": (
        lambda r: replace_line(r / "train.txt", "a\nb\na.png\n"),
        r"train\.txt names 'a' twice, in lines 1 and 3",
    ),
    "same stem": (lambda r: save_image(r / "images/a.jpg"), r"a\.jpg and .*a\.png have the same name"),
    "no picture": (lambda r: (r / "images/a.png").write_text("hello"), r"images/a\.png cannot be read"),
    "no bytes": (lambda r: (r / "images/a.png").write_bytes(b""), r"images/a\.png cannot be read"),
    "truncated png": (lambda r: truncate(r / "images/a.png"), r"images/a\.png cannot be read"),
    "truncated jpeg": (lambda r: truncate(r / "images/b.jpg"), r"images/b\.jpg cannot be read .*truncated"),
    "truncated mask": (lambda r: truncate(r / "masks/b.png"), r"masks/b\.png cannot be read"),
    "rgb mask": (lambda r: Image.new("RGB", (6, 4)).save(r / "masks/a.png"), r"masks/a\.png holds colours.*palette"),
    "rgba mask": (lambda r: Image.new("RGBA", (6, 4)).save(r / "masks/a.png"), r"masks/a\.png holds colours"),
    "la mask": (lambda r: Image.new("LA", (6, 4)).save(r / "masks/a.png"), r"masks/a\.png is saved in mode LA"),
    "16 bits": (
        lambda r: Image.fromarray(np.zeros((4, 6), np.uint16)).save(r / "masks/a.png"),
        r"masks/a\.png has 16 bits.*8-bit",
    ),
    "float mask": (
        lambda r: Image.fromarray(np.zeros((4, 6), np.float32)).save(r / "masks/a.png", format="TIFF"),
        r"masks/a\.png is a TIFF",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_found_at_opening(root: Path, name: str) -> None:
    spoil, text = BAD[name]
    spoil(root)
    with pytest.raises(DataError, match=text) as caught:
        open_folder(root=root)
    assert str(caught.value).rstrip(")").endswith(".")
    assert str(root) in str(caught.value) or name == "many classes"
    if name not in ("no folder", "no images", "empty images", "same stem"):
        report = inspect_folder(root)
        assert not report.ok
        assert str(caught.value) in report.problems


def test_value_beyond_the_classes_is_found_in_the_presence_pass(root: Path) -> None:
    values = np.zeros((4, 6))
    values[1, 2:4] = 7
    save_mask(root / "masks" / "b.png", values)
    source = open_folder(root=root).train
    assert isinstance(source, FolderSource)
    source.load(0)
    text = r"masks/b\.png holds the value 7 \(in 2 pixels\), but there are 3 classes, numbered 0 to 2"
    for look in (source.validate, lambda: source.present(0), lambda: source.load(1)):
        with pytest.raises(DataError, match=text):
            look()
    assert any("masks/b.png holds the value 7" in p for p in inspect_folder(root).problems)
    open_folder(root=root, unlabeled=7).train.present(0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"void": 2}, "void value 2"),
        ({"void": 300}, "`void` is 300"),
        ({"unlabeled": -1}, "`unlabeled` is -1"),
        ({"names": ["road", "car"]}, "`names` must begin with background"),
        ({"names": []}, "`names` must begin with background"),
    ],
)
def test_wrong_options(root: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        open_folder(root=root, **options)


def test_a_file_that_changes_later(root: Path) -> None:
    source = open_folder(root=root).train
    save_mask(root / "masks" / "a.png", np.zeros((3, 6)))
    with pytest.raises(DataError, match="6x3"):
        source.load(0)
    (root / "images" / "b.jpg").unlink()
    with pytest.raises(DataError, match=r"b\.jpg does not exist"):
        source.load(1)
    with pytest.raises(DataError, match="does not exist"):
        FolderSource([Pair("b", root / "images/b.jpg", root / "masks/b.png")], names=["background"])


def test_bytes_behind_the_end_are_no_truncation(root: Path) -> None:
    for path in (root / "images" / "b.jpg", root / "images" / "a.png"):
        path.write_bytes(path.read_bytes() + b"\0" * 9000)
    assert len(open_folder(root=root).train) == 2


# -- check --------------------------------------------------------------------------------------------------------


def test_inspect_counts(root: Path) -> None:
    report = inspect_folder(root)
    assert report.ok
    assert report.notes == ()
    assert report.parts == {"train": 2, "val": 1, "test": 1}
    assert [(c.value, c.name, c.pixels) for c in report.classes] == [
        (0, "background", 84),
        (1, "road", 4),
        (2, "car", 4),
    ]
    assert report.classes[1].images == {"train": 2, "val": 1, "test": 1}
    assert (report.void_pixels, report.unlabeled_pixels) == (4, 0)
    assert report.smallest == report.largest == (4, 6)
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


def test_inspect_notes(root: Path) -> None:
    (root / "classes.txt").write_text(CLASSES + "bicycle\n")
    (root / "val.txt").write_text("c\na\n")
    (root / "test.txt").unlink()
    save_mask(root / "masks" / "stray.png", np.zeros((4, 6)))
    shutil.copy(root / "images" / "a.png", root / "images" / "c.png")
    report = inspect_folder(root)
    assert report.ok
    assert report.shared == {"train.txt and val.txt": ("a",)}
    assert report.duplicates == (("a", "c"),)
    assert report.unlisted == ("d",)
    assert report.stray_masks == ("stray.png",)
    notes = "\n".join(report.notes)
    for text in ("both train.txt and val.txt: a", "same file: a, c", "in no list", "stray.png", "no pixel: bicycle"):
        assert text in notes


def test_inspect_goes_on_after_the_first_problem(root: Path) -> None:
    truncate(root / "images" / "b.jpg")
    (root / "masks" / "c.png").unlink()
    (root / "classes.txt").unlink()
    (root / "val.txt").write_text("nobody\n")
    report = inspect_folder(root)
    assert len(report.problems) == 4
    assert [(c.name, c.pixels) for c in report.classes] == [("value 0", 42), ("value 1", 2), ("value 2", 2)]
    assert report.parts == {"train": 2, "test": 1}


def test_inspect_warns_where_one_class_is_everywhere(root: Path) -> None:
    no_lists(root)
    for name in "abcd":
        save_mask(root / "masks" / f"{name}.png", np.full((4, 6), 1))
    assert "Every pixel is road or void" in inspect_folder(root).notes[-1]
    assert inspect_folder(root, unlabeled=0).notes[-1].startswith("Every pixel")
    values = np.full((4, 6), 1)
    values[0] = 9
    save_mask(root / "masks" / "a.png", values)
    assert not any(n.startswith("Every pixel") for n in inspect_folder(root, unlabeled=9).notes)
