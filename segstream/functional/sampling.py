"""Dynamic sampling: from how sure the network is of each class to how often the class is drawn for replay.

c     a foreground class
E(c)  its confidence: a moving average of the mean p(c) over pixels whose given label is c
eta   `sharpness`;  mu  `momentum`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

__all__ = ["class_probabilities", "update_confidence"]

PerClass = Mapping[int, float] | Sequence[float] | Tensor
"""A number for each class: by slot, or a vector in which entry c belongs to slot c."""


def class_probabilities(confidence: Mapping[int, float], *, sharpness: float) -> dict[int, float]:
    """P_s(c) = exp(-eta E(c)) / sum over all classes given (the paper's Eq. 5).

    To draw from some classes only, give only these: it is the same as giving all and renormalising.

    >>> class_probabilities({1: 0.9, 2: 0.9, 3: 0.0}, sharpness=0.0)[3] == 1 / 3
    True
    >>> {c: round(p, 2) for c, p in class_probabilities({1: 0.9, 2: 0.4}, sharpness=10.0).items()}
    {1: 0.01, 2: 0.99}
    """
    if not (math.isfinite(sharpness) and sharpness >= 0):
        raise ValueError(f"`sharpness` is {sharpness}; it must be finite and 0 (all classes alike) or more.")
    for c, value in confidence.items():
        if c < 1:
            raise ValueError(f"Slot {c} has a confidence; only foreground classes (1 and up) are drawn.")
        if not math.isfinite(value):
            raise ValueError(f"The confidence of slot {c} is {value}.")
    lowest = min(confidence.values(), default=0.0)  # its exponential is 1: nothing overflows, the sum is never 0
    weights = {c: math.exp(-sharpness * (value - lowest)) for c, value in confidence.items()}
    total = math.fsum(weights.values())
    return {c: weight / total for c, weight in weights.items()}


def update_confidence(
    old: Mapping[int, float], sums: PerClass, counts: PerClass, *, momentum: float
) -> dict[int, float]:
    """E(c) <- mu E(c) + (1 - mu) sums(c) / counts(c) for the classes of `old` that were seen; others keep theirs.

    sums    of p(c) over the pixels whose given label is c;  counts: how many there were

    >>> update_confidence({1: 0.5, 2: 0.25}, sums=[0.0, 3.0, 0.0], counts=[9, 4, 0], momentum=0.5)
    {1: 0.625, 2: 0.25}
    """
    if not 0 <= momentum <= 1:
        raise ValueError(f"`momentum` is {momentum}; it must lie between 0 and 1.")
    sums, counts = _by_slot(sums), _by_slot(counts)
    new = dict(old)
    for c in old:
        if counts.get(c, 0) > 0:
            new[c] = momentum * old[c] + (1 - momentum) * sums[c] / counts[c]
    return new


def _by_slot(values: PerClass) -> dict[int, float]:
    if isinstance(values, Mapping):
        return dict(values)
    return dict(enumerate(values.tolist() if isinstance(values, Tensor) else values))
