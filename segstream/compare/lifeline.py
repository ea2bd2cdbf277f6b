"""A worker's first breath: it takes its job from stdin, and from then on lives as long as stdin is open.

Whoever started it may be killed at any moment, and must not leave a process behind that works on. So this comes before
everything that takes time; PyTorch is not imported here.
"""

from __future__ import annotations

import os
import threading

__all__ = ["take"]


def take() -> bytes:
    """The first line of stdin. When stdin ends, so does the process."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # one by one: nothing of what comes later is taken from who waits for the end
        if not byte:
            os._exit(1)
        line += byte
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return bytes(line)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)  # every file is whole at every moment, so there is nothing to put in order
