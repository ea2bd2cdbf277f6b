"""What a run folder says, as values that tables, plots and pictures read. Knows files; knows nothing of pages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from segstream.runs import Run
from segstream.storage import StateError

__all__ = ["Record", "Score", "Update", "flatten", "labelled", "read", "same_classes"]


@dataclass(frozen=True)
class Score:
    """Quality after one stage: IoU in percent for each slot (None: no ground truth), slot 0 being the background.

    >>> Score(1, ("background", "sky"), (50.0, None)).known
    ('sky',)
    """

    stage: int
    names: tuple[str, ...]
    iou: tuple[float | None, ...]
    accuracy: float | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The foreground classes known then."""
        return self.names[1:]


@dataclass(frozen=True)
class Update:
    """One update as the run recorded it; classes by slot."""

    stage: int
    batch: int
    seconds: float
    kept: Mapping[int, float]
    confidence: Mapping[int, float]
    drawn: Mapping[int, int]
    new_share: float | None


@dataclass(frozen=True)
class Record:
    """One run: what was set, what happened, how good it was.

    >>> Record(Path("r"), "em", scores=(Score(0, ("background", "sky"), (40.0, 60.0)),)).groups
    (('sky',),)
    """

    folder: Path
    method: str
    label: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    config_text: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    scores: tuple[Score, ...] = ()
    updates: tuple[Update, ...] = ()
    memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    stages: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    finished: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Every slot's name, background first, as far as the run came."""
        scored = max((s.names for s in self.scores), key=len, default=())
        told = ("background", *(n for t in sorted(self.stages) for n in self.stages[t])) if 0 in self.stages else ()
        return scored if len(scored) >= len(told) else told

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The foreground classes that each stage brought, stage 0 first."""
        if 0 in self.stages:
            return tuple(self.stages[t] for t in sorted(self.stages))
        found: list[tuple[str, ...]] = []
        before = 1
        for score in self.scores:
            found.append(score.names[before:])
            before = max(before, len(score.names))
        return tuple(found)

    @property
    def planned(self) -> int | None:
        """How many stages after stage 0 were asked for."""
        stages = _section(self.config, "scenario").get("stages")
        return len(stages) if isinstance(stages, Sequence) and not isinstance(stages, str) else None

    @property
    def last(self) -> int:
        """The last stage that was scored; -1 before any."""
        return self.scores[-1].stage if self.scores else -1

    @property
    def settings(self) -> dict[str, Any]:
        """The method's own settings, those that the recipe names overlaid by those that the run recorded."""
        told = _section(_section(self.config, "methods"), self.method)
        return {**told, **_section(self.about, "settings"), **_section(self.start, "settings")}


