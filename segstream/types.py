"""What flows between the parts: samples and batches in, predictions and reports out. Plain values, no behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from segstream.classes import VOID

__all__ = ["Batch", "NewClasses", "Prediction", "Sample", "UpdateReport"]


@dataclass(frozen=True, eq=False)
class Sample:
    """One image with what was said about it. Nobody writes into it.

    image     uint8 [3, H, W]
    mask      int16 [H, W]: a slot, UNLABELED or VOID
    id        its name; the memory replaces an exemplar that has the same one
    complete  slots of the classes that were annotated exhaustively in it (empty for strokes)
    known     number of slots, background included, that existed when it was labelled

    >>> import torch
    >>> sample = Sample(torch.zeros(3, 4, 6, dtype=torch.uint8), torch.ones(4, 6, dtype=torch.int16), id="a", known=2)
    >>> sample.labels
    (1,)
    """

    image: Tensor
    mask: Tensor
    id: str
    complete: frozenset[int] = frozenset()
    known: int = 1

    def __post_init__(self) -> None:
        if self.image.dtype != torch.uint8 or self.image.ndim != 3 or self.image.shape[0] != 3:
            raise ValueError(
                f"Image {self.id!r} is {self.image.dtype} of shape {list(self.image.shape)}; expected uint8 [3, H, W]."
            )
        if self.mask.dtype != torch.int16 or self.mask.ndim != 2:
            raise ValueError(
                f"The mask of {self.id!r} is {self.mask.dtype} of shape {list(self.mask.shape)}; expected int16 [H, W]."
            )
        if self.image.shape[1:] != self.mask.shape:
            raise ValueError(
                f"Image {self.id!r} is {list(self.image.shape[1:])} but its mask is {list(self.mask.shape)} (H, W)."
            )
        if self.mask.numel() == 0:
            raise ValueError(f"Image {self.id!r} has no pixels.")
        if int(self.mask.min()) < VOID:
            raise ValueError(
                f"The mask of {self.id!r} holds {int(self.mask.min())}; the lowest value is {VOID} (void)."
            )
        if 0 in self.complete or any(c < 0 for c in self.complete):
            raise ValueError(
                f"`complete` of {self.id!r} names slot {min(self.complete)}; only foreground classes belong there."
            )
        if self.known < 1:
            raise ValueError(f"`known` of {self.id!r} is {self.known}; it counts slots and the background is one.")

    @property
    def labels(self) -> tuple[int, ...]:
        """Foreground slots that occur in the mask, ascending."""
        counts = torch.bincount(self.mask.flatten().clamp_min(0).to(torch.int64))
        return tuple(int(s) for s in counts.nonzero().flatten().tolist() if s >= 1)

    @property
    def nbytes(self) -> int:
        return self.image.nbytes + self.mask.nbytes


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples that arrive together, of any sizes.

    >>> import torch
    >>> image, mask = torch.zeros(3, 4, 6, dtype=torch.uint8), torch.ones(4, 6, dtype=torch.int16)
    >>> batch = Batch.of([image], [mask], ids=["a"], complete=[{1}], known=[2])
    >>> len(batch), batch.ids
    (1, ('a',))
    """

    samples: tuple[Sample, ...]

    @classmethod
    def of(
        cls,
        images: Sequence[Tensor],
        masks: Sequence[Tensor],
        *,
        ids: Sequence[str],
        complete: Sequence[frozenset[int] | set[int]] | None = None,
        known: Sequence[int] | int = 1,
    ) -> Batch:
        n = len(images)
        complete = [frozenset()] * n if complete is None else complete
        known = [known] * n if isinstance(known, int) else known
        if not n == len(masks) == len(ids) == len(complete) == len(known):
            raise ValueError(
                f"{n} images, {len(masks)} masks, {len(ids)} ids, {len(complete)} `complete` and {len(known)} `known`: "
                "a batch needs one of each for every image."
            )
        rows = zip(images, masks, ids, complete, known, strict=True)
        return cls(tuple(Sample(i, m, name, frozenset(c), k) for i, m, name, c, k in rows))

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    @property
    def images(self) -> tuple[Tensor, ...]:
        return tuple(s.image for s in self.samples)

    @property
    def masks(self) -> tuple[Tensor, ...]:
        return tuple(s.mask for s in self.samples)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(s.id for s in self.samples)


@dataclass(frozen=True)
class NewClasses:
    """From here on these classes are known too: the only stage boundary there is.

    >>> NewClasses(("sofa",)).names
    ('sofa',)
    """

    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Prediction:
    """For each image its classes (int16 [H, W]) and the probability of the class shown (float32 [H, W]).

    >>> Prediction((torch.ones(2, 2, dtype=torch.int16),), (torch.full((2, 2), 0.9),)).masks[0].tolist()
    [[1, 1], [1, 1]]
    """

    masks: tuple[Tensor, ...]
    confidence: tuple[Tensor, ...]


@dataclass(frozen=True)
class UpdateReport:
    """What one `learn` did, in plain numbers. Classes are given by slot.

    updated     whether the optimiser stepped (not where nothing entered the loss)
    loss        the loss before the step
    labelled    pixels with a label that was given; `latent`: those without
    kept        for each class the share of the latent pixels named so that passed the threshold
    confidence  E(c) after the update;  drawn: how often each class was drawn for replay
    new_share   share of these draws that went to classes of the newest stage
    replayed    exemplars learned again;  stored: images of the batch that the memory took;  memory: its size

    >>> UpdateReport(updated=True, loss=0.5, labelled=10).to_json()["loss"]
    0.5
    """

    updated: bool
    loss: float | None = None
    labelled: int = 0
    latent: int = 0
    kept: Mapping[int, float] = field(default_factory=dict)
    confidence: Mapping[int, float] = field(default_factory=dict)
    drawn: Mapping[int, int] = field(default_factory=dict)
    new_share: float | None = None
    replayed: int = 0
    stored: int = 0
    memory: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        for name in ("kept", "confidence", "drawn"):
            plain[name] = {str(k): v for k, v in plain[name].items()}
        return plain
