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
from segstream.schema import build, nearest, parse, to_plain, to_toml
from segstream.sections import (
    AugmentSettings,
    DataSettings,
    MemorySettings,
    NetworkSettings,
    RunSettings,
    ScenarioSettings,
    TrainingSettings,
    TuneSettings,
)

__all__ = ["Recipe", "load_recipe", "recipes"]


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
    scenario: ScenarioSettings = field(default_factory=ScenarioSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    base: TrainingSettings = field(default_factory=TrainingSettings)
    joint: TrainingSettings = field(default_factory=TrainingSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    run: RunSettings = field(default_factory=RunSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)
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

    >>> "demo" in recipes()
    True
    """
    folder = resources.files("segstream.recipes")
    found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


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
    recipe = build(Recipe, data, source=source)
    _check_scenario(recipe.scenario, source)
    return recipe


def _check_scenario(scenario: ScenarioSettings, source: str) -> None:
    """What only the whole recipe can be asked."""
    named = bool(scenario.base or scenario.stages)
    if named == bool(scenario.split):
        both = "has both" if named else "lacks both"
        raise ValueError(f'{source} {both}: scenario.base with scenario.stages, and scenario.split = "15-1". Give one.')
    if scenario.files and scenario.rule != "files":  # that `files` has none is said when the data are opened
        raise ValueError(f"{source}: the rule {scenario.rule!r} does not use scenario.files.")


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
    build(Recipe, data, source=source)


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
