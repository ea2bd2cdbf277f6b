"""The sections of a recipe: their fields are the keys of the TOML, their defaults the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from segstream.schema import limited

__all__ = [
    "AugmentSettings",
    "DataSettings",
    "MemorySettings",
    "NetworkSettings",
    "RunSettings",
    "ScenarioSettings",
    "TrainingSettings",
    "TuneSettings",
]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the pictures come from.

    dataset     a plug-in of that kind;  root: its folder, where it has one
    train_size, val_size, test_size  number of pictures, for datasets that make them
    image_size  [height, width] to which pictures and masks are resized; empty: as they are
    split       the list that is scored;  seed: of pictures that are made
    download    fetch the dataset into `root` where it can be had
    holdout     share of the training list that is taken out of it, by a fixed draw, and becomes the list `holdout`

    >>> DataSettings(root="photos").split
    'test'
    """

    dataset: str = "folder"
    root: str = ""
    train_size: int = limited(0, low=0)
    val_size: int = limited(0, low=0)
    test_size: int = limited(0, low=0)
    image_size: tuple[int, ...] = limited((), low=1)
    split: str = limited("test", choices=("train", "val", "test", "holdout"))
    seed: int = limited(0, low=0)
    download: bool = False
    holdout: float = limited(0.0, low=0)

    def __post_init__(self) -> None:
        if len(self.image_size) not in (0, 2):
            raise ValueError(f"data.image_size is height and width, not {list(self.image_size)}.")
        if self.holdout >= 1:
            raise ValueError(f"data.holdout is {self.holdout}; it is a share of the training list, below 1.")


@dataclass(frozen=True, kw_only=True)
class ScenarioSettings:
    """Which classes come when.

    base, stages  class names: those of the base training, and those of each stage
    split         instead of these: "15-1" for 15 base classes and then one at a time, in the dataset's order
    rule          `overlapped`: a stage takes each picture with a pixel of its classes; `disjoint`: of these, only
                  those without a class still to come; `files`: the pictures that lists name; `generated`: each picture
                  in one stage, drawn so that rare classes and small stages come first
    files         for the rule `files`: a folder with one list a stage, texts of names or .npy of positions
    seed          of the rule `generated`
    max_images    pictures a stage, at most (0: all);  batch: how many arrive at once

    >>> ScenarioSettings(base=("sky",), stages=(("car",), ("sky",)))
    Traceback (most recent call last):
    ValueError: The scenario names the class 'sky' twice; each class comes once.
    """

    base: tuple[str, ...] = ()
    stages: tuple[tuple[str, ...], ...] = ()
    split: str = ""
    rule: str = limited("overlapped", choices=("overlapped", "disjoint", "files", "generated"))
    files: str = ""
    seed: int = limited(0, low=0)
    max_images: int = limited(0, low=0)
    batch: int = limited(4, low=1)

    def __post_init__(self) -> None:
        seen = {"background"}
        for name in (n for group in (self.base, *self.stages) for n in group):
            if name == "background":
                raise ValueError("The scenario names the background; it is always there and belongs to no stage.")
            if name in seen:
                raise ValueError(f"The scenario names the class {name!r} twice; each class comes once.")
            seen.add(name)
        if not all(self.stages):
            raise ValueError("The scenario has a stage without classes.")


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """What learns. `weights`: "imagenet", or empty for a random start.

    head   how classes are scored, where the method does not decide it (em does);  scale: of a cosine head

    >>> NetworkSettings().encoder
    'tf_efficientnet_lite0'
    """

    name: str = "deeplabv3plus"
    encoder: str = "tf_efficientnet_lite0"
    weights: str = "imagenet"
    output_stride: int = limited(16, choices=(8, 16, 32))
    decoder_channels: int = limited(256, low=1)
    head: str = limited("linear", choices=("cosine", "linear"))
    scale: float = limited(12.0, above=0)


@dataclass(frozen=True, kw_only=True)
class AugmentSettings:
    """How pictures are cut for learning: `crop` pixels (or [height, width]) after rescaling by a factor in `scale`.

    border  what lies outside a picture smaller than the crop: `void` or its reflection

    >>> AugmentSettings(scale=(2.0, 0.5))
    Traceback (most recent call last):
    ValueError: augment.scale is the lowest and the highest factor, not [2.0, 0.5].
    """

    crop: int | tuple[int, int] = limited(512, low=1)
    scale: tuple[float, float] = limited((0.5, 2.0), above=0)
    flip: bool = True
    border: str = limited("void", choices=("void", "reflect"))

    def __post_init__(self) -> None:
        if self.scale[0] > self.scale[1]:
            raise ValueError(f"augment.scale is the lowest and the highest factor, not {list(self.scale)}.")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Offline training with SGD: rate lr * (1 - done) ** power.

    >>> TrainingSettings().epochs
    60
    """

    epochs: int = limited(60, low=1)
    batch: int = limited(24, low=1)
    lr: float = limited(0.01, above=0)
    power: float = limited(0.9, low=0)
    momentum: float = limited(0.9, low=0)
    weight_decay: float = limited(1e-4, low=0)


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """How many exemplars are kept, and by which policy (empty: the method's own).

    >>> MemorySettings().capacity
    100
    """

    capacity: int = limited(100, low=0)
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How it is computed; only `seed` may change what comes out beyond rounding.

    evaluate_stages  score after every stage, not only after the last
    gpus, memory_gb  what one run asks a cluster for, beside `threads` processor cores

    >>> RunSettings().device
    'auto'
    """

    precision: str = limited("32-true", choices=("32-true", "bf16-mixed"))
    threads: int = limited(1, low=1)
    device: str = "auto"
    seed: int = limited(0, low=0)
    evaluate_stages: bool = True
    gpus: float = limited(0.0, low=0)
    memory_gb: float = limited(4.0, above=0)


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """How settings are chosen before a comparison: by imIoU on pictures that the table does not use.

    split    a list of the dataset; empty: `holdout`, a share of the training list
    lr       the rates that every method tries;  budget: runs for each method, its views included

    >>> TuneSettings().lr
    (0.001, 0.01)
    """

    split: str = limited("", choices=("", "train", "val"))
    holdout: float = limited(0.2, above=0)
    lr: tuple[float, ...] = limited((0.001, 0.01), above=0)
    budget: int = limited(4, low=1)
