"""Maximally interfered retrieval (Aljundi et al., Online Continual Learning with Maximal Interfered Retrieval, 2019).

N      the batch that comes;  C: candidates from the memory
theta  the parameters;  theta_v = theta - lr * gradient on N: where an update on N alone would take them
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from segstream.classes import VOID
from segstream.functional.label_space import targets
from segstream.functional.objective import cross_entropy
from segstream.joint import Joint
from segstream.memory import Drawn
from segstream.method import Method, check_choice
from segstream.types import Batch, UpdateReport

__all__ = ["MIR", "steepest"]


@dataclass(kw_only=True, eq=False)
class MIR(Method):
    """Cross entropy on the batch and as many exemplars: those whose loss an update on the batch alone would raise most.

    candidates  how many exemplars, drawn uniformly from a reservoir, are looked at; at most so many are replayed
    view        of unlabelled pixels: `ignore` leaves them out (annotated background of base images stays a label),
                `background` makes them class 0

    >>> from segstream import Memory, Segmenter
    >>> MIR(Segmenter.create("tiny", weights=None, classes=["road"]), memory=Memory(capacity=10), seed=0).candidates
    16
    """

    name: ClassVar[str] = "mir"
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"view": ("ignore", "background")}

    candidates: int = 16
    view: Literal["ignore", "background"] = "ignore"

    def learn(self, batch: Batch) -> UpdateReport:
        started, rewind = time.perf_counter(), self.generator.get_state()
        new = self.accept(batch)
        drawn = self.memory_.draw(self.candidates, generator=self.generator)
        joint = self.join(new, drawn.samples, whole=True)  # cut once: the crops that are rated are those learned
        fresh, old = list(range(len(new))), list(range(len(new), len(joint.images)))  # N, C
        if not self.enters(targets(joint.masks[fresh], self.view)):
            return self.idle(rewind)
        if len(old) > len(new):
            chosen = steepest(self.rises(taken(joint, fresh), taken(joint, old)), len(new))
        else:  # all of them: nothing to choose
            chosen = list(range(len(old)))
        joint = self.part(taken(joint, [*fresh, *(old[i] for i in chosen)]))
        found = cross_entropy(self.forward(joint.images), targets(joint.masks, self.view), reduce=self.reduce)
        self.step(found.loss)
        stored = self.remember(batch)
        replayed = Drawn(tuple(drawn.samples[i] for i in chosen))
        return self.report(self.summed(found), started=started, drawn=replayed, stored=stored)

    def rises(self, fresh: Joint, old: Joint) -> list[float]:
        """For each candidate, its mean loss at theta_v minus that at theta; -inf where none of its pixels enters."""
        with self.segmenter.still_statistics():  # the batch's own, in each pass; the running ones wait for the update
            mine = self.part(fresh)
            logits = self.forward(mine.images, bare=True)
            loss = cross_entropy(logits, targets(mine.masks, self.view), reduce=self.reduce).loss
            gradient = self.gradients(loss)
            dice = self.generator.get_state()
            now = self.losses(old)
            self.generator.set_state(dice)  # what is dropped out is the same, so that the parameters alone differ
            with moved(list(self.optimiser.named().values()), gradient, lr=self.lr):
                then = self.losses(old)
        enters = (targets(old.masks, self.view) != VOID).any((1, 2)).cpu()
        rise: list[float] = (then - now).masked_fill(~enters, -torch.inf).tolist()
        return rise

    @torch.no_grad()
    def losses(self, joint: Joint) -> Tensor:
        """Of each image by itself, over its pixels that enter: float64 on the CPU, from the process that has it."""
        rank, world = self.fabric_.global_rank, self.fabric_.world_size
        mine = self.part(joint)
        logits, labels = self.forward(mine.images, bare=True), targets(mine.masks, self.view)
        each = [cross_entropy(logits[i : i + 1], labels[i : i + 1]).loss for i in range(len(labels))]
        found = torch.zeros(len(joint.images), dtype=torch.float64)
        found[rank::world] = torch.stack(each).cpu().double()[: len(found[rank::world])]
        return found if self.reduce is None else self.reduce(found)

    def check_settings(self) -> None:
        super().check_settings()
        if self.candidates < 1:
            raise ValueError(f"candidates={self.candidates}: at least one exemplar must be looked at.")
        check_choice("view", self.view, ("ignore", "background"))


def steepest(rises: Sequence[float], n: int) -> list[int]:
    """The n places with the largest rise, the largest first; of equal ones the first.

    >>> steepest([0.1, 0.5, 0.1, 0.5], 3)
    [1, 3, 0]
    """
    return sorted(range(len(rises)), key=lambda i: -rises[i])[:n]


def taken(joint: Joint, places: Sequence[int]) -> Joint:
    """These images of a joint batch, in this order."""
    at = list(places)
    return Joint(joint.images[at], joint.masks[at], joint.excluded[at])


@contextmanager
def moved(parameters: Sequence[Tensor], gradient: Sequence[Tensor], *, lr: float) -> Iterator[None]:
    """Inside, the parameters are one plain step further; afterwards they hold the very memory that they held before.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> with moved([weight], [torch.tensor([1.0, -1.0])], lr=0.5):
    ...     print(weight.tolist())
    [0.5, 1.5]
    >>> weight.tolist()
    [1.0, 1.0]
    """
    # Not by adding and subtracting, which rounds; nor on a copy of the network, which would copy its hooks and caches.
    held = [p.data for p in parameters]
    try:
        for parameter, slope in zip(parameters, gradient, strict=True):
            parameter.data = parameter.data - lr * slope.to(parameter.dtype)
        yield
    finally:
        for parameter, data in zip(parameters, held, strict=True):
            parameter.data = data
