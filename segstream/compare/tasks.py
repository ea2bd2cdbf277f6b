"""Work that depends on other work, and what is heard of it; who does it is for `pool` and `cluster` to say."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Backend", "Ended", "Event", "Failed", "LeftOut", "Moved", "Started", "Task", "Warned", "perform"]


@dataclass(frozen=True)
class Task:
    """One job for one process.

    id, label  its name, for files and for people;  kind: "plan", "base" or "cell"
    sort       what takes about as long as this: the method, or "base"
    needs      the task that must have ended before;  threads, gpus, memory_gb: what it asks for

    >>> Task("demo_er_0", "er, seed 0", "cell", job={}).threads
    1
    """

    id: str
    label: str
    kind: str
    job: Mapping[str, Any]
    sort: str = ""
    needs: str | None = None
    threads: int = 1
    gpus: float = 0.0
    memory_gb: float = 0.0


@dataclass(frozen=True)
class Event:
    """Something was heard of a task."""

    task: Task


@dataclass(frozen=True)
class Started(Event):
    """A process works on it; `again`: one before was lost.

    >>> Started(Task("demo_er_0", "er, seed 0", "cell", job={})).again
    False
    """

    again: bool = False


@dataclass(frozen=True)
class Moved(Event):
    """How far it is in what it is doing.

    >>> Moved(Task("demo_er_0", "er, seed 0", "cell", job={}), "er, stage 1", 3, 40, "loss 1.2").phase
    'er, stage 1'
    """

    phase: str
    done: int
    total: int
    text: str = ""


@dataclass(frozen=True)
class Warned(Event):
    """The library warned.

    >>> Warned(Task("demo_er_0", "er, seed 0", "cell", job={}), "few exemplars").text
    'few exemplars'
    """

    text: str


@dataclass(frozen=True)
class Ended(Event):
    """It is done.

    >>> Ended(Task("demo_er_0", "er, seed 0", "cell", job={}), {"id": "demo_er_0"}).result["id"]
    'demo_er_0'
    """

    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed(Event):
    """It is not done, and why; `log`: the file that says more.

    bad_input  whether what was asked for is wrong, not the program;  trace: the end of the log

    >>> Failed(Task("demo_er_0", "er, seed 0", "cell", job={}), "There is no picture.").sentence
    'There is no picture.'
    """

    sentence: str
    log: str = ""
    bad_input: bool = False
    trace: str = ""


@dataclass(frozen=True)
class LeftOut(Event):
    """It could not be begun, since what it needs has failed.

    >>> base = Task("base-0123", "base", "base", job={})
    >>> LeftOut(Task("demo_er_0", "er, seed 0", "cell", job={}, needs=base.id), base).because.id
    'base-0123'
    """

    because: Task


class Backend(Protocol):
    """Who does the work."""

    def has_room(self) -> bool:
        """Whether one more task may be handed over now."""
        ...

    def has_base(self, name: str) -> bool:
        """Whether a base lies where its cells will look, so that no task need make it."""
        ...

    def start(self, task: Task) -> None: ...

    def hear(self) -> Sequence[Event]:
        """What was heard since the last time; waits a moment if it was nothing."""
        ...

    def stop(self) -> None:
        """Ends whatever still works, at once."""
        ...


def perform(tasks: Sequence[Task], backend: Backend) -> Generator[Event, None, None]:
    """Everything, in the order given as far as needs and room allow it. A task that fails ends no other.

    Leaving the loop early, by an interrupt too, stops what is still at work.
    """
    waiting = list(tasks)
    known = {task.id: task for task in tasks}
    running: set[str] = set()
    done: set[str] = set()
    failed: set[str] = set()
    try:
        while waiting or running:
            for task in [t for t in waiting if t.needs in failed]:
                waiting.remove(task)
                failed.add(task.id)
                assert task.needs is not None
                yield LeftOut(task, known[task.needs])
            ready = [t for t in waiting if t.needs is None or t.needs in done or t.needs not in known]
            while ready and backend.has_room():
                task = ready.pop(0)
                waiting.remove(task)
                running.add(task.id)
                backend.start(task)
            for event in backend.hear() if running else ():
                if isinstance(event, Ended | Failed):
                    running.discard(event.task.id)
                    (done if isinstance(event, Ended) else failed).add(event.task.id)
                yield event
    finally:
        backend.stop()
