"""The objective's plain reference: PyTorch, any device, blocks of rows, the gradient by hand.

It reads as METHODS would write it down and serves wherever the quad form (`objective_quad`) cannot: on other devices,
in float64, without Numba. Nothing of the full size of an image is ever held for all classes: a block of rows is
upsampled, used and given back to the low-resolution gradient by the transposed interpolation.

    B images   K slots   h w low resolution   H W full size   hr R rows of either in one block   N = R * W pixels
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from segstream.classes import BACKGROUND, UNLABELED

__all__ = ["Problem", "Sums", "accumulate", "places"]

BLOCK_BYTES = {"cpu": 4 << 20}  # what a core's cache holds; elsewhere launching kernels is what costs
DEVICE_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Problem:
    """What both forms of the objective are given.

    logits     [B, K, h, w] float32 or float64, outside any autograd graph
    masks      [B, H, W] int16: a slot, UNLABELED or VOID
    allowed    [B, 2, K] bool: the classes that are possible for unlabelled (0) and annotated-background pixels (1)
    threshold  what the probability of a pseudo label must exceed

    >>> masks, allowed = torch.zeros(1, 2, 2, dtype=torch.int16), torch.tensor([[[True, True], [True, False]]])
    >>> problem = Problem(torch.zeros(1, 2, 1, 1), masks, allowed, threshold=0.8)
    >>> problem.sole.tolist(), problem.every.tolist()  # annotated background can be nothing else, unlabelled anything
    ([[False, True]], [[True, False]])
    """

    logits: Tensor
    masks: Tensor
    allowed: Tensor
    threshold: float

    @cached_property
    def latent(self) -> Tensor:
        """[B, 2] int64, on the CPU: how many unlabelled and annotated-background pixels each image has, sole or not."""
        return torch.stack([(self.masks == value).sum((1, 2)) for value in (UNLABELED, BACKGROUND)], 1).cpu()

    @cached_property
    def sole(self) -> Tensor:
        """[B, 2] bool: whether slot 0 alone is possible, which makes it the label."""
        return self.allowed.sum(-1) == 1

    @cached_property
    def every(self) -> Tensor:
        """[B, 2] bool: whether every class is possible, so that the latent term is 0."""
        return self.allowed.all(-1)

    @cached_property
    def kinds(self) -> list[list[tuple[bool, bool]]]:
        """[B][2], on the host: whether any pixel is latent and not sole, and whether not every class is possible."""
        open_, partly = ((self.latent > 0) & ~self.sole.cpu()).tolist(), (~self.every).tolist()
        return [list(zip(*pair, strict=True)) for pair in zip(open_, partly, strict=True)]


@dataclass(eq=False)
class Sums:
    """What one pass over all pixels adds up; every tensor lies on the CPU.

    label_loss, latent_loss  sums of -log p(y) and of -log sum_{z not in X} p(z), without weights
    kept, candidates         [K] int64: latent pixels whose best possible class is this one: those kept, all
    confidence_sum           [K] float64: sum of p(c) over the pixels whose given label is c
    confidence_count         [K] int64: how many these are
    """

    label_loss: float
    latent_loss: float
    kept: Tensor
    candidates: Tensor
    confidence_sum: Tensor
    confidence_count: Tensor


def places(low: int, full: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each of `full` pixels of an axis its gap among `low` points and its place in it (align_corners=False).

    Gap g lies between the points g - 1 and g. In gap 0 (before the first point) the place is 1, in gap `low` (behind
    the last one) it is 0: there the nearest point alone counts. The arithmetic is in whole numbers, hence exact.

    >>> gap, place = places(2, 4)
    >>> gap.tolist(), place.tolist()
    ([0, 1, 1, 2], [1.0, 0.25, 0.75, 0.0])
    """
    numerator = (2 * np.arange(full, dtype=np.int64) + 1) * low - full
    gap = numerator // (2 * full) + 1
    place = (numerator % (2 * full)) / (2.0 * full)
    place[gap == 0] = 1.0
    place[gap == low] = 0.0
    return gap, place


