"""From predicted and true masks to scores: one confusion matrix over a whole set, everything else from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Scores", "confusion_matrix"]


def confusion_matrix(predicted: Tensor, truth: Tensor, *, slots: int) -> Tensor:
    """int64 [K, K], rows the truth, columns the prediction; pixels whose truth is negative are left out.

    >>> confusion_matrix(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 0, -2]), slots=2).tolist()
    [[1, 1], [0, 1]]
    """
    if predicted.shape != truth.shape:
        raise ValueError(f"The prediction is {list(predicted.shape)}, the truth {list(truth.shape)}.")
    scored = truth >= 0
    rows, columns = truth[scored].to(torch.int64), predicted[scored].to(torch.int64)
    if rows.numel() and (int(rows.max()) >= slots or int(columns.max()) >= slots or int(columns.min()) < 0):
        raise ValueError(f"A mask names a class outside 0..{slots - 1}.")
    return torch.bincount(rows * slots + columns, minlength=slots * slots).reshape(slots, slots)


@dataclass(frozen=True)
class Scores:
    """IoU of each class in percent; None for a class without ground truth, which the mean leaves out.

    >>> Scores.of(torch.tensor([[1, 1], [0, 2]]), ["background", "car"]).iou[0]
    50.0
    """

    names: tuple[str, ...]
    iou: tuple[float | None, ...]
    miou: float | None
    accuracy: float | None
    confusion: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, confusion: Tensor, names: Sequence[str]) -> Scores:
        matrix = confusion.to(torch.float64)
        truth, predicted, right = matrix.sum(1), matrix.sum(0), matrix.diagonal()
        union = truth + predicted - right
        iou = tuple(
            100.0 * float(right[k] / union[k]) if truth[k] > 0 else None  # no ground truth: not scored
            for k in range(len(names))
        )
        present = [value for value in iou if value is not None]
        total = float(matrix.sum())
        return cls(
            names=tuple(names),
            iou=iou,
            miou=sum(present) / len(present) if present else None,
            accuracy=100.0 * float(right.sum()) / total if total else None,
            confusion=tuple(tuple(int(v) for v in row) for row in confusion.tolist()),
        )

    def mean_of(self, slots: Sequence[int]) -> float | None:
        """Mean IoU of some classes, those without ground truth left out."""
        present = [v for s in slots if (v := self.iou[s]) is not None]
        return sum(present) / len(present) if present else None

    def to_json(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "iou": list(self.iou),
            "miou": self.miou,
            "accuracy": self.accuracy,
            "confusion": [list(row) for row in self.confusion],
        }
