"""Folders that a command writes: looked at before anything is written, refused where somebody else's things lie."""

from __future__ import annotations

import os
from pathlib import Path

from segstream import storage
from segstream.runs import CLUTTER
from segstream.storage import StateError

__all__ = ["CLUTTER", "TRAINING", "check_in", "check_out", "kind_of"]

TRAINING = "training"  # subfolder in which an unfinished training waits
COMPLETE = ("segmenter", "method", "splits")  # nothing is left to go on with


def check_in(*places: Path | None) -> None:
    """What is to be read must be there: a wrong name is told at once, not after PyTorch has been loaded.

    >>> check_in(Path("."), Path("phtos"))
    Traceback (most recent call last):
    ValueError: There is no file or folder phtos.
    """
    for place in places:
        if place is not None and not place.exists():
            raise ValueError(f"There is no file or folder {place}.")


def kind_of(folder: Path) -> str | None:
    """What was saved there: "segmenter", "method", "run", ...; "training" for one that has not ended; None: nothing.

    >>> kind_of(Path("no/such/folder")) is None
    True
    """
    if (folder / TRAINING / storage.INDEX).exists():  # beside an older model too, which it will replace
        return TRAINING
    return storage.load_folder(folder).kind if (folder / storage.INDEX).exists() else None


def check_out(out: Path, *, kinds: tuple[str, ...], resume: bool = False, overwrite: bool | None = None) -> str | None:
    """What lies in `out` already, if this command may write there; otherwise a sentence. Writes nothing.

    kinds      what the command itself leaves in such a folder
    overwrite  None for a command that never replaces anything

    >>> check_out(Path("new/folder"), kinds=("segmenter",)) is None
    True
    """
    if resume and overwrite:
        raise ValueError("--resume goes on with what is there, --overwrite replaces it; give one of the two.")
    above = out
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise StateError(f"{above} is a file, so nothing can be written to the folder {out}.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StateError(f"Nothing may be written to {above}; choose another --out or change its rights.")
    if above != out or not {path.name for path in out.iterdir()} - CLUTTER:
        return None
    found = kind_of(out)
    if found is None:
        raise StateError(f"{out} is not empty and holds nothing of segstream; give --out a new or an empty folder.")
    if found not in kinds:
        raise StateError(f"{out} holds a {found}, which this command does not write; give --out a new folder.")
    if not resume and not overwrite:
        choices = [] if found in COMPLETE else ["--resume to go on with it"]
        choices += [] if overwrite is None else ["--overwrite to replace it"]
        raise StateError(
            f"{out} holds {_called(found)} already; add {' or '.join(choices)}, or give --out a new folder."
        )
    return found


def _called(kind: str) -> str:
    names = {
        TRAINING: "an unfinished training",
        "segmenter": "a model",
        "method": "a taught model",
        "predictions": "predictions",
        "splits": "lists of stages",
    }
    return names.get(kind, f"a {kind}")
