"""A recipe's data: the dataset with its lists, and which classes come when."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from segstream import plugins
from segstream.data import Scenario, Splits
from segstream.data.source import DataError, Told, hold_back, unheard
from segstream.sections import DataSettings, ScenarioSettings

__all__ = ["make_scenario", "open_splits"]


def open_splits(section: DataSettings, *, images: bool = True, told: Told = unheard) -> Splits:
    """The dataset, some of its training list held back if the recipe says so.

    images  false: masks and lists are enough, where the dataset can do without pictures
    told    hears how far a download or the reading of all masks has come

    >>> open_splits(DataSettings(dataset="scenes", train_size=10, val_size=1, test_size=1, holdout=0.2)).holdout.ids[0]
    'train-00001'
    """
    opener = plugins.load("datasets", section.dataset)
    known = inspect.signature(opener).parameters
    if section.download and "download" not in known:
        raise DataError(f"The dataset {section.dataset!r} cannot be downloaded; leave data.download out.")
    more = {"download": section.download, "images": images, "told": told}
    found: Splits = opener(
        root=section.root,
        train_size=section.train_size,
        val_size=section.val_size,
        test_size=section.test_size,
        image_size=tuple(section.image_size),
        seed=section.seed,
        **{key: value for key, value in more.items() if key in known},
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
    more: dict[str, Any] = {key: getattr(section, key) for key in ("rule", "max_images", "files", "seed")}
    if section.split:
        return Scenario.split(names, section.split, **more)
    return Scenario(section.base, section.stages, **more)
