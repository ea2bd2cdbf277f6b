"""Averaged gradient episodic memory (Chaudhry et al., Efficient Lifelong Learning with A-GEM, 2019).

g      gradient of the loss on the batch;  g_ref: on exemplars of the memory
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from segstream.functional.gradients import without_conflict
from segstream.functional.label_space import targets
from segstream.functional.objective import cross_entropy
from segstream.method import Method, check_choice
from segstream.types import Batch, Sample, UpdateReport

__all__ = ["AGEM"]


@dataclass(kw_only=True, eq=False)
class AGEM(Method):
    """Cross entropy on the batch alone; its gradient loses the part that would raise the loss on the memory.

    As many exemplars as images came, drawn uniformly from a reservoir, show that part. They are never trained on.

    view  of unlabelled pixels: `ignore` leaves them out (annotated background of base images stays a label),
          `background` makes them class 0

    >>> from segstream import Memory, Segmenter
    >>> AGEM(Segmenter.create("tiny", weights=None, classes=["road"]), memory=Memory(capacity=10), seed=0).view
    'ignore'
    """

    name: ClassVar[str] = "agem"
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    view: Literal["ignore", "background"] = "ignore"

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(len(new), generator=self.generator)
        joint = self.join(new)
        labels = targets(joint.masks, self.view)
        if not self.enters(labels):
            return self.idle(rewind)
        found = cross_entropy(self.forward(joint.images, bare=bool(drawn)), labels, reduce=self.reduce)
        if drawn:
            gradient = self.gradients(found.loss)  # g
            self.apply(without_conflict(gradient, self.reference(drawn.samples)))  # momentum and decay come after
        else:
            self.step(found.loss)
        stored = self.remember(batch)
        return self.report(self.summed(found), started=started, drawn=drawn, stored=stored)

    def reference(self, samples: Sequence[Sample]) -> list[Tensor]:
        """g_ref. The pass sees the statistics of these images but leaves the running ones to the batch's."""
        joint = self.join(samples)
        with self.segmenter.still_statistics():
            logits = self.forward(joint.images, bare=True)
        return self.gradients(cross_entropy(logits, targets(joint.masks, self.view), reduce=self.reduce).loss)

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("view", self.view, ("ignore", "background"))
