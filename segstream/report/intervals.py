"""Means and the intervals in which true means lie: by Student's t from three runs up; with fewer, just the values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

__all__ = ["LEAST", "Estimate", "estimate", "t_quantile"]

LEAST = 3  # runs for an interval: from two, the factor is 12.7 and nothing is told
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """What some runs give together.

    values  one for each run, in the runs' order
    half    half of the interval's width; None where there are too few runs for one

    >>> estimate([1.0, 2.0, 3.0]).half > 2 and estimate([1.0, 2.0]).half is None
    True
    """

    values: tuple[float, ...]
    mean: float
    half: float | None

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def low(self) -> float:
        """The interval's end, or where there is none the smallest value."""
        return min(self.values) if self.half is None else self.mean - self.half

    @property
    def high(self) -> float:
        return max(self.values) if self.half is None else self.mean + self.half

    def overlaps(self, other: Estimate) -> bool:
        """Whether the two intervals share a point.

        >>> estimate([1.0, 1.1, 1.2]).overlaps(estimate([1.3, 1.4, 1.5]))
        True
        """
        return self.low <= other.high and other.low <= self.high

    def apart(self, other: Estimate) -> bool:
        """Whether both have intervals and these do not touch: the only case in which a difference is one."""
        return self.half is not None and other.half is not None and not self.overlaps(other)


def estimate(values: Iterable[float | None], level: float = LEVEL) -> Estimate | None:
    """Mean and interval of the values that exist; None where none does.

    >>> found = estimate([10.0, 12.0, None, 14.0])
    >>> found.mean, round(found.half, 3), found.n
    (12.0, 4.968, 3)
    """
    there = tuple(v for v in values if v is not None)
    if not there:
        return None
    n, mean = len(there), math.fsum(there) / len(there)
    if n < LEAST:
        return Estimate(there, mean, None)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in there) / (n - 1))
    return Estimate(there, mean, t_quantile(0.5 + level / 2, n - 1) * spread / math.sqrt(n))


@cache
def t_quantile(p: float, freedom: int) -> float:
    """The value below which a t-distributed one with so many degrees of freedom lies with probability p.

    >>> round(t_quantile(0.975, 2), 4), round(t_quantile(0.025, 9), 4)
    (4.3027, -2.2622)
    """
    if not 0 < p < 1 or freedom < 1:
        raise ValueError(f"A t quantile needs 0 < p < 1 and freedom >= 1, not p = {p} and freedom = {freedom}.")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    low, high = 0.0, math.pi / 2  # the angle atan(t / sqrt(freedom)): its interval is bounded, that of t is not
    for _ in range(100):
        middle = (low + high) / 2
        if _between(middle, freedom) < 2 * p - 1:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _between(angle: float, freedom: int) -> float:
    """P(|T| < t) for t = sqrt(freedom) * tan(angle): a finite sum for whole degrees of freedom."""
    cosine = math.cos(angle)
    term = 1.0 if freedom % 2 == 0 else cosine
    total = term if freedom > 1 else 0.0
    for k in range(2 + freedom % 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    share = math.sin(angle) * total
    return share if freedom % 2 == 0 else (angle + share) * 2 / math.pi
