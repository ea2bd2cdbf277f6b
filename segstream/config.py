"""A recipe: one scenario with its data, network, base training and memory size, as TOML. Never one for each method.

The dataclasses are the schema: their fields are the keys, their defaults the defaults. A recipe may extend another
one; `--set section.key=value` comes on top; the resolved form is written beside the results.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from segstream import plugins
from segstream.schema import build, limited, nearest, parse, to_plain, to_toml

__all__ = [
    "AugmentSettings",
    "DataSettings",
    "MemorySettings",
    "NetworkSettings",
    "Recipe",
    "RunSettings",
    "ScenarioSettings",
    "TrainingSettings",
    "load_recipe",
    "recipes",
]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the pictures come from.

    dataset     a plug-in of that kind;  root: its folder, where it has one
    train_size, val_size, test_size  number of pictures, for datasets that make them
    image_size  [height, width] to which pictures and masks are resized; empty: as they are
    split       the list that is scored;  seed: of pictures that are made

    >>> DataSettings(root="photos").split
    'test'
    """

    dataset: str = "folder"
    root: str = ""
    train_size: int = limited(0, low=0)
    val_size: int = limited(0, low=0)
    test_size: int = limited(0, low=0)
    image_size: tuple[int, ...] = limited((), low=1)
    split: str = limited("test", choices=("train", "val", "test"))
    seed: int = limited(0, low=0)

    def __post_init__(self) -> None:
        if len(self.image_size) not in (0, 2):
            raise ValueError(f"data.image_size is height and width, not {list(self.image_size)}.")


