"""From scores to the numbers that are printed: the summary of a run and the rows of every table.

Percent throughout. A class without ground truth is None and enters no mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from segstream.report.record import Record, Score, labelled, read, same_classes
from segstream.runs import Run

__all__ = [
    "ClassRow",
    "Row",
    "ScoreTable",
    "Summary",
    "bound_iou",
    "class_means",
    "class_rows",
    "forgotten",
    "score_table",
    "summary",
]


class Summary(TypedDict):
    """What a run is judged by; see `summary`."""

    miou: list[float | None]
    imiou: float | None
    imiou_with_base: float | None
    final: float | None
    forgetting: float | None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that exist.

    >>> mean([1.0, None, 2.0]), mean([None])
    (1.5, None)
    """
    there = [v for v in values if v is not None]
    return sum(there) / len(there) if there else None


def summary(run: Record | Run | Path) -> Summary:
    """The scores of one run, in percent.

    miou             after each stage, stage 0 first: mean over the classes with ground truth, background included
    imiou            mean of these over the stages >= 1; `imiou_with_base` takes stage 0 too
    final            after the last stage
    forgetting       mean over the foreground classes known before the last stage of
                     (best IoU after any earlier stage - IoU after the last)

    A stage that was not scored gives None, and so do the means that need it.

    >>> names = ("background", "sky")
    >>> stages = Score(0, names, (40.0, 80.0)), Score(1, (*names, "car"), (40.0, 50.0, None))
    >>> summary(Record(Path("r"), "em", scores=stages))
    {'miou': [60.0, 45.0], 'imiou': 45.0, 'imiou_with_base': 52.5, 'final': 45.0, 'forgetting': 30.0}
    """
    record = run if isinstance(run, Record) else read(run)
    by_stage = {s.stage: mean(s.iou) for s in record.scores}
    miou = [by_stage.get(t) for t in range(record.last + 1)]

    def whole(values: Sequence[float | None]) -> float | None:
        return None if None in values else mean(values)

    return {
        "miou": miou,
        "imiou": whole(miou[1:]),
        "imiou_with_base": whole(miou),
        "final": miou[-1] if miou else None,
        "forgetting": mean(forgotten(record).values()),
    }


def forgotten(record: Record) -> dict[str, float]:
    """For each foreground class known before the last stage: best IoU of any earlier stage minus the last one's.

    Classes that cannot be compared (no ground truth on one side) are left out; below 0 means that it was gained.
    """
    if len(record.scores) < 2:
        return {}
    *earlier, last = record.scores
    lost = {}
    for slot in range(1, max(len(s.names) for s in earlier)):
        before = [iou for s in earlier if (iou := _at(s, slot)) is not None]
        now = _at(last, slot)
        if before and now is not None:
            lost[last.names[slot]] = max(before) - now
    return lost


def _at(score: Score, slot: int) -> float | None:
    return score.iou[slot] if slot < len(score.iou) else None


@dataclass(frozen=True)
class Row:
    """One line of the score table. `best` marks what is best in its column; `note` says what a reader must know."""

    label: str
    values: tuple[float | None, ...]
    best: tuple[bool, ...]
    note: str = ""
    ranked: bool = True
    bound: bool = False

    def texts(self) -> list[str]:
        """The line as it is printed, an asterisk behind the best values."""
        numbers = (text(v) + ("*" if b else "") for v, b in zip(self.values, self.best, strict=True))
        return [self.label, *numbers]


@dataclass(frozen=True)
class ScoreTable:
    """Column names (without the first, which holds the labels) and lines; the bound comes last."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    stages: int

    def row(self, label: str) -> Row:
        return next(r for r in self.rows if r.label == label)


def text(value: float | None, digits: int = 1) -> str:
    """A number as tables show it.

    >>> text(61.249), text(-0.04), text(None)
    ('61.2', '0.0', '–')
    """
    if value is None:
        return "–"
    shown = f"{value:.{digits}f}"
    return shown.removeprefix("-") if float(shown) == 0 else shown.replace("-", "−")


def score_table(records: Sequence[Record], bound: Mapping[str, Any] | None = None) -> ScoreTable:
    """mIoU after each stage, both imIoU, final and forgetting, a line for each run, and the bound's.

    Only runs that learned the same classes and came equally far are ranked against each other.

    >>> names = ("background", "sky")
    >>> runs = [Record(Path(m), m, scores=(Score(0, names, (10.0, v)),)) for m, v in (("em", 50.0), ("er", 30.0))]
    >>> [row.texts()[:2] for row in score_table(runs, {"label": "joint", "miou": 80.0}).rows]
    [['em', '30.0*'], ['er', '20.0'], ['joint', '–']]
    """
    records = labelled(records)
    alike = {r.label for r in same_classes(records)[0]}
    stages = max((r.last for r in records if r.label in alike), default=-1) + 1
    width = max((r.last for r in records), default=-1) + 1
    columns = (*(f"stage {t}" for t in range(width)), "imIoU", "imIoU with stage 0", "final", "forgetting")
    lines = {}
    for record in records:
        ranked = record.label in alike and record.last == stages - 1 and stages > 0
        lines[record.label] = (ranked, _values(record, width, whole=ranked or record.label not in alike))
    rows = []
    several = sum(ranked for ranked, _ in lines.values()) > 1
    for record in records:
        ranked, values = lines[record.label]
        best = _best(values, [v for r, v in lines.values() if r]) if ranked and several else (False,) * len(values)
        rows.append(Row(record.label, values, best, _note(record, ranked, record.label in alike), ranked))
    if bound:
        values = (*[None] * (width + 2), bound.get("miou"), None)
        rows.append(Row(str(bound.get("label", "joint")), values, (False,) * len(values), "bound", False, True))
    return ScoreTable(columns, tuple(rows), stages)


def _values(record: Record, width: int, *, whole: bool) -> tuple[float | None, ...]:
    """A run that stopped early shows its stages but no means: those of fewer stages would look like the others'."""
    told = summary(record)
    stages = [*told["miou"], *[None] * (width - len(told["miou"]))]
    ends = [told["imiou"], told["imiou_with_base"], told["final"], told["forgetting"]] if whole else [None] * 4
    return (*stages, *ends)


