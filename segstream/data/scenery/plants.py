"""Tree, flower, mushroom, cactus."""

from __future__ import annotations

import numpy as np

from segstream.data.scenery.dice import PAINT, Color, Dice, turn
from segstream.data.scenery.shapes import capsule, circle, convex, ellipse, petals, union
from segstream.data.scenery.stamp import Kind, Stamp
from segstream.data.scenery.textures import dots, lookup, wave

__all__ = ["PLANTS", "STEMS", "WOOD"]

LEAVES: tuple[Color, ...] = (
    (0.28, 0.52, 0.22),
    (0.20, 0.42, 0.26),
    (0.48, 0.60, 0.22),
    (0.80, 0.52, 0.18),
    (0.74, 0.28, 0.20),
    (0.86, 0.62, 0.70),
    (0.30, 0.50, 0.50),
)
WOOD: tuple[Color, ...] = ((0.40, 0.28, 0.18), (0.52, 0.40, 0.30), (0.34, 0.32, 0.30), (0.72, 0.68, 0.62))
STEMS: tuple[Color, ...] = ((0.25, 0.50, 0.20), (0.40, 0.55, 0.25), (0.22, 0.42, 0.32), (0.50, 0.45, 0.22))


def _tree(s: Stamp, dice: Dice) -> None:
    """A crown of leafy balls on a trunk with bark."""
    shift = (dice.between(0, 200), dice.between(0, 200))
    sway = dice.between(-0.12, 0.12)
    bark = 0.75 + 0.5 * lookup("fur", s.u, s.v, frequency=60, shift=shift)
    width = dice.between(0.08, 0.14)
    trunk = np.abs(s.u - sway * (0.8 - s.v)) - width * (0.75 + 0.45 * s.v)
    color = dice.color(WOOD)
    s.paint(np.maximum(np.maximum(trunk, -0.2 - s.v), s.v - 1.0), color, bark * s.round(0, 0, 0.15, 1, strength=0.2))
    s.paint(capsule(s.u, s.v, (0.0, 0.35), (0.35 * dice.sign(), -0.1), 0.05), color, bark)
    leaf = lookup("leaf", s.u, s.v, frequency=dice.between(70, 100), shift=shift)
    balls = [circle(s.u, s.v, sway, -0.42, dice.between(0.40, 0.50))]
    for x, y in ((-0.42, -0.15), (0.42, -0.18), (-0.22, -0.62), (0.26, -0.60)):
        x, y = x + dice.between(-0.08, 0.08), y + dice.between(-0.08, 0.08)
        balls.append(circle(s.u, s.v, x + sway, y, dice.between(0.26, 0.37)))
    crown = union(balls[0], *balls[1:]) + 0.16 * (0.6 - leaf)
    light = s.round(sway, -0.35, 0.8, 0.7, strength=0.38)
    s.paint(crown, dice.color(LEAVES), (0.45 + 0.85 * leaf) * light)


def _flower(s: Stamp, dice: Dice) -> None:
    """A rosette of veined petals with a dotted heart, on a stem with two leaves."""
    green, lean = dice.color(STEMS), dice.between(-0.18, 0.18)
    u = s.u - lean * (s.v - 0.1) * (s.v - 0.1)
    s.paint(np.maximum(np.abs(u) - 0.07, np.maximum(-0.3 - s.v, s.v - 1.0)), green)
    for side in (-1.0, 1.0):
        cos, sin = turn(dice.between(25, 60) * side)
        x, y = u - 0.24 * side, s.v - dice.between(0.5, 0.75)
        along, across = x * cos - y * sin, x * sin + y * cos
        vein = 0.85 + 0.3 * np.abs(wave(along * 3.0 + np.abs(across) * 3.0))
        s.paint(ellipse(along, across, 0, 0, 0.32, 0.13), green, vein)
    count = 5 + dice.below(4)
    cos, sin = turn(dice.between(0, 90))
    y = s.v + 0.34
    x = (u - lean * 0.2) * dice.between(0.95, 1.15)
    x, y = x * cos - y * sin, x * sin + y * cos
    outer = dice.between(0.64, 0.71)
    edge, lobe = petals(x, y, 0, 0, count=count, inner=dice.between(0.42, 0.52), outer=outer)
    first, second = dice.pair()
    radius = np.sqrt(x * x + y * y)
    s.paint(edge * 0.8, first, (0.74 + 0.28 * lobe) * s.round(0, -0.34, 0.6, 0.6, strength=0.18))
    s.tint(np.clip((0.38 - radius) * 5.0, 0.0, 1.0), second, strength=0.55)
    heart = 0.5 + 0.8 * dots(x * 11.0, y * 11.0, radius=0.36)
    s.decorate(radius - dice.between(0.17, 0.23), dice.color(), heart)


