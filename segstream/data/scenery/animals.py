"""Cat and fish."""

from __future__ import annotations

import numpy as np

from segstream.data.scenery.dice import Color, Dice
from segstream.data.scenery.shapes import Plane, capsule, circle, convex, ellipse, union
from segstream.data.scenery.stamp import Kind, Stamp
from segstream.data.scenery.textures import lookup, scales, stripes, wave

__all__ = ["ANIMALS"]

DARK: Color = (0.10, 0.10, 0.12)
FUR: tuple[Color, ...] = (
    (0.30, 0.28, 0.28),
    (0.85, 0.52, 0.25),
    (0.62, 0.60, 0.58),
    (0.90, 0.84, 0.74),
    (0.50, 0.36, 0.26),
    (0.45, 0.50, 0.58),
    (0.78, 0.62, 0.62),
)


def _cat(s: Stamp, dice: Dice) -> None:
    """A sitting cat with striped fur; head and tail move."""
    color = dice.color(FUR)
    fur = 0.70 + 0.55 * lookup("fur", s.u + 0.2 * s.v * s.u, s.v, frequency=75, shift=(dice.between(0, 200), 0))
    tabby = 1.0 - dice.between(0.45, 0.62) * np.clip(
        wave(s.v * dice.between(2.5, 3.1) + 0.5 * s.u * s.u) * 2.0, 0.0, 1.0
    )
    coat = fur * tabby
    swing, tip = dice.between(0.62, 0.82), dice.between(-0.25, 0.45)
    tail = union(
        capsule(s.u, s.v, (0.30, 0.82), (swing, 0.70), 0.09),
        capsule(s.u, s.v, (swing, 0.70), (swing - 0.04, tip), 0.085),
    )
    s.paint(tail, color, coat * 0.85)
    light = s.round(0, 0.3, 0.6, 0.8, strength=0.3)
    body = union(ellipse(s.u, s.v, 0.02, 0.48, 0.46, 0.50), ellipse(s.u, s.v, 0, 0.1, 0.30, 0.5))
    s.paint(np.maximum(body, s.v - 0.93), color, coat * light)
    pale = dice.color(((0.93, 0.90, 0.84), (0.86, 0.78, 0.68), (0.80, 0.82, 0.86)))
    s.decorate(ellipse(s.u, s.v, -0.02, 0.30, 0.18, 0.26), pale, fur * 1.1)
    for x in (-0.17, 0.15):
        s.paint(capsule(s.u, s.v, (x, 0.45), (x, 0.86), 0.105), color, fur * 1.02)
        s.paint(ellipse(s.u, s.v, x, 0.89, 0.14, 0.075), pale, fur)
    _cat_head(s, dice, color, pale, fur)


def _cat_head(s: Stamp, dice: Dice, color: Color, pale: Color, fur: Plane) -> None:
    hx, hy = dice.between(-0.16, 0.16), -0.42 + dice.between(-0.05, 0.06)
    u, v = s.u - hx, s.v - hy
    for side in (-1.0, 1.0):
        ear = [(0.06 * side, -0.22), (0.31 * side, -0.52), (0.39 * side, -0.05)]
        ear = ear if side > 0 else ear[::-1]
        s.paint(convex(u, v, ear) - 0.02, color, fur)
        s.decorate(convex(u, v, ear) + 0.055, (0.90, 0.62, 0.62), strength=0.8)
    brow = 1.0 - 0.3 * np.clip(wave(u * 4.0 + 0.25) * (v < -0.12), 0.0, 1.0)
    s.paint(ellipse(u, v, 0, 0.0, 0.40, 0.34), color, fur * brow * s.round(hx, hy, 0.5, 0.5, strength=0.25))
    s.decorate(ellipse(u, v, 0, 0.15, 0.18, 0.13), pale, 1.1)
    eye = dice.color(((0.75, 0.80, 0.25), (0.35, 0.70, 0.45), (0.90, 0.70, 0.20), (0.40, 0.65, 0.85)))
    for x in (-0.16, 0.16):
        s.decorate(ellipse(u, v, x, -0.03, 0.125, 0.11), eye)
        s.decorate(ellipse(u, v, x, -0.03, 0.045, 0.10), DARK)
    s.decorate(convex(u, v, [(-0.05, 0.07), (0.05, 0.07), (0.0, 0.13)]), (0.85, 0.45, 0.45))


def _fish(s: Stamp, dice: Dice) -> None:
    """A scaly body that bends, rayed fins, a forked tail, an eye and a gill."""
    color, fin = dice.pair()
    bend = dice.between(-0.28, 0.28)
    v = s.v + bend * (s.u + 0.2) * (s.u + 0.2) * 0.6
    rays = 0.65 + 0.4 * stripes(v * 9.0 + s.u * 3.0, share=0.6)
    height = dice.between(0.34, 0.46)
    spread = dice.between(0.32, 0.44)
    fork = [(0.42, 0.0), (0.98, -spread), (0.80, 0.0)]
    s.paint(convex(s.u, v, fork), fin, rays)
    s.paint(convex(s.u, v, [(x, -y) for x, y in reversed(fork)]), fin, rays)
    back = dice.between(0.10, 0.22)
    sway = 0.65 + 0.4 * stripes(s.u * 9.0 + v * 4.0, share=0.6)
    s.paint(
        convex(s.u, v, [(-0.42, -height * 0.6), (-0.05, -height - back), (0.30, -height * 0.55), (0.0, 0.0)]), fin, sway
    )
    s.paint(convex(s.u, v, [(-0.05, height * 0.6), (0.20, height * 0.5), (0.22, height + back * 0.8)]), fin, sway)
    grow = 1.0 + 0.35 * s.u  # a body that is deepest in front
    body = ellipse(s.u, v * grow, -0.18, 0, 0.76, height)
    size = dice.between(6.5, 8.5)
    light = s.round(-0.18, 0, 1.2, height, strength=0.40)
    s.paint(body, color, scales(v * size, s.u * -size) * light)
    if dice.chance(0.5):
        band = stripes(s.u * dice.between(1.6, 2.4) + dice.between(0, 1), share=0.35)
        s.tint(band * s.cover(body), dice.color(), light, strength=0.6)
    head = np.maximum(body, circle(s.u, v, -0.98, 0, 0.48))
    s.decorate(head, color, light * 1.08)
    s.decorate(np.maximum(np.abs(circle(s.u, v, -0.98, 0, 0.50)) - 0.02, body), DARK, strength=0.5)
    s.decorate(circle(s.u, v, -0.68, -0.09, 0.095), (0.96, 0.96, 0.92))
    s.decorate(circle(s.u, v, -0.69, -0.09, 0.055), DARK)
    s.paint(convex(s.u, v, [(-0.28, 0.05), (0.02, 0.16), (-0.12, 0.30)]), fin, sway)


ANIMALS = {
    "cat": Kind(_cat, (0.92, 1.0), (0.34, 0.56), 12),
    "fish": Kind(_fish, (1.0, 0.66), (0.32, 0.55), 35, shadow=False),
}
