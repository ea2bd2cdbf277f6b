"""Comparison folders for tests: cells with made confusion matrices, from which everything else in them follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Quality = Callable[[str, int, int, int], float]  # row, seed, slot, stage -> about what share is right

VOC = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("table", "dog", "horse", "motorbike", "person", "plant", "sheep", "sofa", "train", "tv"),
)
VOC_15_1 = (tuple(VOC[:15]), *((name,) for name in VOC[15:]))
SMALL = (("road", "sky", "tree"), ("car",), ("pole", "sign"))


def scores_of(names: Sequence[str], stage: int, right: Callable[[int], float], seed: int, size: int) -> dict[str, Any]:
    """Scores after one stage, all computed from one confusion matrix by the definition."""
    draw = np.random.default_rng(seed)
    k = len(names)
    matrix = np.zeros((k, k), dtype=np.int64)
    for truth in range(k):
        share = min(max(right(truth), 0.0), 1.0)
        matrix[truth, truth] = round(share * size)
        if k > 1:
            wrong = draw.dirichlet(np.ones(k - 1)) * (1 - share) * size
            matrix[truth, [c for c in range(k) if c != truth]] += wrong.astype(np.int64)
    iou: list[float | None] = []
    for c in range(k):
        union = int(matrix[c].sum() + matrix[:, c].sum() - matrix[c, c])
        iou.append(100.0 * int(matrix[c, c]) / union if matrix[c].sum() else None)
    there = [v for v in iou if v is not None]
    return {
        "stage": stage,
        "names": list(names),
        "iou": iou,
        "miou": sum(there) / len(there),
        "accuracy": 100.0 * float(np.trace(matrix)) / float(matrix.sum()),
        "confusion": matrix.tolist(),
    }


def make_cell(
    folder: Path,
    row: str,
    *,
    recipe: str = "small",
    seed: int = 0,
    role: str = "",
    groups: Sequence[Sequence[str]] = SMALL,
    quality: Quality = lambda row, seed, slot, stage: 0.8,
    capacity: int = 50,
    settings: Mapping[str, Any] | None = None,
    size: int = 4000,
    **more: Any,
) -> dict[str, Any]:
    """Writes one cell; the row is spelled as on a command line: "er view=background memory.capacity=20"."""
    method, *parts = row.split()
    given = dict(part.split("=", 1) for part in parts)
    role = role or ("bound" if method == "joint" else "variant" if given else "headline")
    id = "_".join([recipe, *row.split(), str(seed)])
    stages = [len(groups) - 1] if role == "bound" else range(len(groups))
    scores = []
    for t in stages:
        names = ["background", *(name for group in groups[: t + 1] for name in group)]
        draw = sum(map(ord, row)) + 1000 * seed + t
        scores.append(scores_of(names, t, lambda slot, t=t: quality(row, seed, slot, t), draw, size))
    memory = {
        str(t): {name: 3 + i for i, name in enumerate(n for g in groups[: t + 1] for n in g)}
        for t in range(len(groups))
    }
    cell: dict[str, Any] = {
        "format": 1,
        "key": f"{id}-key",
        "id": id,
        "recipe": recipe,
        "title": recipe.replace("-", " "),
        "config": {"name": recipe, "memory": {"capacity": int(given.get("memory.capacity", capacity)), "policy": ""}},
        "row": row,
        "method": method,
        "given": given,
        "settings": {"lr": 0.01, "seed": seed, "view": "latent" if method == "em" else "ignore", **(settings or {})},
        "role": role,
        "seed": seed,
        "split": "test",
        "groups": [list(group) for group in groups],
        "scores": scores,
        "memory": {} if method in ("finetune", "joint") else memory,
        "cost": {"updates": 40, "median_seconds": 0.2, "total_seconds": 8.0, "peak_bytes": None},
        "base": {
            "id": "base-" + ("cosine" if method == "em" else "linear"),
            "head": "linear",
            "loss": "softmax",
            "seed": 0,
        },
        "about": {"segstream": "0.2.0", "processor": "A CPU", "threads": 1, "devices": []},
        "finished": "2026-11-20",
        **more,
    }
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    (folder / "cells" / f"{id}.json").write_text(json.dumps(cell), encoding="utf-8")
    return cell


def make_plan(folder: Path, cells: Sequence[str], rows: Sequence[Any] = (), **more: Any) -> None:
    plan = {"rows": list(rows), "recipes": [], "seeds": 1, "cells": list(cells), "title": "", "command": [], **more}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
