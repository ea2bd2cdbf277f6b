"""The smallest world in which a method can be right or wrong: coloured squares on grey noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from segstream.classes import BACKGROUND, UNLABELED, VOID
from segstream.memory import Memory
from segstream.method import Method
from segstream.models import Segmenter
from segstream.types import Batch, Sample

__all__ = ["COLORS", "make", "require", "same", "snapshot", "square", "squares"]

COLORS = {1: (210, 40, 40), 2: (40, 60, 210), 3: (40, 190, 60)}


def require(condition: bool, message: str) -> None:
    """Raise with a sentence: these checks also run where `assert` is switched off."""
    if not condition:
        raise AssertionError(message)


def square(
    slot: int, seed: int, *, size: int = 24, rest: int = BACKGROUND, known: int = 2, complete: Sequence[int] = ()
) -> Sample:
    """A square of the slot's colour; every other pixel is `rest`."""
    generator = torch.Generator().manual_seed(1000 * slot + seed)
    image = torch.randint(90, 160, (3, size, size), generator=generator, dtype=torch.int16)
    top, left = torch.randint(1, size // 2, (2,), generator=generator).tolist()
    side = size // 2 - 2
    mask = torch.full((size, size), rest, dtype=torch.int16)
    mask[top : top + side, left : left + side] = slot
    for channel, value in enumerate(COLORS[slot]):
        noise = torch.randint(-20, 20, (side, side), generator=generator, dtype=torch.int16)
        image[channel, top : top + side, left : left + side] = value + noise
    name = f"{slot}/{seed}"
    return Sample(image.clamp(0, 255).to(torch.uint8), mask, id=name, complete=frozenset(complete), known=known)


def squares(slot: int, seeds: Sequence[int], **facts: Any) -> Batch:
    return Batch(tuple(square(slot, seed, **facts) for seed in seeds))


def make(cls: type[Method], *, network: str = "tiny", capacity: int = 6, **settings: Any) -> Method:
    """A method over a tiny network that knows one class, with some squares of it in memory."""
    head = cls(Segmenter.create("tiny", weights=None), **settings).head() or "linear"
    segmenter = Segmenter.create(network, weights=None, classes=["red"], head=head, seed=3)
    memory = None if cls.default_policy is None else Memory(capacity=capacity, policy=cls.default_policy)
    method = cls(segmenter, memory=memory, **({"seed": 5, "lr": 0.05} | settings))
    method.remember(squares(1, range(4), complete=[1]))
    return method


def snapshot(method: Method) -> dict[str, Tensor]:
    """Everything that an update could change."""
    state = {f"weights.{k}": v.clone() for k, v in method.segmenter.to_state()[1].items()}
    state |= {f"optimiser.{k}": v.clone() for k, v in method.optimiser.buffers().items()}
    state["generator"] = method.generator.get_state().clone()
    if method.teacher is not None:
        state |= {f"teacher.{k}": v.clone() for k, v in method.teacher.to_state()[1].items()}
    evidence = {} if method.memory is None else method.memory.state()[1]
    state |= {f"memory.{k}": evidence[k].clone() for k in ("measured", "confidence", "vectors") if k in evidence}
    for i, exemplar in enumerate(method.memory or ()):
        state |= {f"memory.{i}.{exemplar.id}.image": exemplar.image.clone(), f"memory.{i}.mask": exemplar.mask.clone()}
    return state


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def nothing_said(seed: int, *, void: bool) -> Sample:
    """An image about which nobody said anything, or of which nothing may be used."""
    sample = square(1, seed)
    mask = torch.full_like(sample.mask, VOID if void else UNLABELED)
    return Sample(sample.image, mask, id=f"nothing/{seed}", known=1)
