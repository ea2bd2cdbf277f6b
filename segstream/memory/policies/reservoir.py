"""Reservoir: every image seen so far is stored with the same probability."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from segstream.memory.policy import Offer, Policy, Shelf, Victim, below, words

__all__ = ["Reservoir"]


class Reservoir(Policy):
    """Item n (from 0) is stored while there is room; else it takes the place j, uniform in 0 .. n, if that exists.

    Where exemplars were forgotten or retired, the next images fill the free room: until it is full again recent
    images are somewhat more likely to be stored than old ones. We prefer that to a memory which stays half empty.
    With a capacity in bytes, "full" means that the image does not fit and the number of places is the number of
    exemplars stored then; if it does not fit in place j, random others go too. Exactly uniform is the memory where
    nothing was forgotten and all images have the same size.

    >>> Reservoir().state()
    {'seen': 0}
    """

    def __init__(self) -> None:
        self.seen = 0

    def admit(self, offer: Offer, shelf: Shelf, *, generator: torch.Generator) -> Victim | None:
        n, self.seen = self.seen, self.seen + 1
        if shelf.fits(offer.nbytes):
            return partial(self.make_room, shelf, generator=generator)
        j = below(n + 1, words(1, generator=generator)[0])
        if j >= len(shelf):
            return None
        first = [j]
        return lambda: first.pop() if first else self.make_room(shelf, generator=generator)

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state(self, state: dict[str, Any]) -> None:
        self.seen = int(state["seen"])
