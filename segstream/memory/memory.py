"""The memory: labelled images of the past, at most so many of them, from which methods draw to learn them again."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from segstream import plugins
from segstream.memory.policy import Offer, Policy, below, fraction, words
from segstream.memory.selection import Candidate, Evidence, Selection
from segstream.memory.shelf import Exemplar, IndexedShelf
from segstream.memory.states import shelf_from_state, shelf_state
from segstream.types import Sample

__all__ = ["Drawn", "Memory"]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Copies of exemplars; `classes` names the class that each was drawn for (empty where none was asked for).

    >>> len(Drawn()), Drawn().classes
    (0, ())
    """

    samples: tuple[Sample, ...] = ()
    classes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)


class Memory:
    """Exemplars within a capacity, chosen by a policy. Offering and drawing cost the same for any number of them.

    capacity        at most so many exemplars (None: no such bound)
    capacity_bytes  at most so many bytes of pixels, 5 for each: 3 of the image, 2 of the mask (None: no such bound)
    policy          who stays: a plug-in's name or an object
    max_side        an image with a longer side is scaled down to it, once, when it is stored

    Images are stored as they came otherwise: no crops, no pseudo labels, nothing shared with the caller. An image
    without labelled classes, or larger than the whole capacity, is not stored and moves no counter.

    >>> import torch
    >>> memory, dice = Memory(capacity=2, policy="class_balanced"), torch.Generator().manual_seed(0)
    >>> image, mask = torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.int16)
    >>> [memory.offer(Sample(image, mask * c, f"{c}"), active=(1, 2, 3), generator=dice) for c in (1, 2, 3)]
    [True, True, True]
    >>> len(memory), memory.counts()
    (2, {2: 1, 3: 1})
    >>> memory.draw(4, generator=dice, class_weights={1: 0.5, 2: 0.5}).classes
    (2, 2, 2, 2)
    """

    def __init__(
        self,
        *,
        capacity: int | None = 100,
        capacity_bytes: int | None = None,
        policy: str | Policy = "reservoir",
        max_side: int = 2048,
    ) -> None:
        for name, value in (("capacity", capacity), ("capacity_bytes", capacity_bytes)):
            if value is not None and value < 0:
                raise ValueError(f"`{name}` is {value}; it must be 0 or more, or None for no such bound.")
        if capacity is None and capacity_bytes is None:
            raise ValueError("A memory needs a bound: give `capacity`, `capacity_bytes` or both.")
        if max_side < 1:
            raise ValueError(f"`max_side` is {max_side}; an image has at least one pixel on a side.")
        found = plugins.load("policies", policy)() if isinstance(policy, str) else policy
        if not isinstance(found, Policy):
            raise TypeError(f"{policy!r} gives a {type(found).__name__}; a policy is a segstream.memory.Policy.")
        self.policy: Policy = found
        self.max_side = max_side
        self._policy_name = policy if isinstance(policy, str) else _name_of(policy)
        self._shelf = IndexedShelf(capacity=capacity, capacity_bytes=capacity_bytes)

    # What is in it

    def __len__(self) -> int:
        return len(self._shelf)

    def __iter__(self) -> Iterator[Sample]:
        """Copies of all exemplars, in an order that only offers and removals change."""
        return (exemplar.sample() for exemplar in tuple(self._shelf.exemplars))

    @property
    def nbytes(self) -> int:
        return self._shelf.nbytes

    def ids(self) -> tuple[str, ...]:
        return tuple(exemplar.id for exemplar in self._shelf.exemplars)

    def has(self, id: str) -> bool:
        return id in self._shelf.by_id

    def counts(self) -> dict[int, int]:
        """How many exemplars have labelled pixels of each class, by ascending slot; an image counts for every one."""
        return self._shelf.counts()

    def settings(self) -> dict[str, Any]:
        """What `Memory(...)` was called with, the policy by its name."""
        shelf = self._shelf
        sizes = {"capacity": shelf.capacity, "capacity_bytes": shelf.capacity_bytes}
        return {**sizes, "policy": self._policy_name, "max_side": self.max_side}

    # In

    def offer(self, sample: Sample, *, active: Sequence[int], generator: torch.Generator) -> bool:
        """Whether the image is in the memory now. `active`: all foreground slots known and not retired.

        An exemplar with the same id is replaced where it lies, whatever the policy thinks, and no counter moves. An
        offer without labels changes nothing, not even then: `forget` is the verb for labels that were taken back.
        """
        sample = _bounded(sample, self.max_side)
        labels = _check_labels(sample, active)
        if not labels:
            return False
        if isinstance(self.policy, Selection):
            return bool(self.offer_all([sample], active=active, generator=generator))
        shelf = self._shelf
        old = shelf.by_id.get(sample.id)
        if old is not None:
            return self._replace(old, sample, labels, generator)
        if not self._could_hold(sample):
            return False
        offered = Offer(labels=labels, active=tuple(active), nbytes=sample.nbytes)
        victim = self.policy.admit(offered, shelf, generator=generator)
        if victim is None:
            return False
        while not shelf.fits(sample.nbytes):
            shelf.take(victim())
        shelf.put(Exemplar.of(sample, arrival=shelf.arrivals), labels)
        return True

    def offer_all(
        self,
        samples: Sequence[Sample],
        *,
        active: Sequence[int],
        generator: torch.Generator,
        evidence: Sequence[Evidence] | None = None,
    ) -> int:
        """How many of these are in the memory now. A policy that chooses among all images sees them together.

        evidence   for such a policy: what a network made of each sample

        >>> memory, image = Memory(capacity=2), torch.zeros(3, 2, 2, dtype=torch.uint8)
        >>> samples = [Sample(image, torch.ones(2, 2, dtype=torch.int16), name) for name in "ab"]
        >>> memory.offer_all(samples, active=(1,), generator=torch.Generator())
        2
        """
        if not isinstance(self.policy, Selection):
            return sum(self.offer(s, active=active, generator=generator) for s in samples)
        told: Sequence[Evidence | None] = [None] * len(samples) if evidence is None else evidence
        new: dict[str, tuple[Sample, Candidate]] = {}
        for i, (sample, known) in enumerate(zip(samples, told, strict=True)):
            small = _bounded(sample, self.max_side)
            _check_labels(small, active)
            if small.labels:
                arrival = self._shelf.arrivals + i
                new[sample.id] = small, Candidate(sample.id, small.labels, known, arrival)
        self._choose(self.policy, new, active)
        return sum(self.has(id) for id in new)

    def _choose(self, policy: Selection, new: Mapping[str, tuple[Sample, Candidate]], active: Sequence[int]) -> None:
        shelf = self._shelf
        stored = [Candidate(e.id, tuple(e.ranks), e.evidence, e.arrival) for e in shelf.exemplars if e.id not in new]
        room = shelf.capacity if shelf.capacity is not None else len(stored) + len(new)
        kept: dict[str, None] = {}
        left = shelf.capacity_bytes
        for one in policy.choose([*stored, *(c for _, c in new.values())], room=room, active=active):
            size = new[one.id][0].nbytes if one.id in new else shelf.by_id[one.id].nbytes
            if left is None or size <= left:
                kept[one.id] = None
                left = None if left is None else left - size
        for exemplar in tuple(shelf.exemplars):
            if exemplar.id in new or exemplar.id not in kept:
                shelf.take(exemplar.place)
        for id, (sample, one) in new.items():
            if id in kept:
                shelf.put(Exemplar.of(sample, arrival=shelf.arrivals, evidence=one.evidence), one.labels)

    def _replace(self, old: Exemplar, sample: Sample, labels: tuple[int, ...], generator: torch.Generator) -> bool:
        shelf, new = self._shelf, Exemplar.of(sample, arrival=old.arrival)
        limit = shelf.capacity_bytes
        if limit is None or shelf.nbytes - old.nbytes + new.nbytes <= limit:
            shelf.swap(old, new, labels)
            return True
        # It grew too large for the room that is left: what it was is outdated and goes, then others until it fits.
        shelf.take(old.place)
        if not self._could_hold(sample):
            return False
        while not shelf.fits(new.nbytes):
            shelf.take(self.policy.make_room(shelf, generator=generator))
        shelf.put(new, labels)
        return True

    def _could_hold(self, sample: Sample) -> bool:
        count, size = self._shelf.capacity, self._shelf.capacity_bytes
        return (count is None or count > 0) and (size is None or sample.nbytes <= size)

    # Out

    def draw(self, n: int, *, generator: torch.Generator, class_weights: Mapping[int, float] | None = None) -> Drawn:
        """Copies of `n` exemplars, in random order.

        Without weights: uniformly and without replacement, all of a smaller memory, none of an empty one. With
        weights: `n` times a class by weight, then any exemplar of it, with replacement. Classes without an exemplar
        are left out and the other weights count in proportion; if no class is left, nothing is drawn.
        """
        if n < 0:
            raise ValueError(f"{n} exemplars cannot be drawn.")
        exemplars = self._shelf.exemplars
        if class_weights is None:
            return Drawn(tuple(exemplars[p].sample() for p in _places(len(self), min(n, len(self)), generator)))
        odds = self._odds(class_weights)
        if not odds or not n:
            return Drawn()
        slots, edges = tuple(odds), tuple(accumulate(odds.values()))
        dice = words(2 * n, generator=generator)
        classes = tuple(slots[bisect_right(edges, fraction(w) * edges[-1], hi=len(edges) - 1)] for w in dice[:n])
        ranks = (below(self._shelf.count(c), w) for c, w in zip(classes, dice[n:], strict=True))
        places = (self._shelf.member(c, rank) for c, rank in zip(classes, ranks, strict=True))
        return Drawn(tuple(exemplars[p].sample() for p in places), classes)

    def _odds(self, weights: Mapping[int, float]) -> dict[int, float]:
        for c, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"The weight of slot {c} is {weight}; weights must be finite and 0 or more.")
        return {c: weights[c] for c in sorted(weights) if weights[c] > 0 and self._shelf.count(c)}

    def forget(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Removes these exemplars, all or, if one is unknown, none. Gives the ids that went."""
        if isinstance(ids, str):
            raise ValueError(f"Give a list of ids, not the single text {ids!r}.")
        wanted = tuple(dict.fromkeys(ids))
        if unknown := [id for id in wanted if not self.has(id)]:
            raise ValueError(
                f"The memory of {len(self)} exemplars holds none with the id {', '.join(map(repr, unknown))}."
            )
        for id in wanted:
            self._shelf.take(self._shelf.by_id[id].place)
        return wanted

    def retire(self, slots: Iterable[int]) -> tuple[str, ...]:
        """Makes the pixels of these classes unlabelled and `complete` silent about them.

        Exemplars that are left without labels go; gives their ids.
        """
        gone = frozenset(slots)
        if gone and min(gone) < 1:
            raise ValueError(f"Slot {min(gone)} cannot be retired; only foreground classes (1 and up) can.")
        emptied = []
        for exemplar in tuple(self._shelf.exemplars):
            labels = [slot for slot in exemplar.ranks if slot not in gone]
            if not labels:
                emptied.append(exemplar.id)
                self._shelf.take(exemplar.place)
            elif len(labels) < len(exemplar.ranks) or exemplar.complete & gone:
                self._shelf.swap(exemplar, exemplar.without(gone), labels)
        return tuple(emptied)

    # Whole

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything: readable facts for JSON, and pixels and tables as tensors."""
        facts, tensors = shelf_state(self._shelf)
        policy = {"settings": self.policy.settings(), "state": self.policy.state()}
        return {"settings": self.settings(), "policy": policy, **facts}, tensors

    @classmethod
    def from_state(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], *, policy: Policy | None = None
    ) -> Memory:
        """The memory that gave this state; all later draws and decisions are the same.

        `policy`: an object to go on with, needed where the one that was used is no plug-in; its counters are set.
        """
        settings, kept = document["settings"], document["policy"]
        name = settings["policy"]
        if policy is None:
            if name not in plugins.available("policies"):
                raise ValueError(f"The memory's policy was {name}, which is no plug-in here; give one as `policy`.")
            policy = plugins.load("policies", name)(**kept["settings"])
        memory = cls(**{**settings, "policy": policy})
        memory._policy_name = name
        memory.policy.load_state(kept["state"])
        shelf_from_state(memory._shelf, document, tensors)
        return memory


