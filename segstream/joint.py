"""The joint batch that one update sees, and what an objective counted on it.

B: images   H W: full size   K: slots, background included
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor

from segstream.classes import VOID, ClassTable
from segstream.collate import collate
from segstream.functional.label_space import impossible
from segstream.functional.nearest_mean import class_sums
from segstream.functional.objective import Objective, em_objective
from segstream.memory import Drawn, Evidence
from segstream.models import Segmenter
from segstream.types import Sample, UpdateReport

__all__ = ["Joint", "Statistics", "class_means", "taught"]


@dataclass(frozen=True, eq=False)
class Joint:
    """New and replayed images, stacked.

    images    uint8 [B, 3, H, W];   masks: int16 [B, H, W]
    excluded  bool [B, 2, K]        classes that an unlabelled (0) or annotated-background (1) pixel cannot be

    >>> one = Sample(torch.zeros(3, 2, 3, dtype=torch.uint8), torch.ones(2, 3, dtype=torch.int16), id="a", known=2)
    >>> joint = Joint.of([one, one, one], classes=ClassTable(("car",)), multiple=4)
    >>> list(joint.images.shape), len(joint.part(1, 2).images), bool((joint.part(3, 4).masks == VOID).all())
    ([3, 3, 4, 4], 1, True)
    """

    images: Tensor
    masks: Tensor
    excluded: Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample], *, classes: ClassTable, multiple: int) -> Joint:
        images, masks = collate(samples, multiple=multiple)
        complete, known = [s.complete for s in samples], [s.known for s in samples]
        return cls(images, masks, impossible(complete, known, slots=len(classes), retired=classes.retired))

    def part(self, rank: int, world: int) -> Joint:
        """Every world-th image from `rank` on. Every process must take part: a surplus one gets a void image."""
        if rank >= len(self.images):
            return Joint(self.images[:1], torch.full_like(self.masks[:1], VOID), self.excluded[:1])
        return Joint(self.images[rank::world], self.masks[rank::world], self.excluded[rank::world])

    def to(self, device: torch.device) -> Joint:
        moved = (x.to(device, non_blocking=True) for x in (self.images, self.masks, self.excluded))
        return Joint(*moved)


@dataclass(frozen=True, eq=False)
class Statistics:
    """What an objective counted over all processes; the last four are float64 [K] on the host.

    >>> from segstream.functional.objective import cross_entropy
    >>> found = cross_entropy(torch.zeros(1, 2, 1, 1), torch.ones(1, 1, 1, dtype=torch.int16))
    >>> Statistics.of(found, reduce=None).confidence_sum.tolist()
    [0.0, 0.5]
    """

    loss: float
    labelled: int
    latent: int
    kept: Tensor
    candidates: Tensor
    confidence_sum: Tensor
    confidence_count: Tensor

    @classmethod
    def of(cls, found: Objective, *, reduce: Callable[[Tensor], Tensor] | None) -> Statistics:
        loss = found.loss.detach()
        # To the host first: MPS has no float64.
        scalars = [x.cpu().to(torch.float64) for x in (loss, found.labelled, found.latent)]
        counts = (found.kept, found.candidates, found.confidence_sum, found.confidence_count)
        flat = torch.cat([torch.stack(scalars), *(c.to("cpu", torch.float64) for c in counts)])
        values = flat if reduce is None else reduce(flat)
        return cls(float(values[0]), int(values[1]), int(values[2]), *values[3:].chunk(4))

    def report(
        self,
        *,
        newest: Collection[int],
        drawn: Drawn | None,
        confidence: Mapping[int, float] | None,
        stored: int,
        memory: int,
        seconds: float,
    ) -> UpdateReport:
        """What one update did, in plain numbers."""
        classes = drawn.classes if drawn else ()
        return UpdateReport(
            updated=True,
            loss=self.loss,
            labelled=self.labelled,
            latent=self.latent,
            kept={k: float(self.kept[k] / n) for k, n in enumerate(self.candidates.tolist()) if n > 0},
            confidence=dict(confidence or {}),
            drawn=dict(Counter(classes)),
            new_share=sum(c in newest for c in classes) / len(classes) if classes else None,
            replayed=len(drawn.samples) if drawn else 0,
            stored=stored,
            memory=memory,
            seconds=seconds,
        )


def check_samples(samples: Sequence[Sample], classes: ClassTable) -> None:
    """Refuse what a model of these classes cannot take."""
    if not samples:
        raise ValueError("The batch is empty; it needs at least one image.")
    for sample in samples:
        if beyond := [s for s in sample.labels if s >= len(classes)]:
            raise ValueError(
                f"Image {sample.id!r} is labelled with slots {beyond}, but the model knows {len(classes)} "
                f"(0 to {len(classes) - 1}). Call add_classes first."
            )
        if gone := [classes.name(s) for s in sample.labels if s in classes.retired]:
            raise ValueError(f"Image {sample.id!r} is labelled with retired classes: {', '.join(gone)}.")
        if sample.known > len(classes) or any(c >= len(classes) for c in sample.complete):
            raise ValueError(
                f"Image {sample.id!r} says known={sample.known}, complete={sorted(sample.complete)}; "
                f"the model has only {len(classes)} slots."
            )


def taught(teacher: Segmenter | None, images: Tensor, fabric: Fabric) -> Tensor | None:
    """A teacher's logits [B, T, h, w] for a batch; None where there is none, or one that knows no class to teach.

    >>> fabric, images = Fabric(accelerator="cpu", devices=1), torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    >>> taught(Segmenter.create("tiny", weights=None).frozen(), images, fabric) is None
    True
    """
    if teacher is None or not teacher.classes.active:
        return None
    with torch.no_grad(), fabric.autocast():
        logits: Tensor = teacher(images)
    return logits


def given_confidence(segmenter: Segmenter, samples: Iterable[Sample], fabric: Fabric) -> dict[int, float]:
    """Mean probability of each foreground class over the pixels that were given its label; in eval mode."""
    slots = len(segmenter.classes)
    sums, counts = torch.zeros(2, slots, dtype=torch.float64)
    nothing = torch.zeros(1, 2, slots, dtype=torch.bool, device=fabric.device)
    segmenter.eval()
    with torch.no_grad(), fabric.autocast():
        for sample in samples:
            pair = collate([sample], multiple=segmenter.stride_multiple)
            images, masks = (x.to(fabric.device) for x in pair)
            found = em_objective(segmenter(images), masks, nothing, threshold=1.0, latent_weight=0.0)
            sums += found.confidence_sum.cpu()
            counts += found.confidence_count.cpu()
    return {k: float(sums[k] / counts[k]) for k in range(1, slots) if counts[k] > 0}


def given_evidence(segmenter: Segmenter, samples: Sequence[Sample], fabric: Fabric) -> list[Evidence]:
    """For the memory: how sure the network is of each class of an image, and the class's mean feature there.

    In eval mode, each image whole and by itself. A feature counts by the share of its cell that the class covers, so
    that no object is too small for one.
    """
    slots = len(segmenter.classes)
    nothing = torch.zeros(1, 2, slots, dtype=torch.bool, device=fabric.device)
    found = []
    segmenter.eval()
    for sample in samples:
        pair = collate([sample], multiple=segmenter.stride_multiple)
        images, masks = (x.to(fabric.device) for x in pair)
        with torch.no_grad(), fabric.autocast():
            features = segmenter.features(images)
            told = em_objective(segmenter.scores(features), masks, nothing, threshold=1.0, latent_weight=0.0)
        means = class_means(features.float(), masks, sample.labels)
        p = told.confidence_sum / told.confidence_count.clamp_min(1)
        found.append(Evidence({c: float(p[c]) for c in sample.labels}, {c: m.cpu().numpy() for c, m in means.items()}))
    return found if fabric.world_size == 1 else fabric.broadcast(found)


def class_means(features: Tensor, masks: Tensor, slots: Sequence[int]) -> dict[int, Tensor]:
    """Mean of the features, each of length 1, over each class's pixels: slot -> [D]; without the classes not there.

    features [B, D, h, w];  masks [B, H, W]

    >>> features = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    >>> class_means(features, torch.tensor([[[1, 0]]]), [1, 2])[1].tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    sums = class_sums(features, masks, slots=max(int(masks.max()), *slots, 0) + 1)
    pixels = {slot: int((masks == slot).sum()) for slot in slots}
    return {slot: sums[slot] / count for slot, count in pixels.items() if count}


def packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous and on the CPU, as a file wants them."""
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def drawing_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Inside, layers that draw (dropout) draw what `generator` decides; the global generators are left as they were.

    >>> layer, images = torch.nn.Dropout(), torch.ones(64)
    >>> found = []
    >>> for _ in range(2):
    ...     with drawing_from(seeded(0), torch.device("cpu")):
    ...         found.append(layer(images))
    >>> torch.equal(*found)
    True
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    else:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield
