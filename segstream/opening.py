"""A recipe's data: the dataset with its lists, and which classes come when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segstream import plugins
from segstream.data import Scenario, Splits
from segstream.data.source import hold_back
from segstream.sections import DataSettings, ScenarioSettings

__all__ = ["make_scenario", "open_splits"]


def open_splits(section: DataSettings) -> Splits:
    """The dataset, some of its training list held back if the recipe says so.

    >>> open_splits(DataSettings(dataset="scenes", train_size=10, val_size=1, test_size=1, holdout=0.2)).holdout.ids[0]
    'train-00001'
    """
    more = {"download": True} if section.download else {}
    found: Splits = plugins.load("datasets", section.dataset)(
        root=section.root,
        train_size=section.train_size,
        val_size=section.val_size,
        test_size=section.test_size,
        image_size=tuple(section.image_size),
        seed=section.seed,
        **more,
    )
    if not section.holdout:
        return found
    rest, held = hold_back(found.train, fraction=section.holdout)
    return Splits(rest, found.val, found.test, held)


def make_scenario(section: ScenarioSettings, names: Sequence[str]) -> Scenario:
    """The scenario that a recipe names, over the dataset's classes.

    >>> make_scenario(ScenarioSettings(split="1-1"), ["background", "cat", "dog"]).stages
    (('dog',),)
    """
    more: dict[str, Any] = {"rule": section.rule, "max_images": section.max_images}
    if section.rule in ("files", "generated"):
        more |= {"files": section.files, "seed": section.seed}
    if section.split:
        return Scenario.split(names, section.split, **more)
    return Scenario(section.base, section.stages, **more)
