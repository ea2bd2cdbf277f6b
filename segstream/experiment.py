"""A recipe and a method become a run folder: base (cached), memory, stream, scores after each stage."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from segstream import __version__, plugins, storage
from segstream.about import about
from segstream.augment import Augment
from segstream.classes import ClassTable
from segstream.config import Recipe, TrainingSettings
from segstream.data import BaseSet, JointSet, Scenario, Source, Splits, Stream, TestSet
from segstream.data.source import Cached, DataError
from segstream.devices import make_fabric
from segstream.evaluate import evaluate
from segstream.functional.scores import Scores
from segstream.joint import seeded
from segstream.memory import Memory
from segstream.method import Method, create
from segstream.models import Segmenter
from segstream.offline import FitProgress, Schedule, fit
from segstream.online import OnlineRun, Progress, Tell, resumed, silent
from segstream.runs import Run
from segstream.types import Batch

__all__ = ["Experiment", "Progress", "run"]

log = logging.getLogger(__name__)


class Experiment:
    """A recipe with its data opened: what several runs over it share.

    Opening reads and checks all that can be wrong with recipe and data; nothing is written before.

    >>> from segstream.config import load_recipe
    >>> small = ["data.train_size=40", "data.image_size=[32, 32]", "run.device=cpu"]
    >>> experiment = Experiment(load_recipe("demo", small))
    >>> experiment.table(1).names[-2:], len(experiment.stream(seed=0)) > 3
    (('kite', 'balloon'), True)
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        device: str | None = None,
        threads: int | None = None,
        cache: Path | None = None,
        progress: Tell | None = None,
    ) -> None:
        self.recipe = recipe
        self.tell = progress or silent
        self.cache = cache or cache_folder()
        self.threads = threads or recipe.run.threads
        torch.set_num_threads(self.threads)
        self.fabric = make_fabric(device or recipe.run.device, precision=recipe.run.precision)
        section = recipe.data
        self.splits: Splits = plugins.load("datasets", section.dataset)(
            root=section.root,
            train_size=section.train_size,
            val_size=section.val_size,
            test_size=section.test_size,
            image_size=tuple(section.image_size),
            seed=section.seed,
        )
        groups = tuple(tuple(stage) for stage in recipe.scenario.stages)
        self.scenario = Scenario(
            tuple(recipe.scenario.base), groups, rule=recipe.scenario.rule, max_images=recipe.scenario.max_images
        )
        self.train: Source = Cached(self.splits.train)
        self.indices = self.scenario.select(self.train)
        cut = recipe.augment
        self.augment = Augment(crop=cut.crop, scale=tuple(cut.scale), flip=cut.flip, border=cut.border)  # type: ignore[arg-type]
        self._sources: dict[str, Source] = {}

    # ---- data

    def table(self, stage: int) -> ClassTable:
        return ClassTable(self.scenario.seen(stage))

    def base_set(self) -> BaseSet:
        return BaseSet(self.train, self.scenario, self.table(0), self.indices[0])

    def test_set(self, stage: int, split: str) -> TestSet:
        source = self._sources.setdefault(split, Cached(self.splits.part(split)))
        return TestSet(source, self.scenario, stage, self.table(stage))

    def score(self, method: Any, stage: int, split: str) -> Scores:
        """Scores on the pictures that show any class seen so far."""
        samples = self.test_set(stage, split)
        told = lambda done: self.tell(Progress("score", done, len(samples)))  # noqa: E731
        return evaluate(method, samples, classes=self.table(stage), progress=told)

    # ---- offline

    def fresh(self, classes: Sequence[str], head: str, seed: int) -> Segmenter:
        net = self.recipe.network
        return Segmenter.create(
            net.name,
            encoder=net.encoder,
            weights=net.weights or None,
            classes=classes,
            head=head,
            scale=net.scale,
            output_stride=net.output_stride,
            decoder_channels=net.decoder_channels,
            seed=seed,
        )

    def base(self, *, head: str = "", seed: int | None = None) -> Segmenter:
        """A segmenter trained on the base classes; from the cache where one of the same making lies."""
        schedule = _schedule(self.recipe.base)
        return self._trained("base", self.scenario.base, self.base_set(), schedule, head, seed)

    def joint(self, *, head: str = "", seed: int | None = None) -> Segmenter:
        """The bound: trained offline on all classes with all labels."""
        table = self.table(len(self.scenario.stages))
        data = JointSet(self.train, self.scenario, table, self.indices)
        return self._trained("joint", table.names, data, _schedule(self.recipe.joint), head, seed)

    def _trained(
        self, kind: str, names: Sequence[str], data: Any, schedule: Schedule, head: str, seed: int | None
    ) -> Segmenter:
        head = head or self.recipe.network.head
        seed = self.recipe.run.seed if seed is None else seed
        folder = self.cache / f"{kind}-{self._key(kind, names, data.ids, schedule, head, seed)}"
        if (folder / storage.INDEX).exists():
            log.info("%s: taken from %s", kind, folder)
            segmenter = Segmenter.load(folder)
        else:
            segmenter = self.fresh(names, head, seed)

            def told(at: FitProgress) -> None:
                self.tell(Progress(kind, at.done, at.total, f"loss {at.loss:.3f}"))

            training = folder.with_name(folder.name + ".training")
            fit(
                segmenter,
                data,
                schedule=schedule,
                augment=self.augment,
                seed=seed,
                fabric=self.fabric,
                checkpoint=training,
                progress=told,
            )
            segmenter.save(folder)
            shutil.rmtree(training)
        return segmenter.to(self.fabric.device)

    def _key(
        self, kind: str, names: Sequence[str], ids: Sequence[str], schedule: Schedule, head: str, seed: int
    ) -> str:
        """Of everything that determines the weights."""
        parts = {
            "kind": kind,
            "names": list(names),
            "data": asdict(self.recipe.data) | {"val_size": 0, "test_size": 0, "split": ""},
            "pictures": hashlib.sha256("\n".join(ids).encode()).hexdigest(),
            "files": _stamp(self.recipe.data.root, self.recipe.network.weights),
            "network": asdict(self.recipe.network) | {"head": head},
            "augment": asdict(self.augment),
            "schedule": asdict(schedule),
            "seed": seed,
            "precision": self.recipe.run.precision,
            "device": self.fabric.device.type,
            "threads": self.threads,
            "versions": [__version__, str(torch.__version__)],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    # ---- online

    def probe(self, name: str, settings: Mapping[str, Any]) -> Method:
        """A stand-in over a tiny network: checks the settings, and knows the policy that they ask for."""
        chosen = dict(self.recipe.methods.get(name, {})) | dict(settings)
        return create(name, Segmenter.create("tiny", weights=None), settings=chosen)

    def method(self, name: str, base: Segmenter, settings: Mapping[str, Any], *, seed: int) -> Method:
        """A method over a copy of the base, with its memory seeded by one pass over the base set."""
        memory = self.recipe.memory
        cls: type[Method] = plugins.load("methods", name)
        segmenter = Segmenter.from_state(*base.to_state()).to(self.fabric.device)
        chosen = dict(self.recipe.methods.get(name, {})) | dict(settings)
        policy = memory.policy or self.probe(name, settings).policy()
        keeps = cls.default_policy is not None and policy is not None
        method = create(
            name,
            segmenter,
            memory=Memory(capacity=memory.capacity, policy=policy or "") if keeps else None,
            fabric=self.fabric,
            settings={"seed": seed, "augment": asdict(self.augment)} | chosen,
        )
        if keeps:
            data = self.base_set()
            for done, i in enumerate(torch.randperm(len(data), generator=seeded(seed)).tolist(), start=1):
                method.remember(Batch((data[i],)))
                self.tell(Progress("remember", done, len(data)))
        return method

    def stream(self, *, seed: int, start: int = 0) -> Stream:
        return Stream(
            self.train,
            self.scenario,
            classes=self.table(0),
            batch=self.recipe.scenario.batch,
            seed=seed,
            start=start,
            indices=self.indices,
        )

    def run(
        self,
        name: str,
        out: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        split: str = "",
        tuning_split: str = "",
        resume: bool = False,
        base: Segmenter | None = None,
        pictures: int = 6,
    ) -> dict[str, Any]:
        """One method through the whole stream, into a run folder. Returns its summary."""
        seed = self.recipe.run.seed if seed is None else seed
        split = split or self.recipe.data.split
        probe = self.probe(name, settings or {})  # what is wrong is said before anything is written
        self.stream(seed=seed)
        for needed in filter(None, (split, tuning_split)):
            if not len(self.test_set(0, needed)):
                raise DataError(f"The split {needed!r} has no picture with a base class, so nothing could be scored.")
        # ---- the folder: a new one, or the one that is gone on with
        facts = about() | {"method": name, "seed": seed, "threads": self.threads, "split": split}
        facts |= {"tuning_split": tuning_split, "settings": dict(settings or {})}
        config = self.recipe.to_toml()
        going_on = resume and (out / storage.INDEX).exists()
        run = (Run.resume if going_on else Run.create)(out, config=config, about=facts)
        if going_on and run.finished and run.summary is not None:
            return run.summary
        place = OnlineRun.place(run)
        if place is None:
            run.rewind(0)
            method = self.method(name, base or self.base(head=probe.head() or ""), settings or {}, seed=seed)
        else:
            method = resumed(run, self.fabric)
        online = OnlineRun(
            run=run,
            method=method,
            stream=lambda start: self.stream(seed=seed, start=start),
            score=self.score,
            shown=lambda stage: self.test_set(stage, split),
            table=self.table,
            stages=len(self.scenario.stages),
            split=split,
            tuning_split=tuning_split,
            evaluate_stages=self.recipe.run.evaluate_stages,
            pictures=pictures,
            tell=self.tell,
            **{k: place[k] for k in ("stage", "taken", "batch", "scored")} if place else {},
        )
        return online.go()


def run(
    recipe: Recipe,
    *,
    method: str,
    out: Path,
    resume: bool = False,
    device: str | None = None,
    threads: int | None = None,
    progress: Tell | None = None,
) -> dict[str, Any]:
    """One recipe with one method, into a run folder. Returns the summary.

    >>> import tempfile
    >>> from segstream.config import load_recipe
    >>> small = ["data.train_size=40", "data.image_size=[32, 32]", "network.name=tiny"]
    >>> run(load_recipe("demo", small), method="emm", out=Path(tempfile.mkdtemp()))
    Traceback (most recent call last):
    ValueError: There is no method 'emm'. Did you mean 'em'? Known: em, er, finetune.
    """
    return Experiment(recipe, device=device, threads=threads, progress=progress).run(method, out, resume=resume)


def _schedule(section: TrainingSettings) -> Schedule:
    return Schedule(**asdict(section))


def _stamp(*places: str) -> str:
    """Names, sizes and times of files and of what lies below folders: a corrected mask makes another base."""
    found: list[tuple[str, int, int]] = []
    for place in filter(None, places):
        files = [Path(place)] if Path(place).is_file() else []
        for folder, below, names in os.walk(place):
            # Not what we wrote there: a run beside its data would make every next base another.
            below[:] = sorted(name for name in below if not (Path(folder) / name / storage.INDEX).exists())
            files += [Path(folder) / name for name in sorted(names)]
        found += [(str(f), (status := f.stat()).st_size, status.st_mtime_ns) for f in files]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def cache_folder() -> Path:
    """Where trained bases are kept: $SEGSTREAM_CACHE, or the user's cache folder."""
    if given := os.environ.get("SEGSTREAM_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segstream"
