"""The objective's quad form: machine code by Numba for float32 logits on a CPU.

Between the same four low-resolution points (a quad) bilinear upsampling makes every logit A + Bx + Cy + Dxy in the
pixel's place (x, y). Four exponentials a class therefore serve all pixels of the quad, and one multiplication leads
from pixel to pixel. A quad is taken in tiles of at most 8 x 4 pixels, which bounds how far rounding adds up. The
classes are the innermost loop and lie side by side, padded to whole vectors; beside the gradient nothing is larger than
two rows of low-resolution points.

    K slots   P slots padded   h w low resolution   H W full size   gap: see `objective_plain.places`
    corner = (upper, lower, left, right): two of the rows in `points` and two columns
    tile = (start, stop, begin, end): pixels start..stop-1 down, begin..end-1 across

All machine code stands in this one file, since Numba's cache on disk looks at the age of one file only.

Images are cut into strips of rows of quads, the same ones for any number of threads; the row of points that two strips
share is put together from a private row afterwards. So the bits do not depend on the number of threads. The strips run
on ordinary threads outside the interpreter's lock, since Numba's own thread layers must not be entered twice at once
(workqueue) or leave a forked child dead (omp).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic

from segstream.classes import UNLABELED, VOID

if TYPE_CHECKING:
    from segstream.functional.objective_quad import Given, Grid, Scratch, Sinks

__all__ = ["ALL", "LANES", "TILE_COLUMNS", "TILE_ROWS", "compiled"]

if numba.core.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("Numba's compiler is switched off (NUMBA_DISABLE_JIT)")

logger = logging.getLogger(__name__)

Array: TypeAlias = Any  # arrays and numbers as the machine code sees them: float32, int64
Real: TypeAlias = Any
Int: TypeAlias = Any
Corner: TypeAlias = tuple[Int, Int, Int, Int]
Tile: TypeAlias = tuple[Int, Int, Int, Int]
F = TypeVar("F", bound=Callable[..., Any])

LANES: Final = 16  # floats in the widest vector in use
TILE_ROWS: Final = 8
TILE_COLUMNS: Final = 4  # `_row` and `_spread` write these out
ALL: Final = 2  # the row of `allowed` in which every class is possible
# Rows of `Scratch.work` after the four for a row's pixels: the steps of the exponentials and the tile's gradient sums.
RIGHT, DOWN, TURN, PLAIN, BY_X, BY_Y, BY_XY = 4, 5, 6, 7, 8, 9, 10

ZERO, HALF, ONE, BIAS = np.float32(0), np.float32(0.5), np.float32(1), np.float32(127)
RANGE = np.float32(40)  # largest minus smallest logit of a quad that float32 exponentials take without loss
FAR = np.float32(-60)  # e^-60 beside 1 is nothing, and no denormal number even when weighted
LOG2_E, LN_2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
C2, C3, C4, C5, C6, C7 = (np.float32(1 / math.factorial(n)) for n in range(2, 8))

# Sums may be reordered and products fused; that there is no NaN is not assumed. Without reference counts (`_nrt`): in
# the innermost code they cost more than the arithmetic, so nothing is allocated here. Inlined into `strip` by force:
# left to the compiler, a function could run as its own copy in the process that compiled it and as the inlined one in
# those that load it from disk, with different bits.
FLAGS: Final[dict[str, Any]] = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "nogil": True,
    "_nrt": False,
}


def _inlined(function: F) -> F:
    compiled: F = numba.njit(forceinline=True, **FLAGS)(function)
    return compiled


@intrinsic
def _power_of_two(typing_context: Any, exponent: Any) -> Any:
    """2^(exponent - 127) as float32, by writing the int32 into the exponent's bits."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(args[0], ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return numba.float32(numba.int32), code


@_inlined
def _exp(x: Real) -> Real:
    """e^x for -87 < x < 88 within 3e-7, in operations that vectorise: 2^n e^f with |f| <= ln(2) / 2."""
    biased = np.int32(x * LOG2_E + (BIAS + HALF))  # cutting off is rounding down: the number is positive
    # The bias goes off again in whole numbers: among floats the flags would let it be multiplied out, and rounded.
    f = x - np.float32(np.int32(biased - np.int32(127))) * LN_2
    return (((((((C7 * f + C6) * f + C5) * f + C4) * f + C3) * f + C2) * f + ONE) * f + ONE) * _power_of_two(biased)  # type: ignore[call-arg]


