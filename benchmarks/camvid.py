"""CamVid 6-1: em at two learning rates, the five ablation rows of the paper, er in both views, and the bound.

    python benchmarks/camvid.py --root CAMVID --out results/camvid [--recipe camvid-6-1-small] [--seeds 3] [--jobs 4]

Writes one JSON file with every run's scores and a table in Markdown beside it. Finished runs are not run again.
CamVid is for research only and does not come with the project: a folder with images/, masks/, classes.txt and lists.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path
from typing import Any

RECIPE = "camvid-6-1"
OFF: dict[str, Any] = {"class_balanced": False, "relabelling": False, "cosine": False, "dynamic_sampling": False}
ABLATION = ("class_balanced", "relabelling", "cosine", "dynamic_sampling")


def rows(lr: float, paper_lr: float) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every row of the table: a method and its settings. Ablation rows are cumulative; the last is em itself."""
    table: dict[str, tuple[str, dict[str, Any]]] = {
        f"em, lr {lr:g}": ("em", {"lr": lr}),
        f"em, lr {paper_lr:g} (the paper's)": ("em", {"lr": paper_lr}),
    }
    for count in range(len(ABLATION)):
        settings = OFF | dict.fromkeys(ABLATION[:count], True)
        name = "ablation: " + (", ".join(ABLATION[:count]) or "none")
        table[name] = ("em", settings | {"lr": lr})
    table |= {f"er, {view}": ("er", {"lr": lr, "view": view}) for view in ("ignore", "background")}
    return table


def work(job: tuple[str, str, dict[str, Any], int, dict[str, Any]]) -> dict[str, Any]:
    """One cell, in a process of its own: a base, the bound, or a method with a seed."""
    name, method, settings, seed, options = job
    from segstream.config import load_recipe
    from segstream.evaluate import evaluate
    from segstream.experiment import Experiment

    started = time.perf_counter()
    out, root = Path(options["out"]), Path(options["root"])
    recipe = load_recipe(options["recipe"], [f"data.root={json.dumps(str(root))}", *options["set"]])
    experiment = Experiment(recipe, cache=out / "trained", device=options["device"])
    head = "cosine" if settings.get("cosine", True) else "linear"
    last = len(experiment.scenario.stages)
    if method == "base":
        scores = evaluate(experiment.base(head=head), experiment.test_set(0, "test"), classes=experiment.table(0))
        found: dict[str, Any] = {"miou": [scores.miou], "iou": dict(zip(scores.names, scores.iou, strict=True))}
    elif method == "joint":
        scores = evaluate(experiment.joint(), experiment.test_set(last, "test"), classes=experiment.table(last))
        found = {"final": scores.miou, "iou": dict(zip(scores.names, scores.iou, strict=True))}
    else:
        folder = out / "runs" / f"{name.replace(' ', '_').replace(',', '')}-{seed}"
        base = experiment.base(head=head)
        found = experiment.run(method, folder, settings=settings, seed=seed, base=base, resume=True, pictures=0)
    return found | {"row": name, "seed": seed, "seconds": time.perf_counter() - started}


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}" + (f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else "")


def table(cells: list[dict[str, Any]]) -> str:
    """Mean and range over seeds; the IoU of each class at the end."""
    bound = next(c for c in cells if c["row"] == "joint")
    names = list(bound["iou"])[1:]
    lines = ["| row | seeds | imIoU | final mIoU | of joint | " + " | ".join(names) + " |"]
    lines.append("|---" * (5 + len(names)) + "|")
    for row in dict.fromkeys(c["row"] for c in cells):
        group = [c for c in cells if c["row"] == row]
        first = [statistics.mean(c["miou"]) for c in group] if row.startswith("base") else None
        means = [c["imiou"] for c in group if "imiou" in c]
        finals = [c["final"] for c in group if "final" in c]
        iou = [[c["iou"][n] for c in group if c["iou"].get(n) is not None] for n in names]
        cols = [
            row,
            str(len(group)),
            spread(means) if means else "",
            spread(finals) if finals else f"(stage 0: {spread(first or [])})",
            f"{statistics.mean(finals) / bound['final']:.2f}" if finals else "",
            *(f"{statistics.mean(v):.1f}" if v else "" for v in iou),
        ]
        lines.append("| " + " | ".join(cols) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ablation-seeds", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--paper-lr", type=float, default=1e-3)
    parser.add_argument("--only", default="", help="rows whose name starts with one of these, separated by ;")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    options = {k: str(getattr(args, k)) for k in ("out", "root", "recipe", "device")} | {"set": args.settings}
    trained = [("base, cosine", "base", {}), ("base, linear", "base", {"cosine": False}), ("joint", "joint", {})]
    jobs = [(name, method, settings, 0, options) for name, method, settings in trained]
    for name, (method, settings) in rows(args.lr, args.paper_lr).items():
        count = args.seeds if name.startswith("em") else args.ablation_seeds
        jobs += [(name, method, settings, seed, options) for seed in range(count)]
    wanted = [w for w in args.only.split(";") if w]
    jobs = [j for j in jobs if not wanted or any(j[0].startswith(w) for w in [*wanted, "base", "joint"])]
    cells: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        for phase in (jobs[: len(trained)], jobs[len(trained) :]):  # bases first: all others need them
            for cell in pool.imap_unordered(work, phase):
                cells.append(cell)
                final = cell.get("final")
                print(f"{cell['row']}, seed {cell['seed']}: final {final}, {cell['seconds']:.0f} s", flush=True)
                order = {name: i for i, name in enumerate(dict.fromkeys(j[0] for j in jobs))}
                cells.sort(key=lambda c: (order[c["row"]], c["seed"]))
                (args.out / "cells.json").write_text(json.dumps(cells, indent=1))
    (args.out / "table.md").write_text(table(cells))
    print(table(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