def _best(values: Sequence[float | None], all_values: Sequence[Sequence[float | None]]) -> tuple[bool, ...]:
    """What looks equal is equally good, hence the rounding. Of forgetting (the last column), less is better."""
    marks = []
    for i, value in enumerate(values):
        column = [round(v[i], 1) for v in all_values if v[i] is not None]  # type: ignore[arg-type]
        top = (min if i == len(values) - 1 else max)(column, default=None)
        marks.append(value is not None and round(value, 1) == top and len(set(column)) > 1)
    return tuple(marks)


def _note(record: Record, ranked: bool, alike: bool) -> str:
    notes = [f"view {record.settings['view']}"] if record.settings.get("view") else []
    if not alike:
        notes.append("other classes, not ranked")
    elif not record.scores:
        notes.append("not scored yet")
    elif not ranked:
        notes.append(f"stopped after stage {record.last}" if not record.finished else f"scored to stage {record.last}")
    return ", ".join(notes)


@dataclass(frozen=True)
class ClassRow:
    """One class: where it came from and how well each run knows it. Dictionaries go by the run's label."""

    name: str
    slot: int
    stage: int
    final: Mapping[str, float | None]
    best: frozenset[str]
    curves: Mapping[str, tuple[tuple[int, float], ...]]
    lost: Mapping[str, float | None]
    bound: float | None = None


def class_rows(records: Sequence[Record], bound: Mapping[str, Any] | None = None) -> list[ClassRow]:
    """A row for each class, background first. Give runs of the same classes, labelled."""
    longest = max(records, key=lambda r: len(r.names), default=None)
    if longest is None or not longest.names:
        return []
    names = longest.names
    came = {name: t for t, group in enumerate(longest.groups) for name in group}
    limit = bound_iou(bound, names)
    lost = {r.label: forgotten(r) for r in records}
    rows = []
    for slot, name in enumerate(names):
        curves = {
            r.label: tuple((s.stage, iou) for s in r.scores if (iou := _at(s, slot)) is not None) for r in records
        }
        final = {r.label: _at(r.scores[-1], slot) if r.scores else None for r in records}
        there = [round(v, 1) for v in final.values() if v is not None]
        best = {k for k, v in final.items() if v is not None and round(v, 1) == max(there) and len(set(there)) > 1}
        gone = {label: values.get(name) for label, values in lost.items()}
        rows.append(ClassRow(name, slot, came.get(name, 0), final, frozenset(best), curves, gone, limit[slot]))
    return rows


def class_means(rows: Sequence[ClassRow]) -> list[tuple[str, dict[str, float | None], float | None]]:
    """Final means over the base classes and over the later ones, without the background."""
    parts = [
        ("base classes", [r for r in rows if r.slot > 0 and r.stage == 0]),
        ("later classes", [r for r in rows if r.slot > 0 and r.stage > 0]),
    ]
    return [
        (title, {label: mean(r.final[label] for r in part) for label in part[0].final}, mean(r.bound for r in part))
        for title, part in parts
        if part
    ]


def bound_iou(bound: Mapping[str, Any] | None, names: Sequence[str]) -> list[float | None]:
    """The bound's IoU for each of these classes: by its own `names` if it gives some, else slot by slot.

    >>> bound_iou({"iou": [1.0, 2.0], "names": ["background", "car"]}, ["background", "sky", "car"])
    [1.0, None, 2.0]
    >>> bound_iou({"iou": [1.0]}, ["background", "sky"])
    [None, None]
    """
    values = list((bound or {}).get("iou") or [])
    own = (bound or {}).get("names")
    if own:
        known = dict(zip(own, values, strict=False))
        return [known.get(name) for name in names]
    return values if len(values) == len(names) else [None] * len(names)