@_inlined
def _load(logits: Array, image: Int, y: Int, scratch: Scratch, row: Int) -> None:
    """One row of low-resolution points, classes to the inside, with each point's extremes."""
    for x in range(logits.shape[3]):
        scratch.highest[row, x] = scratch.lowest[row, x] = logits[image, 0, y, x]
    for z in range(logits.shape[1]):
        for x in range(logits.shape[3]):
            value = logits[image, z, y, x]
            scratch.points[row, x, z] = value
            scratch.highest[row, x] = max(scratch.highest[row, x], value)
            scratch.lowest[row, x] = min(scratch.lowest[row, x], value)


@_inlined
def _clear(slopes: Array, row: Int) -> None:
    for x in range(slopes.shape[1]):
        for z in range(slopes.shape[2]):
            slopes[row, x, z] = 0


@_inlined
def _exponentials(
    points: Array, corner: Corner, shift: Real, x: Real, y: Real, fx: Real, fy: Real, work: Array
) -> None:
    """A tile's four exponentials a class: its first pixel, the steps to the right and down, the step of the step."""
    upper, lower, left, right = corner
    for z in range(work.shape[1]):
        b = points[upper, right, z] - points[upper, left, z]
        c = points[lower, left, z] - points[upper, left, z]
        d = points[lower, right, z] - points[lower, left, z] - b
        work[0, z] = _exp(points[upper, left, z] - shift + b * x + (c + d * x) * y)
        work[RIGHT, z] = _exp((b + d * y) * fx)
        work[DOWN, z] = _exp((c + d * x) * fy)
        work[TURN, z] = _exp(d * fx * fy)


@_inlined
def _next_row(work: Array) -> None:
    for z in range(work.shape[1]):
        work[0, z] *= work[DOWN, z]
        work[RIGHT, z] *= work[TURN, z]


@_inlined
def _row(work: Array) -> tuple[Real, Real, Real, Real]:
    """From the first pixel of a tile's row to the other three; gives each pixel's sum over the classes."""
    s0 = s1 = s2 = s3 = ZERO
    for z in range(work.shape[1]):
        e0, step = work[0, z], work[RIGHT, z]
        e1 = e0 * step
        e2 = e1 * step
        e3 = e2 * step
        work[1, z], work[2, z], work[3, z] = e1, e2, e3
        s0 += e0
        s1 += e1
        s2 += e2
        s3 += e3
    return s0, s1, s2, s3


@_inlined
def _possible(work: Array, i: Int, allowed: Array, image: Int, kind: Int) -> Real:
    """The sum over possible classes, in the order of the sum over all."""
    total = ZERO
    for z in range(work.shape[1]):
        total += work[i, z] * allowed[image, kind, z]
    return total


@_inlined
def _best(bits: Array, i: Int, allowed_bits: Array, image: Int, kind: Int) -> Int:
    """The possible class with the largest e; of equal ones the lowest.

    Positive floats are ordered as their bits are. Behind the bits stands the class, counted from above, so that one
    maximum of whole numbers, which vectorises, finds both.
    """
    last = bits.shape[1] - 1
    key = np.int64(0)
    for z in range(bits.shape[1]):
        key = max(key, (np.int64(bits[i, z] & allowed_bits[image, kind, z]) << 32) | (last - z))
    return last - (key & 0xFFFFFFFF)


