"""What `teach` learns from and what it is judged by, checked before anything is written.

new   the classes to be taught;  old: those that the model knows already
held  pictures that are held back for scoring, never learned
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from segstream.classes import ClassTable
from segstream.data import PartlyLabelled, Scenario, Source, TestSet
from segstream.data.datasets.folder import open_folder
from segstream.data.source import Cached, DataError, Subset, hold_back
from segstream.photos import MAX_SIDE, Smaller
from segstream.types import Sample

__all__ = ["Lesson", "Rehearsal", "open_lesson", "open_rehearsal"]

AT_MOST, SHARE, FEW = 20, 10, 5  # held back: so many, one in so many; none of fewer than FEW pictures


@dataclass(frozen=True)
class Lesson:
    """The folder as the model is to see it.

    learn     what is learned;  held: what is scored (None: too few pictures to spare any)
    size      the largest height and width;  warnings: what the person should know

    >>> from dataclasses import fields
    >>> [f.name for f in fields(Lesson)]
    ['new', 'table', 'learn', 'held', 'complete', 'size', 'warnings']
    """

    new: tuple[str, ...]
    table: ClassTable
    learn: PartlyLabelled
    held: TestSet | None
    complete: tuple[str, ...]
    size: tuple[int, int]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rehearsal:
    """Pictures of the old classes: `learn` fills the memory, `held` tells whether they were kept.

    >>> Rehearsal().learn
    ()
    """

    learn: Sequence[Sample] = ()
    held: Sequence[Sample] = ()
    warnings: tuple[str, ...] = ()


def open_lesson(
    folder: Path,
    new: Sequence[str],
    known: ClassTable,
    *,
    unlabeled: int | None = None,
    complete: Sequence[str] | None = None,
    seed: int = 0,
    max_side: int = MAX_SIDE,
) -> Lesson:
    """A folder of images and masks in which `new` are labelled, for a model that knows `known`.

    Without classes.txt the mask values 1, 2, ... are the new classes in their order. Every mask is read once.

    >>> open_lesson(Path("no/such/folder"), ["car"], ClassTable())
    Traceback (most recent call last):
    segstream.data.source.DataError: There is no folder no/such/folder.
    """
    new = tuple(new)
    if not new:
        raise DataError("There is no class to teach; name at least one.")
    for name in new:
        if name in known:
            raise DataError(
                f"The model knows {name!r} already. Labels of classes that it knows are learned along with those of "
                f"a new class, so leave {name!r} out of the classes to teach; or rename the old one first "
                f"(segstream classes MODEL --rename '{name}=old {name}')."
            )
    table = known.extend(new)
    nameless = folder.is_dir() and not (folder / "classes.txt").exists()
    names = ("background", *new) if nameless else None
    splits = open_folder(root=folder, names=names, unlabeled=unlabeled)
    values = frozenset(Scenario(new).values(splits.train).values())
    finished = (() if unlabeled is not None else new) if complete is None else tuple(complete)
    if not len(splits.train):
        raise DataError(f"{folder} has no picture to learn from; its lists leave none for training.")
    train, held = _parts(splits.train, splits.val, values, seed)
    _check_present(folder, train, new)
    scenario = Scenario((*(n for n in train.names[1:] if n in known and known.slot(n) not in known.retired), *new))
    cached = Cached(Smaller(train, max_side))
    judged = TestSet(Cached(Smaller(held, max_side)), scenario, 0, table, every=True) if len(held) else None
    learn = PartlyLabelled(cached, new, table, complete=finished, prefix=f"{'+'.join(new)}/")
    shapes = [cached.load(i)[1].shape for i in range(len(cached))]  # any picture that cannot be read is found now
    size = max(s[0] for s in shapes), max(s[1] for s in shapes)
    warnings = (*_one_sided(cached, new, unlabeled, known), *_denied(train, new, finished, known))
    return Lesson(new, table, learn, judged, finished, size, warnings)


def _denied(train: Source, new: Sequence[str], finished: Sequence[str], known: ClassTable) -> tuple[str, ...]:
    """A sentence if annotated background says more than a person may have meant."""
    absent = [name for slot in known.active if (name := known.name(slot)) not in train.names]
    if not absent or set(finished) == set(new):  # annotated in full: such pixels stay open for the old classes
        return ()
    return (
        f"Mask value 0 says that none of the model's classes is there, {', '.join(absent)} included; "
        "use the unlabelled value where one of them may be.",
    )


def _parts(train: Source, val: Source, values: frozenset[int], seed: int) -> tuple[Source, Source]:
    """val.txt is for scoring where there is one, but not too much of it; else a few pictures of the others."""
    if len(val):
        return train, hold_back(val, count=min(AT_MOST, len(val) - 1), seed=seed)[1] if len(val) > 1 else val
    if len(train) < FEW:
        return train, Subset(train, ())
    count = min(AT_MOST, max(1, len(train) // SHARE))
    # Pictures that show the classes, one for each at least being left to learn from.
    showing = [i for i in range(len(train)) if train.present(i) & values]
    if len(showing) <= count:
        return train, Subset(train, ())
    _, held = hold_back(Subset(train, showing), count=count, seed=seed)
    out = [showing[k] for k in held.indices]
    for value in sorted(values):
        having = [i for i in showing if value in train.present(i)]
        if having and not set(having) - set(out):
            out.remove(having[0])
    return Subset(train, [i for i in range(len(train)) if i not in set(out)]), Subset(train, out)


def _check_present(folder: Path, train: Source, new: Sequence[str]) -> None:
    here = frozenset[int]().union(*(train.present(i) for i in range(len(train))))
    missing = [name for name, value in Scenario(tuple(new)).values(train).items() if value not in here]
    if missing:
        raise DataError(
            f"No picture of {folder} that is learned has a labelled pixel of {', '.join(missing)}; "
            "there is nothing to learn it from."
        )


def _one_sided(source: Source, new: Sequence[str], unlabeled: int | None, known: ClassTable) -> tuple[str, ...]:
    """Without anything that is not the new classes, every pixel would become them."""
    if known.active:
        return ()
    values = frozenset(Scenario(tuple(new)).values(source).values())
    for i in range(len(source)):
        mask = source.load(i)[1]
        if bool((mask == 0).any()) or source.present(i) - values or len(source.present(i)) > 1:
            return ()
    hint = "" if unlabeled is None else f" (mask value 0; {unlabeled} says nothing)"
    return (f"No pixel is annotated as background{hint}, so the model will see {', '.join(new)} everywhere.",)


def open_rehearsal(folder: Path | None, known: ClassTable, *, seed: int = 0, max_side: int = MAX_SIDE) -> Rehearsal:
    """Pictures of the classes that the model knows, a few of them held back.

    >>> open_rehearsal(None, ClassTable(("road",))).learn
    ()
    """
    if folder is None:
        return Rehearsal()
    splits = open_folder(root=folder)
    old = {known.name(slot) for slot in known.active}
    names = tuple(name for name in splits.train.names[1:] if name in old)
    if not names:
        raise DataError(
            f"{folder} labels none of the classes that the model knows ({', '.join(sorted(old)) or 'none'}), "
            "so it cannot keep them alive."
        )
    scenario = Scenario(names)
    values = frozenset(scenario.values(splits.train).values())
    train, held = _parts(splits.train, splits.val, values, seed)
    absent = sorted(old - set(names))
    warnings = (f"{folder} does not label {', '.join(absent)}: nothing rehearses them.",) if absent else ()
    chosen = [i for i in range(len(train)) if train.present(i) & values]
    learn = PartlyLabelled(Smaller(Subset(train, chosen), max_side), names, known, prefix="0/")
    judged = TestSet(Cached(Smaller(held, max_side)), scenario, 0, known, every=True) if len(held) else ()
    return Rehearsal(learn, judged, warnings)
