"""How far something long has come: a live bar for a person at a terminal, now and then a line for a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.text import Text

__all__ = ["Meter", "duration"]

WORTH_A_LINE = 2.0  # seconds that a phase took: a shorter one leaves no line behind


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(0.42), duration(75), duration(7500)
    ('0.4 s', '1 min 15 s', '2 h 05 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Meter:
    """Told of progress in phases; shows it as its mode says. A finished phase leaves one line behind.

    mode   "bars" for a terminal, "lines" where nobody watches live, "off" for silence
    every  seconds between two lines of a phase that goes on

    >>> import io
    >>> file = io.StringIO()
    >>> ticks = iter([0.0, 0.0, 60.0, 80.0])
    >>> with Meter(Console(file=file), mode="lines", clock=lambda: next(ticks)) as meter:
    ...     for done in (0, 3, 4): meter("base", done, 4, "loss 0.5")
    >>> print(file.getvalue(), end="")
    base: 3 of 4 (75%), about 20 s left, loss 0.5
    base: 4 of 4 in 1 min 20 s, loss 0.5
    """

    def __init__(
        self,
        console: Console,
        *,
        mode: Literal["bars", "lines", "off"],
        every: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console
        self.mode = mode
        self.every = every
        self._clock = clock
        self._phase = ""
        self._done = 0
        self._ended = self._told = clock()
        self._began = self._ended, 0  # when the phase did, and how much of it was done then
        self._bar: Progress | None = None
        self._spinner: Status | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._wait("getting ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def __call__(self, phase: str, done: int, total: int, text: str = "") -> None:
        """`done` of `total` in `phase`; fewer than before means that the phase began anew."""
        if self.mode == "off" or (phase == self._phase and done == self._done):
            return
        now = self._clock()
        if phase != self._phase or done < self._done:
            self._begin(phase, done, total, now)
        self._done = done
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, text=text)
        since, before = self._began
        if done >= total:
            self._finish(done, total, text, now)
        elif self.mode == "lines" and done > before and now - self._told >= self.every:
            left = duration((now - since) / (done - before) * (total - done))
            self._line(f"{phase}: {done} of {total} ({100 * done // total}%), about {left} left", text)
            self._told = now

    def _begin(self, phase: str, done: int, total: int, now: float) -> None:
        self._phase = phase
        # The first word of a phase comes when its first piece is done: it began when the last one ended.
        self._began, self._told = (self._ended, max(done - 1, 0)), self._ended
        if self.mode == "bars":
            self._clear()
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                TextColumn("{task.fields[text]}", style="dim"),
                console=self.console,
                transient=True,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task(phase, total=total, completed=done, text="")
            self._bar.start()

    def _finish(self, done: int, total: int, text: str, now: float) -> None:
        seconds = now - self._began[0]
        self._wait("one moment")
        if seconds >= WORTH_A_LINE:
            self._line(f"{self._phase}: {done} of {total} in {duration(seconds)}", text)
        self._phase, self._done, self._ended = "", 0, now

    def _wait(self, text: str) -> None:
        """Between two phases something moves, so that a person knows that it has not hung."""
        self._clear()
        if self.mode == "bars":
            self._spinner = self.console.status(Text(text, style="dim"))
            self._spinner.start()

    def _clear(self) -> None:
        for shown in (self._bar, self._spinner):
            if shown is not None:
                shown.stop()
        self._bar = self._spinner = None

    def _line(self, start: str, text: str) -> None:
        self.console.print(Text(f"{start}, {text}" if text else start, style="dim"), soft_wrap=True)
