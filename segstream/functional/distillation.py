"""Losses against more than one right answer for each pixel: sigmoid cross entropy, and what teachers ask for.

B images   K slots, background included   h w low resolution   H W full size
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor
from torch.nn import functional as F

from segstream.classes import VOID
from segstream.functional.known_gradient import dense_sum
from segstream.functional.objective import Objective, Reduce

__all__ = [
    "one_hot",
    "over",
    "sigmoid_cross_entropy",
    "sigmoid_sum",
    "softmax_distillation",
    "unbiased_distillation",
]


def one_hot(mask: Tensor, slots: int) -> Tensor:
    """[H, W] slots -> float [K, H, W]; all zero where nothing is labelled.

    >>> one_hot(torch.tensor([[1, -1]]), 2).tolist()
    [[[0.0, 0.0]], [[1.0, 0.0]]]
    """
    return (mask == torch.arange(slots, device=mask.device)[:, None, None]).to(torch.float32)


def over(count: Tensor, reduce: Reduce | None) -> float:
    """1 / count, the count summed over all processes; 0 where nothing is counted.

    >>> over(torch.tensor(4), None), over(torch.tensor(0), None)
    (0.25, 0.0)
    """
    total = count.to("cpu", torch.float64).reshape(1)
    value = float(total if reduce is None else reduce(total))
    return 1.0 / value if value else 0.0


def sigmoid_sum(logits: Tensor, size: tuple[int, int], given: Callable[[int], tuple[Tensor, Tensor]]) -> Tensor:
    """Sum over images, outputs and pixels of weight * cross entropy between sigmoid(logit) and a target in [0, 1].

    given   image number -> targets [K, H, W] and their weights, which may be broadcast to that shape

    >>> target, weight = torch.tensor([[[1.0]], [[0.0]]]), torch.ones(1, 1, 1)
    >>> round(sigmoid_sum(torch.zeros(1, 2, 1, 1), (1, 1), lambda i: (target, weight)).item(), 4)  # 2 log 2
    1.3863
    """

    def term(i: int, z: Tensor) -> Tensor:
        target, weight = given(i)
        return (F.binary_cross_entropy_with_logits(z, target.to(z), reduction="none") * weight.to(z)).sum()

    return dense_sum(logits, size, term)


def sigmoid_cross_entropy(logits: Tensor, targets: Tensor, *, reduce: Reduce | None = None) -> Objective:
    """One sigmoid for each slot, one-hot targets; summed over the slots, mean over the pixels that are not void.

    logits [B, K, h, w];  targets: int16 [B, H, W], a slot or VOID

    >>> found = sigmoid_cross_entropy(torch.zeros(1, 2, 1, 1), torch.tensor([[[1, -2]]], dtype=torch.int16))
    >>> round(found.loss.item(), 4), found.labelled.item()
    (1.3863, 1)
    """
    slots, (height, width) = logits.shape[1], targets.shape[1:]
    entering = targets != VOID
    total = sigmoid_sum(logits, (height, width), lambda i: (one_hot(targets[i], slots), entering[i]))
    return Objective.of(total * over(entering.sum(), reduce), targets, slots=slots)


def unbiased_distillation(
    logits: Tensor, teacher: Tensor, entering: Tensor, *, retired: Collection[int] = (), reduce: Reduce | None = None
) -> Tensor:
    """MiB's distillation: what the teacher calls background may be background or a class that it does not know.

        mean over pixels of -(1/n_old) sum_k q_k log p^_k,   p^_0 = p_0 + sum of all new p_c,   p^_k = p_k

    q, p  softmax of teacher and student; the teacher's n_old classes, background among them, are the old ones

    logits [B, K, h, w] and teacher [B, n_old, h', w'], each upsampled;  entering: bool [B, H, W]
    retired   classes that take no part: as if neither of the two had a row for them

    >>> student, teacher = torch.zeros(1, 4, 1, 1), torch.zeros(1, 2, 1, 1)
    >>> found = unbiased_distillation(student, teacher, torch.ones(1, 2, 2, dtype=torch.bool))
    >>> round(found.item(), 4)  # p^ is (3/4, 1/4): (1/2 log 4/3 + 1/2 log 4) / 2
    0.4185
    """
    old, new = _sides(logits, teacher, retired)
    n = len(old)

    def compare(z: Tensor, t: Tensor) -> Tensor:
        q, log_p = t.softmax(0), z.log_softmax(0)
        unknown = torch.cat([log_p[:1], log_p[n:]]).logsumexp(0)  # H W   log p^_0
        return (q[0] * unknown + (q[1:] * log_p[1:n]).sum(0)) / -n

    return _compared(logits[:, old + new], teacher[:, old], entering, reduce, compare)


def softmax_distillation(
    logits: Tensor,
    teacher: Tensor,
    entering: Tensor,
    *,
    temperature: float = 1.0,
    retired: Collection[int] = (),
    reduce: Reduce | None = None,
) -> Tensor:
    """Hinton's distillation among the teacher's classes alone: mean over pixels of T^2 KL(teacher/T || student/T).

    logits [B, K, h, w] and teacher [B, n_old, h', w'], each upsampled;  entering: bool [B, H, W]
    retired   classes that take no part: as if neither of the two had a row for them

    >>> student, teacher = torch.zeros(1, 3, 1, 1), torch.tensor([1.0, 3.0]).log().view(1, 2, 1, 1)
    >>> found = softmax_distillation(student, teacher, torch.ones(1, 2, 2, dtype=torch.bool))
    >>> round(found.item(), 4)  # (1/4, 3/4) against (1/2, 1/2); the third class takes no part
    0.1308
    """
    old, _ = _sides(logits, teacher, retired)

    def compare(z: Tensor, t: Tensor) -> Tensor:
        log_q, log_p = ((x / temperature).log_softmax(0) for x in (t, z))
        return F.kl_div(log_p, log_q, reduction="none", log_target=True).sum(0) * temperature**2

    return _compared(logits[:, old], teacher[:, old], entering, reduce, compare)


def _sides(logits: Tensor, teacher: Tensor, retired: Collection[int]) -> tuple[list[int], list[int]]:
    """The slots that take part: those that the teacher knows, background first, and those that came since."""
    slots, known = logits.shape[1], teacher.shape[1]
    if not 1 <= known <= slots:
        raise ValueError(f"The teacher has {known} slots, its student {slots}; a teacher has at most as many.")
    active = [slot for slot in range(slots) if slot not in retired]
    return [slot for slot in active if slot < known], [slot for slot in active if slot >= known]


def _compared(
    logits: Tensor,
    teacher: Tensor,
    entering: Tensor,
    reduce: Reduce | None,
    compare: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """What `compare` makes of both at full size, [K, H, W] -> [H, W]: its mean over all processes' entering pixels."""
    size = (entering.shape[1], entering.shape[2])

    def term(i: int, z: Tensor) -> Tensor:
        low = teacher[i : i + 1].detach().to(z)
        t = F.interpolate(low, size=size, mode="bilinear", align_corners=False)[0]
        return (compare(z, t) * entering[i]).sum()

    return dense_sum(logits, size, term) * over(entering.sum(), reduce)
