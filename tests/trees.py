"""Small trees in the layouts in which VOC 2012 and ADE20K come, with labels that are made up: for tests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse
from PIL import Image

Labels = Mapping[str, frozenset[int]]  # id of a picture to its classes
PALETTE = [value for k in range(256) for value in (k * 37 % 256, k * 101 % 256, k * 151 % 256)]


@dataclass(frozen=True)
class Tree:
    """Where it is, and what is in it."""

    root: Path
    train: Labels
    test: Labels


def label_sets(ids: Sequence[str], classes: int, *, seed: int = 0, extra: int = 2) -> dict[str, frozenset[int]]:
    """Each class in turn with up to `extra` earlier ones: no stage is empty, even of disjoint scenarios."""
    dice = np.random.default_rng(seed)
    found = {}
    for k, name in enumerate(ids):
        newest = 1 + k % classes
        others = dice.choice(newest, size=min(extra, newest - 1), replace=False)
        found[name] = frozenset({newest, *(int(c) for c in others if c)})
    return found


def draw(labels: Sequence[int], *, size: tuple[int, int], seed: int, border: bool) -> tuple[np.ndarray, np.ndarray]:
    """A picture and its mask: an upright band of its own colour for each class on grey noise; rows of 255 on top."""
    height, width = size
    dice = np.random.default_rng([seed, *labels])
    image = dice.integers(100, 150, (height, width, 3)).astype(np.uint8)
    mask = np.zeros((height, width), np.uint8)
    step = width // (len(labels) + 1)
    for k, value in enumerate(labels):
        band = slice(height // 8 + k % 2, height - 1), slice(k * step, (k + 1) * step)
        image[band] = (value * 53 % 256, value * 97 % 256, value * 193 % 256)
        mask[band] = value
    if border:
        mask[: height // 8] = 255
    return image, mask


def save_mask(path: Path, mask: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(mask)
    image.putpalette(PALETTE)
    image.save(path)


def save_mat(path: Path, mask: np.ndarray, *, compressed: bool = True) -> None:
    """As SBD does: a structure with the mask and, for each class, a sparse map of its boundary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    boundaries = np.empty((20, 1), object)
    for k in range(20):
        boundaries[k, 0] = scipy.sparse.csc_matrix(mask == k + 1)
    present = np.unique(mask[(mask > 0) & (mask < 255)])[:, None]
    content = {"Boundaries": boundaries, "Segmentation": mask, "CategoriesPresent": present}
    scipy.io.savemat(path, {"GTcls": content}, do_compression=compressed)


def save_image(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, quality=95)


def save_list(path: Path, ids: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}\n" for name in ids))


def voc_tree(
    root: Path,
    *,
    layout: str = "augmented",
    train: Labels | None = None,
    test: Labels | None = None,
    size: tuple[int, int] = (32, 40),
    images: bool = True,
    inside: str = "VOCdevkit/VOC2012",
) -> Tree:
    """VOC 2012 with SBD below `root`.

    layout   "augmented": SegmentationClassAug and train_aug.txt;  "torchvision": VOC as published beside sbd/
    inside   VOC2012 itself, as seen from `root`
    """
    train = label_sets([f"2008_{k:06d}" for k in range(40)], 20) if train is None else train
    test = label_sets([f"2007_{k:06d}" for k in range(20)], 20, seed=1) if test is None else test
    voc, sbd = root / inside, root / "sbd"
    sets = voc / "ImageSets" / "Segmentation"
    own = [*list(train)[::3], *test]  # of the training pictures VOC itself has a third
    for number, (name, labels) in enumerate({**train, **test}.items()):
        image, mask = draw(sorted(labels), size=size, seed=number, border=name in own)
        if images:
            save_image(voc / "JPEGImages" / f"{name}.jpg", image)
        if name in own:
            save_mask(voc / "SegmentationClass" / f"{name}.png", mask)
        if layout == "augmented":
            save_mask(voc / "SegmentationClassAug" / f"{name}.png", mask)
        elif name not in own or number % 2:  # SBD knows some of VOC's pictures too
            save_mat(sbd / "cls" / f"{name}.mat", np.where(mask == 255, 0, mask))
    save_list(sets / "train.txt", [name for name in own if name in train])
    save_list(sets / "val.txt", list(test))
    if layout == "augmented":
        save_list(sets / "train_aug.txt", list(train))
    else:
        traced = sorted(path.stem for path in (sbd / "cls").iterdir())
        save_list(sbd / "train.txt", traced[::2])
        save_list(sbd / "val.txt", traced[1::2])
    return Tree(root, train, test)


def ade_tree(
    root: Path,
    *,
    train: Labels | None = None,
    test: Labels | None = None,
    size: tuple[int, int] = (32, 40),
    images: bool = True,
    inside: str = "ADEChallengeData2016",
) -> Tree:
    """ADE20K of the scene parsing challenge below `root`; `inside`: the folder that holds images/ and annotations/."""
    train = label_sets([f"ADE_train_{k + 1:08d}" for k in range(150)], 150) if train is None else train
    test = label_sets([f"ADE_val_{k + 1:08d}" for k in range(150)], 150, seed=1) if test is None else test
    home = root / inside
    for part, labels in (("training", train), ("validation", test)):
        for number, (name, values) in enumerate(labels.items()):
            image, mask = draw(sorted(values), size=size, seed=number, border=False)
            if images:
                save_image(home / "images" / part / f"{name}.jpg", image)
            save_mask(home / "annotations" / part / f"{name}.png", mask)
    return Tree(root, train, test)
