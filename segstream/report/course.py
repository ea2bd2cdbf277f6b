"""What happened between the scores: memory and, for methods that tell them, confidences, draws and pseudo labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from segstream.report import plots
from segstream.report.record import Record, Update
from segstream.report.tables import text
from segstream.report.theme import svg

__all__ = ["course", "history"]


def course(records: Sequence[Record]) -> dict[str, Any]:
    """The memory after each stage, and a history for each run that tells one; names as a page's template takes them."""
    memories: list[dict[str, Any]] = []
    names = max((r.names[1:] for r in records), key=len, default=())
    for record in records:
        if any(record.memory.values()):
            stages = sorted(record.memory)
            rows = [
                (name, [record.memory[t].get(name) for t in stages])
                for name in [*names, *sorted({n for c in record.memory.values() for n in c} - set(names))]
            ]
            top = max((n for _, counts in rows for n in counts if n), default=1)
            memories.append({"label": record.label, "stages": stages, "rows": rows, "top": top})
    columns = max((len(m["stages"]) for m in memories), default=0)
    return {"memories": memories, "memory_columns": columns, "histories": [h for r in records if (h := history(r))]}


@dataclass(frozen=True)
class _Watched:
    """One of the numbers that a method reports for each class at each update."""

    title: str
    say: str
    values: Callable[[Update], Mapping[int, float]]
    columns: int = 160
    top: float | None = None


def _drawn(update: Update) -> Mapping[int, float]:
    """A class that was not drawn, where others were, was drawn 0 times."""
    known = range(1, max([*update.confidence, *update.drawn], default=0) + 1)
    return {slot: update.drawn.get(slot, 0) for slot in known} if update.drawn else {}


_WATCHED = (
    _Watched("Confidence", "E(c), from 0 (pale) to 1.", lambda u: u.confidence, top=1.0),
    _Watched("Draws for replay", "Of each class; full colour: {top:.2g} an update.", _drawn, columns=40),
    _Watched("Pseudo labels kept", "Share above the threshold; full colour: {top:.0%}.", lambda u: u.kept, columns=80),
)


def history(record: Record) -> dict[str, Any] | None:
    """Three drawings over the updates of a run, as a page's template takes them; None where it told nothing."""
    shown = []
    for watched in _WATCHED:
        found = plots.history(record, watched.values, columns=watched.columns, top=watched.top)
        if found is not None:
            picture = Markup(svg(found.drawing, description=_spoken(record, watched)))
            say = watched.say.format(top=found.top)
            shown.append({"title": watched.title, "say": say, "svg": picture})
    if not shown:
        return None
    return {"label": record.label, "plots": shown, "say": _about_updates(record)}


def _spoken(record: Record, watched: _Watched) -> str:
    """The plot in words: what each class had on average over the last tenth of the updates."""
    last = record.updates[-max(1, len(record.updates) // 10) :]
    found: dict[int, list[float]] = {}
    for update in last:
        for slot, value in watched.values(update).items():
            found.setdefault(slot, []).append(value)
    names = record.names
    told = [
        f"{names[slot] if slot < len(names) else f'class {slot}'} {sum(v) / len(v):.2f}"
        for slot, v in sorted(found.items())[:30]
        if slot >= 1
    ]
    title = f"{record.label}: {watched.title.lower()}"
    return f"{title}, by class, over {len(record.updates)} updates. At the end: {', '.join(told)}."


def _about_updates(record: Record) -> str:
    """How to read the three plots, and the share of draws that new classes had."""
    said = "Rows are classes, columns updates in order; lines mark where a stage begins and which classes it brought."
    shares = [u.new_share for u in record.updates if u.new_share is not None and u.stage > 0]
    if shares:
        share = text(100 * sum(shares) / len(shares), 0)
        said += f" On average {share} % of the draws went to classes of the newest stage."
    return said
