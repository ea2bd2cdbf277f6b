"""Incremental classifier and representation learning (Rebuffi et al., iCaRL, 2017), for pixels."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from segstream.functional.nearest_mean import class_sums, nearest_mean_scores
from segstream.functional.soft_targets import entering, soft
from segstream.joint import taught
from segstream.method import Method, check_choice
from segstream.models.prediction import evaluating
from segstream.types import Batch, Prediction, UpdateReport

__all__ = ["ICaRL"]

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class ICaRL(Method):
    """lwf's loss, exemplars chosen by herding, prediction by the nearest mean of exemplars.

    A class of which the memory has no pixel is left out of predictions, the background too; a memory without any
    leaves them to the head.

    view  of unlabelled pixels: `ignore` asks old outputs alone there (annotated background of base images stays
          a label), `background` makes them class 0

    >>> from segstream import Memory, Segmenter
    >>> memory = Memory(capacity=10, policy="herding")
    >>> method = ICaRL(Segmenter.create("tiny", weights=None, classes=["road"]), memory=memory, seed=0)
    >>> method.predict([torch.zeros(3, 8, 8, dtype=torch.uint8)]).masks[0].shape
    torch.Size([8, 8])
    """

    name: ClassVar[str] = "icarl"
    default_policy: ClassVar[str | None] = "herding"
    wants_teacher: ClassVar[bool] = True
    base_loss: ClassVar[Literal["softmax", "sigmoid"]] = "sigmoid"
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    view: Literal["ignore", "background"] = "ignore"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._means: Tensor | None = None  # a cache, no state: whatever changes network or memory drops it
        self._told: set[tuple[str, ...]] = set()

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(len(new), generator=self.generator)
        joint = self.join(new, drawn.samples)
        old = taught(self.teacher, joint.images, self.fabric_)
        labels = entering(joint.masks, self.view, taught=old)
        if not self.enters(labels):
            return self.idle(rewind)
        gone = self.segmenter.classes.retired
        found = soft(self.forward(joint.images), old, labels, retired=gone, reduce=self.reduce)
        self.step(found.loss)
        stored = self.remember(batch)
        return self.report(self.summed(found), started=started, drawn=drawn, stored=stored)

    def predict(self, images: Sequence[Tensor]) -> Prediction:
        """By the nearest mean; changes nothing that is state."""
        means = self.means()
        if not bool(means.any()):
            return super().predict(images)
        self.say_who_is_left_out(means)
        scale = self.segmenter.head.scale
        return self.segmenter.predict(images, scorer=lambda f: nearest_mean_scores(f.float(), means, scale=scale))

    @torch.no_grad()
    def means(self) -> Tensor:
        """[K, D]: for each slot the direction of its mean feature over the memory; 0 where the memory has no pixel."""
        if self._means is None:
            slots, device = len(self.segmenter.classes), self.fabric_.device
            total = torch.zeros(slots, self.segmenter.head.weight.shape[1], dtype=torch.float64)
            with evaluating(self.segmenter):
                for exemplar in self.memory_:
                    images, masks = self.segmenter.pad(exemplar.image[None].to(device), exemplar.mask[None].to(device))
                    assert masks is not None
                    total += class_sums(self.segmenter.features(images).float(), masks, slots=slots).cpu()
            self._means = functional.normalize(total, dim=1).to(device, torch.float32)
        return self._means

    def say_who_is_left_out(self, means: Tensor) -> None:
        """Once for each set of classes."""
        classes = self.segmenter.classes
        missing = tuple(classes.name(k) for k in (0, *classes.active) if not bool(means[k].any()))
        if missing and missing not in self._told:
            self._told.add(missing)
            logger.warning("The memory shows no pixel of %s; icarl cannot predict it.", ", ".join(missing))

    # ---- what makes the means go stale

    def step(self, loss: Tensor) -> None:
        super().step(loss)
        self._means = None

    def remember(self, batch: Batch) -> int:
        self._means = None
        return super().remember(batch)

    def forget(self, ids: Sequence[str]) -> tuple[str, ...]:
        self._means = None
        return super().forget(ids)

    def after_growth(self, new: frozenset[int]) -> None:
        self._means = None

    def after_retirement(self, slots: frozenset[int]) -> None:
        self._means = None

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("view", self.view, ("ignore", "background"))
