"""Tables and numbers as a person reads them, the same on a terminal and in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from segstream.report.tables import ScoreTable

__all__ = ["confusion_table", "confusions", "number", "plain_table", "score_rows", "scores_table", "swatch"]

WHOLE_MATRIX = 20  # slots up to which the confusion matrix is shown as such


def number(value: float | None, digits: int = 1) -> str:
    """A score; a dash where there is none.

    >>> number(12.345), number(None)
    ('12.3', '-')
    """
    return "-" if value is None else f"{value:.{digits}f}"


def plain_table(*columns: str, right: Sequence[int] = (), space: int = 3) -> Table:
    """Columns without lines; those whose numbers are in `right` are set to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, space, 0, 0), header_style="bold")
    for position, name in enumerate(columns):
        table.add_column(name, justify="right" if position in right else "left", overflow="fold")
    return table


def swatch(color: Sequence[int]) -> Text:
    """A class's colour: shown on a terminal, as a number in plain text."""
    red, green, blue = color
    return Text.assemble(("  ", f"on rgb({red},{green},{blue})"), f" #{red:02x}{green:02x}{blue:02x}")


def scores_table(scores: Mapping[str, Any]) -> Table:
    """IoU of each class from `Scores.to_json()`, with its share of the pixels, and the mean."""
    table = plain_table("class", "IoU %", "of all pixels", right=(1, 2))
    counts = [sum(row) for row in scores["confusion"]]
    whole = sum(counts) or 1
    for name, iou, count in zip(scores["names"], scores["iou"], counts, strict=True):
        table.add_row(Text(name, style="" if iou is not None else "dim"), number(iou), f"{100 * count / whole:.1f} %")
    table.add_section()
    table.add_row(Text("mIoU", style="bold"), Text(number(scores["miou"]), style="bold"))
    return table


def confusion_table(scores: Mapping[str, Any]) -> Table:
    """Rows are the truth, columns what was predicted, by number, in percent of the row."""
    slots = range(len(scores["names"]))
    table = plain_table("", "is", *(f"{k:>2}" for k in slots), right=(0, *range(2, 2 + len(slots))), space=2)
    for k, (name, row) in enumerate(zip(scores["names"], scores["confusion"], strict=True)):
        if total := sum(row):
            cells = (Text(f"{100 * n / total:.0f}", style=_heat(n / total, right=i == k)) for i, n in enumerate(row))
            table.add_row(str(k), name, *cells)
    return table


def _heat(share: float, *, right: bool) -> str:
    if share < 0.005:
        return "dim"
    return "bold green" if right else "red" if share >= 0.1 else ""


def confusions(scores: Mapping[str, Any], count: int = 10) -> Table:
    """The largest mistakes, where a whole matrix would not fit a screen."""
    table = plain_table("is", "was called", "of the class's pixels", right=(2,))
    names, matrix = scores["names"], scores["confusion"]
    wrong = [(n, i, j) for i, row in enumerate(matrix) for j, n in enumerate(row) if i != j and n]
    for n, i, j in sorted(wrong, key=lambda item: -item[0])[:count]:
        table.add_row(names[i], names[j], f"{100 * n / sum(matrix[i]):.1f} %")
    return table


def score_rows(scores: ScoreTable) -> Table:
    """The report's table of runs and stages."""
    table = plain_table("", *scores.columns, right=range(1, len(scores.columns) + 1))
    for row in scores.rows:
        table.add_row(*row.texts(), style="dim" if row.bound else "")
    return table
