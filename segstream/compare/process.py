"""Worker processes as their parent sees them: started with a job, heard line by line, ended when need be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "Worker"]

# Fabric imports torchmetrics, where it is installed, just to learn its version; that takes longer than all the rest.
START = """
import sys
from segstream.compare.lifeline import take
line = take()
sys.modules["torchmetrics"] = None
from segstream.compare.worker import main
main(line)
"""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
GRACE = 5.0  # seconds that a process has to end by itself
TAIL = 4000  # characters of a log that go into an error


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its result, or with a sentence about what went wrong.

    bad_input   whether what was asked for is wrong, not the program;  trace: the end of what it logged

    >>> Outcome(result={"id": "demo_er_0"}).sentence
    ''
    """

    result: dict[str, Any] | None = None
    sentence: str = ""
    bad_input: bool = False
    trace: str = ""


class Worker:
    """One process at one job; `log` is the file for what it prints, a traceback among it."""

    def __init__(self, job: Mapping[str, Any], *, threads: int, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._ended: Outcome | None = None
        path = os.pathsep.join(os.path.abspath(p) for p in sys.path)
        with open(log, "wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                env=os.environ | {"PYTHONPATH": path} | dict.fromkeys(THREADS, str(threads)),
                start_new_session=True,  # Ctrl-C is for the parent
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
            )
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # if it has died already, whoever listens is told
            self.process.stdin.write(json.dumps(dict(job)).encode() + b"\n")
            self.process.stdin.flush()

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it says on its way, `progress` and `warning`; afterwards `outcome` is known."""
        assert self.process.stdout is not None
        result = failed = None
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except json.JSONDecodeError:  # it was ended in the middle of a word
                continue
            result, failed = message.get("done", result), message.get("failed", failed)
            if "done" not in message and "failed" not in message:
                yield message
        code = self.process.wait()
        self._close_stdin()
        self.process.stdout.close()
        self._ended = self._judge(result, failed, code)

    @property
    def outcome(self) -> Outcome:
        assert self._ended is not None, "it has not ended"
        return self._ended

    def _judge(self, result: dict[str, Any] | None, failed: dict[str, Any] | None, code: int) -> Outcome:
        if result is not None:
            return Outcome(result=result)
        trace = self.log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
        if failed is not None:
            text = (failed["text"].strip() or failed["kind"]).splitlines()[0]
            sentence = text if failed["input"] else f"{failed['kind']}: {text}"
            return Outcome(sentence=sentence, bad_input=failed["input"], trace=trace)
        return Outcome(sentence=_how_it_died(code), trace=trace)

    def stop(self) -> None:
        """Ends it: by going away, which it notices, and by force if it does not."""
        self._close_stdin()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _close_stdin(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # what it had not read yet cannot be handed over any more
            self.process.stdin.close()


def _how_it_died(code: int) -> str:
    if code >= 0:
        return f"Its process ended with code {code} and without a word."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    more = " The system does that when memory runs out." if name == "SIGKILL" else ""
    return f"Its process was killed by {name}.{more}"
