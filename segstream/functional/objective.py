"""What one EM update minimises, from low-resolution logits and full-size masks (METHODS sections 1, 2 and 7).

    L = [ sum over labelled and kept pixels of -log p(y)
          + latent_weight * sum over latent pixels of -log sum_{z not in X} p(z) ] / number of non-void pixels

p is the softmax of the logits after bilinear upsampling (align_corners=False). One pass finds the pseudo labels
(E-step), the losses and the gradient (M-step); full-size logits never exist. Two forms do it: `objective_plain` on any
device, `objective_quad` in machine code for float32 on a CPU.

    B images   K slots, background included   h w low resolution   H W full size   X impossible classes
"""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from segstream.classes import BACKGROUND, UNLABELED, VOID
from segstream.functional import objective_plain
from segstream.functional.known_gradient import with_gradient
from segstream.functional.objective_plain import Problem, Sums

__all__ = ["Objective", "Reduce", "cross_entropy", "em_objective", "warm_up"]

Reduce = Callable[[Tensor], Tensor]
FORM = "SEGSTREAM_OBJECTIVE"  # environment variable: auto or plain

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss and what was seen on the way to it; all but the loss lies on the CPU and counts this process's pixels.

    loss              scalar, differentiable in the logits. With `reduce` it is this process's share of the joint loss:
                      the shares of all processes add up to it, and so do their gradients
    labelled          how many pixels have a label that was given, those with one possible class included
    latent            how many have none, whether or not the E-step found one
    nonvoid           labelled + latent
    kept              [K] latent pixels whose best possible class is this one and passed the threshold
    candidates        [K] latent pixels whose best possible class is this one
    confidence_sum    [K] float64: sum of p(c) over the pixels whose given label (mask value >= 0) is c
    confidence_count  [K] int64: how many these are

    >>> masks = torch.tensor([[[1, 0], [-1, -2]]], dtype=torch.int16)
    >>> found = cross_entropy(torch.zeros(1, 2, 1, 1), masks.clamp_min(0))
    >>> found.labelled.item(), found.confidence_sum.tolist()
    (4, [1.5, 0.5])
    """

    loss: Tensor
    labelled: Tensor
    latent: Tensor
    nonvoid: Tensor
    kept: Tensor
    candidates: Tensor
    confidence_sum: Tensor
    confidence_count: Tensor

    @classmethod
    def of(cls, loss: Tensor, masks: Tensor, *, slots: int) -> Objective:
        """For a loss that is computed elsewhere: how many pixels entered, and nothing about single classes.

        >>> found = Objective.of(torch.tensor(1.0), torch.tensor([[[1, -1, -2]]], dtype=torch.int16), slots=2)
        >>> found.labelled.item(), found.latent.item(), found.kept.tolist()
        (1, 1, [0, 0])
        """
        if not bool(torch.isfinite(loss)):
            raise ValueError(
                f"The loss is {float(loss)}: the weights hold NaN or have grown beyond all bounds, or an input did; "
                "a lower learning rate may help."
            )
        labelled, latent = (masks >= 0).sum().cpu(), (masks == UNLABELED).sum().cpu()
        none = torch.zeros(slots, dtype=torch.int64)
        return cls(loss, labelled, latent, labelled + latent, none, none, none.double(), none)


def em_objective(
    logits: Tensor,
    masks: Tensor,
    excluded: Tensor,
    *,
    threshold: float,
    latent_weight: float,
    normalise: Literal["joint", "per_term"] = "joint",
    reduce: Reduce | None = None,
) -> Objective:
    """The composite loss of the EM method, with the E-step taken from the same logits, detached.

    logits         [B, K, h, w] of any float type; computed in float32 (float64 stays)
    masks          [B, H, W] int16: a slot, UNLABELED or VOID. Pixels of a slot >= 1 are labelled; unlabelled pixels and
                   those of slot 0 are latent, but where one class alone is possible that class is their label
    excluded       bool [B, 2, K]: the impossible classes of each image's unlabelled (row 0) and annotated-background
                   pixels (row 1); [B, K] means the same for both. Slot 0 is never among them
    threshold      a latent pixel's best possible class becomes its label if its p, from the full softmax, exceeds this
    latent_weight  gamma
    normalise      "joint": one denominator, the non-void pixels; "per_term": each sum over its own number of pixels
    reduce         with several processes: maps a float64 vector (on the CPU) of counts to its sum over all of them.
                   Called exactly once, so that every process takes part even if all its pixels are void

    >>> logits = torch.zeros(1, 3, 1, 1, requires_grad=True)
    >>> masks = torch.tensor([[[1, -1]]], dtype=torch.int16)
    >>> excluded = torch.tensor([[False, True, False]])
    >>> found = em_objective(logits, masks, excluded, threshold=0.8, latent_weight=0.5)
    >>> found.loss.backward()
    >>> round(found.loss.item(), 4), found.candidates.tolist()  # (log 3 + 0.5 log 3/2) / 2
    (0.6507, [1, 0, 0])
    >>> [round(g, 4) for g in logits.grad.flatten().tolist()]
    [0.125, -0.25, 0.125]
    """
    if normalise not in ("joint", "per_term"):
        raise ValueError(f"normalise is {normalise!r}; choose 'joint' or 'per_term'.")
    if math.isnan(threshold) or threshold < 0:
        raise ValueError(f"threshold is {threshold}; expected a probability (0 keeps every pseudo label, 1 none).")
    if not 0 <= latent_weight < math.inf:
        raise ValueError(f"latent_weight is {latent_weight}; expected a finite number of at least 0.")
    _check(logits, masks)
    allowed = _allowed(excluded, logits)
    return _objective(logits, masks, allowed, threshold, latent_weight, normalise == "per_term", reduce)


def cross_entropy(logits: Tensor, targets: Tensor, *, reduce: Reduce | None = None) -> Objective:
    """Mean cross entropy over non-void pixels; slot 0 is a label like any other.

    The machinery is that of `em_objective`, so that a method without relabelling computes the same bits by either.

    >>> targets = torch.tensor([[[1, -2]]], dtype=torch.int16)
    >>> round(cross_entropy(torch.zeros(1, 2, 1, 1), targets).loss.item(), 4)
    0.6931
    """
    _check(logits, targets)
    if bool((targets == UNLABELED).any()):
        raise ValueError(
            f"The targets hold {UNLABELED} (unlabelled), for which cross entropy says nothing; use {VOID}."
        )
    allowed = torch.zeros(logits.shape[0], 2, logits.shape[1], dtype=torch.bool, device=logits.device)
    allowed[:, :, BACKGROUND] = True
    return _objective(logits, targets, allowed, 1.0, 0.0, False, reduce)


def warm_up() -> None:
    """Makes the CPU's machine code ready: seconds the first time on a machine, about one later, from a cache on disk.

    Without this call the first objective does it. A page that answers live calls it early, in a thread of its own.
    """
    _quad()


def _check(logits: Tensor, masks: Tensor) -> None:
    if logits.ndim != 4 or not logits.is_floating_point() or logits.numel() == 0:
        raise ValueError(f"The logits are {logits.dtype} of shape {list(logits.shape)}; expected floats [B, K, h, w].")
    if masks.ndim != 3 or masks.dtype != torch.int16 or masks.numel() == 0:
        raise ValueError(f"The masks are {masks.dtype} of shape {list(masks.shape)}; expected int16 [B, H, W].")
    if masks.shape[0] != logits.shape[0]:
        raise ValueError(f"There are logits of {logits.shape[0]} images but masks of {masks.shape[0]}.")
    if masks.device != logits.device:
        raise ValueError(f"The masks are on {masks.device} but the logits on {logits.device}.")
    slots = logits.shape[1]
    lowest, highest = (int(m) for m in masks.aminmax())
    if highest >= slots:
        raise ValueError(f"A mask holds slot {highest}, but there are logits for slots 0 to {slots - 1} only.")
    if lowest < VOID:
        raise ValueError(f"A mask holds {lowest}; the lowest value is {VOID} (void).")
    least, most = logits.detach().aminmax()
    if not bool(torch.isfinite(least) & torch.isfinite(most)):
        bad = (~torch.isfinite(logits.detach())).nonzero()[0].tolist()
        raise ValueError(
            f"The logits are not finite (the first: image {bad[0]}, slot {bad[1]}, row {bad[2]}, column {bad[3]}). "
            "The weights hold NaN or have grown beyond all bounds, or an input did; a lower learning rate may help."
        )


def _allowed(excluded: Tensor, logits: Tensor) -> Tensor:
    """[B, 2, K] bool on the logits' device: the possible classes."""
    images, slots = logits.shape[:2]
    if excluded.dtype != torch.bool or excluded.shape not in ((images, slots), (images, 2, slots)):
        raise ValueError(
            f"`excluded` is {excluded.dtype} of shape {list(excluded.shape)}; expected bool [{images}, 2, {slots}], "
            f"or [{images}, {slots}] for both kinds of latent pixels."
        )
    if excluded.ndim == 2:
        excluded = excluded[:, None].expand(images, 2, slots)
    if bool(excluded[:, :, BACKGROUND].any()):
        raise ValueError("`excluded` names slot 0: a pixel without a label can always be background.")
    return ~excluded.to(logits.device)


