"""A small canvas in an object's own coordinates: where objects are drawn before they go into the picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from segstream.data.scenery.dice import Color, Dice, turn
from segstream.data.scenery.shapes import Plane

__all__ = ["Kind", "Pose", "Stamp"]


@dataclass(frozen=True)
class Pose:
    """Where and how an object stands in the picture.

    x, y     centre of its box, in pixels
    unit     pixels for one unit of its own coordinates
    reach    half width and half height of its box in own units
    angle    degrees, clockwise;  mirror: -1 turns left into right;  stretch: factor on its width
    light    direction that the light comes from, in the picture (to the right, down)
    """

    x: float
    y: float
    unit: float
    reach: tuple[float, float]
    angle: float = 0.0
    mirror: float = 1.0
    stretch: float = 1.0
    light: tuple[float, float] = (-0.6, -0.8)

    def box(self) -> tuple[float, float]:
        """Half width and half height in pixels of the upright box round the turned one.

        >>> Pose(0, 0, 10, (2, 1), angle=90).box()
        (10.0, 20.0)
        """
        cos, sin = turn(self.angle)
        wide, high = self.reach[0] * self.stretch * self.unit, self.reach[1] * self.unit
        return abs(cos) * wide + abs(sin) * high, abs(sin) * wide + abs(cos) * high


class Stamp:
    """Coordinates, colour and opacity of one object in the part of the picture that it may cover.

    u, v    own coordinates    [H W]     right and down, 0 in the middle of its box
    rgb     colour times opacity  [3 H W]
    alpha   opacity            [H W]

    >>> stamp = Stamp(Pose(10, 10, 5, (1, 1)), (20, 20))
    >>> stamp.paint(np.maximum(abs(stamp.u), abs(stamp.v)) - 0.5, (1.0, 0.0, 0.0))
    >>> stamp.rows, float(stamp.alpha[6, 6]), float(stamp.alpha[0, 0])
    (slice(4, 16, None), 1.0, 0.0)
    """

    def __init__(self, pose: Pose, size: tuple[int, int]) -> None:
        wide, high = pose.box()
        top, bottom = max(0, int(pose.y - high) - 1), min(size[0], int(pose.y + high) + 1)
        left, right = max(0, int(pose.x - wide) - 1), min(size[1], int(pose.x + wide) + 1)
        self.rows, self.columns = slice(top, max(top, bottom)), slice(left, max(left, right))
        self.unit = pose.unit
        cos, sin = turn(pose.angle)
        ys = np.arange(self.rows.start, self.rows.stop, dtype=np.float32)[:, None] + (0.5 - pose.y)
        xs = np.arange(self.columns.start, self.columns.stop, dtype=np.float32)[None, :] + (0.5 - pose.x)
        across = pose.mirror / (pose.unit * pose.stretch)
        self.u: Plane = xs * (cos * across) + ys * (sin * across)
        self.v: Plane = xs * (-sin / pose.unit) + ys * (cos / pose.unit)
        lx, ly = pose.light
        self.light = ((lx * cos + ly * sin) * pose.mirror, ly * cos - lx * sin)
        self.rgb: Plane = np.zeros((3, *self.u.shape), np.float32)
        self.alpha: Plane = np.zeros(self.u.shape, np.float32)

    @property
    def empty(self) -> bool:
        return self.u.size == 0

    def cover(self, distance: Plane) -> Plane:
        """Share of each pixel that lies inside."""
        share = distance * -self.unit
        share += 0.5
        np.clip(share, 0.0, 1.0, out=share)
        return share

    def paint(self, distance: Plane, color: Color, shade: Plane | float = 1.0) -> None:
        """Add a part of the object."""
        share = self.cover(distance)
        self._blend(share, share, color, shade)
        np.subtract(1.0, share, out=share)
        share *= 1.0 - self.alpha
        np.subtract(1.0, share, out=self.alpha)

    def decorate(self, distance: Plane, color: Color, shade: Plane | float = 1.0, *, strength: float = 1.0) -> None:
        """Paint on what is there already; the outline stays."""
        self.tint(self.cover(distance), color, shade, strength=strength)

    def tint(self, share: Plane, color: Color, shade: Plane | float = 1.0, *, strength: float = 1.0) -> None:
        """Like `decorate`, from the share of each pixel (0 to 1) that takes the colour."""
        if strength != 1.0:
            share = share * strength
        self._blend(share, share * self.alpha, color, shade)

    def _blend(self, share: Plane, weight: Plane, color: Color, shade: Plane | float) -> None:
        keep = 1.0 - share
        lit = weight * shade
        for plane, value in zip(self.rgb, color, strict=True):
            plane *= keep
            plane += lit * value

    def darken(self, factor: Plane) -> None:
        """Multiply the brightness."""
        self.rgb *= factor

    def round(self, x: float, y: float, rx: float, ry: float, *, strength: float = 0.35) -> Plane:
        """Brightness on a round body: lighter towards the light, darker away from it.   [H W], around 1"""
        lu, lv = self.light
        shade: Plane = (self.u - x) * (strength * lu / rx)
        shade += (self.v - y) * (strength * lv / ry)
        shade += 1.0
        np.clip(shade, 0.4, 1.5, out=shade)
        return shade


@dataclass(frozen=True)
class Kind:
    """A class of objects.

    draw   paints one on a stamp
    reach  half width and half height of what it paints, in its own units
    size   smallest and largest longer side, as a share of the picture's shorter side
    tilt   degrees that it may lean to either side
    shadow whether it throws one on what it stands on

    >>> Kind(lambda stamp, dice: None, (1.0, 0.5), (0.2, 0.4), 10).shadow
    True
    """

    draw: Callable[[Stamp, Dice], None]
    reach: tuple[float, float]
    size: tuple[float, float]
    tilt: float
    shadow: bool = True
