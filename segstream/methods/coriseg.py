"""CoRiSeg-style: after Ozdemir et al., Learn the New, Keep the Old: Extending Pretrained Models with New Anatomy and
Images (MICCAI 2018). A reconstruction: that work segments volumes offline, and its code is not public.

T: temperature   q, p: softmax of teacher and student over the classes that the teacher knows
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from segstream.classes import VOID
from segstream.functional.distillation import softmax_distillation
from segstream.functional.label_space import targets
from segstream.functional.objective import Objective, cross_entropy
from segstream.joint import taught
from segstream.method import Method, check_choice
from segstream.types import Batch, UpdateReport

__all__ = ["CoRiSeg"]


@dataclass(kw_only=True, eq=False)
class CoRiSeg(Method):
    """Cross entropy and distillation on batch and replay; a memory of sure and varied exemplars. A reconstruction.

    L = mean of -log p_y over the pixels that have a label in this view
        + distillation * mean of T^2 KL(q || p) over non-void pixels but those labelled with a class that the teacher
          does not know

    view          of unlabelled pixels in the first term: `ignore` leaves them out (annotated background of base images
                  stays a label), `background` makes them class 0. The second term runs on them in both
    distillation  weight of the second term
    temperature   T

    The memory that it makes for itself follows the policy `representative`.

    >>> from segstream import Memory, Segmenter
    >>> method = CoRiSeg(Segmenter.create("tiny", weights=None, classes=["road"], head="linear"), seed=0)
    >>> method.memory.settings()["policy"], method.view
    ('representative', 'ignore')
    """

    name: ClassVar[str] = "coriseg"
    default_policy: ClassVar[str | None] = "representative"
    wants_teacher: ClassVar[bool] = True
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    view: Literal["ignore", "background"] = "ignore"
    distillation: float = 1.0
    temperature: float = 2.0

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(len(new), generator=self.generator)
        joint = self.join(new, drawn.samples)
        labels = targets(joint.masks, self.view)
        teacher = taught(self.teacher if self.distillation > 0 else None, joint.images, self.fabric_)
        # What has no label enters by way of the teacher, where there is one.
        if not self.enters(labels if teacher is None else joint.masks):
            return self.idle(rewind)
        found = self.objective(self.forward(joint.images), labels, joint.masks, teacher)
        self.step(found.loss)
        stored = self.remember(batch)
        return self.report(self.summed(found), started=started, drawn=drawn, stored=stored)

    def objective(self, logits: Tensor, labels: Tensor, masks: Tensor, teacher: Tensor | None) -> Objective:
        """The loss L, and what was counted on the way. teacher: its logits."""
        found = cross_entropy(logits, labels, reduce=self.reduce)
        if teacher is None:
            return found
        term = softmax_distillation(
            logits,
            teacher,
            (masks != VOID) & (masks < teacher.shape[1]),
            temperature=self.temperature,
            retired=self.segmenter.classes.retired,
            reduce=self.reduce,
        )
        return replace(found, loss=found.loss + self.distillation * term)

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("view", self.view, ("ignore", "background"))
        if not 0 <= self.distillation < math.inf or not 0 < self.temperature < math.inf:
            raise ValueError(
                f"distillation={self.distillation}, temperature={self.temperature}: both are finite; the first is "
                "at least 0, the second above it."
            )
