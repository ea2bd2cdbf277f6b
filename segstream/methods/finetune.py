"""Plain fine-tuning on what comes: the lower bound."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from segstream.functional.label_space import targets
from segstream.functional.objective import cross_entropy
from segstream.method import Method, check_choice
from segstream.types import Batch, UpdateReport

__all__ = ["Finetune"]


@dataclass(kw_only=True, eq=False)
class Finetune(Method):
    """Cross entropy on the batch alone; nothing is kept or replayed.

    view  of unlabelled pixels: `background` makes them class 0, `ignore` leaves them out

    >>> from segstream import Segmenter
    >>> Finetune(Segmenter.create("tiny", weights=None, classes=["road"]), seed=0).memory is None
    True
    """

    name: ClassVar[str] = "finetune"
    default_policy: ClassVar[str | None] = None
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    view: Literal["ignore", "background"] = "ignore"

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        joint = self.join(self.accept(batch))
        labels = targets(joint.masks, self.view)
        if not self.enters(labels):
            return self.idle(rewind)
        found = cross_entropy(self.forward(joint.images), labels, reduce=self.reduce)
        self.step(found.loss)
        return self.report(self.summed(found), started=started, stored=self.remember(batch))

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("view", self.view, ("ignore", "background"))
