"""Signed distances to simple shapes: negative inside, positive outside, in the unit of the coordinates.

U  right   [H W]        V  down  [H W]
Some are distances only near the edge, which is all that an antialiased edge needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Plane", "box", "capsule", "circle", "convex", "ellipse", "petals", "union"]

Plane = npt.NDArray[np.floating[Any]]  # float32; NumPy's types do not know that a Python float leaves it so


def circle(u: Plane, v: Plane, x: float, y: float, radius: float) -> Plane:
    """
    >>> circle(np.float32([0, 3]), np.float32([0, 4]), 0, 0, 1).tolist()
    [-1.0, 4.0]
    """
    du, dv = u - x, v - y
    du *= du
    dv *= dv
    du += dv
    np.sqrt(du, out=du)
    du -= radius
    return du


def ellipse(u: Plane, v: Plane, x: float, y: float, rx: float, ry: float) -> Plane:
    """
    >>> ellipse(np.float32([0, 2]), np.float32([0, 0]), 0, 0, 2, 1).tolist()
    [-1.0, 0.0]
    """
    du, dv = (u - x) * (1.0 / rx), (v - y) * (1.0 / ry)
    du *= du
    dv *= dv
    du += dv
    np.sqrt(du, out=du)
    du -= 1.0
    du *= min(rx, ry)
    return du


def box(u: Plane, v: Plane, x: float, y: float, hx: float, hy: float, *, corner: float = 0.0) -> Plane:
    """A box of half widths `hx`, `hy`; `corner` rounds it.

    >>> box(np.float32([0, 3]), np.float32([0, 0]), 0, 0, 1, 2).tolist()
    [-1.0, 2.0]
    """
    du: Plane = np.abs(u - x)
    dv: Plane = np.abs(v - y)
    du -= hx - corner
    dv -= hy - corner
    if not corner:
        return np.maximum(du, dv)
    inside = np.minimum(np.maximum(du, dv), 0.0)
    np.maximum(du, 0.0, out=du)
    np.maximum(dv, 0.0, out=dv)
    du *= du
    dv *= dv
    du += dv
    np.sqrt(du, out=du)
    du += inside
    du -= corner
    return du


def capsule(u: Plane, v: Plane, start: tuple[float, float], end: tuple[float, float], radius: float) -> Plane:
    """A thick line with round ends.

    >>> capsule(np.float32([1, 5]), np.float32([0, 0]), (0, 0), (2, 0), 0.5).tolist()
    [-0.5, 2.5]
    """
    ax, ay = start
    bx, by = end[0] - ax, end[1] - ay
    length = max(bx * bx + by * by, 1e-9)
    du, dv = u - ax, v - ay
    along = du * (bx / length)
    along += dv * (by / length)
    np.clip(along, 0.0, 1.0, out=along)
    du -= along * bx
    dv -= along * by
    du *= du
    dv *= dv
    du += dv
    np.sqrt(du, out=du)
    du -= radius
    return du


def convex(u: Plane, v: Plane, corners: Sequence[tuple[float, float]]) -> Plane:
    """A convex polygon, its corners clockwise on the screen (v points down).

    >>> convex(np.float32([1, 5]), np.float32([1, 1]), [(0, 0), (2, 0), (2, 2), (0, 2)]).tolist()
    [-1.0, 3.0]
    """
    inside: Plane | None = None
    for (ax, ay), (bx, by) in zip(corners, [*corners[1:], corners[0]], strict=True):
        length = math.sqrt((bx - ax) * (bx - ax) + (by - ay) * (by - ay))
        nx, ny = (by - ay) / length, (ax - bx) / length
        side: Plane = u * nx
        side += v * ny
        side -= ax * nx + ay * ny
        inside = side if inside is None else np.maximum(inside, side, out=inside)
    if inside is None:
        raise ValueError("A polygon needs corners.")
    return inside


def petals(u: Plane, v: Plane, x: float, y: float, *, count: int, inner: float, outer: float) -> tuple[Plane, Plane]:
    """A rosette, and cos(count * angle) of every point: the real part of a power, so no arc tangent is needed.

    >>> edge, _ = petals(np.float32([2, 0]), np.float32([0, 0]), 0, 0, count=5, inner=1, outer=3)
    >>> edge.tolist()
    [-1.0, -2.0]
    """
    du, dv = u - x, v - y
    radius = np.sqrt(du * du + dv * dv)
    safe = np.maximum(radius, (1e-6))
    cos, sin = du / safe, dv / safe
    real, imaginary = cos, sin
    for _ in range(count - 1):
        real, imaginary = real * cos - imaginary * sin, real * sin + imaginary * cos
    middle, swing = (inner + outer) / 2, (outer - inner) / 2
    return radius - middle - real * swing, real


def union(first: Plane, *others: Plane) -> Plane:
    """
    >>> union(np.float32([1, 2]), np.float32([0, 3])).tolist()
    [0.0, 2.0]
    """
    result = first
    for other in others:
        result = np.minimum(result, other)
    return result
