"""The classes, in the order of their numbers in a mask."""

from __future__ import annotations

from segstream.data.scenery.animals import ANIMALS
from segstream.data.scenery.outings import OUTINGS
from segstream.data.scenery.plants import PLANTS
from segstream.data.scenery.stamp import Kind
from segstream.data.scenery.things import THINGS

__all__ = ["OBJECTS"]

OBJECTS: dict[str, Kind] = PLANTS | OUTINGS | THINGS | ANIMALS
