"""Scores of anything that predicts, over any labelled images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from segstream.classes import BACKGROUND, ClassTable
from segstream.functional.scores import Scores, confusion_matrix
from segstream.types import Prediction, Sample

__all__ = ["Predictor", "evaluate"]


class Predictor(Protocol):
    """A Segmenter, a Method, or what you have."""

    def predict(self, images: Sequence[Tensor], /) -> Prediction: ...


def evaluate(
    predictor: Predictor,
    samples: Iterable[Sample],
    *,
    classes: ClassTable,
    batch: int = 8,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """One confusion matrix over the whole set, at full size; void and unlabelled pixels are left out.

    Classes of `samples` are slots of `classes`; a retired class counts as background. `progress` is told how many
    images are done.

    >>> class Blank:
    ...     def predict(self, images):
    ...         return Prediction(tuple(torch.zeros(i.shape[1:], dtype=torch.int16) for i in images), ())
    >>> sample = Sample(torch.zeros(3, 2, 2, dtype=torch.uint8), torch.zeros(2, 2, dtype=torch.int16), id="a")
    >>> evaluate(Blank(), [sample], classes=ClassTable(("car",))).miou
    100.0
    """
    total = torch.zeros(len(classes), len(classes), dtype=torch.int64)
    done = 0
    retired = torch.tensor(sorted(classes.retired), dtype=torch.int16)
    for group in _groups(samples, batch):
        found = predictor.predict([s.image for s in group])
        for mask, sample in zip(found.masks, group, strict=True):
            truth = sample.mask
            if len(retired):
                truth = truth.masked_fill(torch.isin(truth, retired), BACKGROUND)
            total += confusion_matrix(mask.cpu(), truth, slots=len(classes))
        done += len(group)
        if progress is not None:
            progress(done)
    if not done:
        raise ValueError("There is no image to evaluate on.")
    return Scores.of(total, [classes.name(s) for s in range(len(classes))])


def _groups(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    group: list[Sample] = []
    for sample in samples:
        group.append(sample)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
