"""Experience replay (Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from segstream.functional.label_space import targets
from segstream.functional.objective import cross_entropy
from segstream.method import Method, check_choice
from segstream.types import Batch, UpdateReport

__all__ = ["ER"]


@dataclass(kw_only=True, eq=False)
class ER(Method):
    """Cross entropy on the batch and as many exemplars, drawn uniformly from a reservoir, in one forward.

    view  of unlabelled pixels: `ignore` leaves them out (annotated background of base images stays a label),
          `background` makes them class 0

    >>> from segstream import Memory, Segmenter
    >>> ER(Segmenter.create("tiny", weights=None, classes=["road"]), memory=Memory(capacity=10), seed=0).view
    'ignore'
    """

    name: ClassVar[str] = "er"
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    view: Literal["ignore", "background"] = "ignore"

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(len(new), generator=self.generator)
        joint = self.join(new, drawn.samples)
        labels = targets(joint.masks, self.view)
        if not self.enters(labels):
            return self.idle(rewind)
        found = cross_entropy(self.forward(joint.images), labels, reduce=self.reduce)
        self.step(found.loss)
        stored = self.remember(batch)
        return self.report(self.summed(found), started=started, drawn=drawn, stored=stored)

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("view", self.view, ("ignore", "background"))