@dataclass(frozen=True, eq=False)
class _Axis:
    """Bilinear interpolation along one axis: value = (1 - place) * points[lower] + place * points[upper]."""

    lower: Tensor
    upper: Tensor
    place: Tensor

    @classmethod
    def of(cls, low: int, full: int, like: Tensor) -> _Axis:
        gap, place = places(low, full)
        lower, upper = torch.from_numpy(gap - 1).clamp_min(0), torch.from_numpy(gap).clamp_max(low - 1)
        return cls(lower.to(like.device), upper.to(like.device), torch.from_numpy(place).to(like))

    def matrix(self, start: int, stop: int, first: int, last: int) -> Tensor:
        """[last - first + 1, stop - start]: the transposed interpolation of pixels to the points first..last."""
        points = torch.arange(first, last + 1, device=self.lower.device)[:, None]
        place = self.place[start:stop]
        return (self.lower[start:stop] == points) * (1 - place) + (self.upper[start:stop] == points) * place


def accumulate(problem: Problem, *, label_weight: float, latent_weight: float, gradient: Tensor | None) -> Sums:
    """One pass over all pixels; `gradient` ([B, K, h, w] zeros), where given, receives that of the weighted sums.

    >>> masks, allowed = torch.ones(1, 2, 2, dtype=torch.int16), torch.ones(1, 2, 2, dtype=torch.bool)
    >>> problem = Problem(torch.zeros(1, 2, 1, 1), masks, allowed, threshold=0.8)
    >>> sums = accumulate(problem, label_weight=0.25, latent_weight=0.0, gradient=None)
    >>> round(sums.label_loss, 3), sums.confidence_sum.tolist()  # 4 log 2
    (2.773, [0.0, 2.0])
    """
    logits, masks = problem.logits, problem.masks
    (images, slots, h, w), (height, width) = logits.shape, masks.shape[1:]
    rows, columns = _Axis.of(h, height, logits), _Axis.of(w, width, logits)
    block = _block_rows(logits, h, height, width)
    limits = [(start, min(start + block, height)) for start in range(0, height, block)]
    ends = [(int(rows.lower[a]), int(rows.upper[b - 1])) for a, b in limits]
    across = columns.matrix(0, width, 0, w - 1).T  # W w
    wanted = gradient is not None
    totals = _Totals(slots, logits)
    together = _images_together(logits, height, width) if len(limits) == 1 else 1
    for at in range(0, images, together):
        some = slice(at, min(at + together, images))
        for (start, stop), (first, last) in zip(limits, ends, strict=True):
            low = logits[some, :, first : last + 1]  # b K hr w
            low = torch.lerp(low[..., columns.lower], low[..., columns.upper], columns.place)  # b K hr W
            lower, upper = rows.lower[start:stop] - first, rows.upper[start:stop] - first
            full = torch.lerp(low[:, :, lower], low[:, :, upper], rows.place[start:stop, None])  # b K R W
            pixels = masks[some, start:stop].flatten(1).to(torch.int64)  # b N
            slope = _block(problem, some, full.flatten(2), pixels, totals, label_weight, latent_weight, wanted)
            if gradient is not None:
                slope = rows.matrix(start, stop, first, last) @ slope.view(
                    *low.shape[:2], stop - start, width
                )  # b K hr W
                gradient[some, :, first : last + 1] += slope @ across
    return totals.sums()


