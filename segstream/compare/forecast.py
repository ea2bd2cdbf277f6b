"""How long the rest will take, as far as what is done and what is going on tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import mean

from segstream.compare.tasks import Ended, Event, Failed, LeftOut, Moved, Started, Task

__all__ = ["Forecast"]

TELLING = 0.1  # share of a task that must be done before its pace says anything


class Forecast:
    """Told of every event; a task of one sort takes as long as others of its sort.

    >>> ticks = iter([0.0, 60.0, 60.0])
    >>> tasks = [Task(str(n), "", "cell", {}, sort="er") for n in range(3)]
    >>> forecast = Forecast(tasks, clock=lambda: next(ticks))
    >>> forecast(Started(tasks[0])); forecast(Ended(tasks[0])); forecast.left()
    120.0
    """

    def __init__(self, tasks: Sequence[Task], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open = {task.id: task for task in tasks}
        self._since: dict[str, float] = {}
        self._share: dict[str, float] = {}
        self._took: dict[str, list[float]] = {}
        self._together = 1  # the most that were at work at a time

    def __call__(self, event: Event) -> None:
        task = event.task
        if isinstance(event, Started):
            self._since[task.id] = self._clock()
            self._share[task.id] = 0.0
            self._together = max(self._together, len(self._since))
        elif isinstance(event, Moved) and (", stage " in event.phase or event.phase in ("base", "joint")):
            self._share[task.id] = event.done / max(event.total, 1)
        elif isinstance(event, Ended | Failed | LeftOut):
            self._open.pop(task.id, None)
            began = self._since.pop(task.id, None)
            if isinstance(event, Ended) and began is not None:
                self._took.setdefault(task.sort, []).append(self._clock() - began)

    def left(self) -> float | None:
        """Seconds until all is done; None while nothing tells."""
        now = self._clock()
        expected = {sort: mean(took) for sort, took in self._took.items()}
        for name, began in self._since.items():
            task, share = self._open[name], self._share[name]
            if task.sort not in expected and share >= TELLING:
                expected[task.sort] = (now - began) / share
        if not self._open:
            return 0.0
        if not expected:
            return None
        usual = mean(expected.values())
        whole = 0.0
        for name, task in self._open.items():
            done = now - self._since[name] if name in self._since else 0.0
            whole += max(expected.get(task.sort, usual) - done, 0.0)
        return whole / min(self._together, len(self._open))
