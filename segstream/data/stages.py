"""Pictures put into stages by lists that somebody published, or by a seeded draw."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from segstream.data.source import DataError
from segstream.storage import save_folder, write_text

__all__ = ["KIND", "generate_stages", "read_stages", "write_stages"]

KIND = "splits"  # of a folder that `write_stages` made

SUFFIXES = (".npy", ".txt")
WANTED = "one list a stage, .txt with a picture's name in each line or .npy with positions, numbered as the stages are"


def read_stages(folder: Path | str, ids: Sequence[str], count: int) -> list[list[int]]:
    """The pictures of each stage, ascending, by the lists in a folder; numbers in their names give the order.

    ids    of the whole training list; positions in .npy files count in its sorted form, from 0
    count  of stages, the base included

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "step-0.txt").write_text("c" + chr(10) + "a.png"), np.save(folder / "step-1.npy", np.array([1]))
    >>> read_stages(folder, ["a", "b", "c"], 2)
    [[0, 2], [1]]
    """
    folder = Path(folder)
    files = _numbered(folder, count)
    where = {name: i for i, name in enumerate(ids)}
    order = sorted(range(len(ids)), key=ids.__getitem__)
    taken: dict[int, Path] = {}
    stages = []
    for path in files:
        found = _positions(path, order) if path.suffix == ".npy" else _names(path, where)
        if not found:
            raise DataError(f"{path} names no picture.")
        for i in found:
            if i in taken:
                place = "twice in it" if taken[i] == path else f"in {taken[i].name} too"
                raise DataError(f"{path} names the picture {ids[i]}, which is {place}; each comes in one stage, once.")
            taken[i] = path
        stages.append(sorted(found))
    return stages


def _numbered(folder: Path, count: int) -> list[Path]:
    """The lists in the order of the last number in each one's name."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder} with the stages' lists ({WANTED}).")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        numbers = re.findall(r"\d+", path.stem)
        if not numbers or path.suffix not in SUFFIXES or path.name.startswith("."):
            continue
        number = int(numbers[-1])
        if number in found:
            raise DataError(
                f"{found[number].name} and {path.name} in {folder} have the same number; leave one list a stage there."
            )
        found[number] = path
    if len(found) != count:
        names = ", ".join(found[n].name for n in sorted(found)) or "none"
        raise DataError(
            f"{folder} has {len(found)} lists ({names}), but the scenario has {count} stages, the base included. "
            f"Expected: {WANTED}."
        )
    return [found[number] for number in sorted(found)]


def _positions(path: Path, order: Sequence[int]) -> list[int]:
    try:
        positions = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be read as an array of NumPy ({error}).") from error
    row = isinstance(positions, np.ndarray) and positions.ndim == 1
    if not row or (positions.size and positions.dtype.kind not in "iu"):  # an empty array has fractions by default
        raise DataError(f"{path} does not hold one row of whole numbers, the positions in the sorted training list.")
    if wrong := [p for p in positions.tolist() if not 0 <= p < len(order)]:
        raise DataError(
            f"{path} holds the position {wrong[0]}, but the training list has {len(order)} pictures, counted from 0."
        )
    return [order[p] for p in positions.tolist()]


def _names(path: Path, where: dict[str, int]) -> list[int]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}); save it as UTF-8.") from error
    found = []
    for number, line in enumerate(lines, start=1):
        name = line.strip()
        if not name:
            continue
        i = where.get(name, where.get(re.sub(r"\.\w+$", "", name)))
        if i is None:
            near = difflib.get_close_matches(name, where, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise DataError(f"{path} names {name!r} in line {number}, but the training list has no such picture.{hint}")
        found.append(i)
    return found


def generate_stages(
    present: Sequence[frozenset[int]], groups: Sequence[frozenset[int]], *, seed: int
) -> list[list[int]]:
    """Each picture into exactly one stage, ascending: a draw of ours, not what any paper used.

    present  the classes of each picture;  groups: those of each stage

    In a seeded order each picture goes to the stage of that class of it which has come off worst so far: the one
    whose stage has the fewest pictures of it, measured by the square root of how many there are in all. So rare
    classes get more than their share of the pictures and frequent ones are not starved. A picture that shows none of
    the classes is in no stage.

    >>> generate_stages([frozenset({1}), frozenset({1, 2}), frozenset({1}), frozenset()], [{1}, {2}], seed=0)
    [[0, 2], [1]]
    """
    home = {c: stage for stage, group in enumerate(groups) for c in group}
    total = {c: sum(c in classes for classes in present) for c in home}
    filled = dict.fromkeys(home, 0)
    stages: list[list[int]] = [[] for _ in groups]
    for i in np.random.default_rng(seed).permutation(len(present)).tolist():
        shown = [c for c in present[i] if c in home]
        if not shown:
            continue
        worst = min(shown, key=lambda c: (filled[c] / math.sqrt(total[c]), total[c], c))
        stages[home[worst]].append(i)
        for c in shown:
            filled[c] += home[c] == home[worst]
    return [sorted(stage) for stage in stages]


def write_stages(folder: Path, lists: Sequence[Sequence[str]], *, about: Mapping[str, Any]) -> None:
    """step-0.txt, step-1.txt, ... with one name a line, as `read_stages` takes them; lists of an earlier time go.

    about   what they were made of, as plain data, for segstream.json beside them

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "splits"
    >>> write_stages(folder, [["a", "c"], ["b"]], about={"rule": "disjoint"})
    >>> sorted(path.name for path in folder.iterdir()), read_stages(folder, ["a", "b", "c"], 2)
    (['segstream.json', 'step-0.txt', 'step-1.txt'], [[0, 2], [1]])
    """
    save_folder(folder, kind=KIND, document=about, files={})  # first: it marks the folder as one that may be replaced
    names = [f"step-{stage}.txt" for stage in range(len(lists))]
    for path in folder.glob("step-*.txt"):
        if path.name not in names:
            path.unlink()
    for name, ids in zip(names, lists, strict=True):
        write_text(folder / name, "".join(f"{i}\n" for i in ids))
