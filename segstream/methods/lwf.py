"""Learning without forgetting, with many sigmoids (LwF.MC).

Li and Hoiem, Learning without Forgetting, 2016; in this form a baseline of Rebuffi et al., iCaRL, 2017.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from segstream.functional.objective import Objective
from segstream.functional.soft_targets import entering, hard_and_soft, soft, softmax_and_soft
from segstream.joint import taught
from segstream.method import Method, check_choice
from segstream.types import Batch, UpdateReport

__all__ = ["LwF"]


@dataclass(kw_only=True, eq=False)
class LwF(Method):
    """On the batch and as many exemplars, old outputs learn what the network before this stage says, new ones labels.

    form          `soft`: sigmoid cross entropy, old outputs towards the teacher's, new ones one-hot; `hard`: one-hot
                  on all outputs, plus distillation; `softmax`: softmax cross entropy, plus softmax distillation
    distillation  weight of the second term, in the last two
    view          of unlabelled pixels: `ignore` asks old outputs alone there (annotated background of base images stays
                  a label), `background` makes them class 0

    >>> from segstream import Memory, Segmenter
    >>> method = LwF(Segmenter.create("tiny", weights=None, classes=["road"]), memory=Memory(capacity=10), seed=0)
    >>> method.add_classes(["sofa"]); method.teacher.classes.names
    ('road',)
    """

    name: ClassVar[str] = "lwf"
    wants_teacher: ClassVar[bool] = True
    base_loss: ClassVar[Literal["softmax", "sigmoid"]] = "sigmoid"
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    form: Literal["soft", "hard", "softmax"] = "soft"
    distillation: float = 10.0
    view: Literal["ignore", "background"] = "ignore"

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(len(new), generator=self.generator)
        joint = self.join(new, drawn.samples)
        old = taught(self.teacher, joint.images, self.fabric_)
        labels = entering(joint.masks, self.view, taught=old)
        if not self.enters(labels):
            return self.idle(rewind)
        found = self.objective(self.forward(joint.images), old, labels)
        self.step(found.loss)
        stored = self.remember(batch)
        return self.report(self.summed(found), started=started, drawn=drawn, stored=stored)

    def objective(self, logits: Tensor, old: Tensor | None, labels: Tensor) -> Objective:
        gone = self.segmenter.classes.retired
        if self.form == "soft":
            return soft(logits, old, labels, retired=gone, reduce=self.reduce)
        both = hard_and_soft if self.form == "hard" else softmax_and_soft
        return both(logits, old, labels, distillation=self.distillation, retired=gone, reduce=self.reduce)

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("form", self.form, ("soft", "hard", "softmax"))
        check_choice("view", self.view, ("ignore", "background"))
        if self.distillation < 0:
            raise ValueError(f"distillation={self.distillation}: the weight may not be negative.")
