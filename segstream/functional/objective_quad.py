"""Runs the quad form (`objective_machine`): cuts images into strips, shares these out, adds up what they found.

The strips are the same ones for any number of threads, and their sums are added in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from segstream.functional.objective_machine import (
    ALL,
    LANES,
    TILE_COLUMNS,
    TILE_ROWS,
    compiled,
)
from segstream.functional.objective_plain import Problem, Sums, places

__all__ = ["accumulate"]

STRIPS = 16  # at least so many in all, if there are rows enough
Array: TypeAlias = npt.NDArray[Any]


class Given(NamedTuple):
    """What is to be computed, for all images."""

    masks: Array  # [B, H, W] int16
    allowed: Array  # [B, 3, P] float32 0 or 1: of unlabelled, annotated-background and other pixels
    allowed_bits: Array  # the same as int32, 0 or all bits
    sole: Array  # [B, 2] bool: slot 0 alone is possible
    every: Array  # [B, 2] bool: all slots are
    slots: int
    label_weight: float
    latent_weight: float
    threshold: float
    want_gradient: bool


class Grid(NamedTuple):
    """Where the pixels lie among the low-resolution points."""

    row_tiles: Array  # [n, 2] int64: start, stop
    row_first: Array  # [h + 2] int64: the first of a gap's row tiles
    row_place: Array  # [H] float32
    row_step: float
    column_tiles: Array  # [m, 3] int64: gap, begin, end
    column_place: Array  # [W] float32
    column_step: float


class Scratch(NamedTuple):
    """Working memory of one strip."""

    points: Array  # [2, w, P] logits of the rows above and below, classes to the inside
    slopes: Array  # [2, w, P] their gradients
    highest: Array  # [2, w] each point's extremes
    lowest: Array
    work: Array  # [11, P]
    bits: Array  # [11, P] the same as int32
    k: Array  # [4] of each pixel of a tile's row: the factor of e in its gradient
    m: Array  # [4] that of the possible classes
    x: Array  # [4] its place
    kind: Array  # [4] int64, its row of `allowed`


class Sinks(NamedTuple):
    """Where one strip puts what it finds."""

    edge: Array  # [K, w] its share in the row of points above its first quad
    losses: Array  # [2] labelled, latent
    confidence: Array  # [K]
    counts: Array  # [3, K] kept, candidates, given


def accumulate(problem: Problem, *, label_weight: float, latent_weight: float, gradient: Tensor | None) -> Sums:
    """As `objective_plain.accumulate`, for float32 logits on the CPU; `gradient` has to be contiguous.

    >>> sums = accumulate(_smallest(), label_weight=1.0, latent_weight=1.0, gradient=None)
    >>> sums.label_loss, sums.confidence_count.tolist()
    (0.0, [1])
    """
    images, slots, h, w = problem.logits.shape
    given = _given(problem, label_weight, latent_weight, gradient is not None)
    grid = _grid(h, w, *problem.masks.shape[1:])
    cuts = max(1, min(h + 1, math.ceil(STRIPS / images)))
    bounds = [(h + 1) * i // cuts for i in range(cuts + 1)]
    strips = list(product(range(images), range(cuts)))
    sinks = [_sinks(slots, w if gradient is not None and cut else 0) for _, cut in strips]
    logits = problem.logits.numpy()
    target = np.empty((0, 0, 0, 0), np.float32) if gradient is None else gradient.numpy()

    def run(i: int) -> None:
        image, cut = strips[i]
        scratch = _scratch(w, given.allowed.shape[2])
        STRIP(logits, target, given, grid, scratch, sinks[i], image, bounds[cut], bounds[cut + 1])

    _on_threads(run, len(strips))
    if gradient is not None:
        for (image, cut), sink in zip(strips, sinks, strict=True):
            if cut:
                target[image, :, bounds[cut] - 1] += sink.edge
    label_loss, latent_loss = (math.fsum(s.losses[i] for s in sinks) for i in (0, 1))
    kept, candidates, count = torch.from_numpy(np.sum([s.counts for s in sinks], axis=0))
    confidence = torch.from_numpy(np.sum([s.confidence for s in sinks], axis=0))
    return Sums(label_loss, latent_loss, kept, candidates, confidence, count)


def _on_threads(run: Callable[[int], None], n: int) -> None:
    """run(0), ..., run(n - 1) on as many threads as PyTorch uses. They live for this call only: a pool that is kept
    would be dead in a forked child."""
    threads = min(torch.get_num_threads(), n)
    if threads == 1:
        for i in range(n):
            run(i)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, range(n)):
            pass


def _given(problem: Problem, label_weight: float, latent_weight: float, want_gradient: bool) -> Given:
    images, slots = problem.logits.shape[:2]
    allowed = np.zeros((images, ALL + 1, math.ceil(slots / LANES) * LANES), np.float32)
    allowed[:, :ALL, :slots] = problem.allowed.numpy()
    allowed[:, ALL, :slots] = 1
    return Given(
        masks=problem.masks.contiguous().numpy(),
        allowed=allowed,
        allowed_bits=-allowed.astype(np.int32),
        sole=problem.sole.cpu().numpy(),
        every=problem.every.cpu().numpy(),
        slots=slots,
        label_weight=float(label_weight),
        latent_weight=float(latent_weight),
        threshold=float(problem.threshold),
        want_gradient=want_gradient,
    )


def _grid(h: int, w: int, height: int, width: int) -> Grid:
    rows, row_place = _tiles(h, height, TILE_ROWS)
    columns, column_place = _tiles(w, width, TILE_COLUMNS)
    return Grid(
        row_tiles=np.ascontiguousarray(rows[:, 1:]),
        row_first=np.searchsorted(rows[:, 0], np.arange(h + 2)),
        row_place=row_place,
        row_step=h / height,
        column_tiles=columns,
        column_place=column_place,
        column_step=w / width,
    )


def _tiles(low: int, full: int, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Along one axis the tiles [n, 3] (gap, start, stop) of at most `size` pixels of one gap, and all places."""
    gap, place = places(low, full)
    starts = np.searchsorted(gap, np.arange(low + 2)).tolist()
    gaps = range(low + 1)
    tiles = [(g, a, min(a + size, starts[g + 1])) for g in gaps for a in range(starts[g], starts[g + 1], size)]
    return np.array(tiles, np.int64), place.astype(np.float32)


def _scratch(w: int, lanes: int) -> Scratch:
    work = np.zeros((11, lanes), np.float32)
    k, m, x = (np.zeros(TILE_COLUMNS, np.float32) for _ in range(3))
    points, slopes = (np.zeros((2, w, lanes), np.float32) for _ in range(2))
    highest, lowest = (np.zeros((2, w), np.float32) for _ in range(2))
    kind = np.zeros(TILE_COLUMNS, np.int64)
    return Scratch(points, slopes, highest, lowest, work, work.view(np.int32), k, m, x, kind)


def _sinks(slots: int, w: int) -> Sinks:
    edge = np.zeros((slots, w), np.float32)
    return Sinks(edge, np.zeros(2), np.zeros(slots), np.zeros((3, slots), np.int64))


def _smallest() -> Problem:
    """A problem of one pixel, whose arguments have the types of all."""
    masks, allowed = torch.zeros(1, 1, 1, dtype=torch.int16), torch.ones(1, 2, 1, dtype=torch.bool)
    return Problem(torch.zeros(1, 1, 1, 1), masks, allowed, 0.5)


STRIP = compiled(_given(_smallest(), 1.0, 1.0, True), _grid(1, 1, 1, 1), _scratch(1, LANES), _sinks(1, 1))
