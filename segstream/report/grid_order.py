"""The order of the methods beside the paper's: which pairs stand the other way round, and whether that is clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from segstream.report.blocks import Block, Line
from segstream.report.grid import section
from segstream.report.intervals import Estimate
from segstream.report.paper import PaperCell, paper
from segstream.report.sheet import shown
from segstream.report.tables import text

__all__ = ["Order", "Reversal", "by_value", "joined", "order", "order_words", "told"]

NAMED = 4  # reversed pairs among the sentences; the page lists them all


def told(found: Estimate) -> str:
    """A value as sentences give it: with its interval where there is one.

    >>> from segstream.report.intervals import estimate
    >>> told(estimate([65.0, 66.0])), told(estimate([65.0, 66.0, 67.0]))
    ('65.5 %', '66.0 ± 2.5 %')
    """
    return f"{text(found.mean)} %" if found.half is None else f"{shown(found)} %"


def joined(parts: Sequence[str]) -> str:
    """A list as a sentence has it.

    >>> joined(["em", "er", "mib"])
    'em, er and mib'
    """
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def by_value(lines: Sequence[Line], measure: str = "all") -> list[tuple[Line, Estimate]]:
    """Those lines that have a value, the best first."""
    there = [(line, found) for line in lines if (found := line.estimate(measure)) is not None]
    return sorted(there, key=lambda pair: -pair[1].mean)


@dataclass(frozen=True)
class Reversal:
    """Two methods whose order is not the paper's: there `upper` was above `lower`."""

    upper: str
    lower: str
    printed: tuple[float, float]
    ours: tuple[Estimate, Estimate]

    @property
    def clear(self) -> bool:
        return self.ours[0].apart(self.ours[1])

    def sentence(self) -> str:
        how = "the intervals do not touch" if self.clear else "not clearly"
        return (
            f"The paper has {self.upper} above {self.lower} ({self.printed[0]:.2f} and {self.printed[1]:.2f}); here "
            f"{self.lower} is above {self.upper} ({told(self.ours[1])} and {told(self.ours[0])}, {how})."
        )


@dataclass(frozen=True)
class Order:
    """How the methods' order by final mIoU compares with one of the paper's columns.

    same   whether that column is of this very scenario and memory size; else just its order is of interest
    pairs  how many pairs of methods could be compared; level ones have no order
    """

    column: str
    same: bool
    pairs: int
    reversals: tuple[Reversal, ...]


def order(block: Block) -> Order | None:
    """Against the paper's column for this scenario or, where it has none, for the one most like it."""
    recipe, memory, title = _column(block)
    known: list[tuple[str, PaperCell, Estimate]] = []
    for line, found in by_value(block.having("headline")):
        printed = paper().find(recipe, memory, line.method, "all")
        if printed is not None and not printed.contradiction:
            known.append((line.name, printed, found))
    reversals = []
    pairs = 0
    for i, (upper, high, best) in enumerate(known):
        for lower, low, worse in known[i + 1 :]:
            if text(best.mean) == text(worse.mean):
                continue
            pairs += 1
            if high.percent < low.percent:
                reversals.append(Reversal(lower, upper, (low.percent, high.percent), (worse, best)))
    if not pairs:
        return None
    same = block.original is not None and (recipe, memory) == (block.original.recipe, block.capacity)
    reversals.sort(key=lambda r: (not r.clear, r.ours[0].mean - r.ours[1].mean))
    return Order(title, same, pairs, tuple(reversals))


def _column(block: Block) -> tuple[str, int, str]:
    """Recipe, memory size and title of the paper's column to compare with."""
    if block.original is not None:
        recipe = block.original.recipe
    else:
        told_rule = section(block.cells[0].config, "scenario").get("rule") if block.cells else None
        rule = "overlapped" if told_rule in (None, "overlapped") else "disjoint"
        later = [len(group) for group in block.groups[1:]]
        shape = "15-1" if len(later) > 1 else "19-1" if later == [1] else "15-5"
        recipe = f"voc-{shape}-{rule}" if len(later) == 1 or set(later) == {1} else "ade-50-50"
    sizes = sorted({c.memory for c in paper().cells if c.recipe == recipe}, key=lambda m: abs(m - block.capacity))
    title = next(s.title for s in paper().scenarios if s.recipe == recipe)
    return recipe, sizes[0], f"{title}, memory of {sizes[0]}"


def order_words(found: Order | None) -> list[str]:
    """Which pairs stand the other way round, those first that differ clearly."""
    if found is None:
        return []
    column = "the paper's order" if found.same else f"the order of the paper's {found.column}"
    only = "" if found.same else " (its numbers are of other data or another memory size)"
    many = len(found.reversals)
    if not many:
        all_of = f"All {found.pairs} pairs of methods stand" if found.pairs > 1 else "The one pair of methods stands"
        return [f"{all_of} in {column}{only}."]
    clear = [r for r in found.reversals if r.clear]
    of = f"{many} of {found.pairs} pairs of methods {'stand' if many > 1 else 'stands'}"
    said = [f"Against {column}{only}, {of} the other way round{'' if clear else ', none clearly'}."]
    said += [r.sentence() for r in clear[:NAMED]]
    if clear and len(clear) < many:
        said.append(f"Of the {many}, {many - len(clear)} are not clear: intervals touch, or there are too few runs.")
    return said
