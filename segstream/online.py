"""One method through one stream, into a run folder; stopped anywhere, it goes on as if it had not been."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from segstream import storage
from segstream.classes import ClassTable
from segstream.data import Stream, TestSet
from segstream.engine import StageEnd
from segstream.engine import run as run_engine
from segstream.functional.scores import Scores
from segstream.live import Live
from segstream.method import Method, load
from segstream.pictures import most_telling, write_stage
from segstream.runs import Run
from segstream.types import UpdateReport

__all__ = ["Progress", "Tell"]

CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class Progress:
    """How far something is: `done` of `total` in this phase.

    >>> Progress("base", 3, 40, "loss 1.2").phase
    'base'
    """

    phase: str
    done: int
    total: int
    text: str = ""


Tell = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """For callers who do not want to know."""


@dataclass
class OnlineRun:
    """What one run needs, and where it stands.

    begin     makes the method, its memory seeded;  resume: gives it back from a checkpoint
    stream    the stream from an item on;  score: scores after a stage on a split;  shown: pictures to draw from
    split     what the table scores;  tuning_split: scored beside it, for choosing settings
    table     the classes known after a stage;  pictures: how many are drawn
    """

    run: Run
    method: Method
    stream: Callable[[int], Stream]
    score: Callable[[Method, int, str], Scores]
    shown: Callable[[int], TestSet]
    table: Callable[[int], ClassTable]
    stages: int
    split: str = "test"
    tuning_split: str = ""
    evaluate_stages: bool = True
    pictures: int = 6
    tell: Tell = silent

    stage: int = 0
    taken: int = 0
    batch: int = 0
    scored: int = -1  # the last stage that has its scores

    def go(self) -> dict[str, Any]:
        """To the end; returns the summary."""
        started = time.perf_counter()
        told = self.method.settings()
        live = Live(
            self.run.folder, self.run.events(), method=self.method.name, view=told.get("view"), seed=told.get("seed")
        )
        self.run.listener = live.add
        if self.scored < 0:
            self.run.event("start", method=self.method.name, settings=told)
            self._score(0)
            self._checkpoint()
        saved = time.perf_counter()
        stream = self.stream(self.taken)
        for item in run_engine(_counted(stream, self), self.method, stage=self.stage, taken=self.taken):
            self.taken = stream.position
            if isinstance(item, StageEnd):
                self.taken = item.items
                if self.scored < item.stage:
                    self._score(item.stage)
                    self._checkpoint()
                continue
            self._learned(item)
            self.tell(Progress(f"{self.method.name}, stage {self.stage}", self.taken, len(stream), self._text(item)))
            if time.perf_counter() - saved > CHECKPOINT_SECONDS:
                self._checkpoint()
                saved = time.perf_counter()
        self.run.event("end", seconds=time.perf_counter() - started)
        summary = summarise(self.run)
        self.run.write_summary(summary)
        return summary

    @staticmethod
    def _text(report: UpdateReport) -> str:
        return "nothing to learn" if report.loss is None else f"loss {report.loss:.3f}"

    def _learned(self, report: UpdateReport) -> None:
        self.run.event("update", stage=self.stage, batch=self.batch, **report.to_json())
        self.batch += 1

    def _score(self, stage: int) -> None:
        if self.evaluate_stages or stage == self.stages:
            self.run.event("score", stage=stage, scores=self.score(self.method, stage, self.split).to_json())
            if self.tuning_split:
                scores = self.score(self.method, stage, self.tuning_split).to_json()
                self.run.event("tuning", stage=stage, split=self.tuning_split, scores=scores)
        if self.method.memory is not None:
            classes = self.method.segmenter.classes
            counts = {classes.name(slot): n for slot, n in sorted(self.method.memory.counts().items())}
            self.run.event("memory", stage=stage, counts=counts)
        self._draw(stage)
        self.scored = stage

    def _draw(self, stage: int) -> None:
        """The same pictures after each stage, chosen among those of the last: they show most classes."""
        last = self.shown(self.stages)
        present = [last.source.present(i) for i in last.indices]
        chosen = [last[i] for i in most_telling(present, self.pictures)]
        if not chosen:
            return
        now = {s.id: s for s in _those(self.shown(stage), {c.id for c in chosen})}
        kept = [now[c.id] for c in chosen if c.id in now]
        if kept:
            found = self.method.predict([s.image for s in kept])
            write_stage(
                self.run.predictions,
                stage,
                ids=[s.id for s in kept],
                images=[s.image for s in kept],
                truths=[s.mask for s in kept],
                masks=found.masks,
                classes=self.table(stage),
            )

    def _checkpoint(self) -> None:
        place = {"stage": self.stage, "taken": self.taken, "batch": self.batch, "scored": self.scored}
        self.method.save(self.run.state, extra=place | {"events": self.run.mark()})

    @staticmethod
    def place(run: Run) -> Mapping[str, Any] | None:
        """Where the run's checkpoint stands; None before the first."""
        if not (run.state / storage.INDEX).exists():
            return None
        place: Mapping[str, Any] = storage.load_folder(run.state, kind="method").document["extra"]
        return place


def _counted(stream: Stream, online: OnlineRun) -> Iterator[Any]:
    """The stream's items; a new stage is noted when its classes come."""
    for item in stream:
        if not hasattr(item, "samples"):
            yield item
            online.stage, online.batch = online.stage + 1, 0
            online.run.event("stage", stage=online.stage, classes=list(item.names))
        else:
            yield item


def _those(samples: TestSet, ids: set[str]) -> Iterator[Any]:
    return (samples[i] for i, name in enumerate(samples.ids) if name in ids)


def summarise(run: Run) -> dict[str, Any]:
    """mIoU after each stage, their mean over the stages after the base, and the last; in percent."""
    summary = {"unit": "percent", "method": run.about.get("method"), "seed": run.about.get("seed")}
    scores = {event["stage"]: event["scores"] for event in run.events("score")}
    summary |= _means(scores)
    if scores:
        last = scores[max(scores)]
        summary["iou"] = dict(zip(last["names"], last["iou"], strict=True))
    if tuning := {event["stage"]: event["scores"] for event in run.events("tuning")}:
        summary["tuning"] = _means(tuning)
    return summary


def _means(scores: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    miou = [scores[stage]["miou"] for stage in sorted(scores)]
    later = [scores[stage]["miou"] for stage in sorted(scores) if stage >= 1]
    known = [value for value in later if value is not None]
    return {
        "miou": miou,
        "imiou": sum(known) / len(known) if known else None,
        "final": miou[-1] if miou else None,
    }


def resumed(run: Run, fabric: Any) -> Method:
    """The method as the checkpoint has it; events that came after it are dropped."""
    place = OnlineRun.place(run)
    assert place is not None
    run.rewind(int(place["events"]))
    return load(run.state, fabric=fabric)