@_inlined
def _spread(scratch: Scratch, allowed: Array, image: Int, y: Real) -> None:
    """Adds (k_i - m_i allowed_i) e_i of a row's four pixels to the tile's sums: plain, times x, times y, times both."""
    work, k, m, x, kind = scratch.work, scratch.k, scratch.m, scratch.x, scratch.kind
    k0, k1, k2, k3 = k[0], k[1], k[2], k[3]
    m0, m1, m2, m3 = m[0], m[1], m[2], m[3]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    a0, a1, a2, a3 = kind[0], kind[1], kind[2], kind[3]
    for z in range(work.shape[1]):
        g0 = (k0 - m0 * allowed[image, a0, z]) * work[0, z]
        g1 = (k1 - m1 * allowed[image, a1, z]) * work[1, z]
        g2 = (k2 - m2 * allowed[image, a2, z]) * work[2, z]
        g3 = (k3 - m3 * allowed[image, a3, z]) * work[3, z]
        g = g0 + g1 + g2 + g3
        gx = x0 * g0 + x1 * g1 + x2 * g2 + x3 * g3
        work[PLAIN, z] += g
        work[BY_X, z] += gx
        work[BY_Y, z] += y * g
        work[BY_XY, z] += y * gx


@_inlined
def _to_corners(work: Array, slopes: Array, corner: Corner) -> None:
    """A tile's sums into the gradients of its points: the weights (1-x)(1-y), x(1-y), (1-x)y and xy multiplied out."""
    upper, lower, left, right = corner
    for z in range(work.shape[1]):
        plain, by_x, by_y, by_xy = work[PLAIN, z], work[BY_X, z], work[BY_Y, z], work[BY_XY, z]
        slopes[upper, left, z] += plain - by_x - by_y + by_xy
        slopes[upper, right, z] += by_x - by_xy
        slopes[lower, left, z] += by_y - by_xy
        slopes[lower, right, z] += by_xy


@_inlined
def _logit(points: Array, corner: Corner, x: Real, y: Real, z: Int) -> Real:
    """The logit of one class at one pixel, in float64."""
    upper, lower, left, right = corner
    v00, v10 = np.float64(points[upper, left, z]), np.float64(points[lower, left, z])
    above = v00 + (points[upper, right, z] - v00) * x
    below = v10 + (points[lower, right, z] - v10) * x
    return above + (below - above) * y


@_inlined
def _pixel(
    given: Given,
    scratch: Scratch,
    sinks: Sinks,
    corner: Corner,
    place: tuple[Real, Real],
    pixel: tuple[Int, Int, Int],
    sums: tuple[Real, Real, Real, Real],
) -> tuple[Real, Real]:
    """What METHODS section 2 decides about one pixel that is not void; gives its factors k and m.

    pixel = (row of `work` with its e^(logit - shift), mask, best possible class or -1 where it has a label)
    sums = (over all classes, its shift, over the possible classes or 0 where all are, its shift)
    """
    i, mask, best = pixel
    total, shift, possible, possible_shift = sums
    work, label = scratch.work, mask
    k = m = 0.0
    if mask >= 0:
        sinks.confidence[mask] += np.float64(work[i, mask]) / total
        sinks.counts[2, mask] += 1
    if best >= 0:
        sinks.counts[1, best] += 1
        label = -1
        if np.float64(work[i, best]) / total > given.threshold:  # the E-step: p from the full softmax
            sinks.counts[0, best] += 1
            label = best
        if possible > 0:
            sinks.losses[1] += math.log(np.float64(total) / possible) + (shift - possible_shift)
            k += given.latent_weight / total
            m = given.latent_weight / possible
    elif mask < 0:
        label = 0  # unlabelled, and nothing but background is possible
    if label >= 0:
        x, y = place
        sinks.losses[0] += math.log(total) + shift - _logit(scratch.points, corner, x, y, label)
        k += given.label_weight / total
        weight = np.float32(given.label_weight)
        work[PLAIN, label] -= weight
        work[BY_X, label] -= weight * x
        work[BY_Y, label] -= weight * y
        work[BY_XY, label] -= weight * x * y
    return np.float32(k), np.float32(m)


