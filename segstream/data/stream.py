"""One pass over pictures, batch by batch: what a learner meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from segstream.classes import UNLABELED, ClassTable
from segstream.data.scenario import Scenario
from segstream.data.source import DataError, Source
from segstream.data.views import SampleSet, slot_lookup
from segstream.types import Batch, NewClasses, Sample

__all__ = ["Repeated", "Stream"]

Item = NewClasses | Batch
Step = NewClasses | tuple[int, tuple[int, ...]]  # new classes, or a batch: which set of samples and which of them


class _Pass(Iterator[Item]):
    """Items by a plan made beforehand, so that any position can be taken up again."""

    def __init__(self, sets: Sequence[Sequence[Sample]], plan: Sequence[Step], start: int) -> None:
        if not 0 <= start <= len(plan):
            raise DataError(f"`start` is {start}, but the stream has {len(plan)} items.")
        self._sets = sets
        self._plan = plan
        self._position = start

    def __len__(self) -> int:
        """Number of all items, those before the start included."""
        return len(self._plan)

    @property
    def position(self) -> int:
        """Number of items that came so far, counted from the beginning."""
        return self._position

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self._position == len(self._plan):
            raise StopIteration
        step = self._plan[self._position]
        if isinstance(step, NewClasses):
            item: Item = step
        else:
            number, members = step
            item = Batch(tuple(self._sets[number][i] for i in members))
        self._position += 1
        return item


def _batches(count: int, number: int, *, batch: int, seed: int, turn: int) -> list[Step]:
    """A seeded order of `count` samples of set `number`, cut into batches; the last may be smaller."""
    if batch < 1:
        raise DataError(f"`batch` is {batch}; a batch holds at least one picture.")
    if seed < 0:
        raise DataError(f"`seed` is {seed}; it must be 0 or more.")
    order = np.random.default_rng([seed, turn]).permutation(count).tolist()
    return [(number, tuple(order[i : i + batch])) for i in range(0, count, batch)]


class Stream(_Pass):
    """The stages after the base: for each its new classes, then its pictures in batches, each picture once.

    A picture of stage t shows labels of the classes of stage t only; everything else but void is unlabelled. Iterating
    goes on from `position` and ends for good: a second pass needs a second stream.

    classes   the learner's table before the first stage; with `start`, also as it is at that position
    seed      decides the order of the pictures within each stage
    start     number of items to pass over: what follows is the same as if they had come
    indices   what `scenario.select(source)` gives, if it is known already

    >>> from segstream.data.wrap import wrap
    >>> pixels = np.zeros((1, 2, 3), np.uint8)
    >>> masks = np.array([[1, 2]]), np.array([[0, 2]]), np.array([[1, 1]])
    >>> source = wrap([(pixels, mask) for mask in masks], ["background", "road", "car"])
    >>> stream = Stream(source, Scenario(("road",), (("car",),)), classes=ClassTable(("road",)), batch=2)
    >>> new, batch = stream
    >>> new.names, sorted((s.id, s.mask.tolist()) for s in batch)
    (('car',), [('1/0', [[-1, 2]]), ('1/1', [[-1, 2]])])
    """

    def __init__(
        self,
        source: Source,
        scenario: Scenario,
        *,
        classes: ClassTable,
        batch: int = 4,
        seed: int = 0,
        start: int = 0,
        indices: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if not scenario.stages:
            raise DataError("The scenario has no stage after the base, so its stream would be empty.")
        values = scenario.values(source)
        chosen = scenario.select(source) if indices is None else indices
        plan: list[Step] = []
        sets: list[SampleSet] = []
        self._tables: list[tuple[int, ClassTable]] = [(0, classes)]
        for stage, names in enumerate(scenario.stages, start=1):
            if not chosen[stage]:
                raise DataError(f"No picture belongs to stage {stage} ({', '.join(names)}) under rule {scenario.rule}.")
            if not (len(plan) < start and all(name in classes for name in names)):
                classes = classes.extend(names)
            slots = {values[name]: classes.slot(name) for name in names}
            lookup = slot_lookup(len(source.names), slots, background=UNLABELED, others=UNLABELED)
            complete = frozenset(slots.values())
            sets.append(
                SampleSet(source, chosen[stage], lookup, prefix=f"{stage}/", complete=complete, known=len(classes))
            )
            plan.append(NewClasses(names))
            self._tables.append((len(plan), classes))
            plan += _batches(len(chosen[stage]), stage - 1, batch=batch, seed=seed, turn=stage)
        super().__init__(sets, plan, start)

    @property
    def classes(self) -> ClassTable:
        """The table as it is at this position."""
        return [table for begins, table in self._tables if begins <= self.position][-1]


class Repeated(_Pass):
    """The same samples again and again, each pass in an order of its own: teaching from a folder, not a benchmark.

    names   classes that come before the first batch; none if the learner knows them all

    >>> import torch
    >>> one = Sample(torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.int16), id="a", known=2)
    >>> [type(item).__name__ for item in Repeated([one, one, one], names=["car"], batch=2, passes=2)]
    ['NewClasses', 'Batch', 'Batch', 'Batch', 'Batch']
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        names: Sequence[str] = (),
        batch: int = 4,
        passes: int = 1,
        seed: int = 0,
        start: int = 0,
    ) -> None:
        if not samples:
            raise DataError("There is no picture to learn from.")
        if passes < 1:
            raise DataError(f"`passes` is {passes}; the pictures come at least once.")
        plan: list[Step] = [NewClasses(tuple(names))] if names else []
        for turn in range(passes):
            plan += _batches(len(samples), 0, batch=batch, seed=seed, turn=turn)
        super().__init__([samples], plan, start)
