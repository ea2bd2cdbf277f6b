"""What is kept of a stream: exemplars, and the rules by which they stay.

The names are loaded on first use, so that listing the policies by name needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Drawn": "segstream.memory.memory",
    "Memory": "segstream.memory.memory",
    "Evidence": "segstream.memory.selection",
    "Policy": "segstream.memory.policy",
    "Selection": "segstream.memory.selection",
}

__all__ = ["Drawn", "Evidence", "Memory", "Policy", "Selection"]

if TYPE_CHECKING:
    from segstream.memory.memory import Drawn, Memory
    from segstream.memory.policy import Policy
    from segstream.memory.selection import Evidence, Selection


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'segstream.memory' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
