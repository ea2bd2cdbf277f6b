"""The same pictures seen by a learner, by a judge and by a teacher: file numbering becomes slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from segstream.classes import BACKGROUND, UNLABELED, VOID, ClassTable
from segstream.data.scenario import Scenario
from segstream.data.source import DataError, Source
from segstream.types import Sample

__all__ = ["BaseSet", "JointSet", "PartlyLabelled", "SampleSet", "TestSet", "relabel", "slot_lookup"]


def slot_lookup(
    count: int, slots: Mapping[int, int], *, background: int, others: int, unlabeled: int = UNLABELED
) -> npt.NDArray[np.int16]:
    """Lookup from file numbering (`count` classes, UNLABELED, VOID) to slots, for `relabel`.

    slots        mask value to slot;  background, others, unlabeled: what value 0, the remaining classes and
                 UNLABELED become

    >>> slot_lookup(3, {2: 7}, background=0, others=-1).tolist()
    [0, -1, 7, -2, -1]
    """
    lookup = np.full(count + 2, others, dtype=np.int16)
    lookup[BACKGROUND] = background
    for value, slot in slots.items():
        lookup[value] = slot
    lookup[UNLABELED] = unlabeled  # -1 and -2 count from the end, for the lookup as for the masks
    lookup[VOID] = VOID
    return lookup


def relabel(mask: Tensor, lookup: npt.NDArray[np.int16]) -> Tensor:
    """A new mask through a lookup of `slot_lookup`.

    >>> relabel(torch.tensor([[0, 2, -2]], dtype=torch.int16), slot_lookup(3, {2: 7}, background=0, others=-1)).tolist()
    [[0, 7, -2]]
    """
    return torch.from_numpy(np.take(lookup, mask.numpy(), mode="wrap"))


class SampleSet(Sequence[Sample]):
    """Some pictures of a source as samples, by number, read when asked for.

    >>> from segstream.data.wrap import wrap
    >>> pixels = np.zeros((1, 2, 3), np.uint8)
    >>> source = wrap([(pixels, np.array([[0, 1]]))], ["background", "car"])
    >>> lookup = slot_lookup(2, {1: 5}, background=0, others=0)
    >>> SampleSet(source, [0], lookup, prefix="0/", known=6)[0].mask.tolist()
    [[0, 5]]
    """

    def __init__(
        self,
        source: Source,
        indices: Sequence[int],
        lookup: npt.NDArray[np.int16],
        *,
        prefix: str = "",
        complete: frozenset[int] = frozenset(),
        known: int = 1,
    ) -> None:
        self.source = source
        self.indices = tuple(indices)
        self.complete = complete
        self.known = known
        self._lookup = lookup
        self._prefix = prefix
        self._ids = source.ids

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._prefix + self._ids[i] for i in self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> Sample:  # type: ignore[override]  # one at a time: a slice would load all of it
        index = self.indices[i]
        image, mask = self.source.load(index)
        mask = relabel(mask, self._lookup)
        return Sample(image, mask, self._prefix + self._ids[index], complete=self.complete, known=self.known)

    def __iter__(self) -> Iterator[Sample]:
        # The inherited one would take an IndexError from a broken source for the end of the set.
        return (self[i] for i in range(len(self)))


def _slots(names: Iterable[str], values: Mapping[str, int], table: ClassTable) -> dict[int, int]:
    return {values[name]: table.slot(name) for name in names}


def _known(slots: Mapping[int, int]) -> int:
    return 1 + max(slots.values(), default=BACKGROUND)


class BaseSet(SampleSet):
    """Stage 0: the base classes are labelled exhaustively; all else, later classes too, is annotated background.

    indices   what `scenario.select(source)[0]` gives; left out, it is asked for

    >>> from segstream.data.wrap import wrap
    >>> pixels = np.zeros((1, 2, 3), np.uint8)
    >>> source = wrap([(pixels, np.array([[1, 2]]))], ["background", "road", "car"])
    >>> sample = BaseSet(source, Scenario(("road",), (("car",),)), ClassTable(("road",)))[0]
    >>> sample.mask.tolist(), sorted(sample.complete), sample.known
    ([[1, 0]], [1], 2)
    """

    def __init__(
        self, source: Source, scenario: Scenario, table: ClassTable, indices: Sequence[int] | None = None
    ) -> None:
        slots = _slots(scenario.base, scenario.values(source), table)
        super().__init__(
            source,
            scenario.select(source)[0] if indices is None else indices,
            slot_lookup(len(source.names), slots, background=BACKGROUND, others=BACKGROUND),
            prefix="0/",
            complete=frozenset(slots.values()),
            known=_known(slots),
        )


class JointSet(SampleSet):
    """Every picture of any stage, with all labels of all classes: what offline training of the bound sees.

    >>> from segstream.data.wrap import wrap
    >>> pixels = np.zeros((1, 2, 3), np.uint8)
    >>> source = wrap([(pixels, np.array([[1, 2]]))], ["background", "road", "car"])
    >>> JointSet(source, Scenario(("road",), (("car",),)), ClassTable(("road", "car")))[0].mask.tolist()
    [[1, 2]]
    """

    def __init__(
        self, source: Source, scenario: Scenario, table: ClassTable, indices: Sequence[Sequence[int]] | None = None
    ) -> None:
        slots = _slots(scenario.names, scenario.values(source), table)
        chosen = scenario.select(source) if indices is None else indices
        super().__init__(
            source,
            sorted({i for stage in chosen for i in stage}),
            slot_lookup(len(source.names), slots, background=BACKGROUND, others=BACKGROUND),
            prefix="joint/",
            complete=frozenset(slots.values()),
            known=_known(slots),
        )


class TestSet(SampleSet):
    """What is scored after a stage: pictures with a class seen so far; classes not yet seen are background.

    Unlabelled pixels become void: nobody knows what would be right there. With `every`, pictures without any of the
    classes are scored too.

    >>> from segstream.data.wrap import wrap
    >>> pixels = np.zeros((1, 2, 3), np.uint8)
    >>> masks = np.array([[1, 2]]), np.array([[2, 2]])
    >>> source = wrap([(pixels, mask) for mask in masks], ["background", "road", "car"])
    >>> test = TestSet(source, Scenario(("road",), (("car",),)), 0, ClassTable(("road",)))
    >>> len(test), test[0].mask.tolist()
    (1, [[1, 0]])
    """

    __test__ = False  # not a test case, whatever its name says to pytest

    def __init__(
        self, source: Source, scenario: Scenario, stage: int, table: ClassTable, *, every: bool = False
    ) -> None:
        slots = _slots(scenario.seen(stage), scenario.values(source), table)
        super().__init__(
            source,
            [i for i in range(len(source)) if every or not source.present(i).isdisjoint(slots)],
            slot_lookup(len(source.names), slots, background=BACKGROUND, others=BACKGROUND, unlabeled=VOID),
            complete=frozenset(slots.values()),
            known=_known(slots),
        )


class PartlyLabelled(SampleSet):
    """Pictures from which a person teaches some classes; other classes may be in them, labelled or not.

    names       the classes to be taught; they are in `table` already
    complete    those of them that are annotated exhaustively; left out, all. Give () for a source of strokes, where
                an unlabelled value says that nothing was said
    table       what the learner knows, the taught classes included
    prefix      before every id, so that pictures of two folders that are called alike do not replace each other

    Other classes that both the source and the table know keep their labels. A class of the source that the table
    does not know becomes unlabelled: where `complete` says so it cannot be a taught class, and nothing more is known
    (it may be a thing that the table knows by another name).

    Mask value 0 means "none of the classes in the source's list". It is annotated background, unless the table knows
    further classes of which that list says nothing, and every taught class is annotated exhaustively: then the pixel
    is unlabelled, which leaves these further classes possible, and forbids the taught ones. `background` = "label" or
    "open" decides it instead of "auto".

    >>> from segstream.data.wrap import wrap
    >>> pixels = np.zeros((1, 3, 3), np.uint8)
    >>> source = wrap([(pixels, np.array([[0, 1, 2]]))], ["background", "car", "dog"])
    >>> PartlyLabelled(source, ["car"], ClassTable(("car",)))[0].mask.tolist()
    [[0, 1, -1]]
    >>> PartlyLabelled(source, ["car"], ClassTable(("road", "car")))[0].mask.tolist()
    [[-1, 2, -1]]
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        table: ClassTable,
        *,
        complete: Sequence[str] | None = None,
        background: str = "auto",
        prefix: str = "",
    ) -> None:
        if background not in ("auto", "label", "open"):
            raise DataError(f"`background` is {background!r}; the choices are auto, label and open.")
        values = Scenario(tuple(names)).values(source)
        finished = tuple(names) if complete is None else tuple(complete)
        if wrong := [name for name in finished if name not in names]:
            raise DataError(f"`complete` names {wrong[0]!r}, which is not taught here; taught: {', '.join(names)}.")
        if retired := [name for name in names if table.slot(name) in table.retired]:
            raise DataError(f"The class {retired[0]!r} is retired and cannot be taught.")
        active = {table.name(slot) for slot in table.active}
        shared = {name: v for v, name in enumerate(source.names) if name in active}
        if background == "auto":
            background = "open" if active > set(shared) and set(finished) == set(names) else "label"
        super().__init__(
            source,
            range(len(source)),
            slot_lookup(
                len(source.names),
                _slots(shared, shared | values, table),
                background=UNLABELED if background == "open" else BACKGROUND,
                others=UNLABELED,
            ),
            prefix=prefix,
            complete=frozenset(table.slots(finished)),
            known=len(table),
        )
