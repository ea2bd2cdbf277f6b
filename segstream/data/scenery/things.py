"""House, lamp, cup, clock, book."""

from __future__ import annotations

import numpy as np

from segstream.data.scenery.dice import Color, Dice, turn
from segstream.data.scenery.shapes import box, capsule, circle, convex, ellipse, union
from segstream.data.scenery.stamp import Kind, Stamp
from segstream.data.scenery.textures import bricks, dots, lookup, scales, stripes, wave

__all__ = ["THINGS"]

DARK: Color = (0.13, 0.13, 0.15)
PAPER: tuple[Color, ...] = ((0.96, 0.94, 0.88), (0.90, 0.84, 0.70), (0.84, 0.88, 0.92), (0.94, 0.86, 0.86))


def _house(s: Stamp, dice: Dice) -> None:
    """Brick walls, a tiled roof with a chimney, windows with crossbars and a door."""
    wall, roof = dice.pair()
    half, eaves = dice.between(0.66, 0.82), dice.between(-0.18, 0.05)
    peak = dice.between(0.0, 0.55)
    x = dice.between(0.25, 0.5) * dice.sign()
    s.paint(box(s.u, s.v, x, -0.55, 0.10, 0.35), wall, bricks(s.u * 14.0, s.v * 14.0) * 0.7)
    courses = dice.between(7.5, 10.0)
    shade = (0.55 + 0.5 * bricks(s.u * courses, s.v * courses)) * s.round(0, 0, 1.5, 1.5, strength=0.25)
    s.paint(box(s.u, s.v, 0, (eaves + 0.97) / 2, half, (0.97 - eaves) / 2), wall, shade)
    corners = [(-half - 0.14, eaves + 0.06), (-peak, -0.92), (peak + 0.001, -0.92), (half + 0.14, eaves + 0.06)]
    slates = scales(s.u * 6.0, s.v * 7.0) * s.round(0, -0.4, 1.5, 1.0, strength=0.3)
    s.paint(convex(s.u, s.v, corners), roof, slates)
    frame = dice.color(PAPER)
    door = dice.color()
    at = dice.pick((-0.5, 0.0, 0.5)) * half
    s.decorate(box(s.u, s.v, at, 0.74, 0.17, 0.26), frame)
    s.decorate(box(s.u, s.v, at, 0.76, 0.13, 0.23), door, 0.85 + 0.2 * stripes(s.u * 14.0))
    glow = dice.color(((0.30, 0.40, 0.50), (0.96, 0.85, 0.50), (0.20, 0.22, 0.28)))
    for x, y in ((-0.5, eaves + 0.27), (0.5, eaves + 0.27)):
        pane = box(s.u, s.v, x * half, y, 0.13, 0.14)
        s.decorate(pane - 0.035, frame)
        cross = union(np.abs(s.u - x * half), np.abs(s.v - y)) - 0.018
        s.decorate(np.maximum(pane, -cross), glow)


def _lamp(s: Stamp, dice: Dice) -> None:
    """A pleated shade that glows, over a glazed foot."""
    foot, shade = dice.pair()
    glaze = s.round(0, 0.4, 0.3, 0.6, strength=0.5) * (0.6 + 0.5 * stripes(s.v * dice.between(4.5, 6.5), share=0.6))
    s.paint(ellipse(s.u, s.v, 0, 0.90, 0.34, 0.085), foot, 0.75)
    s.paint(box(s.u, s.v, 0, 0.2, 0.05, 0.65), foot, 0.6)
    s.paint(
        ellipse(s.u, s.v, 0, dice.between(0.38, 0.58), dice.between(0.16, 0.30), dice.between(0.28, 0.38)), foot, glaze
    )
    cos, sin = turn(dice.between(-14, 14))
    u, v = s.u * cos - (s.v + 0.1) * sin, s.u * sin + (s.v + 0.1) * cos - 0.1
    top, low = dice.between(0.22, 0.36), dice.between(0.54, 0.64)
    slant = low + (low - top) * (v + 0.02) / 0.92
    pleats = 0.62 + 0.52 * np.abs(wave(u / np.maximum(slant, 0.1) * dice.between(2.4, 3.0)))
    glow = 1.35 - 0.75 * np.minimum(1.0, np.sqrt(u * u * 2.0 + (v + 0.4) * (v + 0.4)))
    lit = (0.75 + 0.45 * glow) if dice.chance(0.7) else s.round(0, -0.4, 0.6, 0.8)
    body = np.maximum(np.abs(u) - slant, np.maximum(-0.94 - v, v + 0.02))
    s.paint(body, shade, pleats * lit)
    edge = np.minimum(np.abs(v + 0.06), np.abs(v + 0.90)) - 0.035
    s.decorate(np.maximum(edge, body), foot, 0.9)


