"""Things that are no class: they stand about, hide objects, and are labelled as background."""

from __future__ import annotations

import numpy as np

from segstream.data.scenery.dice import Dice, turn
from segstream.data.scenery.plants import STEMS, WOOD
from segstream.data.scenery.shapes import box, capsule, circle, convex, ellipse, union
from segstream.data.scenery.stamp import Kind, Stamp
from segstream.data.scenery.textures import checks, lookup, stripes

__all__ = ["CLUTTER"]


def _rock(s: Stamp, dice: Dice) -> None:
    rough = lookup("cloud", s.u, s.v, frequency=60, shift=(dice.between(0, 99), dice.between(0, 99)))
    shape = ellipse(s.u, s.v, 0, 0.2, 0.80, 0.6) + 0.36 * (0.5 - rough)
    grey = dice.color(((0.50, 0.50, 0.50), (0.56, 0.50, 0.44), (0.38, 0.40, 0.44)))
    s.paint(np.maximum(shape, s.v - 0.6), grey, (0.6 + 0.7 * rough) * s.round(0, 0, 1.0, 0.8, strength=0.45))


def _ball(s: Stamp, dice: Dice) -> None:
    first, second = dice.pair()
    light = s.round(0, 0, 1.0, 1.0, strength=0.5)
    cos, sin = turn(dice.between(0, 180))
    s.paint(circle(s.u, s.v, 0, 0, 0.92), first, light)
    s.tint((np.abs(s.u * cos + s.v * sin) < dice.between(0.15, 0.35)).astype(np.float32), second, light)


def _crate(s: Stamp, dice: Dice) -> None:
    color = dice.color(WOOD)
    grain = lookup("fur", s.v, s.u, frequency=70, shift=(dice.between(0, 99), 0))
    boards = (0.55 + 0.45 * stripes(s.v * dice.between(1.8, 2.6), share=0.9)) * (0.8 + 0.4 * grain)
    body = box(s.u, s.v, 0, 0, 0.9, 0.85)
    s.paint(body, color, boards)
    s.decorate(np.minimum(-body - 0.14, np.abs(s.u - s.v) - 0.1), color, 0.8 + 0.4 * grain)


def _post(s: Stamp, dice: Dice) -> None:
    color = dice.color()
    body = box(s.u, s.v, 0, 0, 0.11, 1.0, corner=0.08)
    s.paint(body, color, s.round(0, 0, 0.15, 2.0, strength=0.4) * (0.8 + 0.3 * stripes(s.v * dice.between(0.5, 3.0))))


def _cone(s: Stamp, dice: Dice) -> None:
    first, second = dice.pair()
    s.paint(box(s.u, s.v, 0, 0.88, 0.62, 0.10), first, 0.8)
    body = convex(s.u, s.v, [(-0.09, -0.95), (0.09, -0.95), (0.46, 0.82), (-0.46, 0.82)])
    light = s.round(0, 0, 0.6, 3.0, strength=0.4)
    s.paint(body, first, light)
    s.tint(stripes(s.v * dice.between(1.2, 2.0) + dice.between(0, 1), share=0.4) * s.cover(body), second, light)


def _cushion(s: Stamp, dice: Dice) -> None:
    first, second = dice.pair()
    light = s.round(0, 0, 1.2, 0.8, strength=0.4)
    s.paint(box(s.u, s.v, 0, 0, 0.95, 0.55, corner=0.3), first, light)
    many = dice.between(2.0, 4.0)
    s.tint(checks(s.u * many, s.v * many), second, light, strength=0.5)


def _tuft(s: Stamp, dice: Dice) -> None:
    color = dice.color(STEMS)
    for _ in range(5):
        x, tip = dice.between(-0.25, 0.25), dice.between(-0.9, 0.9)
        blade = capsule(
            s.u - (tip - x) * 0.3 * (1.0 - s.v) * (1.0 - s.v) * 0.5, s.v, (x, 1.0), (x, -dice.between(0.3, 0.9)), 0.05
        )
        s.paint(blade, color, dice.between(0.7, 1.2))


def _bottle(s: Stamp, dice: Dice) -> None:
    color, label = dice.pair()
    light = s.round(0, 0, 0.4, 3.0, strength=0.6)
    shoulder = union(box(s.u, s.v, 0, 0.35, 0.32, 0.62, corner=0.1), ellipse(s.u, s.v, 0, -0.22, 0.32, 0.25))
    s.paint(union(shoulder, box(s.u, s.v, 0, -0.6, 0.11, 0.38)), color, light)
    s.decorate(box(s.u, s.v, 0, 0.4, 0.5, 0.22), label, light)


CLUTTER: dict[str, Kind] = {
    "rock": Kind(_rock, (1.0, 0.8), (0.10, 0.26), 10),
    "ball": Kind(_ball, (1.0, 1.0), (0.07, 0.18), 180),
    "crate": Kind(_crate, (1.0, 0.95), (0.12, 0.26), 6),
    "post": Kind(_post, (0.2, 1.05), (0.30, 0.60), 4),
    "cone": Kind(_cone, (0.7, 1.0), (0.12, 0.24), 6),
    "cushion": Kind(_cushion, (1.0, 0.65), (0.14, 0.28), 20),
    "tuft": Kind(_tuft, (1.0, 1.1), (0.12, 0.26), 5),
    "bottle": Kind(_bottle, (0.45, 1.05), (0.16, 0.32), 4),
}
