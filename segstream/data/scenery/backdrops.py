"""What lies behind the objects: skies, walls, grounds and waters. All of it is background (slot 0)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from segstream.data.scenery.dice import Color, Dice
from segstream.data.scenery.shapes import Plane
from segstream.data.scenery.textures import TILE, bricks, checks, dots, stripes, tile, wave

__all__ = ["GROUNDS", "UPRIGHTS", "Area"]

SKIES: tuple[tuple[Color, Color], ...] = (
    ((0.35, 0.58, 0.86), (0.80, 0.89, 0.95)),
    ((0.55, 0.72, 0.88), (0.93, 0.91, 0.84)),
    ((0.48, 0.44, 0.62), (0.97, 0.72, 0.52)),
    ((0.62, 0.65, 0.69), (0.82, 0.83, 0.84)),
    ((0.16, 0.20, 0.36), (0.42, 0.44, 0.58)),
)
WALLS: tuple[Color, ...] = (
    (0.86, 0.80, 0.68),
    (0.66, 0.74, 0.70),
    (0.72, 0.64, 0.60),
    (0.56, 0.62, 0.72),
    (0.80, 0.62, 0.52),
    (0.60, 0.56, 0.50),
    (0.90, 0.88, 0.84),
)
GRASS: tuple[Color, ...] = ((0.40, 0.58, 0.26), (0.52, 0.60, 0.30), (0.30, 0.46, 0.26), (0.66, 0.60, 0.34))
SAND: tuple[Color, ...] = ((0.86, 0.76, 0.56), (0.78, 0.62, 0.44), (0.80, 0.56, 0.40), (0.88, 0.84, 0.74))
WATER: tuple[Color, ...] = ((0.20, 0.46, 0.62), (0.24, 0.58, 0.62), (0.30, 0.38, 0.52), (0.40, 0.60, 0.70))
BOARDS: tuple[Color, ...] = ((0.60, 0.42, 0.26), (0.76, 0.60, 0.42), (0.42, 0.30, 0.22), (0.64, 0.58, 0.52))
STONE: tuple[Color, ...] = ((0.42, 0.42, 0.44), (0.52, 0.50, 0.48), (0.34, 0.35, 0.38))


@dataclass(frozen=True)
class Area:
    """A part of the picture as high as one backdrop, to be painted in place.

    rgb  [3 h W] a view into the picture
    x    [1 W]   to the right, and y [h 1] down from the area's top, both in shorter sides of the picture
    far  [h 1]   1 at the bottom of the area, 0 at its top

    >>> area = Area.of(np.zeros((3, 10, 20), np.float32), 4, 10)
    >>> area.rgb.shape, area.x.shape, area.far.shape
    ((3, 6, 20), (1, 20), (6, 1))
    """

    rgb: Plane
    x: Plane
    y: Plane
    far: Plane

    @classmethod
    def of(cls, picture: Plane, top: int, bottom: int) -> Area:
        side, high = min(picture.shape[1:]), max(bottom - top, 1)
        rows = np.arange(max(bottom - top, 0), dtype=np.float32)[:, None] + 0.5
        columns = np.arange(picture.shape[2], dtype=np.float32)[None, :] + 0.5
        return cls(picture[:, top:bottom], columns * (1.0 / side), rows * (1.0 / side), rows * (1.0 / high))

    def fill(self, first: Color, last: Color, shade: Plane | float = 1.0) -> None:
        """From the first colour at the top to the last at the bottom, times a brightness."""
        for plane, a, b in zip(self.rgb, first, last, strict=True):
            np.multiply(a + self.far * (b - a), shade, out=plane)

    def mix(self, share: Plane, color: Color) -> None:
        keep = 1.0 - share
        for plane, value in zip(self.rgb, color, strict=True):
            plane *= keep
            plane += share * value

    def flat(self, kind: str, dice: Dice, *, across: float, down: float) -> Plane:
        """A tile seen from the front.   [h W]"""
        columns = (self.x * across + dice.between(0, TILE)).astype(np.int32) & (TILE - 1)
        rows = (self.y * down + dice.between(0, TILE)).astype(np.int32) & (TILE - 1)
        texture: Plane = tile(kind)[rows, columns]
        return texture

    def floor(self) -> tuple[Plane, Plane]:
        """Coordinates on a level floor that runs to the horizon.   [h W] across, [h 1] away"""
        near = 1.0 / (self.far * 0.8 + 0.2)
        return (self.x - 0.5) * near, 3.0 * near

    def ground(self, kind: str, dice: Dice, *, across: float, away: float) -> Plane:
        """A tile that lies on the floor.   [h W]"""
        s, t = self.floor()
        columns = (s * across + dice.between(TILE, 2 * TILE) + 8 * TILE).astype(np.int32) & (TILE - 1)
        rows = (t * away + dice.between(0, TILE)).astype(np.int32) & (TILE - 1)
        return tile(kind).ravel().take(rows * TILE + columns)


def _darker(color: Color, factor: float) -> Color:
    return color[0] * factor, color[1] * factor, color[2] * factor


def _sky(area: Area, dice: Dice) -> None:
    high, low = dice.pick(SKIES)
    area.fill(high, low)
    cloud = area.flat("cloud", dice, across=dice.between(90, 160), down=dice.between(180, 320))
    amount = dice.between(0.35, 0.65)
    white = min(0.97, low[0] + 0.12)
    area.mix(np.clip((cloud - amount) * 3.0, 0.0, 0.85), (white, white, min(0.98, white + 0.02)))


def _hills(area: Area, dice: Dice) -> None:
    _sky(area, dice)
    for level in (0.0, 1.0):
        color = dice.color(GRASS if dice.chance(0.7) else STONE)
        ridge = 0.62 + 0.2 * level - 0.10 * wave(area.x * dice.between(0.4, 1.0) + dice.between(0, 1))
        ridge -= 0.05 * wave(area.x * dice.between(1.5, 3.0) + dice.between(0, 1))
        texture = area.flat("cloud", dice, across=300, down=500)
        side = min(area.rgb.shape[1:])
        share = np.clip((area.far - ridge) * side, 0.0, 1.0) * (0.55 + 0.35 * texture + 0.1 * level)
        area.mix(share, _darker(color, 0.85))


def _skyline(area: Area, dice: Dice) -> None:
    """Far blocks of flats with lit windows."""
    _sky(area, dice)
    color = dice.color(STONE)
    block = np.floor(area.x * dice.between(5.0, 9.0) + dice.between(0, 9)).astype(np.int32)
    roof = 0.25 + 0.5 * ((block * 37 + 11) % 17).astype(np.float32) * (1.0 / 17.0)
    share = (area.far > roof).astype(np.float32) * 0.75
    area.mix(share, color)
    windows = stripes(area.x * 40.0) * stripes(area.y * 32.0)
    area.mix(share * windows * 0.35, (0.95, 0.88, 0.62))


def _woods(area: Area, dice: Dice) -> None:
    """A dim row of trunks under leaves."""
    color = dice.color(GRASS)
    leaves = area.flat("leaf", dice, across=220, down=220)
    area.fill(_darker(color, 0.75), _darker(color, 0.45), 0.55 + 0.7 * leaves)
    for count in (7.0, 11.0):
        place = area.x * count + dice.between(0, 9)
        column = np.floor(place)
        jitter = ((column.astype(np.int32) * 29 + 5) % 13).astype(np.float32) * (1.0 / 26.0)
        trunk = (np.abs(place - column - 0.25 - jitter) < 0.14).astype(np.float32)
        bark = area.flat("fur", dice, across=240, down=60)
        area.mix(trunk * (0.45 + 0.3 * bark), dice.color(BOARDS))


def _paper(area: Area, dice: Dice) -> None:
    """Wallpaper: stripes, dots or checks."""
    color, accent = dice.color(WALLS), dice.color(WALLS)
    area.fill(color, _darker(color, 0.92), 0.95 + 0.1 * area.flat("cloud", dice, across=200, down=200))
    many, style = dice.between(6.0, 14.0), dice.below(3)
    if style == 0:
        share = stripes(area.x * many) + 0.0 * area.y
    elif style == 1:
        share = dots(area.x * many, area.y * many, radius=dice.between(0.15, 0.3))
    else:
        share = 0.5 * stripes(area.x * many) + 0.5 * stripes(area.y * many)
    area.mix(share * dice.between(0.2, 0.6), accent)


def _tiles(area: Area, dice: Dice) -> None:
    color = dice.color(WALLS)
    many = dice.between(5.0, 10.0)
    face = bricks(area.x * many * 2.0, area.y * many * dice.pick((1.0, 2.0)), joint=0.08)
    area.fill(color, _darker(color, 0.9), 0.72 + 0.3 * face)


def _bricks(area: Area, dice: Dice) -> None:
    """A long wall; the joints are finer than a house's."""
    color = dice.color(WALLS)
    many = dice.between(14.0, 20.0)
    rough = area.flat("grain", dice, across=200, down=200)
    area.fill(color, color, (0.62 + 0.3 * bricks(area.x * many, area.y * many)) * (0.85 + 0.3 * rough))


