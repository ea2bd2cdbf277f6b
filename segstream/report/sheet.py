"""One structure for every table of a comparison; HTML, Markdown and LaTeX are three ways to write it down."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from segstream.report.intervals import Estimate
from segstream.report.paper import PaperCell
from segstream.report.tables import text

__all__ = [
    "MARKS",
    "READ",
    "Column",
    "Entry",
    "Flat",
    "Sheet",
    "SheetRow",
    "flat",
    "parts",
    "settled",
    "shown",
    "signed",
    "sized",
    "spans",
]

READ = (
    "Percent; mean ± half of the 95 % interval (t distribution) from three runs up, with fewer the values themselves. "
    "Bold: the best mean, and what its interval overlaps."
)
MARKS = "†‡§¶"  # what a contradictory cell and its footnote carry


@dataclass(frozen=True)
class Column:
    """A column's head, the head over several columns that it belongs to, and what a small line below may add.

    words  its entries are words or bare numbers, without interval and printed value
    """

    title: str
    over: str = ""
    note: str = ""
    words: bool = False


@dataclass(frozen=True)
class Entry:
    """One cell: what was measured or, in a column of words, `words`; and what the paper prints for it.

    best  the best of its column, or not to be told from the best
    mark  the sign of a footnote: the printed value contradicts another and is no target
    heat  a percentage for a shade behind the words
    """

    estimate: Estimate | None = None
    words: str = ""
    printed: PaperCell | None = None
    best: bool = False
    mark: str = ""
    heat: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None where there is nothing to measure up to."""
        if self.estimate is None or self.printed is None or self.mark:
            return None
        return self.estimate.mean - self.printed.percent


@dataclass(frozen=True)
class SheetRow:
    """A line. `role` as the cells have it, `n` how many runs it stands for, `note` that and more in small letters."""

    label: str
    entries: tuple[Entry, ...]
    role: str = "headline"
    n: str = ""
    note: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table with its caption and footnotes. `reading` says how its numbers are written; a page says that once."""

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[SheetRow, ...]
    footnotes: tuple[str, ...] = ()
    head: str = "method"
    reading: str = READ

    def printed(self, column: int) -> bool:
        """Whether the paper has a number for some cell of a column."""
        return any(row.entries[column].printed for row in self.rows)


@dataclass(frozen=True)
class Flat:
    """One column as formats without small print have it: the paper's number and the difference are columns too.

    `kind` is "own", "paper", "difference" or "words"; `entries` are the sheet's, one for each row.
    """

    over: str
    title: str
    kind: str
    entries: tuple[Entry, ...]

    def texts(self) -> list[str]:
        told: dict[str, Callable[[Entry], str]] = {
            "own": lambda e: e.words or shown(e.estimate),
            "words": lambda e: e.words,
            "paper": lambda e: f"{e.printed.percent:.2f}{e.mark}" if e.printed else "–",
            "difference": lambda e: signed(e.difference),
        }
        return [told[self.kind](entry) for entry in self.entries]


def flat(sheet: Sheet) -> list[Flat]:
    """A sheet's columns with those that a printed value adds."""
    columns = []
    for k, column in enumerate(sheet.columns):
        entries = tuple(row.entries[k] for row in sheet.rows)
        columns.append(Flat(column.over, column.title, "words" if column.words else "own", entries))
        if sheet.printed(k):
            columns.append(Flat(column.over, "paper", "paper", entries))
            columns.append(Flat(column.over, "Δ", "difference", entries))
    return columns


def parts(columns: Sequence[Flat], room: float, width: Callable[[Flat], float] = lambda column: 1) -> list[list[Flat]]:
    """A wide table cut into ones that fit into `room`, never between a number and what the paper has for it."""
    together: list[list[Flat]] = []
    for column in columns:
        if column.kind in ("paper", "difference"):
            together[-1].append(column)
        else:
            together.append([column])
    found: list[list[Flat]] = [[]]
    for few in together:
        if found[-1] and sum(map(width, [*found[-1], *few])) > room:
            found.append([])
        found[-1] += few
    return found


def spans(heads: Iterable[str]) -> list[tuple[str, int]]:
    """Equal neighbours as one, with their number.

    >>> spans(["", "a", "a", "b"])
    [('', 1), ('a', 2), ('b', 1)]
    """
    return [(head, len(list(same))) for head, same in groupby(heads)]


def shown(found: Estimate | None, digits: int = 1) -> str:
    """Mean and interval; with fewer than three runs the values themselves.

    >>> from segstream.report.intervals import estimate
    >>> shown(estimate([65.0, 66.0, 67.0])), shown(estimate([65.0, 66.04])), shown(None)
    ('66.0 ± 2.5', '65.0, 66.0', '–')
    """
    if found is None:
        return "–"
    if found.half is None:
        return ", ".join(text(value, digits) for value in found.values)
    return f"{text(found.mean, digits)} ± {text(found.half, digits)}"


def signed(value: float | None, digits: int = 1) -> str:
    """A difference with its sign.

    >>> signed(1.26), signed(-0.5), signed(0.04)
    ('+1.3', '−0.5', '0.0')
    """
    told = text(value, digits)
    return f"+{told}" if value is not None and value > 0 and float(told) > 0 else told


def sized(n: int, planned: int = 0) -> str:
    """How many runs a line stands for, as its row says it.

    >>> sized(3), sized(1), sized(2, 3), sized(0)
    ('n = 3', 'n = 1, a single run', 'n = 2 of 3, both values', 'not run yet')
    """
    if not n:
        return "not run yet"
    of = f" of {planned}" if planned > n else ""
    return f"n = {n}{of}" + {1: ", a single run", 2: ", both values"}.get(n, "")


def settled(
    rows: Sequence[Sequence[Entry]], *, competing: Collection[int], lower: Collection[int] = ()
) -> tuple[list[tuple[Entry, ...]], tuple[str, ...]]:
    """The same entries with the best of each column and the contradictory cells marked, and the footnotes.

    competing  the rows among which a best is sought;  lower: columns in which less is better
    """
    sentences = [e.printed.contradiction for row in rows for e in row if e.printed and e.printed.contradiction]
    signs = {sentence: MARKS[i % len(MARKS)] for i, sentence in enumerate(dict.fromkeys(sentences))}
    width = len(rows[0]) if rows else 0
    best = [_best({i: rows[i][k].estimate for i in competing}, k in lower) for k in range(width)]
    done = [
        tuple(
            replace(e, best=e.best or i in best[k], mark=signs.get(e.printed.contradiction, "") if e.printed else "")
            for k, e in enumerate(row)
        )
        for i, row in enumerate(rows)
    ]
    return done, tuple(f"{sign} {sentence} Not a target." for sentence, sign in signs.items())


def _best(column: Mapping[int, Estimate | None], lower: bool) -> set[int]:
    """Places of the best mean and of what cannot be told from it; none where that is everybody."""
    there = {i: e for i, e in column.items() if e is not None}
    if len(there) < 2:
        return set()
    top = (min if lower else max)(there.values(), key=lambda e: e.mean)
    level = {
        i
        for i, e in there.items()
        if text(e.mean) == text(top.mean) or ((e.half is not None or top.half is not None) and e.overlaps(top))
    }
    return level if len(level) < len(there) else set()
