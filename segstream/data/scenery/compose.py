"""From a seed and a number to a picture and its mask."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from segstream.classes import BACKGROUND, VOID
from segstream.data.scenery.backdrops import GROUNDS, UPRIGHTS, Area
from segstream.data.scenery.clutter import CLUTTER
from segstream.data.scenery.dice import Dice
from segstream.data.scenery.objects import OBJECTS
from segstream.data.scenery.places import PLACES, Place
from segstream.data.scenery.shapes import Plane
from segstream.data.scenery.stamp import Kind, Pose, Stamp

__all__ = ["NAMES", "picture"]

NAMES = ("background", *OBJECTS)
COUNTS = (3, 3, 4, 4, 5)  # objects in a picture, each as likely
REMNANT = 0.001  # of the picture's area: an object that shows less becomes void


@dataclass(frozen=True)
class Thing:
    """One thing of the picture before it is drawn. Lengths are in shorter sides of the picture.

    x, y   centre;  base: the height that it stands at, by which things hide each other
    """

    kind: Kind
    label: int
    pose: Pose
    base: float
    stands: bool


def picture(dice: Dice, size: tuple[int, int]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int16]]:
    """A picture [H W 3] and its mask [H W]: positions in `NAMES`, or VOID.

    >>> image, mask = picture(Dice(0), (64, 96))
    >>> image.shape, mask.shape
    ((64, 96, 3), (64, 96))
    """
    side = min(size)
    wide, high = size[1] / side, size[0] / side
    place = PLACES[dice.weighted({name: p.weight for name, p in PLACES.items()})]
    horizon = dice.between(*place.horizon) * high
    light = (dice.sign() * dice.between(0.3, 0.9), -dice.between(0.4, 0.9))
    things = _arrange(dice, place, wide=wide, high=high, horizon=horizon, light=light)
    canvas = np.zeros((3, *size), np.float32)
    row = round(horizon * side)
    UPRIGHTS[dice.pick(place.uprights)](Area.of(canvas, 0, row), dice)
    GROUNDS[dice.pick(place.grounds)](Area.of(canvas, row, size[0]), dice)
    owner = np.zeros(size, np.int16)
    for number, thing in enumerate(things, start=1):
        _put(canvas, owner, thing, number, side=side, dice=dice)
    return _develop(canvas, dice), _labels(owner, things)


def _arrange(
    dice: Dice, place: Place, *, wide: float, high: float, horizon: float, light: tuple[float, float]
) -> list[Thing]:
    """Choose things and places for them, the farthest first."""
    left = dict(place.objects)
    names: list[str] = []
    for _ in range(dice.pick(COUNTS)):
        name = dice.weighted(left)
        names.append(name)
        left[name] *= 0.12  # a second one of the same class is possible but rare
    names += [dice.pick(place.clutter) for _ in range(dice.pick((0, 1, 1, 2)))]
    things: list[Thing] = []
    for name in names:
        best: tuple[float, Thing] | None = None
        for _ in range(8):
            thing = _pose(dice, name, place, wide=wide, high=high, horizon=horizon, light=light)
            overlap = max((_overlap(thing, other) for other in things), default=0.0)
            if best is None or overlap < best[0]:
                best = overlap, thing
            if overlap < dice.between(0.0, 0.5):
                break
        if best is not None:
            things.append(best[1])
    return sorted(things, key=lambda thing: thing.base)


def _pose(
    dice: Dice, name: str, place: Place, *, wide: float, high: float, horizon: float, light: tuple[float, float]
) -> Thing:
    kind = OBJECTS[name] if name in OBJECTS else CLUTTER[name]
    label = NAMES.index(name) if name in OBJECTS else BACKGROUND
    near = dice.between(0.0, 1.0)  # what is nearer is larger and stands lower
    low, large = kind.size
    length = low + (large - low) * (0.7 * near + 0.3 * dice.between(0.0, 1.0))
    pose = Pose(
        x=dice.between(0.10, wide - 0.10),
        y=0.0,
        unit=length / (2.0 * max(kind.reach)),
        reach=kind.reach,
        angle=dice.between(-kind.tilt, kind.tilt),
        mirror=dice.sign(),
        stretch=dice.between(0.86, 1.16),
        light=light,
    )
    half = pose.box()[1]
    if name in place.air:
        y = dice.between(0.3 * half, max(0.4 * half, horizon - 0.2 * half))
        return Thing(kind, label, replace(pose, y=y), horizon * 0.5 + y * 0.1, False)
    if name in place.sunk:
        y = dice.between(min(horizon + 0.8 * half, high - half), high - 0.5 * half)
        return Thing(kind, label, replace(pose, y=y), y + half, False)
    base = horizon + (high - horizon) * (0.10 + 0.85 * near)
    base = max(base, 0.85 * 2.0 * half)  # at most a little of it leaves the picture at the top
    return Thing(kind, label, replace(pose, y=base - half), base, kind.shadow)


def _overlap(first: Thing, second: Thing) -> float:
    """Common part of the two upright boxes, as a share of the smaller."""
    (aw, ah), (bw, bh) = first.pose.box(), second.pose.box()
    across = min(first.pose.x + aw, second.pose.x + bw) - max(first.pose.x - aw, second.pose.x - bw)
    down = min(first.pose.y + ah, second.pose.y + bh) - max(first.pose.y - ah, second.pose.y - bh)
    return max(across, 0.0) * max(down, 0.0) / min(4.0 * aw * ah, 4.0 * bw * bh)


def _put(canvas: Plane, owner: npt.NDArray[np.int16], thing: Thing, number: int, *, side: int, dice: Dice) -> None:
    """Draw a thing into the picture, over what is there."""
    pose = replace(thing.pose, x=thing.pose.x * side, y=thing.pose.y * side, unit=thing.pose.unit * side)
    stamp = Stamp(pose, owner.shape)
    thing.kind.draw(stamp, dice)
    if thing.stands:
        _shadow(canvas, pose, thing.base * side)
    part = canvas[:, stamp.rows, stamp.columns]
    part *= 1.0 - stamp.alpha
    part += stamp.rgb
    owner[stamp.rows, stamp.columns][stamp.alpha > 0.5] = number


def _shadow(canvas: Plane, pose: Pose, base: float) -> None:
    """A soft dark spot on the ground, away from the light."""
    wide = pose.box()[0]
    high = 0.22 * wide
    x = pose.x - 0.35 * wide * pose.light[0]
    shape = canvas.shape[1:]
    spot = Stamp(Pose(x, base - 0.3 * high, 1.0, (wide, high)), (shape[0], shape[1]))
    u, v = spot.u * (1.0 / wide), spot.v * (1.0 / high)
    canvas[:, spot.rows, spot.columns] *= 1.0 - np.clip(0.8 * (1.0 - u * u - v * v), 0.0, 0.45)


def _labels(owner: npt.NDArray[np.int16], things: list[Thing]) -> npt.NDArray[np.int16]:
    """Class of each pixel. Of an object that is hidden but for a remnant nobody could tell the class: void."""
    shown = np.bincount(owner.ravel(), minlength=len(things) + 1)
    least = max(4, math.ceil(REMNANT * owner.size))
    classes = [BACKGROUND] + [
        thing.label if thing.label == BACKGROUND or count >= least else VOID
        for thing, count in zip(things, shown[1:].tolist(), strict=True)
    ]
    return np.array(classes, np.int16)[owner]


def _develop(canvas: Plane, dice: Dice) -> npt.NDArray[np.uint8]:
    """What a camera adds: exposure, a colour cast, darker corners, blur and noise.   [3 H W] -> [H W 3]"""
    _, high, wide = canvas.shape
    exposure, cast = dice.between(0.78, 1.20), dice.between(-0.08, 0.08)
    tint = dice.between(-0.04, 0.04)
    haze = dice.between(0.0, 0.10)
    corner = dice.between(0.0, 0.25)
    blurred, noise = dice.chance(0.3), dice.between(1.0, 10.0)
    x = (np.arange(wide, dtype=np.float32) * (2.0 / wide) - 1.0)[None, :]
    y = (np.arange(high, dtype=np.float32) * (2.0 / high) - 1.0)[:, None]
    falloff = 1.0 - corner * 0.5 * (x * x + y * y)
    for plane, gain in zip(canvas, (1.0 + cast, 1.0 + tint, 1.0 - cast), strict=True):
        plane *= falloff * (255.0 * exposure * gain * (1.0 - haze))
    canvas += 255.0 * haze * 0.8
    if blurred:
        share = 0.25 * min(1.0, min(high, wide) / 192)  # a small picture is the same one seen coarser
        canvas[:, :, 1:-1] = (1.0 - 2.0 * share) * canvas[:, :, 1:-1] + share * (canvas[:, :, :-2] + canvas[:, :, 2:])
        canvas[:, 1:-1] = (1.0 - 2.0 * share) * canvas[:, 1:-1] + share * (canvas[:, :-2] + canvas[:, 2:])
    canvas += (dice.bytes(canvas.shape).astype(np.float32) - 127.5) * (noise / 128.0)
    np.clip(canvas, 0.0, 255.0, out=canvas)
    return np.ascontiguousarray(canvas.astype(np.uint8).transpose(1, 2, 0))
