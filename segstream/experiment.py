"""A recipe and a method become a run folder: base (cached), memory, stream, scores after each stage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from segstream import plugins, storage
from segstream.about import about
from segstream.augment import Augment
from segstream.classes import ClassTable
from segstream.config import Recipe
from segstream.data import BaseSet, JointSet, Source, Stream, TestSet
from segstream.data.source import Cached, DataError
from segstream.devices import make_fabric
from segstream.evaluate import evaluate
from segstream.functional.scores import Scores
from segstream.joint import seeded
from segstream.memory import Memory
from segstream.method import Method, create
from segstream.models import Segmenter
from segstream.offline import Schedule
from segstream.online import OnlineRun, Progress, Tell, resumed, silent
from segstream.opening import make_scenario, open_splits
from segstream.runs import Run
from segstream.storage import cache_folder
from segstream.trained import Training
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
        told = lambda what, done, total: self.tell(Progress(what, done, total))  # noqa: E731
        self.splits = open_splits(recipe.data, told=told)
        self.scenario = make_scenario(recipe.scenario, self.splits.train.names)
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

    def base_kind(self, name: str, settings: Mapping[str, Any]) -> tuple[str, str]:
        """The head and the loss of the base that a method starts from."""
        probe = self.probe(name, settings)
        return probe.head() or self.recipe.network.head, probe.base_loss

    def base(self, *, head: str = "", loss: str = "softmax", seed: int | None = None) -> Segmenter:
        """A segmenter trained on the base classes; from the cache where one of the same making lies."""
        return self._training("base", head, loss, seed).trained(self.tell)

    def joint(self, *, head: str = "", seed: int | None = None) -> Segmenter:
        """The bound: trained offline on all classes with all labels."""
        return self._training("joint", head, "softmax", seed).trained(self.tell)

    def base_folder(self, *, head: str = "", loss: str = "softmax", seed: int | None = None) -> Path:
        """Where that base lies or will lie; its name is a key of everything that determines the weights."""
        return self._training("base", head, loss, seed).folder

    def joint_folder(self, *, head: str = "", seed: int | None = None) -> Path:
        """The same for the bound."""
        return self._training("joint", head, "softmax", seed).folder

    def _training(self, kind: str, head: str, loss: str, seed: int | None) -> Training:
        table = self.table(0 if kind == "base" else len(self.scenario.stages))
        data = self.base_set() if kind == "base" else JointSet(self.train, self.scenario, table, self.indices)
        return Training(
            recipe=self.recipe,
            kind=kind,
            names=table.names,
            data=data,
            schedule=Schedule(**asdict(self.recipe.base if kind == "base" else self.recipe.joint)),
            augment=self.augment,
            head=head or self.recipe.network.head,
            loss=loss,
            seed=self.recipe.run.seed if seed is None else seed,
            fabric=self.fabric,
            threads=self.threads,
            cache=self.cache,
        )

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
            order = torch.randperm(len(data), generator=seeded(seed)).tolist()
            for start in range(0, len(order), self.recipe.scenario.batch):
                some = order[start : start + self.recipe.scenario.batch]
                method.remember(Batch(tuple(data[i] for i in some)))
                self.tell(Progress("remember", start + len(some), len(data)))
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
        self.probe(name, settings or {})  # what is wrong is said before anything is written
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
            if base is None:
                head, loss = self.base_kind(name, settings or {})
                base = self.base(head=head, loss=loss)
            method = self.method(name, base, settings or {}, seed=seed)
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
    ValueError: There is no method 'emm'. Did you mean 'em'? Known: ...
    """
    return Experiment(recipe, device=device, threads=threads, progress=progress).run(method, out, resume=resume)
