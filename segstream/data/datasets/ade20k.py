"""ADE20K as in the scene parsing challenge of 2016 (SceneParse150): 20,210 training and 2,000 validation pictures.

The root is the folder that holds ADEChallengeData2016/, or that folder itself:

    images/training/*.jpg        images/validation/*.jpg
    annotations/training/*.png   annotations/validation/*.png

The mask value 0 means "none of the 150 classes" and is the background; there is no void. (The full ADE20K with its
3,000 classes has another layout and is not read.)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from segstream.atomic import locked
from segstream.data.download import Archive, fetch, unpack
from segstream.data.listed import Listed, ListedSource, check_there, files_in, usual_count
from segstream.data.source import DataError, Splits, Told, unheard

__all__ = ["open_ade20k", "NAMES"]  # noqa: RUF022 (the first name is the plug-in)

# The first of the names that the challenge gives to each class; all differ.
NAMES = (
    "background",
    "wall", "building", "sky", "floor", "tree", "ceiling", "road", "bed", "windowpane", "grass",
    "cabinet", "sidewalk", "person", "earth", "door", "table", "mountain", "plant", "curtain", "chair",
    "car", "water", "painting", "sofa", "shelf", "house", "sea", "mirror", "rug", "field",
    "armchair", "seat", "fence", "desk", "rock", "wardrobe", "lamp", "bathtub", "railing", "cushion",
    "base", "box", "column", "signboard", "chest of drawers", "counter", "sand", "sink", "skyscraper", "fireplace",
    "refrigerator", "grandstand", "path", "stairs", "runway",
    "case", "pool table", "pillow", "screen door", "stairway",
    "river", "bridge", "bookcase", "blind", "coffee table", "toilet", "flower", "book", "hill", "bench",
    "countertop", "stove", "palm", "kitchen island", "computer",
    "swivel chair", "boat", "bar", "arcade machine", "hovel",
    "bus", "towel", "light", "truck", "tower", "chandelier", "awning", "streetlight", "booth", "television receiver",
    "airplane", "dirt track", "apparel", "pole", "land", "bannister", "escalator", "ottoman", "bottle", "buffet",
    "poster", "stage", "van", "ship", "fountain", "conveyer belt", "canopy", "washer", "plaything", "swimming pool",
    "stool", "barrel", "basket", "waterfall", "tent", "bag", "minibike", "cradle", "oven", "ball",
    "food", "step", "tank", "trade name", "microwave", "pot", "animal", "bicycle", "lake", "dishwasher",
    "screen", "blanket", "sculpture", "hood", "sconce", "vase", "traffic light", "tray", "ashcan", "fan",
    "pier", "crt screen", "plate", "monitor", "bulletin board", "shower", "radiator", "glass", "clock", "flag",
)  # fmt: skip
FOLDER = "ADEChallengeData2016"
TRAIN, TEST = 20_210, 2_000
ARCHIVE = Archive(
    f"{FOLDER}.zip",
    "7328b3957e407ddae1d3cbf487f149ef",
    (f"http://data.csail.mit.edu/places/ADEchallenge/{FOLDER}.zip",),
)
HOW = "segstream fetches it with data.download=true (on the command line --set data.download=true)."


def open_ade20k(
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
    """ADE20K with 150 classes: `train` is the training list, `test` the validation list, `val` is empty.

    As in the literature the validation list is the test set; what has to be tuned is tuned on a part of `train`. The
    sizes and `seed` are for datasets that are drawn. Nothing is written to `root` but by `download`. Without `images`,
    masks are enough: to see which pictures belong to which stage.

    >>> open_ade20k(root="no/such/folder")
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder no/such/folder. segstream fetches ...
    """
    if not str(root):
        raise DataError(
            "The dataset ade20k lies in a folder: give it with data.root (--set data.root=PATH or --root PATH)."
        )
    root = Path(root)
    if download:
        _download(root, told)
    home = _find(root)
    if home is None:
        there = f"{root} holds no {FOLDER}, and is not that folder itself (it has no annotations/training)."
        raise DataError(f"{there if root.is_dir() else f'There is no folder {root}.'} {HOW}")
    train, test = _part(home, "training", images), _part(home, "validation", images)
    usual_count(len(train), TRAIN, what="training pictures of ADE20K")
    usual_count(len(test), TEST, what="validation pictures of ADE20K")
    parts = [ListedSource(part, names=NAMES, void=None, image_size=image_size, told=told) for part in (train, [], test)]
    return Splits(*parts)


def _find(root: Path) -> Path | None:
    return next((p for p in (root / FOLDER, root) if (p / "annotations" / "training").is_dir()), None)


def _part(home: Path, name: str, images: bool) -> list[Listed]:
    """One list, sorted: positions in published split files count in it."""
    where = home / "images" / name
    masks, pictures = files_in(home / "annotations" / name, ".png"), files_in(where, ".jpg")
    if not masks:
        raise DataError(f"{home / 'annotations' / name} holds no masks (PNG files). {HOW}")
    if images:
        check_there(masks, pictures, what=f"pictures of annotations/{name}", where=str(where))
        check_there(pictures, masks, what=f"masks of images/{name}", where=str(home / "annotations" / name))
    return [Listed(key, pictures.get(key, where / f"{key}.jpg"), mask) for key, mask in sorted(masks.items())]


def _download(root: Path, told: Told) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with locked(root):  # of several runs that start together one fetches, the others find
        if _find(root) is None:
            archive = fetch(ARCHIVE, root, told=told)
            top = f"{FOLDER}/"
            unpack(
                archive,
                root / FOLDER,
                pick=lambda name: name.removeprefix(top) if name.startswith(top) else None,
                told=told,
            )
            archive.unlink()