def _grass(area: Area, dice: Dice) -> None:
    color = dice.color(GRASS)
    blades = area.ground("fur", dice, across=200, away=30)
    patches = area.ground("cloud", dice, across=90, away=30)
    area.fill(_darker(color, 0.85), color, 0.50 + 0.55 * blades + 0.4 * patches)


def _road(area: Area, dice: Dice) -> None:
    color = dice.color(STONE)
    area.fill(color, color, 0.72 + 0.5 * area.ground("grain", dice, across=170, away=90))
    kerb = dice.between(0.10, 0.24)
    pavement = np.clip((kerb - area.far) * 60.0, 0.0, 1.0) + 0.0 * area.x
    area.mix(pavement * 0.9, dice.color(WALLS))
    s, _ = area.floor()
    middle = dice.between(0.5, 0.75)
    dashes = stripes(s * dice.between(1.5, 3.0) + dice.between(0, 1), share=0.55)
    area.mix((np.abs(area.far - middle) < 0.035) * dashes * 0.8, (0.92, 0.90, 0.80))


def _sand(area: Area, dice: Dice) -> None:
    color = dice.color(SAND)
    bumps = area.ground("cloud", dice, across=110, away=40)
    _, t = area.floor()
    ripples = wave(t * dice.between(2.5, 4.5) + bumps * 2.5)
    grain = area.ground("grain", dice, across=190, away=120)
    area.fill(_darker(color, 0.92), color, 0.74 + 0.07 * ripples + 0.2 * bumps + 0.22 * grain)


