"""Textures: planes of brightness around 1, or of 0 and 1, from an object's own coordinates.

The random ones are looked up in tiles of 256 x 256 that are made once: one gather instead of octaves of noise.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from segstream.data.scenery.dice import Dice
from segstream.data.scenery.shapes import Plane

__all__ = ["TILE", "bricks", "checks", "dots", "lookup", "scales", "stripes", "tile", "wave"]

TILE = 256  # a power of two: positions wrap by a bit mask


def wave(t: Plane) -> Plane:
    """Close to sin(2 pi t), from two parabolas: the same bits everywhere.

    >>> wave(np.float32([0.0, 0.25, 0.625, 0.75])).tolist()
    [0.0, 1.0, -0.75, -1.0]
    """
    z = t - np.floor(t + 0.5)
    bent: Plane = z * (8.0 - 16.0 * np.abs(z))
    return bent


def stripes(t: Plane, *, share: float = 0.5) -> Plane:
    """1 on the first `share` of each period of 1, else 0.

    >>> stripes(np.float32([0.1, 0.6, 1.2])).tolist()
    [1.0, 0.0, 1.0]
    """
    return (t - np.floor(t) < share).astype(np.float32)


def checks(s: Plane, t: Plane) -> Plane:
    """A chess board of fields of side 1.

    >>> checks(np.float32([0.5, 1.5]), np.float32([0.5, 0.5])).tolist()
    [0.0, 1.0]
    """
    return _odd(np.floor(s) + np.floor(t))


def dots(s: Plane, t: Plane, *, radius: float) -> Plane:
    """1 on discs in a staggered grid of period 1.

    >>> dots(np.float32([0.5, 0.0]), np.float32([0.5, 0.0]), radius=0.3).tolist()
    [1.0, 0.0]
    """
    row = np.floor(t)
    ds = s + 0.5 * _odd(row)
    ds = ds - np.floor(ds) - 0.5
    dt = t - row - 0.5
    return (ds * ds + dt * dt < radius * radius).astype(np.float32)


def bricks(s: Plane, t: Plane, *, joint: float = 0.16) -> Plane:
    """0 on the joints, else about 1, each brick a little different; bricks are 2 wide and 1 high.

    >>> bricks(np.float32([1.0]), np.float32([0.05])).tolist()
    [0.0]
    """
    row = np.floor(t)
    across = s * 0.5 + 0.5 * _odd(row)
    column = np.floor(across)
    lines = (t - row > joint) & (across - column > joint * 0.5)
    mix = (row.astype(np.int32) * 73 + column.astype(np.int32) * 151) & 7
    return lines * (0.86 + 0.04 * mix.astype(np.float32))


def scales(s: Plane, t: Plane) -> Plane:
    """Overlapping round scales: bright in the middle, dark at the rim.

    >>> 0.5 < float(scales(np.float32([0.5]), np.float32([0.5]))[0]) <= 1.2
    True
    """
    row = np.floor(t)
    ds = s + 0.5 * _odd(row)
    ds = ds - np.floor(ds) - 0.5
    dt = t - row
    rim = 4.0 * ds * ds + dt * dt
    return np.where(rim > 0.85, 0.55, 1.2 - 0.35 * rim)


def _odd(row: Plane) -> Plane:
    odd: Plane = row - 2.0 * np.floor(row * 0.5)
    return odd


def lookup(kind: str, s: Plane, t: Plane, *, frequency: float, shift: tuple[float, float] = (0.0, 0.0)) -> Plane:
    """The tile's value (0 to 1) at (s, t); the tile repeats after TILE / frequency.

    >>> lookup("cloud", np.float32([0.0]), np.float32([0.0]), frequency=10).shape
    (1,)
    """
    column = (s * frequency + np.float32(shift[0])).astype(np.int32)
    row = (t * frequency + np.float32(shift[1])).astype(np.int32)
    column &= TILE - 1
    row &= TILE - 1
    row *= TILE
    row += column
    return tile(kind).ravel().take(row)


@cache
def tile(kind: str) -> Plane:
    """A tile that repeats seamlessly: `cloud`, `grain`, `fur` (streaks along t) or `leaf` (cells of 13 pixels).

    >>> tile("leaf").shape
    (256, 256)
    """
    makers = {"cloud": _cloud, "grain": _grain, "fur": _fur, "leaf": _leaf}
    made: Plane = makers[kind](Dice(20_211, sorted(makers).index(kind)))
    low, high = made.min(), made.max()
    made -= low
    made /= high - low
    made.setflags(write=False)
    return made


def _cloud(dice: Dice) -> Plane:
    total = np.zeros((TILE, TILE), np.float32)
    for cells, height in ((4, 1.0), (8, 0.55), (16, 0.3), (32, 0.17), (64, 0.09)):
        lattice = dice.bytes((cells, cells)).astype(np.float32)
        total += _stretch(_stretch(lattice).T).T * height
    return total


def _stretch(lattice: Plane) -> Plane:
    """The rows of a lattice interpolated to TILE rows, wrapping round."""
    cells = len(lattice)
    place = np.arange(TILE, dtype=np.float32) * (cells / TILE)
    low = place.astype(np.int32)
    share = (place - low)[:, None]
    share = share * share * (3.0 - 2.0 * share)
    rows: Plane = lattice[low] * (1.0 - share) + lattice[(low + 1) % cells] * share
    return rows


def _grain(dice: Dice) -> Plane:
    noise = dice.bytes((TILE, TILE)).astype(np.float32)
    return noise * 2.0 + np.roll(noise, 1, 0) + np.roll(noise, 1, 1)


def _fur(dice: Dice) -> Plane:
    noise = dice.bytes((TILE, TILE)).astype(np.float32)
    total = noise.copy()
    for step in range(1, 14):
        total += np.roll(noise, step, 0)
    return total + np.roll(total, 1, 1) * 0.5


def _leaf(dice: Dice) -> Plane:
    """Distance to the nearest of jittered points, every cell with a brightness of its own."""
    cells = 20
    jitter: npt.NDArray[np.float32] = dice.bytes((3, cells, cells)).astype(np.float32) * (1 / 256)
    grid = np.arange(TILE, dtype=np.float32) * (cells / TILE)
    own = grid.astype(np.int32)
    nearest = np.full((TILE, TILE), 9.0, np.float32)
    bright = np.zeros((TILE, TILE), np.float32)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            rows, columns = ((own + dy) % cells)[:, None], ((own + dx) % cells)[None, :]
            py = jitter[0][rows, columns] + (own + dy)[:, None].astype(np.float32) - grid[:, None]
            px = jitter[1][rows, columns] + (own + dx)[None, :].astype(np.float32) - grid[None, :]
            distance = px * px + py * py
            closer = distance < nearest
            nearest = np.where(closer, distance, nearest)
            bright = np.where(closer, jitter[2][rows, columns], bright)
    return bright * 0.7 - np.sqrt(nearest) * 0.9
