"""Kinds of scenes: which backdrop, which objects in which company, and where they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PLACES", "Place"]


@dataclass(frozen=True)
class Place:
    """A kind of scene.

    weight    how often it occurs
    uprights  backdrops of the part above the horizon;  grounds: of the part below
    horizon   where that is, as a share of the height
    objects   how likely each class is here
    clutter   what else stands about
    air       classes that hang above the horizon;  sunk: classes that lie anywhere below it. All others stand.

    >>> PLACES["sea"].grounds
    ('water',)
    """

    weight: float
    uprights: tuple[str, ...]
    grounds: tuple[str, ...]
    horizon: tuple[float, float]
    objects: Mapping[str, float]
    clutter: tuple[str, ...]
    air: frozenset[str] = field(default=frozenset({"kite", "balloon"}))
    sunk: frozenset[str] = field(default=frozenset())


PLACES: dict[str, Place] = {
    "street": Place(
        1.2,
        ("skyline", "sky", "bricks"),
        ("road",),
        (0.34, 0.50),
        {"car": 4, "house": 2.5, "tree": 2, "umbrella": 2, "cat": 1.5, "balloon": 0.5, "clock": 0.8},
        ("post", "cone", "crate", "ball"),
    ),
    "park": Place(
        1.1,
        ("sky", "hills", "woods"),
        ("grass",),
        (0.32, 0.50),
        {"tree": 3, "flower": 2.5, "kite": 1.5, "cat": 1.5, "umbrella": 1.2, "book": 1.5, "lamp": 1, "house": 0.7},
        ("rock", "ball", "tuft", "post"),
    ),
    "forest": Place(
        1.0,
        ("woods", "hills"),
        ("grass", "sand"),
        (0.30, 0.48),
        {"mushroom": 4, "flower": 2, "tree": 2.5, "house": 1.5, "cat": 0.7, "clock": 0.6},
        ("rock", "tuft"),
    ),
    "sea": Place(
        1.2,
        ("sky", "hills"),
        ("water",),
        (0.30, 0.48),
        {"boat": 5, "fish": 4, "kite": 0.8, "balloon": 1, "umbrella": 0.6},
        ("ball", "post", "rock"),
        sunk=frozenset({"fish"}),
    ),
    "beach": Place(
        1.0,
        ("sky", "hills"),
        ("sand",),
        (0.30, 0.46),
        {"umbrella": 2.5, "kite": 1.5, "boat": 2.5, "fish": 1.8, "book": 1.2, "cup": 0.8, "cactus": 0.8},
        ("ball", "rock", "cushion", "post"),
    ),
    "desert": Place(
        1.1,
        ("sky", "hills"),
        ("sand",),
        (0.32, 0.50),
        {"cactus": 5, "car": 2, "balloon": 1.5, "house": 1, "kite": 0.6, "lamp": 0.5, "mushroom": 0.5},
        ("rock", "crate", "tuft"),
    ),
    "kitchen": Place(
        1.2,
        ("tiles", "paper"),
        ("boards", "cloth"),
        (0.34, 0.52),
        {"cup": 4, "clock": 3.5, "fish": 1.5, "mushroom": 1.5, "lamp": 2, "cat": 0.8, "flower": 1},
        ("bottle", "crate", "ball"),
    ),
    "study": Place(
        1.2,
        ("paper", "bricks"),
        ("boards", "cloth"),
        (0.34, 0.52),
        {"book": 4, "lamp": 4, "clock": 3, "cup": 2, "cat": 1, "cactus": 2, "flower": 1},
        ("bottle", "cushion", "ball", "crate"),
    ),
    "fair": Place(
        0.9,
        ("sky", "hills"),
        ("grass", "road"),
        (0.50, 0.66),
        {"balloon": 2.5, "kite": 2.5, "car": 1.5, "tree": 1.2, "house": 0.8, "umbrella": 1.2, "boat": 0.6, "cat": 0.7},
        ("post", "tuft", "ball"),
    ),
}