def _water(area: Area, dice: Dice) -> None:
    color = dice.color(WATER)
    swell = area.ground("cloud", dice, across=60, away=60)
    _, t = area.floor()
    ripples = wave(t * dice.between(4.0, 7.0) + swell * 3.0)
    area.fill(color, _darker(color, 0.7), 0.85 + 0.14 * ripples + 0.3 * swell)
    area.mix(np.clip((ripples - 0.85) * 4.0, 0.0, 0.5) * (swell > 0.5), (0.93, 0.96, 0.97))


def _boards(area: Area, dice: Dice) -> None:
    """A table or a floor of boards that run to the back or from side to side."""
    color = dice.color(BOARDS)
    s, t = area.floor()
    if dice.chance(0.5):
        joints = stripes(s * dice.between(3.0, 6.0), share=0.95)
        grain = area.ground("fur", dice, across=150, away=30)
    else:
        joints = stripes(t * dice.between(0.8, 1.4), share=0.95)
        grain = area.flat("fur", dice, across=20, down=200)
    area.fill(_darker(color, 0.85), color, (0.70 + 0.5 * grain) * (0.6 + 0.4 * joints))


def _cloth(area: Area, dice: Dice) -> None:
    """A table cloth or carpet in checks."""
    first, second = dice.pair(WALLS)
    s, t = area.floor()
    area.fill(first, _darker(first, 0.92), 0.80 + 0.35 * area.ground("grain", dice, across=220, away=120))
    many = dice.between(2.5, 5.0)
    fields = checks(s * many + 40.0, t * many * 0.5) if dice.chance(0.5) else stripes(s * many)
    area.mix(fields * dice.between(0.3, 0.7) + 0.0 * t, second)


Painter = Callable[[Area, Dice], None]
UPRIGHTS: dict[str, Painter] = {
    "sky": _sky,
    "hills": _hills,
    "skyline": _skyline,
    "woods": _woods,
    "paper": _paper,
    "tiles": _tiles,
    "bricks": _bricks,
}
GROUNDS: dict[str, Painter] = {
    "grass": _grass,
    "road": _road,
    "sand": _sand,
    "water": _water,
    "boards": _boards,
    "cloth": _cloth,
}
