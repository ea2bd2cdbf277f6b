"""Herding: exemplars whose mean is that of their class (Rebuffi et al., iCaRL, 2017, Algorithm 4).

phi(x)  mean feature of an image on the pixels of the class, as the network saw it when the image was offered
mu      mean of phi over all images at hand that show the class: stored, chosen already, or just coming
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from segstream.memory.selection import Candidate, Selection

__all__ = ["Herding"]


class Herding(Selection):
    """Each time the image that brings the mean of the chosen nearest to the class's.

    What the paper leaves open here: an image that another class has chosen counts as chosen for every class that it
    shows; images that no network has measured come last, and of equally good ones the first to arrive is taken.

    >>> from segstream.memory import Evidence
    >>> def seen(name, arrival, x):
    ...     return Candidate(name, (1,), Evidence({1: 0.5}, {1: np.array([x], np.float32)}), arrival)
    >>> three = [seen("low", 0, 0.0), seen("high", 1, 0.9), seen("middle", 2, 0.5)]
    >>> [one.id for one in Herding().choose(three, room=2, active=(1,))]
    ['middle', 'low']
    """

    def pick(self, slot: int, rest: Sequence[Candidate], chosen: Sequence[Candidate], *, quota: int) -> Candidate:
        by_arrival = sorted(rest, key=lambda one: one.arrival)
        measured = [one for one in by_arrival if one.vector(slot) is not None]
        if not measured:
            return by_arrival[0]
        phi, before = _rows(slot, measured), _rows(slot, chosen)
        mu = (phi.sum(0) + before.sum(0)) / (len(phi) + len(before))
        means = (phi + before.sum(0)) / (1 + len(before))  # of the chosen, with each candidate in turn
        return measured[int(np.argmin(((means - mu) ** 2).sum(1)))]


def _rows(slot: int, candidates: Sequence[Candidate]) -> np.typing.NDArray[np.float64]:
    """[n, D], or [0, 1] where nothing was measured."""
    rows = [v for one in candidates if (v := one.vector(slot)) is not None]
    return np.stack(rows).astype(np.float64) if rows else np.zeros((0, 1))
