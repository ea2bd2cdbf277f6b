"""What LwF.MC and iCaRL (Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, 2017) minimise.

z   logits of the K slots that the network has;  u: those of the T slots that its teacher has, the first T of the K
y   a pixel's label: a slot, UNLABELED (nobody said anything) or VOID (takes no part)

    B images   h w low resolution   H W full size   "old": slots below T, background among them   "new": the others

Every pixel is judged at full size (bilinear upsampling of z and of u). Retired slots take no part. Without a teacher
(`taught` is None) T = 0: no output is old, and an unlabelled pixel takes no part either.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor
from torch.nn import functional as F

from segstream.classes import BACKGROUND, VOID
from segstream.functional.distillation import one_hot, over, sigmoid_sum, softmax_distillation
from segstream.functional.label_space import View, targets
from segstream.functional.objective import Objective, Reduce, cross_entropy

__all__ = ["entering", "hard_and_soft", "soft", "soft_targets", "softmax_and_soft"]


def entering(masks: Tensor, view: View, *, taught: Tensor | None) -> Tensor:
    """Labels in a view, VOID where a pixel takes no part. A teacher has something to say about unlabelled ones.

    >>> mask = torch.tensor([[2, 0, -1, -2]], dtype=torch.int16)
    >>> entering(mask, "ignore", taught=torch.zeros(1, 2, 1, 1)).tolist()
    [[2, 0, -1, -2]]
    >>> entering(mask, "ignore", taught=None).tolist(), entering(mask, "background", taught=None).tolist()
    ([[2, 0, -2, -2]], [[2, 0, 0, -2]])
    """
    return masks if taught is not None and view == "ignore" else targets(masks, view)


def soft_targets(
    labels: Tensor, taught: Tensor | None, *, slots: int, retired: Collection[int] = ()
) -> tuple[Tensor, Tensor]:
    """One image: what each output should be, float [K, H, W] in [0, 1], and whether it is asked, bool of that shape.

    labels [H, W];  taught [T, H, W]: u at full size

    old outputs   sigmoid(u); but 0 for the background where a new class is labelled
    new outputs   1 where their class is labelled, else 0; not asked where nothing is labelled

    >>> target, asked = soft_targets(torch.tensor([[1, -1]]), torch.zeros(1, 1, 2), slots=2)
    >>> target.tolist(), asked.tolist()
    ([[[0.0, 0.5]], [[1.0, 0.0]]], [[[True, True]], [[True, False]]])
    """
    known = 0 if taught is None else len(taught)
    target = one_hot(labels, slots)
    asked = (labels >= 0).expand(slots, *labels.shape).clone()
    if taught is not None:
        target = torch.cat([taught.sigmoid().to(target), target[known:]])
        target[BACKGROUND].masked_fill_(labels >= known, 0.0)
        asked[:known] = labels != VOID
    asked[list(retired)] = False
    return target, asked


def soft(
    logits: Tensor,
    taught: Tensor | None,
    labels: Tensor,
    *,
    retired: Collection[int] = (),
    reduce: Reduce | None = None,
) -> Objective:
    """LwF.MC: cross entropy of sigmoids with their soft targets, summed over outputs, mean over pixels not VOID.

    logits [B, K, h, w];  taught [B, T, h, w], no gradient;  labels: int16 [B, H, W]

    >>> found = soft(torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1, 1), torch.tensor([[[1, -1]]], dtype=torch.int16))
    >>> round(found.loss.item(), 4), found.labelled.item(), found.latent.item()  # (2 + 1) log 2 / 2 pixels
    (1.0397, 1, 1)
    """
    slots, size = logits.shape[1], (labels.shape[1], labels.shape[2])

    def given(i: int) -> tuple[Tensor, Tensor]:
        return soft_targets(labels[i], _dense(taught, i, size), slots=slots, retired=retired)

    count = (labels != VOID) if taught is not None else (labels >= 0)
    total = sigmoid_sum(logits, size, given)
    return Objective.of(total * over(count.sum(), reduce), labels, slots=slots)


def hard_and_soft(
    logits: Tensor,
    taught: Tensor | None,
    labels: Tensor,
    *,
    distillation: float,
    retired: Collection[int] = (),
    reduce: Reduce | None = None,
) -> Objective:
    """One-hot targets on all outputs, mean over labelled pixels; and `distillation` times the old outputs' soft ones,
    mean over pixels not VOID.

    >>> labels = torch.tensor([[[1, -1]]], dtype=torch.int16)
    >>> found = hard_and_soft(torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1, 1), labels, distillation=10.0)
    >>> round(found.loss.item(), 4)  # 2 log 2 on one pixel, 10 log 2 on each of two
    8.3178
    """
    loss = soft(logits, None, labels, retired=retired, reduce=reduce).loss
    if taught is not None:
        old = taught.shape[1]
        gone = [k for k in retired if k < old]
        loss = loss + distillation * soft(logits[:, :old], taught, labels, retired=gone, reduce=reduce).loss
    return Objective.of(loss, labels, slots=logits.shape[1])


def softmax_and_soft(
    logits: Tensor,
    taught: Tensor | None,
    labels: Tensor,
    *,
    distillation: float,
    retired: Collection[int] = (),
    reduce: Reduce | None = None,
) -> Objective:
    """Softmax cross entropy, mean over labelled pixels; and `distillation` times KL(teacher || network), both a softmax
    over the old outputs alone, mean over pixels not VOID.

    >>> labels = torch.tensor([[[1, -1]]], dtype=torch.int16)
    >>> taught = torch.tensor([1.0, 3.0]).log().view(1, 2, 1, 1)
    >>> found = softmax_and_soft(torch.zeros(1, 3, 1, 1), taught, labels, distillation=10.0)
    >>> round(found.loss.item(), 4)  # log 3 + 10 (1/4 log 1/2 + 3/4 log 3/2)
    2.4067
    """
    slots = logits.shape[1]
    kept = [k for k in range(slots) if k not in retired]
    place = torch.full((slots,), VOID, dtype=labels.dtype, device=labels.device)  # of a slot among those kept
    place[kept] = torch.arange(len(kept), dtype=labels.dtype, device=labels.device)
    named = torch.where(labels >= 0, place[labels.clamp_min(0).long()], VOID)
    loss = cross_entropy(logits[:, kept], named, reduce=reduce).loss
    if taught is not None:
        pixels = labels != VOID
        loss = loss + distillation * softmax_distillation(logits, taught, pixels, retired=retired, reduce=reduce)
    return Objective.of(loss, labels, slots=slots)


def _dense(taught: Tensor | None, i: int, size: tuple[int, int]) -> Tensor | None:
    """[T, H, W]: what the teacher says about image i, at full size."""
    if taught is None:
        return None
    low = taught[i : i + 1]
    low = low if low.dtype == torch.float64 else low.float()
    return F.interpolate(low, size=size, mode="bilinear", align_corners=False)[0]
