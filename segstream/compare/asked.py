"""What a comparison is asked to be, and its recipes, resolved. Nothing here opens data or imports PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segstream.compare.rows import Spec
from segstream.config import load_recipe

__all__ = ["Asked", "open_recipes", "open_trials"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a comparison is asked to be.

    recipes           names or files;  changes: `section.key=value`, for all of them;  capacity: each recipe once for
                      every such size of the memory
    methods           rows, as `segstream.compare.rows` reads them
    seeds             runs of each row;  method_seeds: other numbers, `er=2,lwf=2`;  other_view_seeds: of a method's
                      losing view;  vary_base: a base of its own for every seed
    tune              search first, on `tune_on` (default: the first recipe);  settings: a file that a search wrote
    keep_models       leave the trained methods in the run folders;  cache: where bases are kept
    title, command    for the report

    >>> Asked(recipes=["demo"], methods="em,er", out=Path("runs/compare")).seeds
    1
    """

    recipes: Sequence[str]
    methods: str
    out: Path
    changes: Sequence[str] = ()
    capacity: Sequence[int] = ()
    seeds: int = 1
    method_seeds: str | None = None
    other_view_seeds: int = 1
    vary_base: bool = False
    tune: bool = False
    tune_on: str | None = None
    settings: Path | None = None
    keep_models: bool = False
    cache: Path | None = None
    title: str = ""
    command: Sequence[str] = ()


def open_recipes(asked: Asked, specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """For every recipe and size of the memory what planning needs to know.

    name      what cells are called after;  recipe: its name, whatever the size
    variants  the recipe, resolved once for every set of changes that rows make;  plain: the same in its own size, for
              rows that keep no memory

    >>> asked = Asked(recipes=["demo"], methods="er", out=Path("x"), capacity=(50, 20))
    >>> [table["name"] for table in open_recipes(asked, [Spec("er")])]
    ['demo', 'demo+20']
    """
    tables: list[dict[str, Any]] = []
    for source in asked.recipes:
        own = load_recipe(source, asked.changes)
        if own.name in {table["recipe"] for table in tables}:
            raise ValueError(f"Two recipes are called {own.name!r}; cells are named after them.")
        plain = _variants(asked, source, specs)
        for size in list(dict.fromkeys(asked.capacity)) or [own.memory.capacity]:
            other = size != own.memory.capacity
            more = [f"memory.capacity={size}"] if other else []
            tables.append(
                {
                    "recipe": own.name,
                    "name": f"{own.name}+{size}" if other else own.name,
                    "plain": plain,
                    "variants": _variants(asked, source, specs, more),
                }
            )
    return tables


def _variants(asked: Asked, source: str, specs: Sequence[Spec], more: Sequence[str] = ()) -> dict[str, Any]:
    sets = {tuple(sorted(spec.overrides)) for spec in specs} | {()}
    return {
        json.dumps(list(changes)): load_recipe(source, [*asked.changes, *more, *changes]).to_dict()
        for changes in sorted(sets)
    }


def open_trials(asked: Asked) -> dict[str, Any]:
    """The recipe that is tuned on, with pictures to score that the table does not use."""
    source = asked.tune_on or asked.recipes[0]
    recipe = load_recipe(source, asked.changes)
    split = recipe.tune.split or "holdout"
    if split == recipe.data.split:
        raise ValueError(f"{recipe.name} would be tuned on {split!r}, the list that is scored; set tune.split.")
    changes = [f"data.split={split}"]
    changes += [] if recipe.tune.split else [f"data.holdout={recipe.tune.holdout}"]
    trial = load_recipe(source, [*asked.changes, *changes])
    return {"recipe": recipe.name, "split": split, "variants": {"[]": trial.to_dict()}}
