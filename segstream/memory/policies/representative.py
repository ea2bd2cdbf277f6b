"""Representative exemplars, as CoRiSeg-style replay keeps them: those that the network is sure of, and of these such as
resemble, together, all that is there of a class.

s(i, j)  cosine of the mean features of images i and j on their pixels of the class;  q: the class's quota
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from segstream.memory.selection import Candidate, Selection

__all__ = ["Representative"]

Rows = npt.NDArray[np.float64]


class Representative(Selection):
    """Of all images of a class the 2q of highest mean confidence, of these q by greedy facility location.

    Next comes the image j that makes the sum over all images i of the class of max_{k stays} s(i, k) largest; images
    that stay for another class's sake are counted among those that stay. Confidence and features are those measured
    when an image was offered. Of equally good ones the surest comes first, then the oldest; images of which nothing
    was measured come last, by arrival.

    >>> from segstream.memory import Evidence
    >>> def seen(name, arrival, confidence, *vector):
    ...     return Candidate(name, (1,), Evidence({1: confidence}, {1: np.array(vector, np.float32)}), arrival)
    >>> four = [seen("a", 0, 0.9, 1, 0), seen("b", 1, 0.8, 1, 0.1), seen("c", 2, 0.7, 0, 1), seen("d", 3, 0.1, 0, 9)]
    >>> [one.id for one in Representative().choose(four, room=2, active=(1,))]
    ['b', 'c']
    """

    def pick(self, slot: int, rest: Sequence[Candidate], chosen: Sequence[Candidate], *, quota: int) -> Candidate:
        everyone = sorted([*chosen, *rest], key=lambda one: _rank(one, slot))
        staying = {one.id for one in chosen}
        sure = [one for one in everyone[: 2 * quota] if one.id not in staying]  # never empty: fewer than q stay so far
        measured = [one for one in sure if one.vector(slot) is not None]
        if not measured:
            return sure[0]
        rows = _directions(everyone, slot)
        covered = np.full(len(rows), -1.0)  # max_{k stays} s(i, k)
        if any(one.vector(slot) is not None for one in chosen):
            covered = (rows @ _directions(chosen, slot).T).max(1)
        sums = np.maximum(covered[:, None], rows @ _directions(measured, slot).T).sum(0)
        return measured[int(np.argmax(sums.round(9)))]  # rounded: twins stay equal, in whichever order terms are added


def _rank(one: Candidate, slot: int) -> tuple[bool, float, int]:
    return one.vector(slot) is None, -one.confidence(slot), one.arrival


def _directions(those: Sequence[Candidate], slot: int) -> Rows:
    """Of those that have a vector (at least one), each of length 1: [n, D]."""
    rows = np.stack([vector for one in those if (vector := one.vector(slot)) is not None]).astype(np.float64)
    directions: Rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return directions
