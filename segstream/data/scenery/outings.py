"""Car, boat, balloon, kite, umbrella."""

from __future__ import annotations

import numpy as np

from segstream.data.scenery.dice import Color, Dice
from segstream.data.scenery.plants import WOOD
from segstream.data.scenery.shapes import Plane, box, capsule, circle, convex, ellipse, union
from segstream.data.scenery.stamp import Kind, Stamp
from segstream.data.scenery.textures import checks, lookup, stripes, wave

__all__ = ["OUTINGS"]

DARK: Color = (0.12, 0.12, 0.14)


def _car(s: Stamp, dice: Dice) -> None:
    """A glossy body with panes, a door, lights, and two wheels with spokes."""
    color = dice.color()
    front, back = dice.between(0.40, 0.66), -dice.between(0.60, 0.90)
    roof = -dice.between(0.46, 0.56)
    cabin = [(back, -0.05), (back + 0.18, roof), (front - 0.32, roof), (front, -0.05)]
    gloss = 1.12 - 0.35 * np.abs(wave(s.v * 1.1 + 0.12))
    s.paint(convex(s.u, s.v, cabin) - 0.03, color, gloss)
    s.paint(box(s.u, s.v, 0, 0.12, 0.97, 0.24, corner=0.14), color, gloss)
    pane = convex(s.u, s.v, [(x * 0.86 - 0.01, y * 0.86 - 0.02) for x, y in cabin])
    pillar = np.abs(s.u - (front + back) / 2 - 0.02) - 0.035
    glass = 0.75 + 0.5 * stripes(s.u * 1.6 + s.v * 1.2, share=0.4)
    s.decorate(np.maximum(pane, -pillar), dice.color(((0.55, 0.70, 0.80), (0.32, 0.42, 0.52))), glass)
    s.decorate(np.maximum(np.abs(pillar + 0.035) - 0.012, np.abs(s.v - 0.1) - 0.2), DARK, strength=0.6)
    s.decorate(box(s.u, s.v, 0, 0.26, 0.97, 0.03), (0.85, 0.85, 0.86), strength=0.8)
    s.decorate(ellipse(s.u, s.v, 0.90, 0.06, 0.09, 0.06), (0.97, 0.95, 0.75))
    s.decorate(ellipse(s.u, s.v, -0.92, 0.06, 0.06, 0.07), (0.85, 0.15, 0.12))
    radius = dice.between(0.19, 0.23)
    for x in (-0.56, 0.56):
        s.decorate(circle(s.u, s.v, x, 0.33, radius + 0.045), DARK, strength=0.8)
        s.paint(circle(s.u, s.v, x, 0.34, radius), DARK)
        spokes = 0.65 + 0.45 * checks((s.u - x) * 9.0 + 0.5, (s.v - 0.34) * 9.0 + 0.5)
        s.decorate(circle(s.u, s.v, x, 0.34, radius * 0.58), (0.80, 0.80, 0.82), spokes)


def _boat(s: Stamp, dice: Dice) -> None:
    """A planked hull under a mast with two seamed sails and a flag."""
    hull_color, band = dice.pair()
    sail, flag = dice.color(), dice.color()
    bow = dice.between(0.85, 0.97)
    deck = 0.42 - 0.12 * s.u * s.u
    s.paint(box(s.u, s.v, 0, -0.25, 0.035, 0.72), dice.color(WOOD))
    top = -dice.between(0.82, 0.94)
    seams = 0.66 + 0.38 * stripes(s.v * 4.0 + s.u * 0.8, share=0.8)
    belly = s.round(0.3, -0.2, 0.8, 1.0, strength=0.3) * seams
    boom = 0.28
    main = convex(
        s.u - 0.10 * (1.0 - s.v * s.v), s.v, [(0.04, top), (0.04 + dice.between(0.55, 0.72), boom), (0.04, boom)]
    )
    s.paint(np.maximum(main, 0.05 - s.u), sail, belly)
    jib_top = top + dice.between(0.1, 0.35)
    jib = [(-0.06, jib_top), (-0.06, boom), (-dice.between(0.5, 0.78), boom)]
    s.paint(convex(s.u, s.v, jib), sail if dice.chance(0.6) else band, seams * 0.95)
    s.paint(convex(s.u, s.v, [(0.0, -0.99), (0.26, -0.93), (0.0, -0.86)]), flag)
    hull = np.maximum(np.abs(s.u) - bow + 0.9 * (s.v - 0.35) * (s.v - 0.35), deck - s.v)
    hull = np.maximum(hull, s.v - 0.88)
    grain = lookup("fur", s.v, s.u, frequency=40, shift=(dice.between(0, 99), 0))
    planks = (0.42 + 0.6 * stripes((s.v - deck) * 7.0, share=0.72)) * (0.85 + 0.3 * grain)
    s.paint(hull, hull_color, planks * s.round(0, 0.5, 1.2, 0.6, strength=0.3))
    s.decorate(np.maximum(hull, np.abs(s.v - deck - 0.07) - 0.045), band)