def _section(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return dict(value) if isinstance(value, Mapping) else {}


def read(folder: Path | Run) -> Record:
    """Everything that a run folder says, however far the run came.

    >>> read(Path("no/such/run"))
    Traceback (most recent call last):
    segstream.atomic.StateError: There is no run folder no/such/run.
    """
    run = folder if isinstance(folder, Run) else Run(folder)
    events, about = run.events(), run.about
    text = run.folder / "config.toml"
    try:
        return Record(
            folder=run.folder,
            method=str(about.get("method") or run.folder.name),
            config=run.config,
            config_text=text.read_text(encoding="utf-8") if text.is_file() else "",
            about=about,
            scores=_scores(events),
            updates=_updates(events),
            memory={e["stage"]: dict(e["counts"]) for e in events if e["event"] == "memory"},
            stages={e["stage"]: tuple(e["classes"]) for e in events if e["event"] == "stage"},
            start=next((e for e in events if e["event"] == "start"), {}),
            seconds=next((e.get("seconds") for e in reversed(events) if e["event"] == "end"), None),
            finished=any(e["event"] == "end" for e in events),
        )
    except (KeyError, TypeError) as error:
        raise StateError(
            f"{run.folder / 'events.jsonl'} holds an event of another form than this version's: {error!r}."
        ) from None


def _scores(events: Sequence[Mapping[str, Any]]) -> tuple[Score, ...]:
    """One for each stage, the latest: a run that went on after an interruption may have scored a stage twice."""
    found = {}
    for event in events:
        if event["event"] == "score":
            told = event["scores"]
            iou = tuple(None if v is None else float(v) for v in told["iou"])
            found[event["stage"]] = Score(event["stage"], tuple(told["names"]), iou, told.get("accuracy"))
    return tuple(found[t] for t in sorted(found))


def _updates(events: Sequence[Mapping[str, Any]]) -> tuple[Update, ...]:
    found = {}
    for event in events:
        if event["event"] == "update":
            place = event["stage"], event["batch"]
            found[place] = Update(
                *place,
                seconds=float(event.get("seconds") or 0.0),
                kept=_by_slot(event.get("kept")),
                confidence=_by_slot(event.get("confidence")),
                drawn={c: int(n) for c, n in _by_slot(event.get("drawn")).items()},
                new_share=event.get("new_share"),
            )
    return tuple(found[place] for place in sorted(found))


def _by_slot(told: Mapping[str, float] | None) -> dict[int, float]:
    return {int(slot): float(value) for slot, value in (told or {}).items() if value is not None}


def flatten(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings by dotted name.

    >>> flatten({"run": {"seed": 0}, "title": "a"})
    {'run.seed': 0, 'title': 'a'}
    """
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat.update(flatten(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value})
    return flat


def labelled(records: Sequence[Record]) -> list[Record]:
    """The same records with names that tell them apart: the method, and where it ran twice what differs.

    >>> two = [Record(Path("a"), "er", about={"seed": 0}), Record(Path("b"), "er", about={"seed": 1})]
    >>> [r.label for r in labelled(two)]
    ['er (seed 0)', 'er (seed 1)']
    """
    often = Counter(r.method for r in records)
    return [replace(r, label=r.label or (r.method if often[r.method] == 1 else _distinct(r, records))) for r in records]


def _distinct(record: Record, records: Sequence[Record]) -> str:
    """Method and up to three settings in which it differs from its namesakes; else its folder's name."""
    twins = [_facts(r) for r in records if r.method == record.method]
    own = _facts(record)
    keys = [k for k in own if any(t.get(k) != own[k] for t in twins)]
    told = [f"{k.rsplit('.', 1)[-1]} {_plain(own[k])}" for k in keys[:3]]
    alike = [t for t in twins if [t.get(k) for k in keys[:3]] == [own[k] for k in keys[:3]]]
    return f"{record.method} ({', '.join(told) if told and len(alike) == 1 else record.folder.name})"


def _facts(record: Record) -> dict[str, Any]:
    """The settings that can tell two runs of one method apart, the method's own first."""
    return {
        **record.settings,
        **{k: record.about[k] for k in ("seed",) if k in record.about},
        **{k: v for k, v in flatten(record.config).items() if not k.startswith("methods.") and k != "run.seed"},
    }


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def same_classes(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Those that learned the same classes in the same stages (as far as they came), and the others.

    >>> a, b = Record(Path("a"), "em", stages={0: ("sky",)}), Record(Path("b"), "er", stages={0: ("car",)})
    >>> [[r.method for r in part] for part in same_classes([a, a, b])]
    [['em', 'em'], ['er']]
    """
    if not records:
        return [], []

    def fits(one: Record, other: Record) -> bool:
        return all(a == b for a, b in zip(one.groups, other.groups, strict=False))

    # A run that stopped early fits whatever goes on from it, so only lists that no other goes on from can be the
    # reference: the one that most runs fit.
    whole = [r for r in records if not any(len(o.groups) > len(r.groups) and fits(r, o) for o in records)]
    reference = max(whole, key=lambda r: sum(fits(r, o) for o in records))
    return [r for r in records if fits(r, reference)], [r for r in records if not fits(r, reference)]
