"""A base or the bound: trained offline once, kept under a key of everything that determines its weights."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from lightning_fabric import Fabric

from segstream import __version__, storage
from segstream.augment import Augment
from segstream.config import Recipe
from segstream.data.views import SampleSet
from segstream.models import Segmenter
from segstream.offline import FitProgress, Schedule, fit
from segstream.online import Progress, Tell, silent

__all__ = ["Training"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """All that determines a base or the bound, and where it lies.

    kind   `base` or `joint`;  names: its classes;  cache: the folder that holds all trained ones

    >>> Training.__name__
    'Training'
    """

    recipe: Recipe
    kind: str
    names: Sequence[str]
    data: SampleSet
    schedule: Schedule
    augment: Augment
    head: str
    loss: str
    seed: int
    fabric: Fabric
    threads: int
    cache: Path

    @property
    def folder(self) -> Path:
        """Where it lies or will lie."""
        return self.cache / f"{self.kind}-{self.key()}"

    def fresh(self) -> Segmenter:
        """Untrained."""
        net = self.recipe.network
        return Segmenter.create(
            net.name,
            encoder=net.encoder,
            weights=net.weights or None,
            classes=self.names,
            head=self.head,
            scale=net.scale,
            output_stride=net.output_stride,
            decoder_channels=net.decoder_channels,
            seed=self.seed,
        )

    def trained(self, tell: Tell = silent) -> Segmenter:
        """From the cache, or trained now and put there; an interrupted training goes on."""
        folder = self.folder
        if (folder / storage.INDEX).exists():
            log.info("%s: taken from %s", self.kind, folder)
            return Segmenter.load(folder).to(self.fabric.device)
        segmenter = self.fresh()

        def told(at: FitProgress) -> None:
            tell(Progress(self.kind, at.done, at.total, f"loss {at.loss:.3f}"))

        training = folder.with_name(folder.name + ".training")
        fit(
            segmenter,
            self.data,
            schedule=self.schedule,
            loss=self.loss,
            augment=self.augment,
            seed=self.seed,
            fabric=self.fabric,
            checkpoint=training,
            progress=told,
        )
        segmenter.save(folder)
        shutil.rmtree(training)
        return segmenter.to(self.fabric.device)

    def key(self) -> str:
        """Of everything that determines the weights."""
        data = asdict(self.recipe.data) | {"val_size": 0, "test_size": 0, "split": "", "download": False}
        parts = {
            "kind": self.kind,
            "names": list(self.names),
            "data": data,
            "pictures": hashlib.sha256("\n".join(self.data.ids).encode()).hexdigest(),
            "files": _stamp(self.recipe.data.root, self.recipe.network.weights),
            "network": asdict(self.recipe.network) | {"head": self.head},
            "loss": self.loss,
            "augment": asdict(self.augment),
            "schedule": asdict(self.schedule),
            "seed": self.seed,
            "precision": self.recipe.run.precision,
            "device": self.fabric.device.type,
            "threads": self.threads,
            "versions": [__version__, str(torch.__version__)],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _stamp(*places: str) -> str:
    """Names, sizes and times of files and of what lies below folders: a corrected mask makes another base."""
    found: list[tuple[str, int, int]] = []
    for place in filter(None, places):
        files = [Path(place)] if Path(place).is_file() else []
        for folder, below, names in os.walk(place):
            # Not what we wrote there: a run beside its data would make every next base another.
            below[:] = sorted(name for name in below if not (Path(folder) / name / storage.INDEX).exists())
            files += [Path(folder) / name for name in sorted(names)]
        found += [(str(f), (status := f.stat()).st_size, status.st_mtime_ns) for f in files]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()
