"""The scores for other programs: one tidy table, a measured value a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from segstream.live import SCORE_COLUMNS, score_lines
from segstream.report.record import Record, same_classes
from segstream.report.tables import bound_iou, summary

__all__ = ["scores_csv"]


def scores_csv(records: Sequence[Record], bound: Mapping[str, Any] | None = None) -> str:
    """Every IoU after every stage and what is derived from them; an unknown value is an empty field.

    >>> print(scores_csv([], {"label": "joint", "miou": 61.0}).splitlines()[1])
    joint,joint,,,,final,,,61.0
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(SCORE_COLUMNS)
    for record in records:
        start = (record.label, record.method, record.settings.get("view"), record.about.get("seed"))
        table.writerows([*start, *line] for line in _lines(record))
    if bound:
        label = str(bound.get("label", "joint"))
        names = max((r.names for r in same_classes(records)[0]), key=len, default=())
        start = (label, label, None, None)
        table.writerow([*start, None, "final", None, None, bound.get("miou")])
        for slot, (name, iou) in enumerate(zip(names, bound_iou(bound, names), strict=True)):
            if iou is not None:
                table.writerow([*start, None, "iou", name, slot, iou])
    return out.getvalue()


def _lines(record: Record) -> Iterator[tuple[Any, ...]]:
    """stage, measure, class, slot, percent"""
    told = summary(record)
    for score in record.scores:
        yield from score_lines(score.stage, score.names, score.iou, score.accuracy, told["miou"][score.stage])
    yield None, "imiou", None, None, told["imiou"]
    yield None, "imiou_with_base", None, None, told["imiou_with_base"]
    yield None, "final", None, None, told["final"]
    yield None, "forgetting", None, None, told["forgetting"]
