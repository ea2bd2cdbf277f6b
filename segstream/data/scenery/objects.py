"""The classes: how each is drawn, how large it is, and where it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from segstream.data.scenery.animals import cat, fish
from segstream.data.scenery.dice import Dice
from segstream.data.scenery.outings import balloon, boat, car, kite, umbrella
from segstream.data.scenery.plants import cactus, flower, mushroom, tree
from segstream.data.scenery.stamp import Stamp
from segstream.data.scenery.things import book, clock, cup, house, lamp

__all__ = ["OBJECTS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """A class of objects.

    draw   paints one on a stamp
    reach  half width and half height of what it paints, in its own units
    size   smallest and largest longer side, as a share of the picture's shorter side
    tilt   degrees that it may lean to either side
    shadow whether it throws one on what it stands on

    >>> OBJECTS["car"].reach
    (1.0, 0.57)
    """

    draw: Callable[[Stamp, Dice], None]
    reach: tuple[float, float]
    size: tuple[float, float]
    tilt: float
    shadow: bool = True


OBJECTS: dict[str, Kind] = {
    "tree": Kind(tree, (0.92, 1.0), (0.32, 0.48), 6),
    "house": Kind(house, (0.97, 1.0), (0.32, 0.48), 4),
    "car": Kind(car, (1.0, 0.57), (0.28, 0.45), 8),
    "cat": Kind(cat, (0.92, 1.0), (0.26, 0.42), 12),
    "flower": Kind(flower, (0.80, 1.05), (0.30, 0.46), 18),
    "mushroom": Kind(mushroom, (1.0, 0.9), (0.24, 0.42), 16),
    "umbrella": Kind(umbrella, (1.0, 1.0), (0.28, 0.45), 30),
    "balloon": Kind(balloon, (0.82, 1.0), (0.28, 0.45), 12, shadow=False),
    "kite": Kind(kite, (0.72, 1.0), (0.30, 0.46), 50, shadow=False),
    "boat": Kind(boat, (1.0, 1.0), (0.30, 0.46), 10, shadow=False),
    "fish": Kind(fish, (1.0, 0.66), (0.26, 0.45), 35, shadow=False),
    "cactus": Kind(cactus, (0.80, 1.0), (0.28, 0.45), 8),
    "cup": Kind(cup, (0.97, 0.78), (0.22, 0.38), 12),
    "lamp": Kind(lamp, (0.72, 1.0), (0.30, 0.46), 6),
    "clock": Kind(clock, (0.80, 1.0), (0.24, 0.40), 15),
    "book": Kind(book, (1.02, 0.72), (0.26, 0.42), 25),
}
