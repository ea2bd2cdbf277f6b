"""Forty photos: `teach` one class from 40 CamVid training pictures, then score it on the whole test split.

    python benchmarks/few_photos.py --root CAMVID [--classes car,building,pedestrian,fence] [--threads 2] [--seed 0]

Each class is taught alone, from ImageNet features, as a person would do it: the 40 pictures (a seeded choice among the
training pictures that show the class; of these, teach itself holds back 4) lie in a folder whose masks have the class
as value 1, every other pixel as 0, annotated background, and void as 255. What counts is the time of the whole call of
`teach`, its scoring and saving included, and the IoU of the class on all 233 test pictures at full size.
CamVid is for research only and does not come with the project: a folder with images/, masks/, classes.txt and lists.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from segstream.data import Scenario, TestSet
from segstream.data.datasets.folder import open_folder
from segstream.evaluate import evaluate
from segstream.method import load
from segstream.teach import teach

CLASSES = "car,building,pedestrian,fence"
PICTURES = 40
SECONDS, IOU, AIM = 120.0, 46.0, 52.0


def folder_of(root: Path, name: str, seed: int, into: Path) -> None:
    """A folder dataset in which one class is labelled, exhaustively."""
    train = open_folder(root=root).train
    value = train.names.index(name)
    showing = [i for i in range(len(train)) if value in train.present(i)]
    order = torch.randperm(len(showing), generator=torch.Generator().manual_seed(seed)).tolist()
    (into / "images").mkdir(parents=True)
    (into / "masks").mkdir()
    for i in sorted(showing[k] for k in order[:PICTURES]):
        image, mask = train.load(i)
        file = train.ids[i].replace("/", "_")
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(into / "images" / f"{file}.png")
        values = np.where(mask.numpy() == -2, 255, mask.numpy() == value).astype(np.uint8)
        Image.fromarray(values).save(into / "masks" / f"{file}.png")
    (into / "classes.txt").write_text(f"background\n{name}\n")


def taught(root: Path, name: str, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """One class: taught, then scored by what was saved."""
    folder, out = work / f"{name}-pictures", work / f"{name}-model"
    folder_of(root, name, options.seed, folder)
    wall, cpu = time.perf_counter(), time.process_time()
    result = teach(
        data=folder, classes=[name], out=out, threads=options.threads, device=options.device, seed=options.seed
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    method = load(out)
    test = open_folder(root=root).test
    samples = TestSet(test, Scenario((name,)), 0, method.segmenter.classes, every=True)
    some = (samples[i] for i in range(0, len(samples), options.every))
    scores = evaluate(method, some, classes=method.segmenter.classes)
    found = {
        "class": name,
        "iou": scores.iou[1],
        "seconds": wall,
        "cpu_seconds": cpu,
        "updates": result.updates,
        "held_back": result.after.get(name),
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--classes", default=CLASSES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="score every so many test pictures")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="few-photos-"))
    try:
        rows = [taught(options.root, name, options, work) for name in options.classes.split(",")]
    finally:
        shutil.rmtree(work)
    mean = sum(row["iou"] for row in rows) / len(rows)
    slowest = max(row["seconds"] for row in rows)
    print(f"mean IoU {mean:.1f} (at least {IOU:g}, aim {AIM:g}), slowest {slowest:.0f} s (at most {SECONDS:g})")
    if options.out:
        options.out.write_text(json.dumps({"mean_iou": mean, "rows": rows, "seed": options.seed}, indent=2) + "\n")


if __name__ == "__main__":
    main()
