"""Where exemplars lie: a list with places, and for each class a list of its members.

Taking one out fills its hole with the last, in the list and in each class's, so that nothing here looks at more
exemplars than the one it was asked about. Pixels are kept as `bytes`: nobody can write into them, they share
nothing with any tensor, and a million of them are no work for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from segstream.classes import UNLABELED
from segstream.memory.selection import Evidence
from segstream.types import Sample

__all__ = ["Exemplar", "IndexedShelf"]


@dataclass(slots=True, eq=False)
class Exemplar:
    """A stored sample; `arrival` tells how many were ever stored before it.

    >>> import torch
    >>> sample = Sample(torch.zeros(3, 4, 6, dtype=torch.uint8), torch.ones(4, 6, dtype=torch.int16), id="a")
    >>> exemplar = Exemplar.of(sample, arrival=0)
    >>> exemplar.nbytes, exemplar.sample().labels
    (120, (1,))
    """

    id: str
    image: bytes  # uint8 [3, H, W]
    mask: bytes  # int16 [H, W]
    size: tuple[int, int]
    complete: frozenset[int]
    known: int
    arrival: int
    evidence: Evidence | None = None  # what a network made of it when it was offered
    place: int = -1
    ranks: dict[int, int] = field(default_factory=dict)  # its classes, ascending: its place in each one's list

    @classmethod
    def of(cls, sample: Sample, *, arrival: int, evidence: Evidence | None = None) -> Exemplar:
        height, width = sample.mask.shape
        image, mask = sample.image.cpu().numpy().tobytes(), sample.mask.cpu().numpy().tobytes()
        return cls(sample.id, image, mask, (height, width), sample.complete, sample.known, arrival, evidence)

    @property
    def nbytes(self) -> int:
        return len(self.image) + len(self.mask)

    def sample(self) -> Sample:
        """A copy with tensors of its own."""
        image = torch.frombuffer(bytearray(self.image), dtype=torch.uint8).view(3, *self.size)
        mask = torch.frombuffer(bytearray(self.mask), dtype=torch.int16).view(*self.size)
        return Sample(image, mask, self.id, self.complete, self.known)

    def without(self, slots: Collection[int]) -> Exemplar:
        """The exemplar as if nobody had ever named these classes in it."""
        mask = np.frombuffer(self.mask, dtype=np.int16)
        mask = np.where(np.isin(mask, list(slots)), np.int16(UNLABELED), mask)
        evidence = None if self.evidence is None else self.evidence.without(list(slots))
        return replace(self, mask=mask.tobytes(), complete=self.complete.difference(slots), evidence=evidence)


class IndexedShelf:
    """Exemplars with places 0 .. len - 1, found by place, by id, and by class and rank.

    >>> import torch
    >>> shelf = IndexedShelf(capacity=5)
    >>> image = torch.zeros(3, 1, 2, dtype=torch.uint8)
    >>> for name, row in {"a": [1, 2], "b": [2, 2], "c": [1, 3]}.items():
    ...     sample = Sample(image, torch.tensor([row], dtype=torch.int16), name)
    ...     shelf.put(Exemplar.of(sample, arrival=shelf.arrivals), sample.labels)
    >>> shelf.take(0).id, [e.id for e in shelf.exemplars], shelf.counts()
    ('a', ['c', 'b'], {1: 1, 2: 1, 3: 1})
    """

    def __init__(self, *, capacity: int | None = None, capacity_bytes: int | None = None) -> None:
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes
        self.exemplars: list[Exemplar] = []
        self.by_id: dict[str, Exemplar] = {}
        self.members: dict[int, list[Exemplar]] = {}  # only of classes that have some
        self.nbytes = 0
        self.arrivals = 0

    # What a policy may ask (memory.policy.Shelf)

    def __len__(self) -> int:
        return len(self.exemplars)

    def fits(self, nbytes: int) -> bool:
        return (self.capacity is None or len(self) < self.capacity) and (
            self.capacity_bytes is None or self.nbytes + nbytes <= self.capacity_bytes
        )

    def count(self, slot: int) -> int:
        return len(self.members.get(slot, ()))

    def counts(self) -> dict[int, int]:
        return {slot: len(self.members[slot]) for slot in sorted(self.members)}

    def member(self, slot: int, rank: int) -> int:
        return self.members[slot][rank].place

    def labels(self, place: int) -> tuple[int, ...]:
        return tuple(self.exemplars[place].ranks)

    def arrival(self, place: int) -> int:
        return self.exemplars[place].arrival

    # What the memory does

    def put(self, exemplar: Exemplar, labels: Collection[int]) -> None:
        """Appends one that is new here, with its labels in ascending order."""
        exemplar.place = len(self.exemplars)
        self.exemplars.append(exemplar)
        self.by_id[exemplar.id] = exemplar
        self.nbytes += exemplar.nbytes
        self.arrivals += 1
        for slot in labels:
            self.join(exemplar, slot)

    def take(self, place: int) -> Exemplar:
        """Takes one out; the last exemplar moves into its place."""
        exemplar, last = self.exemplars[place], self.exemplars.pop()
        if last is not exemplar:
            self.exemplars[place] = last
            last.place = place
        del self.by_id[exemplar.id]
        self.nbytes -= exemplar.nbytes
        for slot in tuple(exemplar.ranks):
            self._leave(exemplar, slot)
        return exemplar

    def swap(self, old: Exemplar, new: Exemplar, labels: Collection[int]) -> None:
        """Puts a newer form of an exemplar in its place; in classes that both have it keeps its rank."""
        new.place = old.place
        self.exemplars[new.place] = self.by_id[new.id] = new
        self.nbytes += new.nbytes - old.nbytes
        for slot in tuple(old.ranks):
            if slot not in labels:
                self._leave(old, slot)
        new.ranks = {}
        for slot in labels:
            if slot in old.ranks:
                new.ranks[slot] = old.ranks[slot]
                self.members[slot][new.ranks[slot]] = new
            else:
                self.join(new, slot)

    def join(self, exemplar: Exemplar, slot: int) -> None:
        members = self.members.setdefault(slot, [])
        exemplar.ranks[slot] = len(members)
        members.append(exemplar)

    def _leave(self, exemplar: Exemplar, slot: int) -> None:
        members, rank = self.members[slot], exemplar.ranks.pop(slot)
        last = members.pop()
        if last is not exemplar:
            members[rank] = last
            last.ranks[slot] = rank
        if not members:
            del self.members[slot]
