"""Which class is taken for which: confusion matrices in shares of each class's pixels, with few enough rows to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Confusion", "confusion"]

MOST = 24  # classes shown one by one; more are told by stage


@dataclass(frozen=True)
class Confusion:
    """Rows are what is there, columns what it was taken for; in percent of the row's pixels, None for an empty row.

    right  which column of each row is the right answer
    """

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    right: tuple[int, ...]
    grouped: bool


def confusion(
    label: str, matrices: Sequence[Sequence[Sequence[int]]], groups: Sequence[Sequence[str]], *, most: int = MOST
) -> Confusion | None:
    """The matrices of several runs in one, each weighing by its pixels; None where there is none.

    >>> found = confusion("em", [[[6, 2], [1, 3]]], [["car"]])
    >>> found.heads, found.rows
    (('background', 'car'), (('background', (75.0, 25.0)), ('car', (25.0, 75.0))))
    """
    there = [np.asarray(matrix, dtype=np.int64) for matrix in matrices if len(matrix)]
    if not there:
        return None
    total = np.sum(there, axis=0)
    names = ("background", *(name for group in groups for name in group))
    if len(names) <= most:
        return Confusion(label, names, _shares(names, total), tuple(range(len(names))), grouped=False)
    return _by_stage(label, total, groups)


def _shares(names: Sequence[str], counts: npt.NDArray[np.int64]) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    rows = []
    for name, row in zip(names, counts, strict=True):
        whole = int(row.sum())
        rows.append((name, tuple(100 * int(v) / whole if whole else None for v in row)))
    return tuple(rows)


def _by_stage(label: str, total: npt.NDArray[np.int64], groups: Sequence[Sequence[str]]) -> Confusion:
    """The first column is what was right to the class; the others are mistakes, by the group that was named instead."""
    edges = np.cumsum([0, 1, *(len(group) for group in groups)])
    heads = ("right", "background", *(f"stage {t}" for t in range(len(groups))))
    names = ("background", *(f"stage {t} ({len(group)} classes)" for t, group in enumerate(groups)))
    counts = np.zeros((len(names), len(names) + 1), dtype=np.int64)
    for i in range(len(names)):
        own = slice(edges[i], edges[i + 1])
        right = int(np.trace(total[own, own]))
        counts[i, 0] = right
        for k in range(len(names)):
            taken = int(total[own, edges[k] : edges[k + 1]].sum())
            counts[i, k + 1] = taken - right if i == k else taken
    return Confusion(label, heads, _shares(names, counts), (0,) * len(names), grouped=True)
