r"""Sheets as LaTeX tables for `\input`: booktabs and nothing else, every name escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from segstream.report.sheet import Flat, Sheet, SheetRow, flat, parts, spans

__all__ = ["escaped", "latex"]

ROOM = 465.0  # points of a page's width; wider tables become several
LETTER, GAP = 4.1, 6.0  # of the small print that tables are set in
LONGEST = 45  # rows; more do not fit on a page

_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "`": r"\textasciigrave{}", "'": "'", "–": "--", "—": "---",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "Δ": r"$\Delta$", "·": r"$\cdot$",
    "†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}", "✓": r"\segyes{}", "…": r"\ldots{}", "°": r"$^\circ$",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}", "Œ": r"\OE{}",
    "ł": r"\l{}", "Ł": r"\L{}", "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip
# By the combining character that a letter falls apart into.
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u ", "\u0307": ".",
    "\u0308": '"', "\u030a": "r ", "\u030b": "H ", "\u030c": "v ", "\u0327": "c ",
}  # fmt: skip

_HEAD = r"""% Needs \usepackage{booktabs}; then \input{tables} or one of the tables below.
\providecommand{\segyes}{$\surd$}
% A character that only XeLaTeX and LuaLaTeX know, and what others show for it.
\ifdefined\segchar\else\ifdefined\Umathchar
\DeclareRobustCommand{\segchar}[2]{#1}\else\DeclareRobustCommand{\segchar}[2]{#2}\fi\fi
"""


def escaped(text: str) -> str:
    r"""Text that LaTeX sets as it is.

    >>> print(escaped("50 % of a_b & café"))
    50 \% of a\_b \& caf\'{e}
    """
    return "".join(_letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    if letter.isascii():
        return letter if letter.isprintable() else " "
    apart = unicodedata.normalize("NFD", letter)
    if len(apart) == 2 and apart[0].isascii() and apart[1] in _ACCENTS:
        return f"\\{_ACCENTS[apart[1]].strip()}{{{apart[0]}}}"
    return rf"\segchar{{{letter}}}{{U+{ord(letter):04X}}}"


def latex(sheets: Sequence[Sheet], *, notes: Sequence[str] = ()) -> str:
    """All sheets, one `table*` each; of those longer than a page only a line that says where their numbers are."""
    lines = [f"% {' '.join(note.split())}" for note in notes]
    found = ["\n".join([*lines, _HEAD])]
    for number, sheet in enumerate(sheets):
        if len(sheet.rows) > LONGEST:
            found.append(f"% {' '.join(sheet.title.split())}: {len(sheet.rows)} rows, see tables.md and scores.csv.\n")
            continue
        names = max(len(row.label) for row in sheet.rows) if sheet.rows else 0
        counted = 30 if any(row.n for row in sheet.rows) else 0
        pieces = parts(flat(sheet), ROOM - LETTER * names - counted, _width)
        for piece, columns in enumerate(pieces):
            name = f"tab:{sheet.id}-{number}" + (f"-{piece}" if len(pieces) > 1 else "")
            found.append("\n".join(_table(sheet, columns, name, more=piece > 0)))
    return "\n".join(found)


def _width(column: Flat) -> float:
    return GAP + LETTER * max(len(column.title), *(len(text) for text in column.texts()))


def _table(sheet: Sheet, columns: Sequence[Flat], label: str, *, more: bool) -> Iterator[str]:
    counted = any(row.n for row in sheet.rows)
    before = 2 if counted else 1
    caption = f"{sheet.title}{' (continued)' if more else ''}. {sheet.caption} {sheet.reading}".strip()
    yield r"\begin{table*}[t]"
    yield r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"
    yield rf"\caption{{{escaped(caption)}}}"
    yield rf"\label{{{label}}}"
    yield rf"\begin{{tabular}}{{{'l' * before}{''.join('l' if c.kind == 'words' else 'r' for c in columns)}}}"
    yield r"\toprule"
    if any(column.over for column in columns):
        yield from _overs(columns, before)
    heads = [sheet.head, *(["n"] if counted else []), *(column.title for column in columns)]
    yield " & ".join(escaped(head) for head in heads) + r" \\"
    yield r"\midrule"
    texts = [column.texts() for column in columns]
    for i, row in enumerate(sheet.rows):
        if row.role == "bound" and i:
            yield r"\midrule"
        cells = [_named(row), *([escaped(row.n)] if counted else [])]
        for column, told in zip(columns, texts, strict=True):
            best = column.entries[i].best and column.kind in ("own", "words")
            cells.append(rf"\textbf{{{escaped(told[i])}}}" if best else escaped(told[i]))
        yield " & ".join(cells) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    for footnote in sheet.footnotes:
        if any(column.texts()[i].endswith(footnote[0]) for column in columns for i in range(len(sheet.rows))):
            yield rf"\par\smallskip\parbox{{0.9\textwidth}}{{\raggedright {escaped(footnote)}}}"
    yield r"\end{table*}" + "\n"


def _overs(columns: Sequence[Flat], before: int) -> Iterator[str]:
    cells, rules, at = ["" for _ in range(before)], [], before + 1
    for over, width in spans(column.over for column in columns):
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{escaped(over)}}}")
        if over:
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    yield " & ".join(cells) + r" \\"
    yield "".join(rules)


def _named(row: SheetRow) -> str:
    name = escaped(row.label)
    return rf"\textit{{{name}}}" if row.role in ("other view", "bound") else name
