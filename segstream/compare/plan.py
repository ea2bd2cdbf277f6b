"""The cells of a comparison: one run each, with a name, a key of all that decides its numbers, and a file when done."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from segstream import storage
from segstream.compare.rows import JOINT
from segstream.config import Recipe
from segstream.schema import build, to_plain
from segstream.storage import StateError

__all__ = [
    "Base",
    "Cell",
    "Plan",
    "State",
    "cell_name",
    "differences",
    "file_text",
    "finished",
    "key_of",
    "merged",
    "state_of",
]

FORMAT = 1
State = Literal["done", "begun", "open"]
LONGEST = 120  # characters of a cell's name
# What does not decide a number: names, places, and where it is computed.
NOT_DECIDING: dict[str, tuple[str, ...]] = {
    "": ("name", "title", "methods", "tune"),
    "data": ("root", "download"),
    "run": ("device", "gpus", "memory_gb"),
}


@dataclass(frozen=True)
class Base:
    """The base training that a cell starts from; `id` is its folder's name in the cache.

    >>> Base("base-0123", head="linear", loss="softmax", seed=0).id
    'base-0123'
    """

    id: str
    head: str
    loss: str
    seed: int


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    id        its name;  group: "cells", or "tuning" for a trial
    config    the resolved recipe as plain data;  row: the label of its row;  given: what the row puts over the recipe
    settings  all settings of the method, as far as they decide numbers
    base      None for joint
    """

    id: str
    recipe: str
    title: str
    config: Mapping[str, Any]
    row: str
    role: str
    method: str
    given: Mapping[str, Any]
    settings: Mapping[str, Any]
    seed: int
    split: str
    base: Base | None = None
    group: str = "cells"
    pictures: int = 0
    key: str = field(default="", compare=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        base = data["base"]
        return cls(**{**data, "base": None if base is None else Base(**base)})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def own(self) -> dict[str, Any]:
        """What of `given` are settings of the method: keys of the recipe have a dot."""
        return {key: value for key, value in self.given.items() if "." not in key}

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.recipe} {self.row}, seed {self.seed}" if self.group == "cells" else f"trial {self.row}"

    def file(self, out: Path) -> Path:
        return out / self.group / f"{self.id}.json"

    def run_folder(self, out: Path) -> Path:
        return out / "runs" / self.id if self.group == "cells" else out / "runs" / "tuning" / self.id


def cell_name(*parts: str) -> str:
    """A name for files, the same on every system: what cannot stand in one is replaced, and told apart by a hash.

    >>> cell_name("camvid-6-1", "er view=background", "0")
    'camvid-6-1_er_view=background_0'
    """
    exact = "_".join(part.replace(" ", "_") for part in parts)
    name = re.sub(r"[^A-Za-z0-9._=+-]", "-", exact)[:LONGEST].rstrip(".")
    return name if name == exact else f"{name}-{hashlib.sha256(exact.encode()).hexdigest()[:6]}"


# ---- which numbers are whose


def key_of(
    config: Mapping[str, Any], method: str, settings: Mapping[str, Any], *, seed: int, base_seed: int | None
) -> str:
    """A hash of all that decides a cell's numbers; the version is not part of it.

    >>> from segstream.config import load_recipe
    >>> keys = []
    >>> for change in ("run.device=cpu", "run.device=cuda", "run.threads=3"):
    ...     config = load_recipe("demo", [change]).to_dict()
    ...     keys.append(key_of(config, "er", {"lr": 0.01}, seed=0, base_seed=0))
    >>> keys[0] == keys[1], keys[0] == keys[2]
    (True, False)
    """
    parts = _deciding(config, method) | {"method": method, "settings": settings, "seed": seed, "base_seed": base_seed}
    return hashlib.sha256(json.dumps(to_plain(parts), sort_keys=True).encode()).hexdigest()


def _deciding(config: Mapping[str, Any], method: str) -> dict[str, Any]:
    left_out = NOT_DECIDING[""] + (("memory",) if method == JOINT else ("joint",))
    found = {key: value for key, value in config.items() if key not in left_out}
    for section, names in NOT_DECIDING.items():
        if section in found:
            found[section] = {k: v for k, v in found[section].items() if k not in names}
    if isinstance(scenario := found.get("scenario"), Mapping):  # the folder's place decides nothing, its name does
        found["scenario"] = {**scenario, "files": Path(str(scenario.get("files", ""))).name}
    return found


