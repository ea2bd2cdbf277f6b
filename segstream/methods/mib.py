"""MiB (Cermelli et al., Modeling the Background for Incremental Learning in Semantic Segmentation, CVPR 2020).

C_t      the classes of the stage that is going on;  X: classes that a pixel without a label cannot be
n_old    classes that the teacher knows, background included;  q, p: softmax of teacher and student
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from segstream.classes import VOID
from segstream.functional.distillation import unbiased_distillation
from segstream.functional.objective import Objective, em_objective
from segstream.joint import Joint, taught
from segstream.method import Method
from segstream.types import Batch, UpdateReport

__all__ = ["MiB"]

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class MiB(Method):
    """Cross entropy, distillation and start of new classes that all know what "background" may stand for; with replay.

    L = [ sum over labelled pixels of -log p_c + sum over latent pixels of -log sum_{z not in X} p_z ] / non-void pixels
        + distillation * mean over non-void pixels of -(1/n_old) sum_k q_k log p^_k

    distillation  lambda: weight of the second term, in which p^_0 = p_0 + sum of the classes that the teacher does not
                  know (the paper: 10, and 100 for VOC 15-1)

    Which classes a latent pixel may be is known for each image (functional.label_space): an old label never counts as
    background, as it does in public code. Latent is the only view of unlabelled pixels that this method has.

    A new class starts with the background's weights, and all of C_t and the background get its bias - log(|C_t| + 1):
    what was background is shared equally, old classes keep their probability. That needs a head with a bias: on a
    cosine head new rows stay the random directions with which any method starts them. The background's row keeps its
    momentum, as every old row does; new rows have none.

    >>> from segstream import Memory, Segmenter
    >>> segmenter = Segmenter.create("tiny", weights=None, classes=["road"], head="linear")
    >>> method = MiB(segmenter, memory=Memory(capacity=10), seed=0)
    >>> method.add_classes(["sofa", "lamp"])
    >>> [round(b, 4) for b in segmenter.head.bias[:4].tolist()]
    [-1.0986, 0.0, -1.0986, -1.0986]
    """

    name: ClassVar[str] = "mib"
    wants_teacher: ClassVar[bool] = True
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"distillation": (10.0, 30.0, 100.0)}

    distillation: float = 10.0

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(len(new), generator=self.generator)
        joint = self.join(new, drawn.samples)
        if not self.enters(joint.masks):
            return self.idle(rewind)
        found = self.objective(joint, self.forward(joint.images))
        self.step(found.loss)
        stored = self.remember(batch)
        return self.report(self.summed(found), started=started, drawn=drawn, stored=stored)

    def objective(self, joint: Joint, logits: Tensor) -> Objective:
        """The loss L, and what was counted on the way."""
        found = em_objective(  # no probability exceeds 1: without pseudo labels this is unbiased cross entropy
            logits, joint.masks, joint.excluded, threshold=1.0, latent_weight=1.0, reduce=self.reduce
        )
        loss = found.loss
        teacher = taught(self.teacher if self.distillation > 0 else None, joint.images, self.fabric_)
        if teacher is not None:
            retired = self.segmenter.classes.retired
            loss = loss + self.distillation * unbiased_distillation(
                logits, teacher, joint.masks != VOID, retired=retired, reduce=self.reduce
            )
        # It relabels nothing, so there is no share of pseudo labels to report.
        return replace(found, loss=loss, candidates=torch.zeros_like(found.candidates))

    @torch.no_grad()
    def after_growth(self, new: frozenset[int]) -> None:
        """The classes of the stage and the background share equally what was background before the stage."""
        head, stage = self.segmenter.head, sorted(self.newest)
        assert self.teacher is not None
        before = self.teacher.head
        if head.bias is None or before.bias is None:
            log.warning("mib: a %s head has no bias, so new classes start at random, not as background.", head.kind)
            return
        head.weight[stage] = before.weight[0]
        head.bias[[0, *stage]] = before.bias[0] - math.log(len(stage) + 1)

    def check_settings(self) -> None:
        super().check_settings()
        if not 0 <= self.distillation < math.inf:
            raise ValueError(f"distillation={self.distillation}: a weight is a finite number of at least 0.")