@dataclass(frozen=True, kw_only=True)
class ScenarioSettings:
    """Which classes come when.

    base, stages  class names: those of the base training, and those of each stage
    rule          `overlapped`: a stage takes each picture with a pixel of its classes; `disjoint`: of these, only
                  those without a class still to come
    max_images    pictures a stage, at most (0: all);  batch: how many arrive at once

    >>> ScenarioSettings(base=("sky",), stages=(("car",), ("sky",)))
    Traceback (most recent call last):
    ValueError: The scenario names the class 'sky' twice; each class comes once.
    """

    base: tuple[str, ...]
    stages: tuple[tuple[str, ...], ...]
    rule: str = limited("overlapped", choices=("overlapped", "disjoint"))
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
    """What learns. `weights`: "imagenet", or empty for a random start; `head`: how classes are scored.

    >>> NetworkSettings().encoder
    'tf_efficientnet_lite0'
    """

    name: str = "deeplabv3plus"
    encoder: str = "tf_efficientnet_lite0"
    weights: str = "imagenet"
    output_stride: int = limited(16, choices=(8, 16, 32))
    decoder_channels: int = limited(256, low=1)
    head: str = limited("cosine", choices=("cosine", "linear"))
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

    >>> RunSettings().device
    'auto'
    """

    precision: str = limited("32-true", choices=("32-true", "bf16-mixed"))
    threads: int = limited(1, low=1)
    device: str = "auto"
    seed: int = limited(0, low=0)
    evaluate_stages: bool = True


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole recipe. `methods` holds what its data need of single methods; each method checks its own settings.

    Read one with `load_recipe`, which also gives `joint`, the bound's training, what it does not name from `base`.

    >>> load_recipe("demo", ["base.epochs=3"]).joint.lr == load_recipe("demo").base.lr
    True
    """

    name: str = ""
    title: str = ""
    data: DataSettings = field(default_factory=DataSettings)
    scenario: ScenarioSettings
    network: NetworkSettings = field(default_factory=NetworkSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    base: TrainingSettings = field(default_factory=TrainingSettings)
    joint: TrainingSettings = field(default_factory=TrainingSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    run: RunSettings = field(default_factory=RunSettings)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: dictionaries, lists, texts and numbers."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def to_toml(self) -> str:
        """The resolved form, every key written out. Read again, it gives the same recipe."""
        return to_toml(self.to_dict())


def recipes() -> dict[str, Path]:
    """The recipes that come with the package.

    >>> sorted(recipes())
    ['camvid-6-1', 'camvid-6-1-small', 'demo']
    """
    folder = resources.files("segstream.recipes")
    found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return {path.stem: path for path in sorted(found)}


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by name, or from a file, with `section.key=value` settings on top.

    >>> load_recipe("camvid-6-1", ["memory.capacity=20", "methods.em.lr=1e-3"]).memory.capacity
    20
    >>> load_recipe("camvid-6-1", ["memory.capcity=20"])
    Traceback (most recent call last):
    ValueError: Unknown key 'memory.capcity' in --set memory.capcity=20. Did you mean 'memory.capacity'?
    """
    path = _find(name_or_path)
    data = _read(path, ())
    data.setdefault("name", path.stem)
    for override in overrides:
        _merge(data, _override(override))
    data["joint"] = {**data.get("base", {}), **data.get("joint", {})}
    source = " with ".join([str(path), *(f"--set {override}" for override in overrides)])
    return build(Recipe, data, source=source)


def _find(name_or_path: str | Path) -> Path:
    known = recipes()
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise ValueError(f"There is no recipe file {path}.")
    raise ValueError(f"There is no recipe {str(name_or_path)!r}.{nearest(str(name_or_path), known)}")


def _read(path: Path, extending: tuple[Path, ...]) -> dict[str, Any]:
    """A recipe file as plain data, over the one that it extends. Each file is checked by itself."""
    if path in extending:
        raise ValueError(f"{path} extends itself, by way of {', '.join(p.name for p in extending)}.")
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from None
    below: dict[str, Any] = {}
    if "extends" in data:
        other = data.pop("extends")
        if not isinstance(other, str):
            raise ValueError(f"extends in {path} must be the name or the path of a recipe, not {other!r}.")
        beside = path.parent / other
        below = _read(beside if beside.is_file() else _find(other), (*extending, path))
        below.pop("name", None)
    _check(data, source=str(path))
    _merge(below, data)
    return below


def _check(data: Mapping[str, Any], *, source: str) -> None:
    """Refuses keys and values of one source, so that the sentence can name it."""
    _check_methods(data.get("methods", {}), source=source)
    scenario = data.get("scenario", {})
    if isinstance(scenario, Mapping):  # its two keys without a default may stand in another source
        scenario = {"base": [], "stages": [], **scenario}
    build(Recipe, {**data, "scenario": scenario}, source=source)


def _check_methods(methods: Any, *, source: str) -> None:
    known = plugins.available("methods")
    if not isinstance(methods, Mapping):
        raise ValueError(f"methods in {source} must hold a section for each method, not {methods!r}.")
    for name, settings in methods.items():
        if name not in known:
            raise ValueError(f"{source} sets something for a method {name!r}.{nearest(name, known)}")
        if not isinstance(settings, Mapping):
            raise ValueError(f"methods.{name} in {source} must hold key = value lines, not {settings!r}.")


def _override(text: str) -> dict[str, Any]:
    """`base.lr=0.1` as {"base": {"lr": 0.1}}, checked."""
    source = f"--set {text}"
    key, equals, value = text.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ValueError(f"{source}: expected section.key=value, such as base.epochs=10.")
    kind = _kind(path, source)
    data: Any = parse(value.strip(), kind)
    for name in reversed(path):
        data = {name: data}
    _check(data, source=source)
    result: dict[str, Any] = data
    return result


def _kind(path: Sequence[str], source: str) -> Any:
    """The type that the schema gives to a dotted key."""
    if path[0] == "methods":
        if len(path) < 3:
            raise ValueError(f"{source}: name the method and its setting, such as methods.em.lr=0.01.")
        return Any
    keys = {n: get_type_hints(k) if is_dataclass(k) else k for n, k in get_type_hints(Recipe).items()}
    section, name = path[0], ".".join(path[1:])
    found = keys.get(section)
    if isinstance(found, dict):
        if not name:
            raise ValueError(f"{source}: {section} is a section; set one of {', '.join(found)} in it.")
        found = found.get(name)
        hint = nearest(name, keys[section], section=section)
    else:
        found = None if name else found
        homes = [f"{s}.{path[-1]}" for s, inner in keys.items() if isinstance(inner, dict) and path[-1] in inner]
        hint = f" Did you mean {' or '.join(map(repr, homes))}?" if homes else nearest(section, keys)
    if found is None:
        raise ValueError(f"Unknown key {'.'.join(path)!r} in {source}.{hint}")
    return found


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), dict):
            _merge(below[key], value)
        else:
            below[key] = to_plain(value)
