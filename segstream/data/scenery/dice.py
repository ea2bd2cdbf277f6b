"""The only source of chance in a picture, and the colours it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["PAINT", "Color", "Dice", "turn"]

T = TypeVar("T")
Color = tuple[float, float, float]

# Paint that any object may wear: the class of a thing is not to be told from its colour.
PAINT: tuple[Color, ...] = (
    (0.82, 0.20, 0.18),
    (0.93, 0.46, 0.20),
    (0.95, 0.75, 0.25),
    (0.62, 0.72, 0.24),
    (0.27, 0.58, 0.30),
    (0.16, 0.55, 0.52),
    (0.30, 0.68, 0.82),
    (0.20, 0.38, 0.74),
    (0.42, 0.30, 0.66),
    (0.70, 0.36, 0.66),
    (0.92, 0.55, 0.62),
    (0.55, 0.34, 0.22),
    (0.76, 0.62, 0.45),
    (0.93, 0.90, 0.82),
    (0.66, 0.68, 0.70),
    (0.30, 0.32, 0.36),
)


def turn(degrees: float) -> tuple[float, float]:
    """Cosine and sine of an angle, rounded so far that the mathematics library of the system does not show.

    >>> turn(90.0)
    (0.0, 1.0)
    """
    angle = math.radians(degrees)
    return round(math.cos(angle), 9) + 0.0, round(math.sin(angle), 9) + 0.0


class Dice:
    """Random numbers that depend on `keys` alone.

    They are made from the raw stream of PCG64, which NumPy promises never to change; of what its Generator makes
    from that stream it promises nothing.

    >>> Dice(3, 0, 7).between(0.0, 1.0) == Dice(3, 0, 7).between(0.0, 1.0)
    True
    """

    def __init__(self, *keys: int) -> None:
        self._stream = np.random.PCG64(np.random.SeedSequence(keys))

    def unit(self) -> float:
        """A number from 0 up to, but not including, 1."""
        return (self._stream.random_raw() >> 11) * 2.0**-53

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def chance(self, probability: float) -> bool:
        return self.unit() < probability

    def below(self, count: int) -> int:
        return int(self.unit() * count)

    def sign(self) -> float:
        return 1.0 if self.unit() < 0.5 else -1.0

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted(self, weights: Mapping[str, float]) -> str:
        """A key, as often as its weight says."""
        point = self.unit() * math.fsum(weights.values())
        for name, weight in weights.items():
            point -= weight
            if point < 0.0:
                return name
        return next(reversed(list(weights)))

    def color(self, choices: Sequence[Color] = PAINT, *, spread: float = 0.07) -> Color:
        """One of the colours, each channel moved a little and all of them made lighter or darker together."""
        red, green, blue = self.pick(choices)
        lift = self.between(-0.10, 0.10)
        return (
            _clamp(red + lift + self.between(-spread, spread)),
            _clamp(green + lift + self.between(-spread, spread)),
            _clamp(blue + lift + self.between(-spread, spread)),
        )

    def pair(self, choices: Sequence[Color] = PAINT) -> tuple[Color, Color]:
        """Two colours that can be told apart."""
        first = self.color(choices)
        for _ in range(8):
            second = self.color(choices)
            if sum(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.55:
                return first, second
        return first, (_clamp(1.0 - first[0]), _clamp(1.0 - first[1]), _clamp(1.0 - first[2]))

    def bytes(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """Bytes, each value as likely."""
        count = math.prod(shape)
        raw = self._stream.random_raw(count // 8 + 1).astype("<u8", copy=False)
        return raw.view(np.uint8)[:count].reshape(shape)


def _clamp(value: float) -> float:
    return min(0.97, max(0.04, value))
