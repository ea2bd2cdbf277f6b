"""Ordinary training on all data at once: the base that online learning starts from, and `joint`, its bound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from lightning_fabric import Fabric

from segstream import storage
from segstream.augment import Augment
from segstream.classes import VOID
from segstream.devices import make_fabric, sum_over
from segstream.functional.distillation import sigmoid_cross_entropy
from segstream.functional.label_space import targets
from segstream.functional.objective import cross_entropy
from segstream.joint import Joint, drawing_from, packed, seeded
from segstream.models import Segmenter
from segstream.models.spec import check_choice
from segstream.optimiser import Optimiser
from segstream.types import Sample

__all__ = ["FitProgress", "Samples", "Schedule", "fit"]

log = logging.getLogger(__name__)
LOSSES = {"softmax": cross_entropy, "sigmoid": sigmoid_cross_entropy}


class Samples(Protocol):
    """Labelled images by position, any list of Sample among them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast: SGD whose rate falls as lr * (1 - done) ** power.

    >>> Schedule(epochs=2).rate(done=0.5)
    0.005358867312681466
    """

    epochs: int = 60
    batch: int = 24
    lr: float = 1e-2
    power: float = 0.9
    momentum: float = 0.9
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or self.lr <= 0 or self.power < 0:
            raise ValueError(f"{self}: epochs and batch must be at least 1, lr above 0, power at least 0.")

    def rate(self, *, done: float) -> float:
        return self.lr * float((1.0 - done) ** self.power)


@dataclass(frozen=True)
class FitProgress:
    """Where training stands: updates done of all, and the last loss.

    >>> at = FitProgress(done=30, total=120, epoch=1, loss=0.4)
    >>> at.done / at.total
    0.25
    """

    done: int
    total: int
    epoch: int
    loss: float


def fit(
    segmenter: Segmenter,
    data: Samples,
    *,
    schedule: Schedule | None = None,
    loss: str = "softmax",
    augment: Augment | None = None,
    seed: int = 0,
    fabric: Fabric | None = None,
    checkpoint: Path | None = None,
    workers: int | None = None,
    progress: Callable[[FitProgress], None] | None = None,
) -> float:
    """Train a segmenter in place on all of `data`; returns the mean loss of the last epoch.

    Unlabelled and void pixels are left out; annotated background is class 0. `loss` is cross entropy: of one
    `softmax`, or of a `sigmoid` for each class. Afterwards the rows of a cosine head have length 1, outputs unchanged.
    With `checkpoint` every epoch's end is saved there, and a folder that holds one of the same training goes on from
    it.

    >>> image, mask = torch.zeros(3, 16, 16, dtype=torch.uint8), torch.ones(16, 16, dtype=torch.int16)
    >>> segmenter = Segmenter.create("tiny", weights=None, classes=["grey"])
    >>> fit(segmenter, [Sample(image, mask, id="a", known=2)], schedule=Schedule(epochs=1)) > 0
    True
    """
    schedule = schedule or Schedule()
    check_choice("loss", loss, tuple(LOSSES))
    if not len(data):
        raise ValueError("There is no image to train on.")
    fabric = fabric or make_fabric(str(segmenter.device))
    options = {"momentum": schedule.momentum, "weight_decay": schedule.weight_decay}
    optimiser = Optimiser(segmenter, fabric, lr=schedule.lr, **options)
    reduce = sum_over(fabric)
    generator = seeded(seed)
    identity = {
        "schedule": asdict(schedule),
        "augment": asdict(augment) if augment else None,
        "images": len(data),
        "network": segmenter.spec,
        "classes": segmenter.classes.names,
        "seed": seed,
        "loss_kind": loss,
    }
    first, mean = _resume(checkpoint, segmenter, optimiser, generator, identity) if checkpoint else (0, 0.0)
    per_epoch = -(-len(data) // schedule.batch)
    total = per_epoch * schedule.epochs
    for epoch in range(first, schedule.epochs):
        losses: list[float] = []
        for k, samples in enumerate(_batches(data, schedule.batch, augment, generator, _workers(workers, fabric))):
            done = epoch * per_epoch + k
            joint = Joint.of(samples, classes=segmenter.classes, multiple=segmenter.stride_multiple)
            joint = joint.part(fabric.global_rank, fabric.world_size).to(fabric.device)
            labels = targets(joint.masks, "ignore")
            entering = (labels != VOID).sum().to(torch.float32)
            if float(entering if reduce is None else reduce(entering)) == 0:
                continue
            segmenter.training_mode("train")
            with drawing_from(generator, fabric.device):
                logits = optimiser.module(joint.images)
            found = LOSSES[loss](logits, labels, reduce=reduce)
            optimiser.step(found.loss, lr=schedule.rate(done=done / total))
            losses.append(float(found.loss.detach()))
            if progress is not None:
                progress(FitProgress(done + 1, total, epoch, losses[-1]))
        mean = sum(losses) / max(len(losses), 1)
        log.info("epoch %d of %d: loss %.4f", epoch + 1, schedule.epochs, mean)
        if checkpoint is not None and fabric.is_global_zero:
            _save(checkpoint, segmenter, optimiser, generator, identity | {"epochs_done": epoch + 1, "loss": mean})
    segmenter.eval()
    segmenter.head.normalise_rows()
    return mean


def _batches(
    data: Samples, size: int, augment: Augment | None, generator: torch.Generator, workers: int
) -> Iterator[list[Sample]]:
    """One epoch in a fresh order. Each image has a seed of its own, so that workers do not change what comes."""
    order = torch.randperm(len(data), generator=generator).tolist()
    seeds = torch.randint(2**62, (len(data),), generator=generator).tolist()

    def prepare(k: int) -> Sample:
        sample = data[order[k]]
        return sample if augment is None else augment(sample, generator=seeded(seeds[k]))

    starts = range(0, len(order), size)
    if not workers:
        for start in starts:
            yield [prepare(k) for k in range(start, min(start + size, len(order)))]
        return
    with ThreadPoolExecutor(workers) as pool:
        ahead = [pool.submit(prepare, k) for k in range(min(2 * size, len(order)))]
        for start in starts:
            now, ahead = ahead[:size], ahead[size:]
            begin = start + 2 * size
            ahead += [pool.submit(prepare, k) for k in range(begin, min(begin + size, len(order)))]
            yield [job.result() for job in now]


def _workers(workers: int | None, fabric: Fabric) -> int:
    """On a GPU the host prepares images meanwhile; on a CPU that learns there is nobody left to do it."""
    if workers is not None:
        return workers
    return 0 if fabric.device.type == "cpu" else 8


def _save(
    folder: Path, segmenter: Segmenter, optimiser: Optimiser, generator: torch.Generator, note: dict[str, Any]
) -> None:
    document, weights = segmenter.to_state()
    groups = {
        "weights": weights,
        "optimiser": optimiser.buffers(),
        "generator": {"generator": generator.get_state()},
    }
    files = {f"{name}.safetensors": safetensors.torch.save(packed(group)) for name, group in groups.items()}
    storage.save_folder(folder, kind="fit", document={"segmenter": document, "fit": note}, files=files)


def _resume(
    folder: Path,
    segmenter: Segmenter,
    optimiser: Optimiser,
    generator: torch.Generator,
    identity: dict[str, Any],
) -> tuple[int, float]:
    """Take over the last finished epoch, if there is one. Returns how many are done, and the mean loss of the last."""
    if not (folder / storage.INDEX).exists():
        return 0, 0.0
    saved = storage.load_folder(folder, kind="fit")
    note = saved.document["fit"]
    differing = [k for k, v in identity.items() if note.get(k) != _plain(v)]
    if differing:
        raise storage.StateError(
            f"{folder} holds another training: its {', '.join(differing)} differ. Use another folder, or remove it."
        )
    segmenter.load_state_dict(safetensors.torch.load(saved.read("weights.safetensors")))
    optimiser.load_buffers(safetensors.torch.load(saved.read("optimiser.safetensors")))
    generator.set_state(safetensors.torch.load(saved.read("generator.safetensors"))["generator"])
    return int(note["epochs_done"]), float(note["loss"])


def _plain(value: Any) -> Any:
    """As JSON gives it back: tuples are lists."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