def state_of(cell: Cell, out: Path, defaults: Mapping[str, Any]) -> State:
    """Whether the cell is done there. A file of that name with other numbers than these is an error.

    defaults  of the method's settings: what a file of an earlier version does not tell
    """
    stored = finished(cell, out)
    if stored is None:
        return "begun" if (cell.run_folder(out) / storage.INDEX).exists() else "open"
    if stored.get("key") == cell.key:
        return "done"
    different = differences(stored, cell, defaults)
    if not different:
        return "done"
    raise StateError(
        f"{cell.file(out)} was computed with {different[0]}. Ask for the same again, give another --out, "
        "or remove that file to compute it anew."
    )


def finished(cell: Cell, out: Path) -> dict[str, Any] | None:
    """What the finished cell's file says; None before."""
    path = cell.file(out)
    if not path.exists():
        return None
    stored = storage.read_json(path)
    if not isinstance(stored, dict) or not isinstance(stored.get("config"), dict):
        raise StateError(f"{path} is no cell of a comparison; remove it to compute it anew.")
    if stored.get("format", 0) > FORMAT:
        raise StateError(f"{path} was written by a newer segstream; install a newer version, or give another --out.")
    return stored


def differences(stored: Mapping[str, Any], cell: Cell, defaults: Mapping[str, Any]) -> list[str]:
    """What decides the numbers of a stored cell otherwise than this cell's, as sentences' ends.

    A key that came with a later version counts with its default, so that earlier cells stay of use.
    """
    before = _facts(_completed(stored["config"]), stored, {**defaults, **_mapping(stored.get("settings"))}, cell)
    now = _facts(cell.config, cell.to_json(), cell.settings, cell)
    keys = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    return [f"{key} = {_text(before.get(key))}, not {_text(now.get(key))}" for key in keys]


def _facts(
    config: Mapping[str, Any], about: Mapping[str, Any], settings: Mapping[str, Any], cell: Cell
) -> dict[str, Any]:
    decided = {key: settings.get(key) for key in cell.settings}
    base = about.get("base")
    base_seed = base.get("seed") if isinstance(base, Mapping) and cell.base is not None else None
    told = {"method": about.get("method"), "seed": about.get("seed"), "base seed": base_seed}
    flat = _flat(_deciding(config, cell.method)) | _flat({f"methods.{cell.method}": decided}) | told
    return {key: to_plain(value) for key, value in flat.items()}


def _completed(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return build(Recipe, config, source="the cell").to_dict()
    except ValueError:  # a key that this version has no more: it will differ, and be named
        return dict(config)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _flat(data: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{section}{key}.") if isinstance(value, Mapping) else {f"{section}{key}": value}
    return flat


def _text(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def file_text(cell: Mapping[str, Any]) -> str:
    """A finished cell's file: one line for each fact, one for each stage's scores, so that it is small and readable.

    >>> print(file_text({"id": "demo_er_0", "scores": [{"stage": 0}]}), end="")
    {
      "id": "demo_er_0",
      "scores": [
        {"stage": 0}
      ]
    }
    """
    lines = []
    for key, value in cell.items():
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if key == "scores" and value:
            stages = ",\n    ".join(json.dumps(stage, ensure_ascii=False, allow_nan=False) for stage in value)
            text = f"[\n    {stages}\n  ]"
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ---- the whole


@dataclass(frozen=True)
class Plan:
    """What was asked for, as `plan.json` holds it; cells in the table's order.

    tuned   where settings come from: {"recipe", "split", "file"}, or None for the defaults

    >>> Plan(rows=[{"label": "er"}], recipes=["demo"], seeds=1, cells=["demo_er_0"]).to_json()["cells"]
    ['demo_er_0']
    """

    rows: Sequence[Mapping[str, Any]]
    recipes: Sequence[str]
    seeds: int
    cells: Sequence[str]
    title: str = ""
    command: Sequence[str] = ()
    tuned: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(asdict(self))
        return plain


def merged(plan: Plan, earlier: Mapping[str, Any], there: Sequence[str]) -> Plan:
    """The plan together with an earlier one for the same folder, whose finished cells (`there`) stay in the table.

    >>> plan = Plan(rows=[{"label": "er"}], recipes=["demo"], seeds=1, cells=["demo_er_0"])
    >>> merged(plan, {"rows": [{"label": "em"}], "recipes": ["demo"], "cells": ["demo_em_0"]}, ["demo_em_0"]).cells
    ['demo_em_0', 'demo_er_0']
    """
    before = [cell for cell in earlier.get("cells", []) if cell in there and cell not in plan.cells]
    if not before:
        return plan
    now = {row["label"]: row for row in plan.rows}
    old = [now.get(row["label"], row) for row in earlier.get("rows", [])]
    rows = [*old, *(row for row in plan.rows if row not in old)]
    recipes = list(dict.fromkeys([*earlier.get("recipes", []), *plan.recipes]))
    cells = [*before, *plan.cells]
    return Plan(rows, recipes, plan.seeds, cells, plan.title, plan.command, plan.tuned)
