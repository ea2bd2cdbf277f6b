"""Losses against more than one right answer for each pixel: sigmoid cross entropy, and what teachers ask for.

B images   K slots, background included   h w low resolution   H W full size
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from segstream.classes import VOID
from segstream.functional.known_gradient import dense_sum
from segstream.functional.objective import Objective, Reduce

__all__ = ["one_hot", "over", "sigmoid_cross_entropy", "sigmoid_sum"]


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