def _check_labels(sample: Sample, active: Sequence[int]) -> tuple[int, ...]:
    """The sample's labels, all of them active."""
    labels = sample.labels
    if foreign := sorted(set(labels).difference(active)):
        raise ValueError(f"The mask of {sample.id!r} holds slots {foreign}; the active classes are {list(active)}.")
    return labels


def _name_of(policy: Policy) -> str:
    """The plug-in's name of an object of ours; a name that is no plug-in's for anything else."""
    module = type(policy).__module__
    package, _, name = module.rpartition(".")
    return name if package == plugins.KINDS["policies"] else f"{module}:{type(policy).__qualname__}"


def _places(size: int, n: int, generator: torch.Generator) -> list[int]:
    """`n` different places of 0 .. size - 1, in random order: a shuffle's first steps on a list never written out."""
    moved: dict[int, int] = {}
    places = []
    for i, word in enumerate(words(n, generator=generator) if n else ()):
        j = i + below(size - i, word)
        places.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return places


def _bounded(sample: Sample, max_side: int) -> Sample:
    """The sample, scaled down if it is larger: the image smoothly, the mask by its nearest pixels."""
    height, width = sample.mask.shape
    if max(height, width) <= max_side:
        return sample
    shrink = max_side / max(height, width)
    h, w = max(1, round(height * shrink)), max(1, round(width * shrink))
    image = interpolate(sample.image[None].float(), size=(h, w), mode="bilinear", antialias=True)[0]
    rows, columns = (((2 * torch.arange(new) + 1) * old) // (2 * new) for new, old in ((h, height), (w, width)))
    mask = sample.mask[rows.to(sample.mask.device)][:, columns.to(sample.mask.device)]
    return replace(sample, image=image.round().clamp(0, 255).to(torch.uint8), mask=mask)
