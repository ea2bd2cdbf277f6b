"""The EM method of Yan et al., An EM Framework for Online Incremental Learning of Semantic Segmentation (ACM MM 2021).

N     the batch that comes;  M: the memory;  joint: N and as many images replayed from M
E(c)  running mean of p(c) over pixels labelled c;  P_s(c): how likely c is drawn for replay
X     classes that a pixel without a label cannot be (functional.label_space)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from segstream.functional.label_space import targets
from segstream.functional.objective import Objective, cross_entropy, em_objective
from segstream.functional.sampling import class_probabilities, update_confidence
from segstream.joint import given_confidence
from segstream.method import Method, check_choice
from segstream.types import Batch, UpdateReport

__all__ = ["EM"]


@dataclass(kw_only=True, eq=False)
class EM(Method):
    """Dynamic sampling, relabelling with a composite loss, cosine head, class-balanced memory.

    threshold            delta: a pseudo label is kept where its probability is higher
    latent_weight        gamma: weight of the term that keeps pixels without a label out of X
    sharpness            eta: how strongly classes of low confidence are preferred for replay
    confidence_momentum  mu of E(c)
    normalise            `joint`: one denominator, all pixels that are not void; `per_term`: each sum over its own count
    base_confidence      E(c) of base classes at the start: `measured` on the memory, or `zero`
    balance              tau of logit adjustment (Menon et al., 2021): while learning, tau * log(share of the labelled
                         pixels so far) is added to each class's logit, so that a rare class is found more readily
                         afterwards. 0: off, as in the paper; 1: as if all classes were equally frequent

    The paper's four ablation switches; with all of them off this is `er`, bit for bit, in the same view:
    class_balanced (memory policy), relabelling (E-step and composite loss), cosine (the head that a base is trained
    with), dynamic_sampling.

    view  of unlabelled pixels: `latent`; without relabelling there is no such view, and er's `ignore` takes its place,
          or `background` where that is asked for

    >>> from segstream import Memory, Segmenter
    >>> method = EM(Segmenter.create("tiny", weights=None, classes=["road"]), memory=Memory(capacity=10), seed=0)
    >>> method.add_classes(["sofa"]); method.confidence
    {2: 0.0}
    """

    name: ClassVar[str] = "em"
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"latent_weight": (0.5, 0.1)}  # the paper's two

    threshold: float = 0.8
    latent_weight: float = 0.5
    sharpness: float = 1.0
    confidence_momentum: float = 0.9
    normalise: Literal["joint", "per_term"] = "joint"
    base_confidence: Literal["measured", "zero"] = "measured"
    balance: float = 0.0
    class_balanced: bool = True
    relabelling: bool = True
    cosine: bool = True
    dynamic_sampling: bool = True
    view: Literal["latent", "ignore", "background"] = "latent"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.confidence: dict[int, float] = {}  # E(c)
        self.pixels: dict[int, float] = {}  # how many were labelled with each slot so far, if `balance` asks for it

    def learn(self, batch: Batch) -> UpdateReport:
        """One pass of the inner loop of Algorithm 1."""
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)  # N
        confidence = self.measured()  # E(c)
        drawn = self.memory_.draw(len(new), generator=self.generator, class_weights=self.odds(confidence))  # Eq. 5
        joint = self.join(new, drawn.samples)
        labels = joint.masks if self.relabelling else targets(joint.masks, self.plain_view)
        if not self.enters(labels):
            return self.idle(rewind)
        logits = self.adjusted(self.forward(joint.images))
        found = self.objective(logits, labels, joint.excluded)  # E-step (Eq. 6), the M-step's loss (Eq. 7): one forward
        self.step(found.loss)
        seen = self.summed(found)
        self.confidence = update_confidence(  # Eq. 3 and 4
            confidence, seen.confidence_sum, seen.confidence_count, momentum=self.confidence_momentum
        )
        self.count(seen.confidence_count)
        stored = self.remember(batch)  # Algorithm 2
        return self.report(seen, started=started, drawn=drawn, stored=stored, confidence=self.confidence)

    def odds(self, confidence: Mapping[int, float]) -> dict[int, float] | None:
        """P_s(c), over the classes that the memory can give; None: draw uniformly."""
        if not self.dynamic_sampling:
            return None
        stored = self.memory_.counts()
        return class_probabilities({c: e for c, e in confidence.items() if c in stored}, sharpness=self.sharpness)

    @property
    def plain_view(self) -> Literal["ignore", "background"]:
        return "ignore" if self.view == "latent" else self.view

    def objective(self, logits: Tensor, labels: Tensor, excluded: Tensor) -> Objective:
        if not self.relabelling:
            return cross_entropy(logits, labels, reduce=self.reduce)
        return em_objective(
            logits,
            labels,
            excluded,
            threshold=self.threshold,
            latent_weight=self.latent_weight,
            normalise=self.normalise,
            reduce=self.reduce,
        )

    def adjusted(self, logits: Tensor) -> Tensor:
        """Logits with the head start that frequent classes get while learning."""
        total = sum(self.pixels.values())
        if not self.balance or not total:
            return logits
        # A class that has not come yet counts as one pixel.
        shares = [max(self.pixels.get(c, 0.0), 1.0) / total for c in range(logits.shape[1])]
        start = self.balance * torch.tensor(shares, dtype=torch.float64).log()
        return logits + start.to(logits)[:, None, None]

    def count(self, pixels: Tensor) -> None:
        """Pixels by given label, [K]."""
        if self.balance:
            self.pixels = {c: self.pixels.get(c, 0.0) + n for c, n in enumerate(pixels.tolist())}

    def measured(self) -> dict[int, float]:
        """E(c) of every class that may be drawn; base classes start at what the memory shows, measured once."""
        active = self.segmenter.classes.active
        unmeasured = [c for c in active if c not in self.confidence]
        start: dict[int, float] = {}
        if unmeasured and self.base_confidence == "measured":
            start = given_confidence(self.segmenter, self.memory_, self.fabric_)
        return {c: self.confidence.get(c, start.get(c, 0.0)) for c in active}

    def before_growth(self, names: Sequence[str]) -> None:
        if len(self.memory_):  # before anything is remembered there is nothing to measure yet
            self.confidence = self.measured()

    def after_growth(self, new: frozenset[int]) -> None:
        self.confidence |= dict.fromkeys(sorted(new), 0.0)

    def after_retirement(self, slots: frozenset[int]) -> None:
        self.confidence = {c: e for c, e in self.confidence.items() if c not in slots}

    def policy(self) -> str:
        return "class_balanced" if self.class_balanced else "reservoir"

    def head(self) -> str:
        return "cosine" if self.cosine else "linear"

    def check_settings(self) -> None:
        super().check_settings()
        if not 0 <= self.threshold <= 1 or not 0 <= self.confidence_momentum <= 1:
            raise ValueError(
                f"threshold={self.threshold}, confidence_momentum={self.confidence_momentum}: both lie in [0, 1]."
            )
        if min(self.latent_weight, self.sharpness, self.balance) < 0:
            raise ValueError(
                f"latent_weight={self.latent_weight}, sharpness={self.sharpness}, balance={self.balance}: "
                "none of them may be negative."
            )
        check_choice("normalise", self.normalise, ("joint", "per_term"))
        check_choice("base_confidence", self.base_confidence, ("measured", "zero"))
        check_choice("view", self.view, ("latent", "ignore", "background"))
        if self.relabelling and self.view != "latent":
            raise ValueError(f"view={self.view!r} needs relabelling=False: relabelling is what makes pixels latent.")

    def extra_state(self) -> dict[str, Any]:
        return {
            "confidence": {str(c): e for c, e in sorted(self.confidence.items())},
            "pixels": {str(c): n for c, n in sorted(self.pixels.items())},
        }

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        self.confidence = {int(c): float(e) for c, e in state["confidence"].items()}
        self.pixels = {int(c): float(n) for c, n in state["pixels"].items()}
