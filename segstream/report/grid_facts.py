"""What surrounds a comparison: who shares which base, settings, versions and devices, and what tuning tried."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from segstream.report.blocks import Block
from segstream.report.facts import differences
from segstream.report.grid import Cell, Grid, section
from segstream.report.record import flatten
from segstream.schema import to_toml

__all__ = ["provenance", "tuning"]


def provenance(grid: Grid, made: Sequence[Block]) -> dict[str, Any]:
    """Bases, settings, surroundings and recipes, as the template takes them."""
    return {
        "command": _command(grid.command),
        "bases": _bases(grid.cells),
        "settings": [_settings(block) for block in made if block.ranked],
        "around": _around(grid.cells),
        "recipes": _recipes(grid.cells),
    }


def _command(words: Sequence[str]) -> str:
    """As it was typed, without telling where somebody keeps things.

    >>> _command(["segstream", "compare", "demo", "--set", "data.root=/home/me/voc", "--out", "~/x"])
    'segstream compare demo --set data.root=PATH --out PATH'
    """
    return " ".join(re.sub(r"(^|=)(/|~|[A-Za-z]:[\\/]|\.\.).*", r"\1PATH", word) for word in words)


def _bases(cells: Iterable[Cell]) -> list[tuple[str, str, str]]:
    """Each base's id, what it is, and the rows and recipes that started from it."""
    found: dict[str, tuple[str, dict[str, None]]] = {}
    for cell in cells:
        id = str(cell.base.get("id") or "")
        if id:
            parts = [f"{key} {cell.base[key]}" for key in ("head", "loss", "seed") if key in cell.base]
            parts += [f"weights {str(cell.base['weights'])[:12]}"] if cell.base.get("weights") else []
            what = ", ".join(parts)
            found.setdefault(id, (what, {}))[1][f"{cell.line} ({cell.recipe})"] = None
    return [(id, what, ", ".join(users)) for id, (what, users) in found.items()]


def _settings(block: Block) -> dict[str, Any]:
    """What the lines were run with, as far as it differs between them, and what they share."""
    lines = [line for line in (*block.ranked, *block.having("other view")) if line.cells]
    told = [{k: v for k, v in line.cells[0].settings.items() if k != "seed"} for line in lines]
    varied, shared = differences(told)
    return {"title": block.title, "labels": [line.name for line in lines], "varied": varied, "shared": shared}


def _around(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Versions and devices; where runs differ, each value with the number of its runs."""
    own = {"settings", "seed", "method", "split", "tuning_split"}
    flats = [flatten({k: v for k, v in cell.about.items() if k not in own}) for cell in cells]
    rows = []
    for key in dict.fromkeys(k for flat in flats for k in flat):
        values = Counter(_plain(flat[key]) for flat in flats if key in flat)
        one = len(values) == 1 and sum(values.values()) == len(cells)
        rows.append((key, ", ".join(v if one else f"{v} ({n} runs)" for v, n in values.items())))
    return rows


def _recipes(cells: Iterable[Cell]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for cell in cells:
        if cell.config and cell.recipe not in found:
            found[cell.recipe] = to_toml(cell.config)
    return list(found.items())


def tuning(told: Any) -> dict[str, Any] | None:
    """What was tried to choose settings and what was chosen; None where nothing of that is known.

    >>> trial = {"method": "er", "settings": {"lr": 0.01}, "imiou": 45.25}
    >>> tuning({"recipe": "r", "split": "holdout", "trials": [trial], "chosen": {"er": {"lr": 0.01}}})["rows"]
    [('er', 'lr 0.01', 45.25, True)]
    """
    if not isinstance(told, Mapping) or not isinstance(told.get("trials"), list):
        return None
    chosen = section(told, "chosen")
    rows = []
    for trial in told["trials"]:
        if isinstance(trial, Mapping) and isinstance(trial.get("settings"), Mapping):
            method, settings, score = str(trial.get("method", "")), trial["settings"], trial.get("imiou")
            number = float(score) if isinstance(score, int | float) else None
            rows.append((method, _plain(settings), number, chosen.get(method) == settings))
    return {"recipe": told.get("recipe", ""), "split": told.get("split", ""), "rows": rows} if rows else None


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(v) for v in value) or "none"
    return "–" if value is None else str(value)
