"""One process at a time: a file that is locked as long as its holder lives, however that ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["Busy", "held"]

PAUSE = 0.1  # seconds between two looks at a lock that another process holds
TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class Busy(RuntimeError):
    """Another process holds it."""


@contextmanager
def held(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock `path` inside. Where another process has it: says so once and waits; without `waiting`, `Busy`.

    The file stays afterwards: removing it would let two processes hold locks of the same name.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "locks" / "one"
    >>> with held(path):
    ...     with held(path): pass
    Traceback (most recent call last):
    segstream.compare.locks.Busy: ...
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        told = False
        while not _taken(descriptor):
            if waiting is None:
                raise Busy(f"Another process holds {path}.")
            if not told:
                waiting()
                told = True
            time.sleep(PAUSE)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Takes the lock if nobody has it."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems have no locks: there, two at once are the user's to avoid.
        return error.errno not in TAKEN
    return True
