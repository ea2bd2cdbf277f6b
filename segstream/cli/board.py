"""A comparison as a person watches it: what is at work, what is done, and how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.status import Status
from rich.text import Text

from segstream.cli.progress import duration
from segstream.cli.tables import number
from segstream.compare import Ended, Failed, LeftOut, Moved, Round, Started, Task, Warned
from segstream.compare.forecast import Forecast
from segstream.compare.tasks import Event
from segstream.compare.tune import mean_later

__all__ = ["Board"]

QUIET_FOR = 60.0  # seconds without a line after which a file gets one


class Board:
    """Told of events; shows them as its mode says. Warnings and failures are for `warn`, each once.

    mode   "bars" for a terminal, "lines" where nobody watches live, "off" for silence
    """

    def __init__(
        self,
        console: Console,
        *,
        mode: Literal["bars", "lines", "off"],
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console
        self.mode = mode
        self._warn = warn
        self._clock = clock
        self._spinner: Status | None = None
        self._bars: Progress | None = None
        self._whole = TaskID(0)
        self._rows: dict[str, TaskID] = {}
        self._round = Round("", 0, 0, ())
        self._forecast = Forecast(())
        self._done = 0
        self._began: dict[str, float] = {}
        self._now: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._told: set[str] = set()
        self._spoke = clock()

    def __enter__(self) -> Self:
        if self.mode == "bars":
            self._spinner = self.console.status(Text("opening the data", style="dim"))
            self._spinner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shown in (self._spinner, self._bars):
            if shown is not None:
                shown.stop()
        self._spinner = self._bars = None

    def __call__(self, event: Event | Round) -> None:
        if isinstance(event, Round):
            self._begin(event)
            return
        self._forecast(event)
        name = event.task.id
        if isinstance(event, Warned):
            self._once(event.text)
        elif isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Moved):
            self._now[name] = f"{event.phase}: {event.done} of {event.total}"
            if self._spinner is not None:
                self._spinner.update(Text(f"opening the data, {self._now[name]}", style="dim"))
            if self._bars is not None and name in self._rows:
                text = f"{event.phase}  {event.text}"
                self._bars.update(self._rows[name], completed=event.done, total=event.total, text=text)
        elif isinstance(event, Ended | Failed | LeftOut):
            self._end(event)
        self._refresh()

    # ---- what happens

    def _begin(self, event: Round) -> None:
        self.__exit__(None, None, None)
        self._round, self._done = event, event.done
        self._forecast = Forecast(event.tasks)
        bases = sum(task.kind == "base" for task in event.tasks)
        if self.mode != "off":
            done = f", {event.done} of them done" if event.done else ""
            more = f"; {bases} {'bases' if bases > 1 else 'base'} to train first" if bases else ""
            many = f"{event.cells} {event.name}"
            self._line(f"{many}{done}{more}" if event.tasks else f"{many}, all done")
        if self.mode == "bars" and event.tasks:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[text]}", style="dim"),
                console=self.console,
                transient=True,
                refresh_per_second=4,
            )
            self._whole = self._bars.add_task(event.name, total=event.cells, completed=event.done, text="")
            self._rows = {}
            self._bars.start()

    def _start(self, event: Started) -> None:
        name = event.task.id
        self._began[name] = self._clock()
        self._now[name] = "getting ready"
        self._labels[name] = event.task.label
        if event.again:
            self._once(f"{event.task.label}: its machine or its process was lost; it goes on elsewhere.")
        if self._bars is not None and name not in self._rows:
            self._rows[name] = self._bars.add_task(f"  {event.task.label}", total=1, text="getting ready")

    def _end(self, event: Ended | Failed | LeftOut) -> None:
        task = event.task
        self._now.pop(task.id, None)
        if self._bars is not None and task.id in self._rows:
            self._bars.remove_task(self._rows.pop(task.id))
        if task.kind == "plan":
            return
        if isinstance(event, Ended):
            self._done += task.kind == "cell"
            if self.mode != "off":
                took = duration(self._clock() - self._began.get(task.id, self._clock()))
                self._line(f"{task.label}: {_result(task, event.result)}{took}{self._where()}")
        elif isinstance(event, Failed):
            log = f" See {event.log}." if event.log else ""
            self._warn(f"{task.label} failed: {event.sentence}{log}")
        else:
            self._once(f"{task.label} and what else needs it is left out, since {event.because.label} failed.")

    # ---- how it is shown

    def _where(self) -> str:
        left = self._forecast.left()
        rest = f", about {duration(left)} left" if left and left >= 1 else ""
        return f" ({self._done} of {self._round.cells}{rest})"

    def _refresh(self) -> None:
        if self._bars is not None:
            left = self._forecast.left()
            text = f"about {duration(left)} left" if left and left >= 1 else ""
            self._bars.update(self._whole, completed=self._done, text=text)
        elif self.mode == "lines" and self._now and self._clock() - self._spoke > QUIET_FOR:
            at_work = "; ".join(f"{self._labels[name]}, {now}" for name, now in self._now.items())
            self._line(f"at work: {at_work}{self._where()}")

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)

    def _line(self, text: str) -> None:
        self._spoke = self._clock()
        self.console.print(Text(text, style="dim"), soft_wrap=True)


def _result(task: Task, result: Any) -> str:
    """Of a finished run its scores in short."""
    scores = result.get("scores") or []
    if task.kind != "cell" or not scores:
        return ""
    later = mean_later(scores) if len(scores) > 1 else None
    told = f"mIoU {number(scores[-1]['miou'])}"
    return f"{told}, imIoU {number(later)}, " if later is not None else f"{told}, "
