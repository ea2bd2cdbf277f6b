"""The base of all methods: settings, joint batch, optimiser step, memory, state. No algorithm in it.

A method is a keyword-only dataclass whose fields are its settings; a subclass writes `learn`.
"""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_type_hints

import safetensors.torch
import torch
from lightning_fabric import Fabric
from torch import Tensor

from segstream import plugins, storage
from segstream.augment import Augment
from segstream.classes import VOID
from segstream.devices import make_fabric, sum_over
from segstream.functional.objective import Objective
from segstream.joint import Joint, Statistics, check_samples, drawing_from, given_evidence, packed, seeded
from segstream.memory import Drawn, Memory, Selection
from segstream.models import Segmenter
from segstream.models.spec import check_choice
from segstream.optimiser import Optimiser
from segstream.schema import convert, nearest
from segstream.types import Batch, Prediction, Sample, UpdateReport

__all__ = ["Method", "check_choice", "create", "load"]

OBJECT = {"setting": False}  # a part of the method, not one of its settings


@dataclass(kw_only=True, eq=False)
class Method(ABC):
    """What every method has.

    segmenter, memory  what learns and what is rehearsed;  fabric: device, precision and processes (default: where
                       the segmenter lies, float32, one process)
    seed               of the one generator that draws, augments, selects and starts new rows
    lr, momentum, weight_decay  of SGD;  batchnorm: `train` moves the statistics once for each update
    augment            how images are cut for learning; None takes them whole

    >>> from segstream.methods.er import ER
    >>> method = ER(Segmenter.create("tiny", weights=None, classes=["road"]), seed=1, lr=0.01)
    >>> isinstance(method, Method), method.settings()["lr"]
    (True, 0.01)
    """

    name: ClassVar[str]
    default_policy: ClassVar[str | None] = "reservoir"
    wants_teacher: ClassVar[bool] = False  # a frozen copy of the segmenter, taken before it grows
    base_loss: ClassVar[Literal["softmax", "sigmoid"]] = "softmax"  # that the base it starts from is trained with
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {}  # settings worth a search beside lr, and values to try

    segmenter: Segmenter = field(kw_only=False, metadata=OBJECT)
    memory: Memory | None = field(default=None, metadata=OBJECT)
    fabric: Fabric | None = field(default=None, metadata=OBJECT)
    seed: int = 0
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batchnorm: Literal["train", "frozen"] = "train"
    augment: Augment | None = None

    def __post_init__(self) -> None:
        self.check_settings()
        if self.memory is None and self.policy() is not None:
            self.memory = Memory(policy=self.policy() or "")
        if self.fabric is None:
            self.fabric = make_fabric(str(self.segmenter.device))
        self.reduce = sum_over(self.fabric)  # over all processes; None with a single one
        self.generator = seeded(self.seed)
        self.optimiser = Optimiser(
            self.segmenter, self.fabric, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )
        self.updates = 0
        self.teacher: Segmenter | None = None  # as it was before the newest classes came, where a method wants one
        self.newest: frozenset[int] = frozenset()  # classes of the stage that is going on
        self._updates_at_growth = 0

    # ---- settings

    def policy(self) -> str | None:
        """Who stays in the memory that the method makes for itself; None: it keeps nothing."""
        return self.default_policy

    def head(self) -> str | None:
        """The head of the base that an experiment trains for it; None: the recipe's."""
        return None

    def check_settings(self) -> None:
        """Refuse impossible values. A subclass adds its own and calls this."""
        if self.lr <= 0 or not 0 <= self.momentum < 1 or self.weight_decay < 0:
            given = f"lr={self.lr}, momentum={self.momentum}, weight_decay={self.weight_decay}"
            raise ValueError(f"{given}: lr must be above 0, momentum in [0, 1), weight_decay at least 0.")
        check_choice("batchnorm", self.batchnorm, ("train", "frozen"))

    @classmethod
    def setting_names(cls) -> list[str]:
        return [f.name for f in dataclasses.fields(cls) if f.metadata.get("setting", True)]

    def settings(self) -> dict[str, Any]:
        """All settings as plain data."""
        values = {name: getattr(self, name) for name in self.setting_names()}
        return values | {k: dataclasses.asdict(v) for k, v in values.items() if isinstance(v, Augment)}

    # ---- the verbs

    def remember(self, batch: Batch) -> int:
        """Offer labelled images to the memory, without learning. Returns how many it took."""
        samples = self.accept(batch)
        if self.memory is None:
            return 0
        chooses = isinstance(self.memory.policy, Selection)
        evidence = given_evidence(self.segmenter, samples, self.fabric_) if chooses else None
        active = self.segmenter.classes.active
        return self.memory.offer_all(samples, active=active, generator=self.generator, evidence=evidence)

    def forget(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Drop exemplars by id. What was learned from them stays learned."""
        return self.memory_.forget(ids)

    def add_classes(self, names: Sequence[str]) -> None:
        """Grow the label space: the only stage boundary there is."""
        before = len(self.segmenter.classes)
        self.segmenter.classes.extend(names)  # what is wrong with the names is said before anything changes
        self.before_growth(names)
        if self.wants_teacher and (self.teacher is None or self.updates > self._updates_at_growth):
            self.teacher = self.segmenter.frozen()
        self.segmenter.add_classes(names, generator=self.generator)
        new = frozenset(range(before, len(self.segmenter.classes)))
        self.optimiser.after_growth(sorted(new))
        # Two additions with no update between them are one stage.
        self.newest = new if self.updates > self._updates_at_growth else self.newest | new
        self._updates_at_growth = self.updates
        self.after_growth(new)

    def retire_classes(self, names: Sequence[str]) -> None:
        """From here on these classes are never drawn, predicted or scored; their pixels in memory become unlabelled."""
        slots = self.segmenter.classes.retire(names).retired - self.segmenter.classes.retired
        self.segmenter.retire_classes(names)
        if self.memory is not None:
            self.memory.retire(slots)
        self.newest -= slots
        self.after_retirement(slots)

    @abstractmethod
    def learn(self, batch: Batch) -> UpdateReport:
        """At most one update from the batch, which may then be gone."""

    def predict(self, images: Sequence[Tensor]) -> Prediction:
        """Classes and confidence for uint8 images [3, H, W] of any size. Changes nothing."""
        return self.segmenter.predict(images)

    def save(self, folder: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """The whole state, so that `segstream.load` continues bit for bit on CPU; `extra` is kept beside it."""
        weights_document, weights = self.segmenter.to_state()
        teacher_document, teacher = (None, {}) if self.teacher is None else self.teacher.to_state()
        memory_document, exemplars = ({}, {}) if self.memory is None else self.memory.state()
        facts = {"updates": self.updates, "newest": sorted(self.newest), "updates_at_growth": self._updates_at_growth}
        document = {
            "method": self.name,
            "settings": self.settings(),
            "segmenter": weights_document,
            "teacher": teacher_document,
            "memory": None if self.memory is None else memory_document,
            "state": facts | self.extra_state(),
            "extra": dict(extra or {}),
        }
        groups = {
            "weights": weights,
            "optimiser": self.optimiser.buffers(),
            "memory": exemplars,
            "generator": {"generator": self.generator.get_state()},
        } | ({"teacher": teacher} if teacher else {})
        files = {f"{name}.safetensors": safetensors.torch.save(packed(group)) for name, group in groups.items()}
        if self.fabric_.is_global_zero:
            storage.save_folder(Path(folder), kind="method", document=document, files=files)

    # ---- what a subclass may add

    def before_growth(self, names: Sequence[str]) -> None:  # noqa: B027
        """Called before the head grows."""

    def after_growth(self, new: frozenset[int]) -> None:  # noqa: B027
        """Called when the head has grown by these slots."""

    def after_retirement(self, slots: frozenset[int]) -> None:  # noqa: B027
        """Called when these slots are retired."""

    def extra_state(self) -> dict[str, Any]:
        """What the method itself must remember, as plain data."""
        return {}

    def load_extra_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Take back what `extra_state` gave."""

    # ---- the pieces of `learn`

    def accept(self, batch: Batch) -> tuple[Sample, ...]:
        """The batch's samples, if the method can take them; nothing is changed before they are known to be good."""
        check_samples(batch.samples, self.segmenter.classes)
        return batch.samples

    def join(self, *groups: Iterable[Sample], whole: bool = False) -> Joint:
        """All samples augmented and stacked; of these, this process's slice, or, `whole`, all."""
        samples = [s for group in groups for s in group]
        seeds = torch.randint(2**62, (len(samples),), generator=self.generator).tolist()
        if self.augment is not None:
            samples = [self.augment(s, generator=seeded(seed)) for s, seed in zip(samples, seeds, strict=True)]
        joint = Joint.of(samples, classes=self.segmenter.classes, multiple=self.segmenter.stride_multiple)
        return (joint if whole else self.part(joint)).to(self.fabric_.device)

    def part(self, joint: Joint) -> Joint:
        return joint.part(self.fabric_.global_rank, self.fabric_.world_size)

    def enters(self, masks: Tensor) -> bool:
        """Whether any pixel of any process is not void."""
        count = (masks != VOID).sum().to(torch.float32)
        return bool(count > 0) if self.reduce is None else bool(self.reduce(count) > 0)

    def forward(self, images: Tensor, *, bare: bool = False) -> Tensor:
        """Low-resolution logits [B, K, h, w] in float32, in training mode.

        bare   not through the wrapper that gathers gradients: for `gradients`, and for passes beside the update
        """
        self.segmenter.training_mode(self.batchnorm)
        with drawing_from(self.generator, images.device), self.fabric_.autocast():
            logits: Tensor = self.segmenter(images) if bare else self.optimiser.module(images)
        return logits

    def step(self, loss: Tensor) -> None:
        """One optimiser step down the loss, at the rate that `lr` has now."""
        self.optimiser.step(loss, lr=self.lr)
        self.segmenter.eval()
        self.updates += 1

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Of the loss, which comes from a bare forward: float32, by trainable parameter, over all processes."""
        return self.optimiser.gradients(loss)

    def apply(self, gradients: Sequence[Tensor]) -> None:
        """One optimiser step with these gradients."""
        self.optimiser.apply(gradients, lr=self.lr)
        self.segmenter.eval()
        self.updates += 1

    @property
    def memory_(self) -> Memory:
        if self.memory is None:
            raise ValueError(f"{self.name} keeps no memory.")
        return self.memory

    @property
    def fabric_(self) -> Fabric:
        assert self.fabric is not None
        return self.fabric

    def summed(self, found: Objective) -> Statistics:
        """What the objective counted, over all processes."""
        return Statistics.of(found, reduce=self.reduce)

    def report(
        self,
        seen: Statistics,
        *,
        started: float,
        stored: int,
        drawn: Drawn | None = None,
        confidence: Mapping[int, float] | None = None,
    ) -> UpdateReport:
        """What one update did, in plain numbers."""
        return seen.report(
            newest=self.newest,
            drawn=drawn,
            confidence=confidence,
            stored=stored,
            memory=len(self.memory or ()),
            seconds=time.perf_counter() - started,
        )

    def idle(self, generator_state: Tensor) -> UpdateReport:
        """Nothing entered the loss: everything stays as if the batch had not come."""
        self.generator.set_state(generator_state)
        return UpdateReport(updated=False, memory=len(self.memory or ()))


def create(
    name: str,
    segmenter: Segmenter,
    *,
    memory: Memory | None = None,
    fabric: Fabric | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Method:
    """A method by its name, with settings as plain data (a recipe's, or a saved method's).

    >>> create("em", Segmenter.create("tiny", weights=None), settings={"treshold": 0.5})
    Traceback (most recent call last):
    ValueError: The method 'em' has no setting 'treshold'. Did you mean 'threshold'?
    """
    cls: type[Method] = plugins.load("methods", name)
    known, kinds = cls.setting_names(), get_type_hints(cls)
    given: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        if key not in known:
            raise ValueError(f"The method {name!r} has no setting {key!r}.{nearest(key, known)}")
        if key == "augment" and value is None:
            continue
        kind = Augment if key == "augment" else kinds[key]
        given[key] = convert(value, kind, key=key, source=f"the settings of {name}")
    return cls(segmenter, memory=memory, fabric=fabric, **given)


def load(folder: str | Path, *, fabric: Fabric | None = None) -> Method:
    """A method as it was saved, ready to go on.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> create("er", Segmenter.create("tiny", weights=None, classes=["road"])).save(folder)
    >>> load(folder).segmenter.classes.names
    ('road',)
    """
    saved = storage.load_folder(Path(folder), kind="method")
    document = saved.document

    def tensors(name: str) -> dict[str, Tensor]:
        return safetensors.torch.load(saved.read(f"{name}.safetensors"))

    segmenter = Segmenter.from_state(document["segmenter"], tensors("weights"))
    memory = None if document["memory"] is None else Memory.from_state(document["memory"], tensors("memory"))
    method = create(document["method"], segmenter, memory=memory, fabric=fabric, settings=document["settings"])
    if document.get("teacher") is not None:  # older folders know none
        teacher = Segmenter.from_state(document["teacher"], tensors("teacher"))
        method.teacher = teacher.to(method.fabric_.device).frozen()
    method.optimiser.load_buffers(tensors("optimiser"))
    method.generator.set_state(tensors("generator")["generator"])
    state = document["state"]
    method.updates, method.newest = state["updates"], frozenset(state["newest"])
    method._updates_at_growth = state["updates_at_growth"]
    method.load_extra_state(state)
    return method
