"""Which values each mask of a dataset holds: found once by reading all masks, then kept in the user's cache folder.

An index belongs to one list of masks with their names, sizes and times, and is never used for another. It lies in
$SEGSTREAM_CACHE or the user's cache folder, never beside the data. One that is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from segstream.data.source import DataError, Told, unheard
from segstream.storage import INDEX, StateError, cache_folder, load_folder, save_folder

__all__ = ["held_values", "index_folder"]

log = logging.getLogger(__name__)
KIND, FILE, VERSION = "class index", "values.bin", 1
VALUES = 256  # that a mask of 8 bits can hold
THREADS = 8  # at most: decoding runs beside Python, but not the rest
STEP = 100  # masks between two words of progress

Read = Callable[[Path], npt.NDArray[np.generic]]


def held_values(
    masks: Sequence[Path], read: Read, *, about: Mapping[str, Any] | None = None, told: Told = unheard
) -> npt.NDArray[np.bool_]:
    """For each mask and each value 0 .. 255: whether the mask holds it, [masks, 256].

    read    the values of one mask, whole numbers from 0 to 255; called from several threads
    about   what else the answer depends on, as plain data: the ids of the list, a size to which masks are brought
    """
    key = _key(masks, dict(about or {}))
    folder = index_folder(key)
    found = _kept(folder, key, len(masks))
    if found is None:
        found = _read_all(masks, read, told)
        try:
            content = np.packbits(found, axis=1).tobytes()
            save_folder(folder, kind=KIND, document={"key": key, "masks": len(masks)}, files={FILE: content})
        except (OSError, StateError) as error:
            log.warning("The index of %d masks cannot be kept in %s (%s); next time all are read again.",
                        len(masks), folder, error)  # fmt: skip
    return found


def index_folder(key: str) -> Path:
    """Where the index of that key lies.

    >>> index_folder("0" * 64).parent.name
    'indexes'
    """
    return cache_folder() / "indexes" / key[:32]


def _key(masks: Sequence[Path], about: Mapping[str, Any]) -> str:
    """Of all that decides which values are found."""
    digest = hashlib.sha256(json.dumps({"version": VERSION, "about": about}, sort_keys=True).encode())
    for path in masks:
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise DataError(f"The mask {path} does not exist.") from error
        # The second time cannot be set by hand: a mask replaced by one as large and as old is noticed too.
        facts = (os.path.abspath(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest.update(json.dumps(facts).encode())
    return digest.hexdigest()


def _kept(folder: Path, key: str, count: int) -> npt.NDArray[np.bool_] | None:
    if not (folder / INDEX).exists():
        return None
    try:
        saved = load_folder(folder, kind=KIND)
        content = np.frombuffer(saved.read(FILE), np.uint8)
    except (StateError, OSError) as error:
        log.info("The index in %s is made anew: %s", folder, error)
        return None
    if saved.document.get("key") != key or content.size != count * VALUES // 8:
        return None
    return np.unpackbits(content.reshape(count, VALUES // 8), axis=1).astype(np.bool_)


def _read_all(masks: Sequence[Path], read: Read, told: Told) -> npt.NDArray[np.bool_]:
    log.info("Reading %d masks to see which classes they hold.", len(masks))

    def values(path: Path) -> npt.NDArray[np.bool_]:
        return np.bincount(read(path).ravel(), minlength=VALUES) > 0

    found = np.zeros((len(masks), VALUES), np.bool_)
    pool = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), thread_name_prefix="masks")
    try:
        for number, row in enumerate(pool.map(values, masks)):
            found[number] = row
            if (number + 1) % STEP == 0 or number + 1 == len(masks):
                told("masks", number + 1, len(masks))
    finally:  # after a damaged mask or Ctrl-C nobody waits for thousands more
        pool.shutdown(cancel_futures=True)
    return found
