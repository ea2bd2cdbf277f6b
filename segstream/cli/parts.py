"""What of a data folder is learned, and what is held back to see how well. Needs PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from segstream.classes import ClassTable
from segstream.data import BaseSet, Scenario, Source, Splits, TestSet
from segstream.data.source import Cached, DataError, hold_back
from segstream.photos import Smaller

__all__ = ["Parts", "split_parts", "window"]

AT_MOST, SHARE, FEW = 20, 10, 5  # held back: so many, one in so many; none of fewer than FEW pictures
LARGEST_WINDOW, STEP = 512, 32


@dataclass(frozen=True)
class Parts:
    """Pictures to learn from, pictures to score (None: too few to spare any), and sentences about them."""

    classes: ClassTable
    learn: BaseSet
    held: TestSet | None
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


def split_parts(splits: Splits, names: Sequence[str] | None, *, max_side: int, seed: int) -> Parts:
    """val.txt is held back where there is one, else a few pictures of the others. Every mask is read once."""
    if not len(splits.train):
        raise DataError("Every picture is in val.txt or test.txt; none is left to learn from.")
    scenario = Scenario(tuple(splits.train.names[1:] if names is None else names))
    values = frozenset(scenario.values(splits.train).values())
    if not values:
        raise DataError("There is no class to learn: classes.txt names none but the background.")
    table = ClassTable(scenario.base)
    train, val = splits.train, splits.val
    said: str | None
    if len(val):
        said = f"{len(train)} pictures are learned; those of val.txt ({len(val)}) are for scoring."
    elif len(train) < FEW:
        val, said = hold_back(train, count=0)[1], f"{len(train)} pictures are too few to hold any back for scoring."
    else:
        count = min(AT_MOST, max(1, len(train) // SHARE))
        train, val = hold_back(train, count=count, seed=seed)
        said = f"{len(train)} pictures are learned; {len(val)} are held back for scoring."
    here: frozenset[int] = frozenset().union(*(train.present(i) for i in range(len(train))))
    if not here & values:
        raise DataError(f"No picture has a pixel of {', '.join(scenario.base)}; there is nothing to learn.")
    missing = [name for name, value in scenario.values(train).items() if value not in here]
    warnings = (f"No picture that is learned has a pixel of {', '.join(missing)}.",) if missing else ()
    learn = BaseSet(Cached(Smaller(train, max_side)), scenario, table, range(len(train)))
    held = TestSet(val, scenario, 0, table, every=True) if len(val) else None
    return Parts(table, learn, held, (said,), warnings)


def window(source: Source, *, looked_at: int = 16) -> int:
    """Side of the windows: as large as the pictures, up to a bound."""
    sides = [max(source.load(i)[0].shape[1:]) for i in range(min(len(source), looked_at))]
    return min(LARGEST_WINDOW, -(-max(sides) // STEP) * STEP)
