"""What every memory policy promises."""

from __future__ import annotations

import numpy as np
import torch

from segstream.checks.squares import require, square
from segstream.memory import Evidence, Memory
from segstream.types import Sample

__all__ = ["check_policy"]


def _evidence(k: int) -> Evidence:
    """What a network might have made of the image that was offered as number k."""
    dice = np.random.default_rng(k)
    return Evidence({1 + k % 3: float(dice.random())}, {1 + k % 3: dice.random(4, np.float32)})


def _offer(memory: Memory, sample: Sample, k: int, generator: torch.Generator) -> None:
    memory.offer_all([sample], active=(1, 2, 3), generator=generator, evidence=[_evidence(k)])


def _stream(memory: Memory, generator: torch.Generator, steps: int) -> list[str]:
    """Offer squares of three classes, some of them without labels; returns the ids after each step, joined."""
    seen = []
    for k in range(steps):
        sample = square(1 + k % 3, k, size=8, known=4)
        if k % 7 == 6:
            sample = Sample(sample.image, torch.full_like(sample.mask, -1), id=f"nothing/{k}")
        _offer(memory, sample, k, generator)
        require(len(memory) <= 5, f"After {k + 1} offers the memory holds {len(memory)} of at most 5 exemplars.")
        seen.append(" ".join(memory.ids()))
    return seen


def check_policy(name: str) -> None:
    """Capacity is never exceeded, the seed decides, unlabelled images stay out, and the state is whole.

    >>> check_policy("reservoir")
    """
    memory, generator = Memory(capacity=5, policy=name), torch.Generator().manual_seed(1)
    first = _stream(memory, generator, 40)
    require(len(memory) == 5, f"After 40 offers the memory holds {len(memory)} of 5 exemplars.")
    require(not any("nothing" in ids for ids in first), "An image without a label was stored.")
    again = _stream(Memory(capacity=5, policy=name), torch.Generator().manual_seed(1), 40)
    require(first == again, "Two memories with the same seed hold different exemplars.")
    copy = Memory.from_state(*memory.state())
    require(copy.ids() == memory.ids(), "A memory made from its state holds other exemplars.")
    for k in range(40, 60):
        sample = square(1 + k % 3, k, size=8, known=4)
        states = generator.get_state()
        _offer(memory, sample, k, generator)
        _offer(copy, sample, k, torch.Generator().set_state(states))
        require(copy.ids() == memory.ids(), "A memory made from its state goes on differently: a counter is missing.")
