"""From what was asked for to cells: opens every recipe's data once, checks every setting, writes nothing.

This runs in a process of its own, as everything does that needs PyTorch: plain data in, plain data out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from segstream import plugins
from segstream.compare.plan import Base, Cell, cell_name, key_of
from segstream.compare.rows import JOINT, Facts, Row, Spec, expand
from segstream.config import Recipe
from segstream.data.source import DataError
from segstream.experiment import Experiment
from segstream.memory import Memory
from segstream.method import Method, create
from segstream.models import Segmenter
from segstream.online import Tell
from segstream.schema import build

__all__ = ["facts_of", "make_plan"]

PICTURES = 6  # of the first run of each row: what the report shows
# Made for a run by the experiment, from its recipe: of a method's settings these two decide nothing by themselves.
FROM_RECIPE = ("seed", "augment")
NOT_OPENED = ("name", "title", "memory", "methods", "tune")  # sections that change nothing of data and bases


def facts_of(name: str) -> Facts:
    """What rows need to know of a method.

    >>> facts_of("er").views
    ('ignore', 'background')
    """
    cls: type[Method] = plugins.load("methods", name)
    hints, names = get_type_hints(cls), cls.setting_names()
    kinds = {key: hints[key] for key in names}
    view = kinds.get("view")
    return Facts(
        name,
        kinds=kinds,
        defaults={key: value for key, value in _probe(name, {}).items() if key not in FROM_RECIPE},
        views=get_args(view) if get_origin(view) is Literal else (),
        memory=cls.default_policy is not None,
        tunable={key: tuple(values) for key, values in getattr(cls, "tunable", {}).items()},
    )


def make_plan(request: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Rows and cells of every table, or the trials of a search.

    request   `specs`: rows as written;  `tables`: a recipe each, resolved once for every set of changes that rows
              make;  `chosen`, `seeds`, `method_seeds`, `other_view_seeds`, `vary_base`;  `trials`: instead of tables,
              the recipe to tune on
    """
    specs = [Spec(s["method"], s["settings"], tuple(s["overrides"]), s["word"]) for s in request["specs"]]
    names = {spec.method for spec in specs} - {JOINT} | ({"er"} & set(plugins.available("methods")))
    facts = {name: facts_of(name) for name in sorted(names)}
    bases = _Bases(None if request["cache"] is None else Path(request["cache"]), tell)
    answer: dict[str, Any] = {"defaults": {name: fact.defaults for name, fact in facts.items()}}
    if (trials := request.get("trials")) is not None:
        for table in request["tables"]:  # what is wrong with a row is said before anything is tried
            _rows(specs, facts, table, request)
        methods = dict.fromkeys(spec.method for spec in specs if spec.method != JOINT)
        answer["trials"] = {name: _trials(facts[name], trials, bases) for name in methods}
        return answer
    rows: dict[str, Row] = {}
    cells: dict[str, Cell] = {}
    for table in request["tables"]:
        for row in _rows(specs, facts, table, request):
            rows.setdefault(row.label, row)
            for cell in _cells(row, facts.get(row.method), table, bases, vary_base=request["vary_base"]):
                cells.setdefault(cell.id, cell)
    answer["rows"] = [row.to_json() for row in rows.values()]
    answer["cells"] = [cell.to_json() for cell in cells.values()]
    return answer


def _rows(
    specs: Sequence[Spec], facts: Mapping[str, Facts], table: Mapping[str, Any], request: Mapping[str, Any]
) -> list[Row]:
    recipe = _recipe(table, ())
    rows = expand(
        specs,
        facts,
        recipe=recipe.methods,
        chosen=request["chosen"],
        seeds=request["seeds"],
        method_seeds=request["method_seeds"],
        other_view_seeds=request["other_view_seeds"],
    )
    for row in rows:
        if row.method != JOINT:  # impossible values are refused by the method, and by the memory itself
            own = _recipe(table, row.overrides)
            _settings(row.method, own, row.settings)
            Memory(capacity=own.memory.capacity, policy=own.memory.policy or "reservoir")
    return rows


def _recipe(table: Mapping[str, Any], overrides: Iterable[str], form: str = "variants") -> Recipe:
    return build(Recipe, table[form][json.dumps(sorted(overrides))], source=table["recipe"])


