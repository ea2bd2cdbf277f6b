"""The process that does one job: a plan, a base or a cell. It hears its job on stdin and answers on stdout.

Both speak one line of JSON at a time. Whatever else is printed goes to stderr, which is the job's log.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from segstream.compare.cell import run_cell, train_base
from segstream.compare.planner import make_plan
from segstream.online import Progress, Tell

__all__ = ["main"]

JOBS: dict[str, Callable[[Mapping[str, Any], Tell], dict[str, Any]]] = {
    "plan": make_plan,
    "base": train_base,
    "cell": run_cell,
}
OFTEN = 0.2  # seconds between two words about progress
BAD_INPUT = (ValueError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)


def main(line: bytes) -> None:
    """Does the job that the line names."""
    faulthandler.enable()  # a crash in machine code leaves its trace in the log
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    job = json.loads(line)
    said = _Answers(answers)
    logging.getLogger("segstream").addHandler(said)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        result = JOBS[job["kind"]](job, said.progress)
    except BaseException as error:
        said.say(failed={"kind": type(error).__name__, "text": str(error), "input": isinstance(error, BAD_INPUT)})
        raise
    said.say(done=result)
    logging.shutdown()
    os._exit(0)  # every file is whole at every moment; taking libraries down in order would only take time


class _Answers(logging.Handler):
    """Lines to the parent. Progress comes often, so it is told now and then; warnings of the library always."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(level=logging.WARNING)
        self._file = file
        self._told = 0.0
        self._phase = ""

    def say(self, **message: Any) -> None:
        self.acquire()  # the logging module's own lock: warnings may come from other threads
        try:
            self._file.write(json.dumps(message).encode() + b"\n")
        finally:
            self.release()

    def progress(self, at: Progress) -> None:
        now = time.monotonic()
        if at.phase != self._phase or at.done >= at.total or now - self._told > OFTEN:
            self._phase, self._told = at.phase, now
            self.say(progress={"phase": at.phase, "done": at.done, "total": at.total, "text": at.text})

    def emit(self, record: logging.LogRecord) -> None:
        self.say(warning=record.getMessage())
