"""The same grid on a Ray cluster: Ray finds machines and does again what is lost with one; `node` does the work."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segstream import __version__, storage
from segstream.compare.node import Board, Sent, unpack, work_here
from segstream.compare.plan import Cell, file_text
from segstream.compare.pool import heard
from segstream.compare.tasks import Ended, Event, Failed, Started, Task, Warned
from segstream.storage import StateError

__all__ = ["Cluster", "Link", "connect"]

AGAIN = 3  # times that a task is begun anew when its machine or its process is lost
MOMENT = 0.25  # seconds to wait for a word
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Link:
    """A connection to a cluster: Ray itself, and the board that its workers write on."""

    ray: Any
    board: Any


@contextmanager
def connect(address: str) -> Iterator[Link]:
    """Connects to a cluster: `host:port`, `auto` for the one that this machine belongs to, `local` for one just here.

    >>> with connect("ray://far"): pass
    Traceback (most recent call last):
    ValueError: --ray takes host:port, auto or local, not 'ray://far'; call it on a machine of the cluster.
    """
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local":
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    elif (found := _latest() if address == "auto" else address) is not None:
        options["address"] = found
        if _reached(found) in LOOPBACK:
            # Ray takes the loopback address for this machine's name in its network, unless it is told (by a variable
            # named after the systems where that is the default) that this machine's name is that of the loopback.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            options["_node_ip_address"] = "127.0.0.1"
    ray = _imported()
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StateError(f"No Ray cluster could be reached at {address!r}: {first}") from None
    ray._private.worker._worker_logs_enabled = False  # it prints pages to stdout when a machine is lost
    try:
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        yield Link(ray, ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote())
    finally:
        ray.shutdown()


def _imported() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise ValueError("--ray needs Ray, which is not installed: pip install 'segstream[ray]'.") from None
    return ray


def _latest() -> str | None:
    """The address of the cluster that was last started on this machine, as Ray notes it; None where it noted none."""
    if given := os.environ.get("RAY_ADDRESS"):
        return given
    places = [os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"), "/tmp", tempfile.gettempdir()]
    notes = [Path(place) / "ray" / "ray_current_cluster" for place in places if place]
    return next((note.read_text(encoding="utf-8").strip() for note in notes if note.is_file()), None)


def _reached(address: str) -> str:
    """The host of `host:port`, if somebody answers there: Ray itself would wait for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        raise ValueError(f"--ray takes host:port, auto or local, not {address!r}; call it on a machine of the cluster.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10.0):
            return host.strip("[]")
    except OSError as error:
        raise StateError(f"No Ray cluster answers at {address}: {error.strerror or error}.") from None


class Cluster:
    """Hands tasks to Ray, each with what its recipe asks for; results come home to `out`.

    Bases travel through Ray's object store to the machines that do not have them.
    """

    def __init__(self, link: Link, *, out: Path) -> None:
        self.out = out
        self._ray = link.ray
        self._board = link.board
        self._bases: dict[str, Any] = {}  # what the tasks that train them will give
        self._at_work: dict[Any, tuple[Task, Any]] = {}
        self._begun: set[str] = set()
        self._said: list[Event] = []
        self._mark = out / "runs" / ".locks" / f"shared-{uuid.uuid4().hex}"
        self._remote = self._ray.remote(max_retries=AGAIN, num_returns=2)(_work)

    def has_room(self) -> bool:
        return True  # who has to wait, waits with Ray

    def has_base(self, name: str) -> bool:
        return name in self._bases

    def start(self, task: Task) -> None:
        if task.kind != "plan" and not self._mark.exists():
            storage.write_text(self._mark, "")
        errand = {"task": task.id, "job": dict(task.job), "threads": task.threads, "folder": os.getcwd()}
        errand |= {"version": __version__, "mark": str(self._mark)}
        bases = []
        if task.kind == "cell" and (base := Cell.from_json(task.job["cell"]).base) is not None:
            bases = [self._bases[base.id]]
        wanted = {"CPU": float(task.threads), "GPU": task.gpus, "memory": task.memory_gb * 2**30}
        self._warn(task, wanted)
        answer, sent = self._remote.options(
            name=task.id, num_cpus=wanted["CPU"], num_gpus=wanted["GPU"], memory=int(wanted["memory"]) or None
        ).remote(errand, bases, self._board)
        if task.kind == "base":
            self._bases[task.id] = sent
        self._at_work[answer] = (task, sent)

    def _warn(self, task: Task, wanted: Mapping[str, float]) -> None:
        """Ray waits for a machine that is large enough, for ever if need be."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(all(node.get(key, 0) >= value for key, value in wanted.items()) for node in nodes):
            asked = f"{task.threads} CPUs, {task.gpus:g} GPUs and {task.memory_gb:g} GB of memory"
            self._said.append(Warned(task, f"No machine of the cluster has {asked}; the tasks that ask so much wait."))

    def hear(self) -> Sequence[Event]:
        ready, _ = self._ray.wait(list(self._at_work), timeout=MOMENT)
        events, self._said = self._said, []
        tasks = {task.id: task for task, _ in self._at_work.values()}
        for name, message in self._ray.get(self._board.take.remote()):
            if name in tasks:
                if "started" in message:
                    events.append(Started(tasks[name], again=name in self._begun))
                    self._begun.add(name)
                events += heard(tasks[name], message)
        for answer in ready:
            task, sent = self._at_work.pop(answer)
            self._begun.discard(task.id)
            events.append(self._ended(task, answer, sent))
        return events

    def _ended(self, task: Task, answer: Any, sent: Any) -> Event:
        log = str(self.out / "runs" / f"{task.id}.log")
        try:
            ended = self._ray.get(answer)
            if ended["result"] is None:
                if ended.get("away"):
                    storage.write_text(Path(log), ended["trace"])
                return Failed(task, ended["sentence"], log, ended["bad_input"], ended["trace"])
            if ended.get("away") and task.kind == "cell":
                cell = Cell.from_json(task.job["cell"])
                unpack(self._ray.get(sent), cell.run_folder(self.out))
                storage.write_text(cell.file(self.out), file_text(ended["result"]))
        except self._ray.exceptions.RayError as error:
            first = (str(error).strip() or "no message").splitlines()[0]
            return Failed(task, f"Ray gave it up ({type(error).__name__}): {first}", log)
        return Ended(task, ended["result"])

    def stop(self) -> None:
        for answer in self._at_work:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(answer, force=True)
        self._at_work.clear()
        self._begun.clear()
        self._mark.unlink(missing_ok=True)


def _work(errand: Mapping[str, Any], bases: Sequence[Any], board: Any) -> Sent:
    """In a process of Ray's."""
    ray = _imported()
    fetch = (lambda: ray.get(bases[0])) if bases else None
    return work_here(errand, fetch, lambda message: board.put.remote(errand["task"], message))