def _mushroom(s: Stamp, dice: Dice) -> None:
    """A spotted cap over gills, on a fibrous stem that swells towards the ground."""
    lean, width = dice.between(-0.18, 0.18), dice.between(0.17, 0.26)
    u = s.u - lean * s.v * s.v
    fibre = 0.8 + 0.35 * lookup("fur", u, s.v, frequency=80, shift=(dice.between(0, 200), 0))
    stem = np.abs(u) - width * (0.8 + 0.45 * s.v * s.v)
    pale = dice.color(((0.92, 0.88, 0.78), (0.80, 0.74, 0.64), (0.86, 0.80, 0.84)))
    s.paint(np.maximum(np.maximum(stem, -0.1 - s.v), s.v - 0.86), pale, fibre * s.round(0, 0, 0.25, 2))
    s.paint(ellipse(u, s.v, 0, 0.32, width + 0.10, 0.07), pale, 0.85)
    wide, high = dice.between(0.82, 0.95), dice.between(0.62, 0.85)
    gills = 0.55 + 0.3 * np.abs(wave(u * dice.between(5.0, 7.0)))
    s.paint(ellipse(u, s.v, 0, 0.04, wide, 0.15), pale, gills)
    rim = s.v - 0.02 - 0.10 * u * u
    cap, spot = dice.pair()
    s.paint(np.maximum(ellipse(u, s.v, 0, 0.04, wide, high), rim), cap, s.round(0, -0.25, 1.0, 0.6, strength=0.45))
    turned = dice.between(-0.3, 0.3)
    squeeze = 1.0 + 0.9 * u * u
    spots = dots(u * squeeze * 3.0 + turned, s.v * 3.4 + turned, radius=dice.between(0.26, 0.36))
    inside = np.maximum(ellipse(u, s.v, 0, 0.04, wide - 0.08, high - 0.08), rim + 0.08)
    s.tint(spots * s.cover(inside), spot, s.round(0, -0.25, 1.0, 0.6))


def _cactus(s: Stamp, dice: Dice) -> None:
    """A ribbed column with two bent arms and rows of pale spines."""
    width = dice.between(0.20, 0.27)
    lean = dice.between(-0.08, 0.08)
    u = s.u - lean * s.v
    body = capsule(u, s.v, (0, 1.1), (0, -0.72), width)
    arms = []
    for side in (-1.0, 1.0):
        low, thick = dice.between(-0.05, 0.42), dice.between(0.12, 0.16)
        far = side * dice.between(0.50, 0.60)
        tip = low - dice.between(0.30, 0.60)
        arms.append(union(capsule(u, s.v, (0, low), (far, low), thick), capsule(u, s.v, (far, low), (far, tip), thick)))
    whole = np.maximum(union(body, *arms), s.v - 0.98)
    rib = wave(u * dice.between(7.0, 8.5) + 0.25)
    color = dice.color((*LEAVES[:3], LEAVES[6], *STEMS, PAINT[5], PAINT[8], PAINT[12]))
    s.paint(whole, color, (0.86 + 0.30 * rib) * s.round(0, 0, 0.8, 2.0, strength=0.2))
    spines = dots(u * 15.5, s.v * 9.0, radius=0.20) * (rib > 0.0)
    s.tint(spines, (0.95, 0.92, 0.80), strength=0.85)
    if dice.chance(0.6):
        bloom = dice.color()
        for x in (-0.1, 0.0, 0.1):
            petal = [(x * 0.4 - 0.03, -0.86), (x - 0.06, -0.98), (x + 0.06, -0.98), (x * 0.4 + 0.03, -0.86)]
            s.paint(convex(u, s.v, petal), bloom)


PLANTS = {
    "tree": Kind(_tree, (0.92, 1.0), (0.36, 0.56), 6),
    "flower": Kind(_flower, (0.80, 1.05), (0.36, 0.58), 18),
    "mushroom": Kind(_mushroom, (1.0, 0.9), (0.30, 0.52), 16),
    "cactus": Kind(_cactus, (0.80, 1.0), (0.34, 0.55), 8),
}