def _cup(s: Stamp, dice: Dice) -> None:
    """A mug seen a little from above: an open rim with drink, a handle and a band with a pattern."""
    color, band = dice.pair()
    light = s.round(0, 0, 0.7, 3.0, strength=0.45)
    taper, low = dice.between(0.0, 0.16), dice.between(0.62, 0.74)
    loop = np.abs(ellipse(s.u, s.v, 0.60, 0.06, 0.30, 0.34)) - 0.075
    s.paint(np.maximum(loop, 0.45 - s.u), color, 0.85)
    side = np.abs(s.u) - 0.66 + taper * (s.v + 0.55) * 0.8
    bottom = s.v - low + 0.10 * s.u * s.u * 2.0
    s.paint(np.maximum(np.maximum(side, bottom), -0.55 - s.v), color, light)
    bend = s.v + 0.22 * s.u * s.u
    middle, half = dice.between(0.05, 0.2), dice.between(0.16, 0.26)
    strip = (np.abs(bend - middle) < half).astype(np.float32)
    arc = s.u * (1.0 + 0.35 * s.u * s.u)
    style = dice.below(3)
    if style == 0:
        pattern = strip * dots(arc * 4.2, (bend - middle + half) * (2.0 / (2 * half)), radius=0.36)
    elif style == 1:
        pattern = (np.abs(bend - middle - half * 0.6 * wave(arc * 2.4)) < 0.075).astype(np.float32)
    else:
        pattern = strip * stripes((bend - middle) * (1.5 / half))
    s.tint(pattern, band, light)
    s.paint(ellipse(s.u, s.v, 0, -0.55, 0.66, 0.20), color, 1.12)
    s.decorate(ellipse(s.u, s.v, 0, -0.54, 0.57, 0.145), color, 0.6)
    drink = dice.color(((0.32, 0.20, 0.12), (0.70, 0.45, 0.20), (0.90, 0.86, 0.78), (0.45, 0.55, 0.25)))
    s.decorate(np.maximum(ellipse(s.u, s.v, 0, -0.50, 0.55, 0.13), ellipse(s.u, s.v, 0, -0.54, 0.57, 0.145)), drink)


def _clock(s: Stamp, dice: Dice) -> None:
    """An alarm clock: two bells, feet, a face with twelve ticks and two hands at any hour."""
    body, metal = dice.pair()
    for side in (-1.0, 1.0):
        s.paint(capsule(s.u, s.v, (0.40 * side, 0.60), (0.60 * side, 0.90), 0.08), metal, 0.7)
        bell = circle(s.u, s.v, 0.46 * side, -0.66, 0.27)
        cut = s.v + 0.58 - 0.75 * side * s.u + 0.30
        s.paint(np.maximum(bell, cut), metal, s.round(0.46 * side, -0.66, 0.3, 0.3, strength=0.5))
    s.paint(box(s.u, s.v, 0, -0.80, 0.05, 0.14), metal, 0.8)
    face = circle(s.u, s.v, 0, 0.10, 0.76)
    s.paint(face, body, s.round(0, 0.1, 0.8, 0.8, strength=0.45))
    s.decorate(face + 0.15, dice.color(PAPER), s.round(0, 0.1, 0.8, 0.8, strength=-0.12))
    # Twelve ticks: the plane folded at mirror lines until one sector of 30 degrees is left.
    u, v = np.abs(s.u), np.abs(s.v - 0.10)
    for angle in (60.0, 30.0):
        cos, sin = turn(angle)
        reflect = np.maximum(0.0, v * cos - u * sin) * 2.0
        u, v = u + reflect * sin, v - reflect * cos
    cos, sin = turn(30.0)
    tick = np.minimum(
        box(u, v, 0.50, 0.0, 0.075, 0.035), box(u * cos + v * sin, v * cos - u * sin, 0.50, 0.0, 0.075, 0.035)
    )
    s.decorate(tick, DARK)
    for length, thick, angle in ((0.30, 0.05, dice.between(0, 360)), (0.46, 0.035, dice.between(0, 360))):
        cos, sin = turn(angle)
        s.decorate(capsule(s.u, s.v, (0.0, 0.10), (sin * length, 0.10 - cos * length), thick), DARK)
    s.decorate(circle(s.u, s.v, 0, 0.10, 0.07), metal)


def _book(s: Stamp, dice: Dice) -> None:
    """An open book: two curved pages with lines of text, a picture, and the edge of the cover."""
    cover, paper = dice.color(), dice.color(PAPER)
    half = dice.between(0.84, 0.95)
    out = np.abs(s.u) * (1.0 / half)
    lift = 0.20 * (out - out * out) * 4.0 * 0.55
    v = s.v + lift + dice.between(-0.05, 0.12) * out
    high = dice.between(0.44, 0.54)
    s.paint(box(s.u, s.v + lift * 0.4, 0, 0.05, half + 0.05, high + 0.06, corner=0.04), cover)
    page = np.maximum(np.abs(s.u) - half, np.abs(v) - high)
    block = np.maximum(np.abs(s.u) - half - 0.02, np.abs(v - 0.05) - high)
    s.paint(block, paper, 0.62 + 0.3 * stripes(v * 26.0))
    gutter = np.minimum(1.0, 0.55 + out * 2.2) * (1.12 - 0.25 * out)
    s.paint(page, paper, gutter)
    lines = stripes(v * dice.between(5.2, 7.2) + 0.2, share=0.42)
    words = (
        lookup("fur", s.v * 0.0, s.u, frequency=70, shift=(dice.between(0, 99), dice.between(0, 99))) > 0.30
    ).astype(np.float32)
    text = lines * s.cover(np.maximum(np.abs(out - 0.52) - 0.36, np.abs(v) - high + 0.09))
    ragged = text * words
    if dice.chance(0.5):
        side = dice.sign()
        frame = box(s.u * side, v, 0.5 * half, -0.12, 0.30, 0.20)
        ragged = ragged * (1.0 - s.cover(frame - 0.05))
        s.decorate(frame, dice.color(), 0.7 + 0.5 * lookup("cloud", s.u, s.v, frequency=90))
    s.tint(ragged, DARK, strength=0.8)
    s.tint(np.clip(0.05 - np.abs(s.u), 0.0, 0.05) * 12.0, DARK, strength=0.6)


THINGS = {
    "house": Kind(_house, (0.97, 1.0), (0.36, 0.56), 4),
    "lamp": Kind(_lamp, (0.72, 1.0), (0.36, 0.58), 6),
    "cup": Kind(_cup, (0.97, 0.78), (0.28, 0.46), 12),
    "clock": Kind(_clock, (0.80, 1.0), (0.28, 0.48), 15),
    "book": Kind(_book, (1.02, 0.72), (0.32, 0.52), 25),
}
