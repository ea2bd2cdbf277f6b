"""What a worker does: train one base, or run one cell to its file. Whoever kills it loses a minute at most."""

from __future__ import annotations

import datetime
import logging
import shutil
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from segstream import storage
from segstream.about import about
from segstream.compare.locks import held
from segstream.compare.plan import FORMAT, Base, Cell, file_text
from segstream.compare.rows import JOINT
from segstream.config import Recipe
from segstream.experiment import Experiment
from segstream.models import Segmenter
from segstream.online import Progress, Tell
from segstream.runs import Run
from segstream.schema import build
from segstream.storage import StateError

__all__ = ["run_cell", "train_base"]

log = logging.getLogger(__name__)


def train_base(job: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """A base goes into the cache, if it is not there. Returns its folder's name."""
    cell = Cell.from_json(job["cell"])
    assert cell.base is not None
    experiment = _open(cell, job, tell)
    wanted = cell.base
    folder = experiment.base_folder(head=wanted.head, loss=wanted.loss, seed=wanted.seed)
    if not (folder / storage.INDEX).exists():
        with _lock_of(folder, tell):
            experiment.base(head=wanted.head, loss=wanted.loss, seed=wanted.seed)
    return {"folder": str(folder)}


def run_cell(job: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """A cell's run, begun or gone on with, and its file. Returns what the file says.

    job   `cell`;  `out`: the comparison's folder;  `cache`: of bases, None for the usual one;  `keep_models`
    """
    cell, out = Cell.from_json(job["cell"]), Path(job["out"])
    lock = out / "runs" / ".locks" / f"{cell.group}-{cell.id}"
    with held(lock, waiting=lambda: _waits(tell)):
        experiment = _open(cell, job, tell)
        found = _joint(cell, experiment) if cell.method == JOINT else _learned(cell, experiment, out)
        answer = _file(cell, experiment) | found
        if not job["keep_models"]:  # before the file: what it says is finished is left alone by whoever comes next
            shutil.rmtree(cell.run_folder(out) / "state", ignore_errors=True)
        storage.write_text(cell.file(out), file_text(answer))
    return answer


def _open(cell: Cell, job: Mapping[str, Any], tell: Tell) -> Experiment:
    recipe = build(Recipe, cell.config, source=cell.id)
    return Experiment(recipe, cache=None if job["cache"] is None else Path(job["cache"]), progress=tell)


def _waits(tell: Tell) -> None:
    tell(Progress("waiting", 0, 1, "for a process that still works on it"))


def _lock_of(folder: Path, tell: Tell) -> Any:
    """Two comparisons, or two machines with one cache, train the same base once."""
    return held(folder.parent / ".locks" / folder.name, waiting=lambda: _waits(tell))


def _base(wanted: Base, experiment: Experiment) -> tuple[Segmenter, str]:
    """The base that the plan names; one of the same making where the files here have other times."""
    named = experiment.cache / wanted.id
    if (named / storage.INDEX).exists():
        return Segmenter.load(named).to(experiment.fabric.device), _weights(named)
    own = experiment.base_folder(head=wanted.head, loss=wanted.loss, seed=wanted.seed)
    with _lock_of(own, experiment.tell):
        segmenter = experiment.base(head=wanted.head, loss=wanted.loss, seed=wanted.seed)
    return segmenter, _weights(own)


def _weights(folder: Path) -> str:
    """The hash of a base's weights."""
    index = storage.read_json(folder / storage.INDEX)
    return str(index["files"]["weights.safetensors"]["sha256"])


# ---- a method's run


def _learned(cell: Cell, experiment: Experiment, out: Path) -> dict[str, Any]:
    assert cell.base is not None
    folder = cell.run_folder(out)
    base, weights = _base(cell.base, experiment)
    peak = _Peak(experiment)
    _drop_another(cell, experiment, folder)
    experiment.run(
        cell.method,
        folder,
        settings=cell.own,
        seed=cell.seed,
        split=cell.split,
        resume=True,
        base=base,
        pictures=cell.pictures,
    )
    run = Run(folder)
    events = run.events()
    start = next(e for e in events if e["event"] == "start")
    scores = [{"stage": e["stage"], **e["scores"]} for e in events if e["event"] == "score"]
    return {
        "settings": start["settings"],
        "scores": scores,
        "memory": {str(e["stage"]): e["counts"] for e in events if e["event"] == "memory"},
        "cost": _cost(events, peak.bytes),
        "base": asdict(cell.base) | {"weights": weights},
        "about": run.about,
    }


def _drop_another(cell: Cell, experiment: Experiment, folder: Path) -> None:
    """An unfinished run of other settings under the same name is of no use any more."""
    if not (folder / storage.INDEX).exists():
        return
    asked = {"method": cell.method, "seed": cell.seed, "split": cell.split, "tuning_split": "", "settings": cell.own}
    try:
        Run.resume(folder, config=experiment.recipe.to_toml(), about=asked)
    except StateError as error:
        log.warning("%s It begins anew.", error)
        shutil.rmtree(folder)


def _cost(events: list[dict[str, Any]], peak: int | None) -> dict[str, Any]:
    seconds = [float(e["seconds"]) for e in events if e["event"] == "update" and e["updated"]]
    return {
        "updates": len(seconds),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "total_seconds": sum(seconds),
        "peak_bytes": peak,
    }


class _Peak:
    """The most memory of a GPU that any update needed; None elsewhere. Scoring between updates is not counted."""

    def __init__(self, experiment: Experiment) -> None:
        self.bytes: int | None = None
        self._device = experiment.fabric.device
        if self._device.type == "cuda":
            tell = experiment.tell
            torch.cuda.reset_peak_memory_stats(self._device)

            def told(at: Progress) -> None:
                if ", stage " in at.phase:  # right after an update
                    self.bytes = max(self.bytes or 0, torch.cuda.max_memory_allocated(self._device))
                torch.cuda.reset_peak_memory_stats(self._device)
                tell(at)

            experiment.tell = told


# ---- the bound


def _joint(cell: Cell, experiment: Experiment) -> dict[str, Any]:
    folder = experiment.joint_folder(seed=cell.seed)
    with _lock_of(folder, experiment.tell):
        segmenter = experiment.joint(seed=cell.seed)
    last = len(experiment.scenario.stages)
    scores = experiment.score(segmenter, last, cell.split)
    head = experiment.recipe.network.head
    return {
        "settings": {},
        "scores": [{"stage": last, **scores.to_json()}],
        "memory": {},
        "cost": {"updates": 0, "median_seconds": None, "total_seconds": None, "peak_bytes": None},
        "base": {"id": folder.name, "head": head, "loss": "softmax", "seed": cell.seed, "weights": _weights(folder)},
        "about": about() | {"threads": experiment.threads},
    }


# ---- its file


def _file(cell: Cell, experiment: Experiment) -> dict[str, Any]:
    config = dict(cell.config)
    config["data"] = {**config["data"], "root": ""}  # nobody else has it there
    config["scenario"] = {**config["scenario"], "files": Path(config["scenario"]["files"]).name}
    return {
        "format": FORMAT,
        "key": cell.key,
        "id": cell.id,
        "recipe": cell.recipe,
        "title": cell.title,
        "config": config,
        "row": cell.row,
        "method": cell.method,
        "given": dict(cell.given),
        "role": cell.role,
        "seed": cell.seed,
        "split": cell.split,
        "groups": [list(group) for group in (experiment.scenario.base, *experiment.scenario.stages)],
        "finished": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