@_inlined
def _tile(given: Given, grid: Grid, scratch: Scratch, sinks: Sinks, image: Int, corner: Corner, tile: Tile) -> None:
    """All pixels of a tile by four exponentials a class."""
    start, stop, begin, end = tile
    upper, lower, left, right = corner
    high, work, x = scratch.highest, scratch.work, scratch.x
    shift = max(max(high[upper, left], high[upper, right]), max(high[lower, left], high[lower, right]))
    for i in range(TILE_COLUMNS):
        x[i] = grid.column_place[begin + i] if begin + i < end else ZERO
    fx, fy = _step(grid.column_place, begin, end, grid.column_step), _step(grid.row_place, start, stop, grid.row_step)
    _exponentials(scratch.points, corner, shift, x[0], grid.row_place[start], fx, fy, work)
    for z in range(given.slots, work.shape[1]):
        work[0, z] = 0
    for j in range(start, stop):
        if j > start:
            _next_row(work)
        s0, s1, s2, s3 = _row(work)
        y = grid.row_place[j]
        some = False
        for i in range(TILE_COLUMNS):
            scratch.k[i] = scratch.m[i] = scratch.kind[i] = 0
            mask = np.int64(given.masks[image, j, begin + i]) if begin + i < end else np.int64(VOID)
            if mask == VOID:
                continue
            some = True
            total = s0 if i == 0 else s1 if i == 1 else s2 if i == 2 else s3
            best, possible = np.int64(-1), ZERO
            if mask <= 0 and not given.sole[image, mask - UNLABELED]:
                kind = scratch.kind[i] = mask - UNLABELED
                best = _best(scratch.bits, i, given.allowed_bits, image, kind)
                if not given.every[image, kind]:
                    possible = _possible(work, i, given.allowed, image, kind)
            pixel, sums = (np.int64(i), mask, best), (total, shift, possible, shift)
            scratch.k[i], scratch.m[i] = _pixel(given, scratch, sinks, corner, (x[i], y), pixel, sums)
        if some and given.want_gradient:
            _spread(scratch, given.allowed, image, y)


@_inlined
def _step(place: Array, start: Int, stop: Int, step: float) -> Real:
    """How far the next pixel is: nowhere if there is none, or beyond the outermost points."""
    return np.float32(0.0 if stop - start == 1 or place[start] == place[start + 1] else step)


@_inlined
def _shifted(work: Array, e: Int, shift: Real, given: Given, image: Int, kind: Int) -> Real:
    """work[e] = allowed * e^(logit - shift) for the logits in work[RIGHT]; gives the sum."""
    total = ZERO
    for z in range(given.slots):
        work[e, z] = given.allowed[image, kind, z] * _exp(min(max(work[RIGHT, z] - shift, FAR), ZERO))
        total += work[e, z]
    return total


@_inlined
def _plain_tile(
    given: Given, grid: Grid, scratch: Scratch, sinks: Sinks, image: Int, corner: Corner, tile: Tile
) -> None:
    """The same pixel by pixel, for logits too far apart: every class its own exponential, possible ones two."""
    start, stop, begin, end = tile
    work = scratch.work
    for i in range(TILE_COLUMNS):
        scratch.k[i] = scratch.m[i] = scratch.kind[i] = 0
    for j in range(start, stop):
        for i in range(begin, end):
            mask = np.int64(given.masks[image, j, i])
            if mask == VOID:
                continue
            x, y = grid.column_place[i], grid.row_place[j]
            latent = mask <= 0 and not given.sole[image, mask - UNLABELED]
            kind = mask - UNLABELED if latent else np.int64(ALL)
            highest = possible_highest = np.float32(-np.inf)
            best, possible = np.int64(-1), ZERO
            for z in range(given.slots):
                logit = work[RIGHT, z] = np.float32(_logit(scratch.points, corner, x, y, z))
                highest = max(highest, logit)
                if latent and logit > possible_highest and given.allowed[image, kind, z] > 0:
                    possible_highest = logit
                    best = np.int64(z)
            total = _shifted(work, np.int64(0), highest, given, image, np.int64(ALL))
            if latent and not given.every[image, kind]:
                possible = _shifted(work, np.int64(1), possible_highest, given, image, kind)
            pixel, sums = (np.int64(0), mask, best), (total, highest, possible, possible_highest)
            k, m = _pixel(given, scratch, sinks, corner, (x, y), pixel, sums)
            scratch.k[0], scratch.k[1] = k, -m
            scratch.x[0] = scratch.x[1] = x
            if given.want_gradient:
                _spread(scratch, given.allowed, image, y)


