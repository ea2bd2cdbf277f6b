"""Class-balanced exemplar selection (CBES): Algorithm 2 of Yan et al., An EM Framework for Online Incremental
Learning of Semantic Segmentation, ACM MM 2021.

|M^c|  exemplars with labelled pixels of class c; an image counts for every class in it
|Y_t|  foreground classes known now and not retired
B      the capacity; with a capacity in bytes, the number of exemplars stored when the image does not fit
m_c    stored images of c;  n_c: seen images of c, the one that is offered included
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from segstream.memory.policy import Offer, Policy, Shelf, Victim, below, words

__all__ = ["ClassBalanced"]


class ClassBalanced(Policy):
    """Keeps the rarest class of the memory as large as it can, and within a class every image equally likely.

    What the paper leaves open: of equally rare or frequent classes the lowest slot counts, the classes of an image
    take their turns by ascending slot, and a random exemplar is drawn uniformly. A known flaw of the algorithm: in a
    small memory (B = 20), dropping one of the most frequent class now and then takes another class's last exemplar.

    >>> ClassBalanced().state()
    {'seen': {}}
    """

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}  # n_c

    def admit(self, offer: Offer, shelf: Shelf, *, generator: torch.Generator) -> Victim | None:
        for c in offer.labels:
            self.seen[c] = self.seen.get(c, 0) + 1
        rarest = min(shelf.count(c) for c in offer.labels)  # |M^{c_min}|
        # |M^{c_min}| < B / |Y_t|: asked of a full memory only, and what a full memory holds is B.
        if shelf.fits(offer.nbytes) or rarest * len(offer.active) < len(shelf):
            return partial(self.make_room, shelf, generator=generator)
        for c, word in zip(offer.labels, words(len(offer.labels), generator=generator), strict=True):
            # Below, not "at most": a class without exemplars (m_c = 0) has none that the image could replace.
            if below(self.seen[c], word) < shelf.count(c):  # with probability m_c / n_c
                return partial(self._one_of, c, shelf, generator)
        return None

    def make_room(self, shelf: Shelf, *, generator: torch.Generator) -> int:
        """A random exemplar of the most frequent class c_max."""
        most = max(shelf.counts().items(), key=lambda item: (item[1], -item[0]))[0]
        return self._one_of(most, shelf, generator)

    def _one_of(self, c: int, shelf: Shelf, generator: torch.Generator) -> int:
        count = shelf.count(c)
        if not count:  # a large image, in bytes: all of class c are gone and it does not fit yet
            return self.make_room(shelf, generator=generator)
        return shelf.member(c, below(count, words(1, generator=generator)[0]))

    def state(self) -> dict[str, Any]:
        return {"seen": {str(c): n for c, n in sorted(self.seen.items())}}

    def load_state(self, state: dict[str, Any]) -> None:
        self.seen = {int(c): int(n) for c, n in state["seen"].items()}
