"""A saved model, ready to predict. Imported when a command runs: this needs PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segstream import method, storage
from segstream.classes import ClassTable
from segstream.devices import make_fabric
from segstream.evaluate import Predictor
from segstream.models import Segmenter

__all__ = ["Model", "open_model"]


@dataclass(frozen=True)
class Model:
    """What predicts, and what its numbers mean."""

    predictor: Predictor
    classes: ClassTable
    about: dict[str, Any]


def open_model(folder: Path, *, device: str | None) -> Model:
    """The model of a folder that fit, teach or run saved; of a run folder, the state in it."""
    if (folder / "state" / storage.INDEX).exists():
        folder = folder / "state"
    fabric = make_fabric(device or "auto")
    kind = storage.load_folder(folder).kind
    if kind == "method":
        learned = method.load(folder, fabric=fabric)
        return Model(learned, learned.segmenter.classes, {"method": learned.name})
    segmenter = Segmenter.load(folder).to(fabric.device)
    return Model(segmenter, segmenter.classes, {})
