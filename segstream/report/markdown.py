"""Sheets as Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from segstream.report.sheet import Flat, Sheet, SheetRow, flat, parts

__all__ = ["markdown"]

MOST = 24  # columns; more become a second table


def markdown(sheets: Sequence[Sheet], *, title: str, notes: Sequence[str] = ()) -> str:
    """A page with all sheets.

    >>> from segstream.report.sheet import Column, Entry
    >>> row = SheetRow("em", (Entry(words="1 | 2"),))
    >>> print(markdown([Sheet("a", "One", "Numbers.", (Column("x", words=True),), (row,), reading="")], title="T"))
    # T
    <BLANKLINE>
    ## One
    <BLANKLINE>
    Numbers.
    <BLANKLINE>
    | method | x |
    |---|---|
    | em | 1 \\| 2 |
    <BLANKLINE>
    """
    lines = [f"# {_plain(title)}", ""]
    for note in notes:
        lines += [f"- {_plain(note)}"]
    lines += [""] if notes else []
    for sheet in sheets:
        lines += [f"## {_plain(sheet.title)}", "", _plain(f"{sheet.caption} {sheet.reading}"), ""]
        for columns in parts(flat(sheet), MOST):
            lines += [*_table(sheet, columns), ""]
        for footnote in sheet.footnotes:
            lines += [_plain(footnote), ""]
    return "\n".join(lines)


def _table(sheet: Sheet, columns: Sequence[Flat]) -> Iterator[str]:
    noted = any(row.note for row in sheet.rows)
    heads = [sheet.head, *(["runs"] if noted else [])]
    heads += [f"{c.over}: {c.title}" if c.over and c.kind in ("own", "words") else c.title for c in columns]
    yield "| " + " | ".join(_plain(head) for head in heads) + " |"
    yield "|" + "---|" * len(heads)
    texts = [column.texts() for column in columns]
    for i, row in enumerate(sheet.rows):
        cells = [_label(row), *([_plain(row.note)] if noted else [])]
        for column, told in zip(columns, texts, strict=True):
            best = column.entries[i].best and column.kind in ("own", "words")
            cells.append(f"**{_plain(told[i])}**" if best else _plain(told[i]))
        yield "| " + " | ".join(cells) + " |"


def _label(row: SheetRow) -> str:
    name = _plain(row.label)
    return f"*{name}*" if row.role in ("other view", "bound") else name


def _plain(text: str) -> str:
    """Text that stays text.

    >>> _plain("a_b <i> | *")
    'a\\\\_b \\\\<i\\\\> \\\\| \\\\*'
    """
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
