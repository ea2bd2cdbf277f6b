"""A plug-in folder is its registry: one file is one plug-in, and its file name is its name.

The first name in a module's `__all__` is the plug-in itself. Packages of other people add theirs by an entry point
in the group `segstream.<kind>` that points at such an object.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import Any

__all__ = ["KINDS", "available", "load"]

KINDS = {
    "methods": "segstream.methods",
    "datasets": "segstream.data.datasets",
    "networks": "segstream.models.networks",
    "policies": "segstream.memory.policies",
}


def _package(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"There is no kind of plug-in {kind!r}; the kinds are {', '.join(KINDS)}.")
    return KINDS[kind]


def available(kind: str) -> list[str]:
    """Names of all plug-ins of a kind, without importing them.

    >>> {"class_balanced", "reservoir"} <= set(available("policies"))
    True
    """
    package = importlib.import_module(_package(kind))
    own = {m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")}
    return sorted(own | {p.name for p in entry_points(group=f"segstream.{kind}")})


def load(kind: str, name: str) -> Any:
    """The plug-in of that name.

    >>> load("methods", "em").__name__
    'EM'
    """
    names = available(kind)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"There is no {kind.removesuffix('s')} {name!r}.{hint} Known: {', '.join(names)}.".replace(
                "policie", "policy"
            )
        )
    for point in entry_points(group=f"segstream.{kind}"):
        if point.name == name:
            return point.load()
    module = importlib.import_module(f"{_package(kind)}.{name}")
    exported = getattr(module, "__all__", ())
    if not exported:
        raise TypeError(f"{module.__name__} needs an `__all__` whose first name is the plug-in.")
    return getattr(module, exported[0])