def _balloon(s: Stamp, dice: Dice) -> None:
    """A hot-air balloon: gores in two colours, a zigzag belt, ropes and a woven basket."""
    first, second = dice.pair()
    basket = dice.color(WOOD)
    for x in (-1.0, 1.0):
        s.paint(capsule(s.u, s.v, (0.20 * x, 0.40), (0.11 * x, 0.78), 0.02), DARK)
    weave = 0.6 + 0.5 * checks(s.u * 16.0, s.v * 16.0)
    s.paint(box(s.u, s.v, 0, 0.86, 0.165, 0.125, corner=0.03), basket, weave)
    width = dice.between(0.70, 0.78)
    dome = ellipse(s.u, s.v, 0, -0.30, width, 0.69)
    skirt = np.maximum(np.abs(s.u) - 0.70 * width + 0.80 * (s.v - 0.15), np.maximum(0.05 - s.v, s.v - 0.52))
    # Gores run along meridians: the same share of the width at every height, closer together at the rim.
    below = np.clip((s.v + 0.30) * (1.0 / 0.69), -0.97, 0.72)
    across = s.u / (width * np.sqrt(1.0 - below * below))
    across *= 0.72 + 0.28 * np.abs(across)
    light = s.round(0, -0.3, 0.8, 0.8, strength=0.42)
    count = dice.between(2.2, 3.4)
    phase = dice.between(0, 1)
    seam = 0.78 + 0.22 * np.minimum(1.0, 6.0 * np.abs(wave(across * count + phase)))
    s.paint(union(dome, skirt), first, light * seam)
    s.tint(stripes(across * count + phase), second, light * seam)
    if dice.chance(0.7):
        middle = dice.between(-0.42, -0.12)
        belt = np.abs(s.v - middle + 0.07 * np.abs(wave(across * count * 1.0))) - dice.between(0.06, 0.10)
        s.decorate(belt, dice.color(), light)


def _kite(s: Stamp, dice: Dice) -> None:
    """A diamond in four quarters with spars, and a wavy tail with bows."""
    first, second = dice.pair()
    tail = dice.color()
    middle, bottom, width = -dice.between(0.42, 0.55), 0.32, dice.between(0.58, 0.68)
    swing, phase = dice.between(0.07, 0.14) * dice.sign(), dice.between(-0.15, 0.15)
    path: Plane = s.u - swing * wave(s.v * 1.3 + phase) + swing * float(wave(np.full(1, bottom * 1.3 + phase))[0])
    s.paint(np.maximum(np.abs(path) - 0.025, np.maximum(bottom - 0.05 - s.v, s.v - 0.98)), tail)
    for y in (0.50, 0.70, 0.90):
        bow = np.maximum(np.abs(s.v - y) - 0.75 * np.abs(path) + 0.0, np.abs(path) - 0.12)
        s.paint(bow * 0.8, first if y != 0.70 else second)
    upper, lower = middle + 1.0, bottom - middle
    height = s.v - middle
    slope = np.where(height < 0.0, -height * (1.0 / upper), height * (1.0 / lower))
    sail = (np.abs(s.u) * (1.0 / width) + slope - 1.0) * (0.85 * min(width, upper))
    cloth = 0.92 + 0.14 * checks(s.u * 9.0, height * 9.0)
    shine = cloth * s.round(0, middle, 1.0, 1.0, strength=0.25)
    s.paint(sail, first, shine)
    quarter = ((s.u > 0.0) ^ (height > 0.0)).astype(np.float32)
    s.tint(quarter * s.cover(sail), second, shine)
    spar = union(np.abs(s.u), np.abs(height)) - 0.022
    s.decorate(np.maximum(spar, sail), DARK, strength=0.75)


def _umbrella(s: Stamp, dice: Dice) -> None:
    """A scalloped canopy of ribbed panels, a shaft and a hooked handle."""
    first, second = dice.pair()
    wood = dice.color(WOOD)
    s.paint(box(s.u, s.v, 0, 0.05, 0.035, 0.85), wood)
    hook = np.abs(circle(s.u, s.v, 0.13, 0.80, 0.13)) - 0.045
    s.paint(np.maximum(hook, 0.80 - s.v), wood)
    high = dice.between(0.72, 0.92)
    dome = ellipse(s.u, s.v, 0, 0.02, 0.97, high)
    rise = np.clip((s.v - 0.02) * (1.0 / high), -0.98, 0.0)
    across = s.u / (0.97 * np.sqrt(1.0 - rise * rise))
    across *= 0.70 + 0.30 * np.abs(across)
    panels = 2.5 if dice.chance(0.5) else 3.0
    sag = np.abs(wave(across * panels * 0.5 + (0.25 if panels == 2.5 else 0.0)))
    rim = s.v + 0.02 + 0.16 * sag - 0.06
    light = s.round(0, -0.3, 1.0, 0.8, strength=0.40)
    fold = (0.52 + 0.54 * np.minimum(1.0, 1.6 * sag)) * light
    canopy = np.maximum(dome, rim)
    s.paint(canopy, first, fold)
    if dice.chance(0.75):
        s.tint(stripes(across * panels * 0.5 + (0.25 if panels == 2.5 else 0.0)) * s.cover(canopy), second, fold)
    s.paint(box(s.u, s.v, 0, -high, 0.025, 0.07), DARK)


OUTINGS = {
    "car": Kind(_car, (1.0, 0.57), (0.34, 0.56), 8),
    "boat": Kind(_boat, (1.0, 1.0), (0.36, 0.58), 10, shadow=False),
    "balloon": Kind(_balloon, (0.82, 1.0), (0.34, 0.56), 12, shadow=False),
    "kite": Kind(_kite, (0.72, 1.0), (0.36, 0.58), 50, shadow=False),
    "umbrella": Kind(_umbrella, (1.0, 1.0), (0.34, 0.56), 30),
}