def _block_rows(logits: Tensor, h: int, height: int, width: int) -> int:
    """Rows of one block: as many as fit into the bytes meant for it, both before and after interpolation."""
    row = logits.shape[1] * width * logits.element_size() * max(1.0, h / height)
    return max(1, min(height, int(_budget(logits) // row)))


def _images_together(logits: Tensor, height: int, width: int) -> int:
    """How many whole images a block takes."""
    image = logits.shape[1] * width * height * logits.element_size()
    return max(1, int(_budget(logits) // image))


def _budget(logits: Tensor) -> int:
    return BLOCK_BYTES.get(logits.device.type, DEVICE_BLOCK_BYTES)


class _Totals:
    """Sums over blocks, kept where the logits are so that no block waits for the device."""

    def __init__(self, slots: int, like: Tensor) -> None:
        self.slots = slots
        # MPS has no float64.
        self.float = torch.float32 if like.device.type == "mps" else torch.float64
        self.loss = torch.zeros(2, dtype=self.float, device=like.device)
        self.confidence = torch.zeros(slots, dtype=self.float, device=like.device)
        self.counts = torch.zeros(3, slots, dtype=torch.int64, device=like.device)

    def count(self, row: int, slots: Tensor, where: Tensor) -> None:
        """Adds the slots found `where` is true to one row of counts: kept, candidates or given labels."""
        found = torch.where(where, slots, self.slots).flatten()
        if found.device.type == "cpu":
            self.counts[row] += torch.bincount(found, minlength=self.slots + 1)[: self.slots]
        else:  # there `bincount` waits for the device
            counts = self.counts.new_zeros(self.slots + 1)
            self.counts[row] += counts.scatter_add_(0, found, torch.ones_like(found))[: self.slots]

    def sums(self) -> Sums:
        label_loss, latent_loss = self.loss.tolist()
        kept, candidates, given = self.counts.cpu()
        return Sums(label_loss, latent_loss, kept, candidates, self.confidence.cpu().double(), given)


def _block(
    problem: Problem,
    some: slice,
    logits: Tensor,
    pixels: Tensor,
    totals: _Totals,
    label_weight: float,
    latent_weight: float,
    wanted: bool,
) -> Tensor:
    """Adds the pixels of one block to `totals`; gives the gradient in its logits (b K N), which it overwrites."""
    log_p = logits.sub_(logits.amax(1, keepdim=True))
    log_p -= log_p.exp().sum(1, keepdim=True).log()
    p = log_p.exp()  # b K N
    target = torch.where(pixels > 0, pixels, -1)  # b N   the label, given or found in the E-step; -1: none
    weight = torch.zeros_like(log_p[:, 0])  # b N   how much of p enters the gradient
    slopes: list[Tensor] = []
    for row in (0, 1):
        kinds = [image[row] for image in problem.kinds[some]]
        mine = pixels == UNLABELED + row  # row 0: unlabelled, row 1: annotated background
        sole = problem.sole[some, row, None]  # b 1
        target.masked_fill_(mine & sole, BACKGROUND)
        if not any(open_ for open_, _ in kinds):
            continue
        mine &= ~sole
        partly = any(open_ and partly for open_, partly in kinds)
        log_q = log_p.masked_fill(~problem.allowed[some, row, :, None], -torch.inf) if partly else log_p
        best, slot = log_q.max(1)  # b N   ties: the lowest slot
        kept = mine & (best.exp() > problem.threshold)  # the E-step: p from the full softmax
        totals.count(0, slot, kept)
        totals.count(1, slot, mine)
        target = torch.where(kept, slot, target)
        if not partly:
            continue  # every class is possible: -log 1
        mine &= ~problem.every[some, row, None]
        total = torch.logsumexp(log_q, 1)  # b N   log sum_{z not in X} p(z)
        totals.loss[1] -= torch.where(mine, total, 0).sum(dtype=totals.float)
        if wanted and latent_weight:
            weight += latent_weight * mine
            slopes.append(log_q.softmax(1).mul_(latent_weight * mine[:, None]))
    labelled = target >= 0
    target = target.clamp_min(0)[:, None]  # b 1 N
    totals.loss[0] -= torch.where(labelled, log_p.gather(1, target)[:, 0], 0).sum(dtype=totals.float)
    _confidences(p, pixels, totals)
    if wanted:
        weight += label_weight * labelled
        p *= weight[:, None]
        for slope in slopes:
            p -= slope
        p.scatter_add_(1, target, (-label_weight * labelled)[:, None].to(p.dtype))
    return p


def _confidences(p: Tensor, pixels: Tensor, totals: _Totals) -> None:
    """p(c) over pixels whose given label is c: spread over a zero tensor, since adding by index has no fixed order."""
    given = pixels >= 0
    label = pixels.clamp_min(0)[:, None]  # b 1 N
    own = p.gather(1, label) * given[:, None]
    totals.confidence += torch.zeros_like(p).scatter_(1, label, own).sum((0, 2), dtype=totals.float)
    totals.count(2, label[:, 0], given)
