"""Policies that look at the whole: of what is stored and what comes, they choose who stays.

A quota for each class, filled by the images that its policy prefers: the frame that `herding` (iCaRL) and
`representative` (CoRiSeg-style) share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from segstream.memory.policy import Offer, Policy, Shelf, Victim

__all__ = ["Candidate", "Evidence", "Selection"]

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a network made of an image when it was offered, by foreground slot.

    confidence  mean p(c) over the pixels labelled c
    vectors     mean over these pixels of the features, each of length 1

    >>> Evidence({1: 0.5}, {1: np.ones(2, np.float32)}).confidence
    {1: 0.5}
    """

    confidence: Mapping[int, float]
    vectors: Mapping[int, Vector]

    def without(self, slots: Sequence[int]) -> Evidence:
        """The same, silent about some classes."""
        confidence = {c: p for c, p in self.confidence.items() if c not in slots}
        return Evidence(confidence, {c: v for c, v in self.vectors.items() if c not in slots})


@dataclass(frozen=True, eq=False)
class Candidate:
    """An image that may stay: one that is stored, or one that comes.

    >>> Candidate("a", (1,), None, arrival=0).has(1)
    True
    """

    id: str
    labels: tuple[int, ...]
    evidence: Evidence | None
    arrival: int  # those that come have higher numbers than those stored, in the order in which they come

    def has(self, slot: int) -> bool:
        return slot in self.labels

    def vector(self, slot: int) -> Vector | None:
        return None if self.evidence is None else self.evidence.vectors.get(slot)

    def confidence(self, slot: int) -> float:
        """0 where nothing was measured."""
        return 0.0 if self.evidence is None else self.evidence.confidence.get(slot, 0.0)


class Selection(Policy):
    """A quota of q = max(1, floor(B / |Y|)) places for each class; an image fills a place in every class that it shows.

    Classes are served by ascending number of candidates, of equally many the lowest slot first, until each has q or
    no candidate is left for it, or the memory is full. Room that is left after that is filled by further rounds of q
    places each, so that a memory of B exemplars holds B of them.

    >>> class Oldest(Selection):
    ...     def pick(self, slot, rest, chosen, *, quota):
    ...         return min(rest, key=lambda one: one.arrival)
    >>> three = [Candidate("a", (1,), None, 0), Candidate("b", (1,), None, 1), Candidate("c", (2,), None, 2)]
    >>> [one.id for one in Oldest().choose(three, room=2, active=(1, 2))]
    ['c', 'a']
    """

    @abstractmethod
    def pick(
        self, slot: int, rest: Sequence[Candidate], chosen: Sequence[Candidate], *, quota: int
    ) -> Candidate | None:
        """The next image for a class, of `rest` (all show it, at least one); `chosen` show it and stay already.

        None: none of them, although the quota is not full.
        """

    def choose(self, candidates: Sequence[Candidate], *, room: int, active: Sequence[int]) -> list[Candidate]:
        """Who stays, the most wanted first: at most `room`."""
        showing = {c: [one for one in candidates if one.has(c)] for c in active}
        order = sorted((c for c in active if showing[c]), key=lambda c: (len(showing[c]), c))
        share = max(1, room // max(len(active), 1))
        kept: dict[str, Candidate] = {}
        quota = share
        while len(kept) < min(room, len(candidates)):
            for c in order:
                chosen = [one for one in showing[c] if one.id in kept]
                rest = [one for one in showing[c] if one.id not in kept]
                while rest and len(chosen) < quota and len(kept) < room:
                    found = self.pick(c, rest, chosen, quota=quota)
                    if found is None:
                        break
                    kept[found.id] = found
                    rest.remove(found)
                    chosen.append(found)
            if quota >= max((len(showing[c]) for c in order), default=0):  # whoever was not picked now never will be
                break
            quota += share
        return list(kept.values())

    def admit(self, offer: Offer, shelf: Shelf, *, generator: torch.Generator) -> Victim | None:
        raise TypeError(f"{type(self).__name__} chooses among all images at once: the memory asks `choose`.")
