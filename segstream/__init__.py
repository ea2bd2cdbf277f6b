"""segstream: teach a segmentation model new classes while it runs, without forgetting the old ones.

The names below are loaded on first use, so that `import segstream` and `segstream --help` cost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Batch": "segstream.types",
    "ClassTable": "segstream.classes",
    "Memory": "segstream.memory",
    "NewClasses": "segstream.types",
    "Prediction": "segstream.types",
    "Sample": "segstream.types",
    "Scenario": "segstream.data",
    "Segmenter": "segstream.models",
    "Stream": "segstream.data",
    "load": "segstream.method",
    "run": "segstream.engine",
}

__all__ = [
    "Batch",
    "ClassTable",
    "Memory",
    "NewClasses",
    "Prediction",
    "Sample",
    "Scenario",
    "Segmenter",
    "Stream",
    "__version__",
    "load",
    "run",
]

if TYPE_CHECKING:
    from segstream.classes import ClassTable
    from segstream.data import Scenario, Stream
    from segstream.engine import run
    from segstream.memory import Memory
    from segstream.method import load
    from segstream.models import Segmenter
    from segstream.types import Batch, NewClasses, Prediction, Sample


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'segstream' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
