"""Teaching: new classes from a folder of pictures, beside what a model knows, with the quality before and after.

A folder is learned by the verbs of the em method: its pictures come again and again, each time with as many from the
memory, at a rate that falls to zero. Every half minute the whole state is saved, so that an interrupted lesson goes on.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from segstream import engine, storage
from segstream.augment import Augment
from segstream.classes import ClassTable
from segstream.data import Repeated
from segstream.devices import make_fabric
from segstream.evaluate import evaluate
from segstream.lesson import Lesson, Rehearsal, open_lesson, open_rehearsal
from segstream.method import Method, create, load
from segstream.methods.em import EM
from segstream.models import FeatureCache, Segmenter
from segstream.online import Progress, Tell, silent
from segstream.types import Batch, NewClasses, Sample

__all__ = ["Plan", "TeachResult", "teach"]

TRAINING = "training"  # subfolder of `out` in which an unfinished lesson waits
CHECKPOINT_SECONDS = 30.0
CACHE_BYTES = 1 << 30
LOST = 2.0  # points of IoU that an old class may lose without a word
AT_MOST = 20  # stored pictures that the old classes are scored on
AFTERWARDS = 0.1  # share of the first rate at which the method goes on learning after the lesson
NETWORK, CHANNELS = "fpn", 64  # of a new model: reads all stages of the encoder, which a frozen one needs


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a lesson is learned.

    trainable  what changes: head, decoder or all
    lr         at the start; it falls to 0 as lr * (1 - done) ** 0.9
    balance    see `EM`: how much more readily a rare class is found
    batch      pictures of the folder in one update; as many come from the memory
    updates    about so many, but each picture is seen at least `least` times
    crop, scale, variants  see `Augment`

    >>> Plan().passes(36), Plan(updates=10, least=3).passes(100)
    (12, 3)
    """

    trainable: str = "decoder"
    lr: float = 0.05
    balance: float = 0.25
    batch: int = 1
    updates: int = 400
    least: int = 4
    crop: int = 480
    scale: tuple[float, float] = (1.0, 1.0)
    variants: int = 2

    def passes(self, pictures: int) -> int:
        per_pass = -(-pictures // self.batch)
        return max(self.least, -(-self.updates // per_pass))

    def rate(self, done: float) -> float:
        return self.lr * float(max(1.0 - done, 1e-3) ** 0.9)

    def augment(self, size: tuple[int, int], multiple: int) -> Augment:
        """For pictures of at most this height and width; what fits the network needs no padding."""
        height, width = (min(self.crop, side) // multiple * multiple or side for side in size)
        return Augment(crop=(height, width), scale=self.scale, variants=self.variants)


# A new model over ImageNet features, in part or as a whole, and one that knows classes, likewise: as measured.
FRESH = Plan()
FRESH_WHOLE = Plan(trainable="all", batch=2, updates=400, crop=320, scale=(0.6, 1.5), variants=0)
LATER = Plan(
    trainable="all", lr=0.01, balance=0.0, batch=4, updates=120, least=3, crop=320, scale=(0.6, 1.3), variants=0
)
LATER_PART = Plan(lr=0.02, batch=2, updates=240)


@dataclass(frozen=True)
class TeachResult:
    """How it went.

    new, old         names of the classes that were taught and of those that the model knew
    learned, held    number of pictures that were learned and that were held back for scoring
    before, after    IoU in percent of each class that could be scored; a new one is not known before
    scored_on        which pictures the new and the old classes were scored on
    warnings         sentences that a person should read

    >>> TeachResult(("car",), (), 36, 4, 20, 720, "decoder", 90.0, {}, {"car": 70.0}, (), ()).to_json()["after"]
    {'car': 70.0}
    """

    new: tuple[str, ...]
    old: tuple[str, ...]
    learned: int
    held: int
    passes: int
    updates: int
    trainable: str
    seconds: float
    before: dict[str, float]
    after: dict[str, float]
    scored_on: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def teach(
    *,
    data: Path,
    classes: Sequence[str],
    out: Path,
    model: Path | None = None,
    passes: int | None = None,
    trainable: str | None = None,
    unlabeled: int | None = None,
    complete: Sequence[str] | None = None,
    base_data: Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    resume: bool = False,
    seed: int = 0,
    progress: Tell | None = None,
) -> TeachResult:
    """Teach new classes from a partly labelled folder and save the method in `out`.

    model      a saved segmenter or method; None: a new one over ImageNet features
    data       a folder dataset in which `classes` are labelled; without classes.txt, mask values 1, 2, ... are they
    passes     how often each picture is seen;  trainable: what may change. None: as measured
    unlabeled  mask value that means: nothing was said about this pixel. Value 0 is annotated background
    complete   classes that are annotated exhaustively; None: all of `classes` if `unlabeled` is None, else none
    base_data  pictures of the old classes, for a model that has none stored
    resume     go on with what an interrupted call left in `out`

    Whatever is wrong with the input is said before anything is written.

    >>> teach(data=Path("no/such/folder"), classes=["car"], out=Path("model"))
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder no/such/folder.
    """
    started = time.perf_counter()
    tell = progress or silent
    if passes is not None and passes < 1:
        raise ValueError(f"`passes` is {passes}; the pictures come at least once.")
    if threads is not None:
        torch.set_num_threads(threads)
    pupil = Pupil.open(model, trainable=trainable, device=device, seed=seed)
    lesson = open_lesson(data, classes, pupil.known, unlabeled=unlabeled, complete=complete, seed=seed)
    rehearsal = open_rehearsal(base_data, pupil.known, seed=seed)
    turns = pupil.plan.passes(len(lesson.learn)) if passes is None else passes
    asked = {"data": data, "classes": lesson.new, "complete": lesson.complete, "unlabeled": unlabeled, "model": model}
    asked |= {"base_data": base_data, "passes": turns, "plan": asdict(pupil.plan), "seed": seed}
    identity = _plain(asked | {"ids": lesson.learn.ids})
    judge = Judge(lesson, rehearsal, pupil, tell)
    if notes := _waiting(out, identity) if resume else {}:
        method = pupil.resumed(out / TRAINING)
    else:
        method = pupil.method
        method.augment = pupil.plan.augment(lesson.size, method.segmenter.stride_multiple)
        warnings = [*lesson.warnings, *rehearsal.warnings, *_rehearse(method, rehearsal, pupil.known, tell)]
        notes = {"identity": identity, "taken": 0, "warnings": warnings, "before": judge.scores(method, "before")}
    _learn(method, lesson, pupil.plan, turns=turns, seed=seed, waiting=out / TRAINING, notes=notes, tell=tell)
    method.lr = pupil.plan.lr * AFTERWARDS
    after = judge.scores(method, "after")
    method.save(out, extra={"taught": list(lesson.new), "from": str(data)})
    if (out / TRAINING).exists():
        shutil.rmtree(out / TRAINING)
    return TeachResult(
        new=lesson.new,
        old=tuple(pupil.known.name(slot) for slot in pupil.known.active),
        learned=len(lesson.learn),
        held=len(lesson.held or ()),
        passes=turns,
        updates=method.updates,
        trainable=method.segmenter.trainable,
        seconds=time.perf_counter() - started,
        before=notes["before"],
        after=after,
        scored_on=judge.sentences,
        warnings=(*notes["warnings"], *judge.lost(notes["before"], after)),
    )


@dataclass(frozen=True)
class Pupil:
    """What is to learn, a new model or a saved one with its memory, and how; `known` are its classes so far."""

    method: EM
    plan: Plan
    known: ClassTable

    @classmethod
    def open(cls, folder: Path | None, *, trainable: str | None, device: str, seed: int) -> Pupil:
        fabric = make_fabric(device)
        saved: Method | None = None
        if folder is None:
            plan = FRESH_WHOLE if trainable == "all" else FRESH
            segmenter = Segmenter.create(NETWORK, decoder_channels=CHANNELS, seed=seed)
        else:
            saved = load(folder, fabric=fabric) if storage.load_folder(folder).kind == "method" else None
            segmenter = Segmenter.load(folder) if saved is None else saved.segmenter
            trainable = trainable or segmenter.trainable
            plan = LATER if trainable == "all" else LATER_PART
        plan = plan if trainable is None else replace(plan, trainable=trainable)
        segmenter.trainable = plan.trainable
        if plan.variants and plan.trainable != "all":
            segmenter.cache = FeatureCache(capacity_bytes=CACHE_BYTES)
        method = create(
            "em",
            segmenter,
            memory=None if saved is None else saved.memory,
            fabric=fabric,
            settings=(saved.settings() if isinstance(saved, EM) else {})
            | {"seed": seed, "lr": plan.lr, "balance": plan.balance, "augment": None},
        )
        assert isinstance(method, EM)
        if isinstance(saved, EM):
            method.confidence = dict(saved.confidence)
        return cls(method, plan, segmenter.classes)

    def resumed(self, folder: Path) -> EM:
        """The method of an interrupted lesson."""
        method = load(folder, fabric=self.method.fabric)
        assert isinstance(method, EM)
        method.segmenter.cache = self.method.segmenter.cache
        return method


class Judge:
    """IoU before and after: new classes on the folder's held-back pictures, old ones on pictures of theirs."""

    def __init__(self, lesson: Lesson, rehearsal: Rehearsal, pupil: Pupil, tell: Tell) -> None:
        self.tell = tell
        self.table = lesson.table
        self.old = frozenset(pupil.known.name(slot) for slot in pupil.known.active)
        self.sets: list[Sequence[Sample]] = []
        sentences = []
        if len(rehearsal.held):
            self.sets.append(rehearsal.held)
            sentences.append(f"Old classes: {len(rehearsal.held)} pictures of the base data that were held back.")
        elif exemplars := list(islice(pupil.method.memory_, AT_MOST)):
            self.sets.append(exemplars)
            sentences.append(
                f"Old classes: {len(exemplars)} pictures of the memory. They are rehearsed, so these scores flatter."
            )
        if lesson.held is None:
            sentences.append("There are too few pictures to hold any back, so the new classes are not scored.")
        else:
            self.sets.append(lesson.held)
            sentences.append(f"{', '.join(lesson.new)}: {len(lesson.held)} pictures that were held back.")
        self.sentences = tuple(sentences)

    def scores(self, method: Method, phase: str) -> dict[str, float]:
        """Each class that has ground truth; what the folder labels counts more than the memory."""
        found: dict[str, float] = {}
        total, done = sum(len(samples) for samples in self.sets), 0
        for samples in self.sets:

            def told(count: int, start: int = done) -> None:
                self.tell(Progress(phase, start + count, total))

            scores = evaluate(method, samples, classes=self.table, batch=4, progress=told)
            found |= {n: v for n, v in zip(scores.names[1:], scores.iou[1:], strict=True) if v is not None}
            done += len(samples)
        return {name: found[name] for name in self.table.names if name in found}

    def lost(self, before: dict[str, float], after: dict[str, float]) -> tuple[str, ...]:
        """A sentence if old classes lost."""
        falls = {n: before[n] - after.get(n, 0.0) for n in before if n in self.old}
        worst = [n for n in sorted(falls, key=lambda n: -falls[n]) if falls[n] > LOST]
        told = ", ".join(f"{n} ({before[n]:.1f} to {after.get(n, 0.0):.1f} % IoU)" for n in worst)
        advice = "More pictures of them to rehearse (--base-data) or fewer passes help."
        return (f"Old classes lost: {told}. {advice}",) if worst else ()


def _rehearse(method: EM, rehearsal: Rehearsal, known: ClassTable, tell: Tell) -> tuple[str, ...]:
    """Fill the memory with pictures of the old classes; a sentence about those that nothing rehearses."""
    learn = rehearsal.learn
    order = torch.randperm(len(learn), generator=method.generator).tolist()
    for done, i in enumerate(order, start=1):
        method.remember(Batch((learn[i],)))
        tell(Progress("remember", done, len(learn)))
    stored = method.memory_.counts()
    alone = ", ".join(known.name(slot) for slot in known.active if slot not in stored)
    advice = "Give labelled pictures of the old classes (--base-data FOLDER) to keep them."
    return (f"No picture of {alone} is stored, so nothing rehearses what the model knows. {advice}",) if alone else ()


def _waiting(out: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """How far the interrupted lesson in `out` was; empty if it had not been saved yet."""
    waiting = out / TRAINING
    if not (waiting / storage.INDEX).exists():
        if (out / storage.INDEX).exists():
            raise storage.StateError(f"The lesson in {out} had come to its end; there is nothing to go on with.")
        return {}
    notes: dict[str, Any] = storage.load_folder(waiting, kind="method").document["extra"]
    if differing := [key for key, value in identity.items() if notes["identity"].get(key) != value]:
        raise storage.StateError(
            f"{waiting} holds another lesson: its {', '.join(differing)} differ. Use another folder, or remove it."
        )
    return notes


def _learn(
    method: EM, lesson: Lesson, plan: Plan, *, turns: int, seed: int, waiting: Path, notes: dict[str, Any], tell: Tell
) -> None:
    """All passes over the folder, from where `notes` says on."""
    taken = int(notes["taken"])
    items = Repeated(lesson.learn, names=lesson.new, batch=plan.batch, passes=turns, seed=seed, start=taken)
    saved = time.perf_counter()
    for report in engine.run(_paced(items, method, plan), method, stage=min(taken, 1), taken=taken):
        if isinstance(report, engine.StageEnd):
            continue
        text = "nothing to learn" if report.loss is None else f"loss {report.loss:.3f}"
        tell(Progress("teach", items.position - 1, len(items) - 1, text))
        if time.perf_counter() - saved > CHECKPOINT_SECONDS:
            method.save(waiting, extra={**notes, "taken": items.position})
            saved = time.perf_counter()


def _paced(items: Repeated, method: EM, plan: Plan) -> Iterator[NewClasses | Batch]:
    """The items; before each the rate is set."""
    for item in items:
        method.lr = plan.rate((items.position - 1) / len(items))
        yield item


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """As a saved JSON gives it back."""
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain
