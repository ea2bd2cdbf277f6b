"""What the numbers say, in plain sentences: who won, by how much, and how sure that is. Never more than they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from segstream.report.record import Record, labelled, same_classes
from segstream.report.tables import ScoreTable, score_table, summary, text

__all__ = ["headline"]

CLOSE = 2.0  # points: between single runs of one method with other seeds, as much is common


def headline(records: Sequence[Record], bound: Mapping[str, Any] | None = None) -> list[str]:
    """Sentences about the ranked runs; the first can stand alone.

    >>> from pathlib import Path
    >>> from segstream.report.record import Score
    >>> names = ("background", "sky")
    >>> runs = [Record(Path(m), m, scores=(Score(0, names, (10.0, v)),)) for m, v in (("em", 50.0), ("er", 30.0))]
    >>> headline(runs)[0]
    'em ends highest, at 30.0 % mIoU: 10.0 points above er.'
    """
    records = labelled(records)
    table = score_table(records, bound)
    labels = [row.label for row in table.rows if row.ranked]
    told = {r.label: summary(r) for r in records if r.label in labels}
    final = {label: told[label]["final"] for label in labels}
    ranking = sorted((label for label in labels if final[label] is not None), key=lambda k: -(final[k] or 0.0))
    if not ranking:
        return ["No run has been scored yet."]
    score = {label: final[label] or 0.0 for label in ranking}
    ended = table.stages > _planned(records)
    sentences = [_result(ranking, score, "" if ended else f" after stage {table.stages - 1}")]
    sentences += _rivals(ranking, score)
    imiou = {label: value for label in ranking if (value := told[label]["imiou"]) is not None}
    sentences += _on_average(ranking, imiou, table.stages)
    sentences += _bound(ranking[0], score[ranking[0]], bound)
    sentences += _forgetting({label: told[label]["forgetting"] for label in ranking})
    return sentences + _caution(ranking, score) + _left_out(records, table)


def _result(ranking: Sequence[str], score: Mapping[str, float], state: str) -> str:
    """The first sentence. `state` says where runs that have not ended stand."""
    best = ranking[0]
    if len(ranking) == 1:
        return f"{best} {'stands' if state else 'ends'} at {text(score[best])} % mIoU{state}."
    level = [k for k in ranking if text(score[k]) == text(score[best])]
    rest = [k for k in ranking if k not in level]
    many = len(rest) > 3
    told = [f"{text(score[best] - score[k])} above {k}" for k in rest]
    if told:
        told[0] = told[0].replace(" above", " points above", 1)
    above = _join([f"{told[0]}, the next,", f"{told[-1]}, the last"] if many else told)
    if len(level) > 1:
        start = f"{_join(level)} {'stand' if state else 'end'} level at {text(score[best])} % mIoU{state}"
        return f"{start}, {above}." if rest else f"{start}."
    return f"{best} {'stands' if state else 'ends'} highest{state}, at {text(score[best])} % mIoU: {above}."


def _rivals(ranking: Sequence[str], score: Mapping[str, float]) -> list[str]:
    """em against er, the strongest simple baseline, where the first sentence did not settle it."""
    if not {"em", "er"} <= set(ranking) or ranking[0] in {"em", "er"}:
        return []
    one, other = sorted(("em", "er"), key=lambda k: -score[k])
    return [f"Of em and er, {one} ends {text(score[one] - score[other])} points above {other}."]


def _on_average(ranking: Sequence[str], imiou: Mapping[str, float], stages: int) -> list[str]:
    if stages < 3 or len(imiou) < 2:  # with one stage after stage 0, the mean over stages is the final value
        return []
    best = max(imiou, key=lambda k: imiou[k])
    if best == ranking[0] or text(imiou[best]) == text(imiou.get(ranking[0])):
        second = max((k for k in imiou if k != ranking[0]), key=lambda k: imiou[k])
        gap = imiou[ranking[0]] - imiou[second]
        if text(gap) == "0.0":
            return [f"On average over the stages (imIoU) {ranking[0]} and {second} are level at {text(imiou[best])} %."]
        return [f"It leads on average over the stages too: imIoU {text(imiou[best])} %, {text(gap)} above {second}."]
    return [
        f"On average over the stages {best} leads instead: imIoU {text(imiou[best])} % "
        f"against {text(imiou[ranking[0]])} % of {ranking[0]}."
    ]


def _bound(best: str, score: float, bound: Mapping[str, Any] | None) -> list[str]:
    limit = (bound or {}).get("miou")
    if not limit:
        return []
    name = (bound or {}).get("label", "joint")
    start = f"Training on all classes and all images at once ({name}, the bound) reaches {text(limit)} %"
    if score > limit:
        return [
            f"{start}; {best} even lies {text(score - limit)} points above it, so the bound is not a tight one here."
        ]
    return [f"{start}; {best} keeps {text(100 * score / limit, 0)} % of that."]


def _forgetting(lost: Mapping[str, float | None]) -> list[str]:
    there = sorted(((v, k) for k, v in lost.items() if v is not None), key=lambda pair: pair[0])
    if not there:
        return []
    start = "On the classes known before the last stage"
    if len(there) > 4:
        (least, best), (most, worst) = there[0], there[-1]
        return [
            f"{start}, the loss against their best ranges from {text(least)} points ({best}) to {text(most)} ({worst})."
        ]
    parts = [f"{k} {'gained' if v < -0.05 else 'lost'} {text(abs(v))}" for v, k in there]
    return [f"{start}, {_join(parts)} points against their best."]


def _caution(ranking: Sequence[str], score: Mapping[str, float]) -> list[str]:
    if len(ranking) < 2 or score[ranking[0]] - score[ranking[1]] >= CLOSE:
        return []
    return [f"A gap as small as that between {ranking[0]} and {ranking[1]} can be chance in one run of each."]


def _left_out(records: Sequence[Record], table: ScoreTable) -> list[str]:
    alike, others = same_classes(records)
    sentences = []
    planned = _planned(records)
    if 0 < table.stages <= planned:
        sentences.append(f"There are stages up to {planned}; this is not the end.")
    short = [r.label for r in alike if r.last < table.stages - 1]
    if short:
        verb = "has" if len(short) == 1 else "have"
        sentences.append(f"{_join(short)} {verb} not come as far as the others and {verb} no place in the ranking.")
    for record in others:
        groups = "+".join(str(len(g)) for g in record.groups) or "none"
        sentences.append(
            f"{record.label} ({record.folder.name}) learned other classes, or the same in other stages ({groups}): "
            "its numbers are listed but not compared."
        )
    return sentences


def _planned(records: Sequence[Record]) -> int:
    """The number of the last stage that these runs were to reach."""
    return max((r.planned or 0 for r in same_classes(records)[0]), default=0)


def _join(parts: Sequence[str]) -> str:
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"
