"""Many experiments side by side: a grid of recipes, methods and seeds, on this machine or on a Ray cluster."""

from __future__ import annotations

from segstream.compare.asked import Asked
from segstream.compare.grid import Comparison, Round
from segstream.compare.pool import Pool
from segstream.compare.tasks import Ended, Failed, LeftOut, Moved, Started, Task, Warned

__all__ = ["Asked", "Comparison", "Ended", "Failed", "LeftOut", "Moved", "Pool", "Round", "Started", "Task", "Warned"]