class _Pass(Protocol):
    def __call__(
        self, problem: Problem, *, label_weight: float, latent_weight: float, gradient: Tensor | None
    ) -> Sums: ...


def _objective(
    logits: Tensor,
    masks: Tensor,
    allowed: Tensor,
    threshold: float,
    latent_weight: float,
    per_term: bool,
    reduce: Reduce | None,
) -> Objective:
    wanted = logits.requires_grad and torch.is_grad_enabled()
    with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
        values = logits.detach()
        values = values if values.dtype == torch.float64 else values.float()
        problem = Problem(values, masks, allowed, threshold)
        accumulate = _form(values)
        nonvoid, latent = _counts(problem)
        denominators = torch.tensor([nonvoid, nonvoid], dtype=torch.float64)
        if per_term:  # how many labels there are is known after the E-step only: a pass without gradient comes first
            sums = accumulate(problem, label_weight=0.0, latent_weight=0.0, gradient=None)
            denominators = torch.tensor([nonvoid - latent + int(sums.kept.sum()), latent], dtype=torch.float64)
        if reduce is not None:
            denominators = reduce(denominators)
        label_weight, latent_weight = (
            weight / count if count > 0 else 0.0
            for weight, count in zip((1.0, latent_weight), denominators.tolist(), strict=True)
        )
        gradient = torch.zeros_like(values, memory_format=torch.contiguous_format) if wanted else None
        if wanted or not per_term:
            sums = accumulate(problem, label_weight=label_weight, latent_weight=latent_weight, gradient=gradient)
        loss = torch.tensor(
            label_weight * sums.label_loss + latent_weight * sums.latent_loss, dtype=values.dtype, device=values.device
        )
    return Objective(
        loss=loss if gradient is None else with_gradient(logits, loss, gradient),
        labelled=torch.tensor(nonvoid - latent),
        latent=torch.tensor(latent),
        nonvoid=torch.tensor(nonvoid),
        kept=sums.kept,
        candidates=sums.candidates,
        confidence_sum=sums.confidence_sum,
        confidence_count=sums.confidence_count,
    )


def _counts(problem: Problem) -> tuple[int, int]:
    """How many pixels are not void, and how many of these are latent."""
    return problem.masks.numel() - int((problem.masks == VOID).sum()), int((problem.latent * ~problem.sole.cpu()).sum())


def _form(values: Tensor) -> _Pass:
    """The quad form where it can be had."""
    if values.device.type != "cpu":
        _say_plain(f"there is no other on {values.device.type}")
        return objective_plain.accumulate
    if values.dtype == torch.float64:
        return objective_plain.accumulate
    wish = os.environ.get(FORM, "auto")
    if wish not in ("auto", "plain"):
        raise ValueError(f"The environment variable {FORM} is {wish!r}; choose 'auto' or 'plain'.")
    if wish == "plain":
        _say_plain(f"{FORM}=plain asks for it")
        return objective_plain.accumulate
    return _quad()


@functools.cache
def _quad() -> _Pass:
    try:
        from segstream.functional import objective_quad  # Numba is imported on first use
    except ImportError as error:
        _say_plain(f"Numba cannot serve ({error})")
        return objective_plain.accumulate
    return objective_quad.accumulate


@functools.cache
def _say_plain(reason: str) -> None:
    logger.info("The objective is computed by its plain form: %s.", reason)