@_inlined
def _is_void(masks: Array, image: Int, tile: Tile) -> Any:
    start, stop, begin, end = tile
    for j in range(start, stop):
        for i in range(begin, end):
            if masks[image, j, i] != VOID:
                return False
    return True


@_inlined
def _is_tame(scratch: Scratch, corner: Corner) -> Any:
    """Whether the logits at the four points lie close enough together for the short way."""
    upper, lower, left, right = corner
    high, low = scratch.highest, scratch.lowest
    highest = max(max(high[upper, left], high[upper, right]), max(high[lower, left], high[lower, right]))
    lowest = min(min(low[upper, left], low[upper, right]), min(low[lower, left], low[lower, right]))
    return highest - lowest <= RANGE


@_inlined
def _finish(scratch: Scratch, row: Int, target: Array) -> None:
    """A finished row of gradients, classes to the outside: target [K, w]."""
    for z in range(target.shape[0]):
        for x in range(target.shape[1]):
            target[z, x] = scratch.slopes[row, x, z]


def _strip(
    logits: Array,
    gradient: Array,
    given: Given,
    grid: Grid,
    scratch: Scratch,
    sinks: Sinks,
    image: Int,
    first: Int,
    last: Int,
) -> None:
    """The gaps first..last-1 of one image: adds to the sinks and writes rows of the gradient [B, K, h, w]."""
    height, width = logits.shape[2], logits.shape[3]
    upper, lower = np.int64(0), np.int64(1)  # typed, here and below: a literal would be compiled for once more
    _load(logits, image, max(first - 1, np.int64(0)), scratch, upper)
    _clear(scratch.slopes, upper)
    for gap in range(first, last):
        _load(logits, image, min(gap, height - 1), scratch, lower)
        _clear(scratch.slopes, lower)
        for r in range(grid.row_first[gap], grid.row_first[gap + 1]):
            for c in range(grid.column_tiles.shape[0]):
                left = max(grid.column_tiles[c, 0] - 1, np.int64(0))
                right = min(grid.column_tiles[c, 0], width - 1)
                corner = (upper, lower, left, right)
                tile = (grid.row_tiles[r, 0], grid.row_tiles[r, 1], grid.column_tiles[c, 1], grid.column_tiles[c, 2])
                if _is_void(given.masks, image, tile):
                    continue
                for t in range(PLAIN, BY_XY + 1):
                    for z in range(scratch.work.shape[1]):
                        scratch.work[t, z] = 0
                if _is_tame(scratch, corner):
                    _tile(given, grid, scratch, sinks, image, corner, tile)
                else:
                    _plain_tile(given, grid, scratch, sinks, image, corner, tile)
                if given.want_gradient:
                    _to_corners(scratch.work, scratch.slopes, corner)
        if given.want_gradient and gap > 0:  # the point above gap 0 is no point
            if gap == first:
                _finish(scratch, upper, sinks.edge)
            else:
                _finish(scratch, upper, gradient[image, :, gap - 1])
        upper, lower = lower, upper
    if given.want_gradient and last <= height:
        _finish(scratch, upper, gradient[image, :, last - 1])


def compiled(given: Given, grid: Grid, scratch: Scratch, sinks: Sinks) -> Callable[..., None]:
    """`_strip` as machine code for arguments of these types, from the disk where it was compiled before.

    Logits of any memory order are taken as they are, so that there is one such code only.
    """
    any_order, rows = numba.types.Array(numba.float32, 4, "A"), numba.types.Array(numba.float32, 4, "C")
    whole = [numba.int64] * 3
    signature = numba.void(any_order, rows, *map(numba.typeof, (given, grid, scratch, sinks)), *whole)
    strip: Callable[..., None]
    try:
        strip = numba.njit(signature, cache=True, **FLAGS)(_strip)
    except RuntimeError as error:  # no folder that can be written to
        logger.info("The objective's machine code cannot be kept, so every process compiles it anew: %s", error)
        strip = numba.njit(signature, **FLAGS)(_strip)
    return strip
