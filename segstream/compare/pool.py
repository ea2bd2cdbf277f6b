"""Workers on this machine: as many processes at a time as were asked for, a fresh one for each task."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path

from segstream import storage
from segstream.compare.process import Worker
from segstream.compare.tasks import Ended, Event, Failed, Moved, Started, Task, Warned

__all__ = ["Pool"]

MOMENT = 0.25  # seconds to wait for a word


class Pool:
    """At most `workers` processes at once; their logs go to `logs`, bases lie in `cache`.

    >>> Pool(workers=2, logs=Path("logs")).has_room()
    True
    """

    def __init__(self, *, workers: int, logs: Path, cache: Path | None = None) -> None:
        if workers < 1:
            raise ValueError(f"workers={workers}; at least one process must work.")
        self.workers = workers
        self.logs = logs
        self.cache = cache or storage.cache_folder()
        self._at_work: dict[str, Worker] = {}
        self._heard: queue.Queue[Event] = queue.Queue()

    def has_room(self) -> bool:
        return len(self._at_work) < self.workers

    def has_base(self, name: str) -> bool:
        return (self.cache / name / storage.INDEX).exists()

    def start(self, task: Task) -> None:
        worker = Worker(task.job, threads=task.threads, log=self.logs / f"{task.id}.log")
        self._at_work[task.id] = worker
        self._heard.put(Started(task))
        threading.Thread(target=self._listen, args=(task, worker), daemon=True).start()

    def _listen(self, task: Task, worker: Worker) -> None:
        """On a thread of its own: pipes cannot be waited for together on every system."""
        for message in worker.messages():
            for event in heard(task, message):
                self._heard.put(event)
        found = worker.outcome
        if found.result is not None:
            self._heard.put(Ended(task, found.result))
        else:
            self._heard.put(Failed(task, found.sentence, str(worker.log), found.bad_input, found.trace))

    def hear(self) -> Sequence[Event]:
        events: list[Event] = []
        try:
            events.append(self._heard.get(timeout=MOMENT))
            while True:
                events.append(self._heard.get_nowait())
        except queue.Empty:
            pass
        for event in events:
            if isinstance(event, Ended | Failed):
                self._at_work.pop(event.task.id, None)
        return events

    def stop(self) -> None:
        stopping = [threading.Thread(target=worker.stop) for worker in self._at_work.values()]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self._at_work.clear()


def heard(task: Task, message: dict[str, object]) -> list[Event]:
    """A worker's line as events."""
    found: list[Event] = []
    if isinstance(at := message.get("progress"), dict):
        found.append(Moved(task, str(at["phase"]), int(at["done"]), int(at["total"]), str(at["text"])))
    if isinstance(text := message.get("warning"), str):
        found.append(Warned(task, text))
    return found
