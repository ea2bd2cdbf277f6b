"""The whole idea in three minutes: one base, three ways to go on learning, and the bound; then a page about it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from segstream import storage
from segstream.config import load_recipe
from segstream.evaluate import evaluate
from segstream.experiment import Experiment
from segstream.method import load
from segstream.online import Progress, Tell, silent
from segstream.report import write_report
from segstream.runs import claim

__all__ = ["run_demo"]

VIEWED = ("finetune", "er")  # these have two views of unlabelled pixels; each is given its better one
VIEWS = ("ignore", "background")


def run_demo(*, out: Path, seed: int = 0, progress: Tell | None = None) -> dict[str, Any]:
    """Train a base, learn the new classes by each method, write summary.json, report.html and the model of em.

    `out` is replaced if it is an earlier demo, and refused if it holds anything else.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "thesis.txt").touch()
    >>> run_demo(out=folder)
    Traceback (most recent call last):
    segstream.atomic.StateError: ... is not empty and not of segstream; give a new or an empty folder.
    """
    tell = progress or silent
    recipe = load_recipe("demo", [f"run.seed={seed}", f"data.seed={seed}"])
    claim(out, kind="demo", replace=True)
    started = time.perf_counter()
    experiment = Experiment(recipe, cache=out / "trained", progress=tell)
    base = experiment.base()
    last = len(experiment.scenario.stages)
    bound = evaluate(experiment.joint(), experiment.test_set(last, "test"), classes=experiment.table(last))
    summaries: dict[str, dict[str, Any]] = {}
    for method in VIEWED:
        tried = {}
        for view in VIEWS:
            folder = out / f"{method}-{view}"
            tried[view] = experiment.run(method, folder, settings={"view": view}, tuning_split="val", base=base) | {
                "view": view,
                "folder": folder,
            }
        summaries[method] = max(tried.values(), key=lambda s: s["tuning"]["imiou"])
    summaries["em"] = experiment.run("em", out / "em", base=base) | {"view": "latent", "folder": out / "em"}
    load(out / "em" / "state").save(out / "model")
    summary = {
        "unit": "percent",
        "seed": seed,
        "methods": {m: {k: s[k] for k in ("miou", "imiou", "final", "view")} for m, s in summaries.items()},
        "runs": {m: s["folder"].name for m, s in summaries.items()},
        "joint": bound.miou,
        "seconds": time.perf_counter() - started,
    }
    storage.write_json(out / "summary.json", summary)
    tell(Progress("report", 0, 1))
    write_report(
        [s["folder"] for s in summaries.values()],
        out,
        title="segstream demo",
        bound={"label": "joint", "miou": bound.miou, "iou": list(bound.iou)},
        notes=_notes(summaries),
    )
    tell(Progress("report", 1, 1))
    return summary


def _notes(summaries: dict[str, dict[str, Any]]) -> list[str]:
    views = ", ".join(f"{m}: {summaries[m]['view']}" for m in VIEWED)
    return [
        "All methods start from the same base and use the same cosine head.",
        "finetune and er were run in both views of unlabelled pixels; shown is the view that was better on tuning "
        f"pictures which the table does not use ({views}).",
        "joint is trained offline on all classes and all labels at once: the bound.",
    ]