def _cells(row: Row, fact: Facts | None, table: Mapping[str, Any], bases: _Bases, *, vary_base: bool) -> Iterable[Cell]:
    keeps = fact is not None and fact.memory  # without a memory its size does not matter: the same cells every time
    recipe = _recipe(table, row.overrides, "variants" if keeps else "plain")
    name = table["name"] if keeps else table["recipe"]
    for number in range(row.seeds):
        seed = recipe.run.seed + number
        identity = cell_name(name, row.label, str(seed))
        yield _cell(identity, row, recipe, bases, seed=seed, vary_base=vary_base, first=not number)


def _cell(
    name: str, row: Row, recipe: Recipe, bases: _Bases, *, seed: int, vary_base: bool, first: bool, group: str = "cells"
) -> Cell:
    config = recipe.to_dict()
    settings = {} if row.method == JOINT else _settings(row.method, recipe, row.settings)
    base_seed = seed if vary_base else recipe.run.seed
    base = None if row.method == JOINT else bases.of(recipe, row, seed=base_seed)
    bases.check(recipe)
    return Cell(
        id=name,
        recipe=recipe.name,
        title=recipe.title,
        config=config,
        row=row.label,
        role=row.role,
        method=row.method,
        given=row.given,
        settings=settings,
        seed=seed,
        split=recipe.data.split,
        base=base,
        group=group,
        pictures=PICTURES if first and group == "cells" else 0,
        key=key_of(config, row.method, settings, seed=seed, base_seed=None if base is None else base.seed),
    )


def _settings(name: str, recipe: Recipe, own: Mapping[str, Any]) -> dict[str, Any]:
    """All settings that decide numbers, checked by the method."""
    given = {**recipe.methods.get(name, {}), **own}
    return {key: value for key, value in _probe(name, given).items() if key not in FROM_RECIPE or key in given}


def _probe(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return create(name, Segmenter.create("tiny", weights=None), settings=settings).settings()


def _trials(fact: Facts, table: Mapping[str, Any], bases: _Bases) -> dict[str, Any]:
    """The values of each axis, and for every combination of them its cell."""
    recipe = _recipe(table, ())
    axes = {"lr": list(recipe.tune.lr), **{key: list(values) for key, values in fact.tunable.items()}}
    below = {**fact.defaults, **recipe.methods.get(fact.name, {})}
    cells = []
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        label = " ".join([fact.name, *(f"{key}={value}" for key, value in settings.items())])
        row = Row(fact.name, label, settings, role="trial")
        name = cell_name(recipe.name, label)
        cells.append(
            _cell(name, row, recipe, bases, seed=recipe.run.seed, vary_base=False, first=False, group="tuning")
        )
    start = {key: below[key] for key in axes}
    return {"axes": axes, "start": start, "budget": recipe.tune.budget, "cells": [cell.to_json() for cell in cells]}


class _Bases:
    """Data opened once for all recipes that differ only in what the data do not know; names of base trainings."""

    def __init__(self, cache: Path | None, tell: Tell) -> None:
        self.cache = cache
        self.tell = tell
        self._opened: dict[str, Experiment] = {}
        self._names: dict[tuple[str, str, str, int], str] = {}

    def _open(self, recipe: Recipe) -> tuple[str, Experiment]:
        told = {key: value for key, value in asdict(recipe).items() if key not in NOT_OPENED}
        key = json.dumps(told, sort_keys=True)
        if key not in self._opened:
            self._opened[key] = Experiment(recipe, cache=self.cache, progress=self.tell)
        return key, self._opened[key]

    def check(self, recipe: Recipe) -> None:
        """What a run would stumble over after its base training is said before it."""
        _, experiment = self._open(recipe)
        experiment.stream(seed=recipe.run.seed)
        if not len(experiment.test_set(0, recipe.data.split)):
            raise DataError(
                f"The split {recipe.data.split!r} of {recipe.name} has no picture with a base class, "
                "so nothing could be scored."
            )

    def of(self, recipe: Recipe, row: Row, *, seed: int) -> Base:
        settings = {**recipe.methods.get(row.method, {}), **row.settings}
        probe = create(row.method, Segmenter.create("tiny", weights=None), settings=settings)
        head, loss = probe.head() or recipe.network.head, probe.base_loss
        key, experiment = self._open(recipe)
        place = (key, head, loss, seed)
        if place not in self._names:
            self._names[place] = experiment.base_folder(head=head, loss=loss, seed=seed).name
        return Base(self._names[place], head, loss, seed)
