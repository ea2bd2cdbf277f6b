"""Who stays in the memory: the base of all policies, what a policy sees, and its dice.

A policy never sees the memory itself, pixels or the network: only an `Offer` (what is on the new image) and a
`Shelf` (what is stored, read-only). It names exemplars by their place, 0 .. len(shelf) - 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

import torch

__all__ = ["Offer", "Policy", "Shelf", "Victim", "below", "fraction", "words"]

Victim = Callable[[], int]
"""Names the place of the next exemplar to drop; asked again for as long as the new image does not fit."""

_BITS = 53  # of a random word: as many as a Python float holds exactly


def words(count: int, *, generator: torch.Generator) -> list[int]:
    """`count` random whole numbers of 53 bits, by a single call of the generator.

    >>> import torch
    >>> all(0 <= w < 2**53 for w in words(3, generator=torch.Generator().manual_seed(0)))
    True
    """
    drawn: list[int] = torch.randint(1 << _BITS, (count,), generator=generator, device=generator.device).tolist()
    return drawn


def below(bound: int, word: int) -> int:
    """The random word as a number in 0 .. bound - 1, each as likely as the others.

    >>> below(10, 0), below(10, 2**53 - 1)
    (0, 9)
    """
    return word * bound >> _BITS


def fraction(word: int) -> float:
    """The random word as a number in [0, 1).

    >>> fraction(0), fraction(2**52)
    (0.0, 0.5)
    """
    return word / (1 << _BITS)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a policy is told of the image that is offered.

    labels   its foreground slots, ascending, at least one
    active   all foreground slots known now and not retired (the paper's Y_t)
    nbytes   what it takes of a capacity in bytes

    >>> Offer(labels=(2,), active=(1, 2), nbytes=80).labels
    (2,)
    """

    labels: tuple[int, ...]
    active: tuple[int, ...]
    nbytes: int


class Shelf(Protocol):
    """What a policy sees of the stored exemplars. Every question costs the same for any number of them."""

    def __len__(self) -> int:
        """Number of exemplars."""
        ...

    def fits(self, nbytes: int) -> bool:
        """Whether one more exemplar of this size fits now."""
        ...

    def count(self, slot: int) -> int:
        """|M^c|: the exemplars with labelled pixels of a class."""
        ...

    def counts(self) -> dict[int, int]:
        """The same for every class that has an exemplar, by ascending slot."""
        ...

    def member(self, slot: int, rank: int) -> int:
        """Place of the exemplar number `rank` (0 .. count - 1) of a class."""
        ...

    def labels(self, place: int) -> tuple[int, ...]:
        """Foreground slots of the exemplar at a place, ascending."""
        ...

    def arrival(self, place: int) -> int:
        """How many exemplars had ever been stored before this one: the smallest is the oldest."""
        ...


class Policy(ABC):
    """Base of all policies: subclass it in one file of `memory/policies` and implement `admit`.

    A policy with settings is a keyword-only dataclass: its fields are its settings. Counters are attributes that
    `state` and `load_state` carry.

    >>> import torch
    >>> from segstream.memory import Memory
    >>> from segstream.types import Sample
    >>> class FirstComeFirstServed(Policy):
    ...     def admit(self, offer, shelf, *, generator):
    ...         return (lambda: self.make_room(shelf, generator=generator)) if shelf.fits(offer.nbytes) else None
    >>> memory, dice = Memory(capacity=1, policy=FirstComeFirstServed()), torch.Generator()
    >>> image, mask = torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.int16)
    >>> [memory.offer(Sample(image, mask, name), active=(1,), generator=dice) for name in "ab"], memory.ids()
    ([True, False], ('a',))
    """

    @abstractmethod
    def admit(self, offer: Offer, shelf: Shelf, *, generator: torch.Generator) -> Victim | None:
        """None: the image is not stored. Otherwise it is, after exemplars that the answer names are dropped.

        Called once for each labelled image with a new id: this is where counters move. The answer is asked only
        while the image does not fit, so never if it fits at once.
        """

    def make_room(self, shelf: Shelf, *, generator: torch.Generator) -> int:
        """Whom to drop where there is no more than the lack of room to go by: anyone."""
        return below(len(shelf), words(1, generator=generator)[0])

    def settings(self) -> dict[str, Any]:
        """The fields of a dataclass that its constructor takes."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init} if is_dataclass(self) else {}

    def state(self) -> dict[str, Any]:
        """Counters, as plain data for JSON."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} has no counters, but the saved state holds {', '.join(state)}.")
