"""PASCAL VOC 2012 with the 10,582 training pictures that have labels from the Semantic Boundaries Dataset (SBD) too.

The root is the folder that holds VOCdevkit/, or VOC2012/, or that folder itself. Two layouts are known:

    VOC2012/SegmentationClassAug/*.png, and the list train_aug.txt or trainaug.txt in ImageSets/Segmentation or
    ImageSets/SegmentationAug;

    VOC2012 as published, and SBD as torchvision's SBDataset or its archive leaves it: cls/*.mat, train.txt and
    val.txt, in a folder sbd/ (or SBD/, benchmark_RELEASE/dataset/) of the root, or in the root itself.

In the second, the training list is made: VOC's train with SBD's train and val, without VOC's val. Of SBD's 11,355
pictures 9,118 are in neither list of VOC, and 1,464 + 9,118 is the usual 10,582. (`train_noval.txt`, which some
copies of SBD have, is another division of it: 5,623 pictures, not what papers mean.) Where several have a mask of a
picture, VOC's own is taken there, SegmentationClassAug's in the first layout; the pictures of val.txt keep VOC's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segstream.atomic import locked
from segstream.data.download import Archive, fetch, unpack
from segstream.data.listed import Listed, ListedSource, check_there, files_in, usual_count
from segstream.data.source import DataError, Splits, Told, unheard

__all__ = ["open_voc", "NAMES"]  # noqa: RUF022 (the first name is the plug-in)

NAMES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
TRAIN, TEST = 10_582, 1_449
SETS = ("Segmentation", "SegmentationAug")
AUGMENTED = ("train_aug.txt", "trainaug.txt")
SBD_HOMES = ("sbd", "SBD", "benchmark_RELEASE/dataset", "sbd/benchmark_RELEASE/dataset", "")
TOP, SBD_TOP = "VOCdevkit/VOC2012/", "benchmark_RELEASE/dataset/"
SBD_FILES = (f"{SBD_TOP}cls/", f"{SBD_TOP}train.txt", f"{SBD_TOP}val.txt")  # its pictures are among VOC's

VOC_ARCHIVE = Archive(
    "VOCtrainval_11-May-2012.tar",
    "6cd6e144f989b92b3379bac3b3de84fd",
    (
        "https://thor.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
    ),
)
SBD_ARCHIVE = Archive(
    "benchmark.tgz",
    "82b4d87ceb2ed10f6038a1cba92111cb",
    (
        "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/benchmark.tgz",
        "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/benchmark.tgz",
    ),
)
HOW = "segstream fetches what is missing with data.download=true (on the command line --set data.download=true)."


def open_voc(
    *,
    root: str | Path,
    train_size: int = 0,
    val_size: int = 0,
    test_size: int = 0,
    image_size: Sequence[int] = (),
    seed: int = 0,
    download: bool = False,
    images: bool = True,
    told: Told = unheard,
) -> Splits:
    """VOC 2012: `train` is the augmented list of 10,582 pictures, `test` the validation list of 1,449, `val` is empty.

    As in the literature the validation list is the test set; what has to be tuned is tuned on a part of `train`. The
    sizes and `seed` are for datasets that are drawn. Nothing is written to `root` but by `download`. Without `images`,
    masks and lists are enough: to see which pictures belong to which stage.

    >>> open_voc(root="no/such/folder")
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder no/such/folder. segstream fetches ...
    """
    if not str(root):
        raise DataError(
            "The dataset voc lies in a folder: give it with data.root (--set data.root=PATH or --root PATH)."
        )
    root = Path(root)
    if download:
        _download(root, told)
    place = _find(root)
    test = _ids(_one_of(place.voc, ("val.txt",), "the list of validation pictures"))
    own, augmented, traced = _masks(place)
    train = _training(place, set(test), masks=bool(augmented))
    # In the order of trust, the last first: of one picture several may have a mask.
    order = [traced, own, augmented] if _augmented(place) else [traced, augmented, own]
    if both := sorted(set(train) & set(test)):
        are = "is" if len(both) == 1 else "are"
        raise DataError(f"{len(both)} of the training pictures {are} in val.txt too: {both[0]}.")
    usual_count(len(train), TRAIN, what="training pictures of VOC 2012 with SBD")
    usual_count(len(test), TEST, what="validation pictures of VOC 2012")
    found = _images(place, [*train, *test]) if images else {}

    def source(ids: Sequence[str], order: Sequence[Mapping[str, Path]], what: str) -> ListedSource:
        masks = {key: path for layer in order for key, path in layer.items()}
        check_there(ids, masks, what=what, where=_mask_folders(place))
        pictures = [Listed(i, found.get(i, place.voc / "JPEGImages" / f"{i}.jpg"), masks[i]) for i in ids]
        return ListedSource(pictures, names=NAMES, image_size=image_size, told=told)

    return Splits(
        source(train, order, "training masks"), source([], [], ""), source(test, [augmented, own], "validation masks")
    )


@dataclass(frozen=True)
class _Place:
    """Where things are: VOC2012 itself, and SBD if it was found."""

    root: Path
    voc: Path
    sbd: Path | None


def _voc(root: Path) -> Path | None:
    homes = [root / "VOCdevkit" / "VOC2012", root / "VOC2012"]
    whole = [home for home in homes if home.is_dir()]
    if not whole and (root / "ImageSets").is_dir():
        whole = [root]
    return whole[0] if whole else None


def _find(root: Path) -> _Place:
    if not root.is_dir():
        raise DataError(f"There is no folder {root}. {HOW}")
    if (voc := _voc(root)) is None:
        raise DataError(
            f"{root} holds neither VOCdevkit/VOC2012 nor VOC2012, and is not VOC2012 itself (it has no ImageSets). "
            + HOW
        )
    above = voc.absolute().parent
    tops = [root, voc, above, *([above.parent] if above.name == "VOCdevkit" else [])]
    homes = [top / home for home in SBD_HOMES for top in tops]
    return _Place(root, voc, next((home for home in homes if (home / "cls").is_dir()), None))


def _one_of(voc: Path, names: Sequence[str], what: str) -> Path:
    places = [voc / "ImageSets" / folder / name for folder in SETS for name in names]
    for path in places:
        if path.is_file():
            return path
    raise DataError(f"{voc} lacks {what}: expected {' or '.join(str(p.relative_to(voc)) for p in places)}.")


def _ids(path: Path) -> list[str]:
    """The ids of a list: in each line an id, or the paths of a picture and its mask, as some lists have them."""
    ids = [Path(line.split()[0]).stem for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not ids:
        raise DataError(f"{path} names no picture.")
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise DataError(f"{path} names {twice} twice.")
    return ids


def _augmented(place: _Place) -> list[str] | None:
    """The augmented list, where somebody put one."""
    lists = [place.voc / "ImageSets" / folder / name for folder in SETS for name in AUGMENTED]
    return next((_ids(path) for path in lists if path.is_file()), None)


def _masks(place: _Place) -> tuple[dict[str, Path], dict[str, Path], dict[str, Path]]:
    """Those of VOC itself, of SegmentationClassAug and of SBD."""
    own, augmented = (files_in(place.voc / name, ".png") for name in ("SegmentationClass", "SegmentationClassAug"))
    return own, augmented, files_in(place.sbd / "cls", ".mat") if place.sbd else {}


def _training(place: _Place, test: set[str], *, masks: bool) -> list[str]:
    """The training list: given, or made of VOC's and SBD's. `masks`: whether augmented ones are there, for a hint."""
    if (listed := _augmented(place)) is not None:
        return listed
    if place.sbd is None:
        raise DataError(_only_voc(place, masks))
    ids = set(_ids(_one_of(place.voc, ("train.txt",), "VOC's own training list")))
    for name in ("train.txt", "val.txt"):
        if not (place.sbd / name).is_file():
            raise DataError(f"{place.sbd} lacks SBD's list {name}, which lies in benchmark.tgz beside cls/.")
        ids |= set(_ids(place.sbd / name))
    return sorted(ids - test)


def _only_voc(place: _Place, masks: bool) -> str:
    lists = "train_aug.txt in ImageSets/Segmentation or ImageSets/SegmentationAug"
    if masks:
        return f"{place.voc} has SegmentationClassAug, but not the list of the 10,582 training pictures: {lists}."
    return (
        f"{place.voc} has VOC's own 1,464 training pictures only; benchmarks use 10,582, with labels of SBD. Put "
        f"SegmentationClassAug/ there with the list {lists}, or what is in SBD's archive benchmark.tgz (cls/, "
        f"train.txt, val.txt) into {place.root / 'sbd'}; torchvision's SBDataset fetches it too. {HOW}"
    )


def _mask_folders(place: _Place) -> str:
    folders = [place.voc / "SegmentationClass", place.voc / "SegmentationClassAug"]
    folders += [place.sbd / "cls"] if place.sbd else []
    return " or ".join(str(folder) for folder in folders if folder.is_dir()) or f"{folders[0]}, which does not exist"


def _images(place: _Place, ids: Sequence[str]) -> dict[str, Path]:
    found = files_in(place.voc / "JPEGImages", ".jpg")
    if place.sbd and not all(i in found for i in ids):
        found = files_in(place.sbd / "img", ".jpg") | found
    check_there(ids, found, what="pictures of VOC 2012", where=str(place.voc / "JPEGImages"))
    return found


def _download(root: Path, told: Told) -> None:
    """VOC if it is missing; SBD if masks are. The archives go when all is unpacked."""
    root.mkdir(parents=True, exist_ok=True)
    with locked(root):  # of several runs that start together one fetches, the others find
        if _voc(root) is None:
            _get(VOC_ARCHIVE, root, root / TOP, top=TOP, wanted=(TOP,), told=told)
        place = _find(root)
        own, augmented, _ = _masks(place)
        listed = _augmented(place)
        if place.sbd is None and not (listed and own.keys() | augmented.keys() >= set(listed)):
            _get(SBD_ARCHIVE, root, root / "sbd", top=SBD_TOP, wanted=SBD_FILES, told=told)


def _get(archive: Archive, root: Path, into: Path, *, top: str, wanted: tuple[str, ...], told: Told) -> None:
    path = fetch(archive, root, told=told)
    unpack(path, into, pick=lambda name: name.removeprefix(top) if name.startswith(wanted) else None, told=told)
    path.unlink()
