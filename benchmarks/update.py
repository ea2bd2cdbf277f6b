"""EM's whole update against the network alone, side by side in one run.

    python benchmarks/update.py [--slots 151] [--images 8] [--size 256] [--threads 2] [--repeats 9] [--json]

"Network alone" is forward, backward from a fixed gradient at the low-resolution logits, and the SGD step. em and er
learn a batch of half the images and replay the other half; augmentation is off. Median of the repeats, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from segstream import Batch, Memory, Sample, Segmenter
from segstream.method import Method
from segstream.methods.em import EM
from segstream.methods.er import ER


def samples(count: int, size: int, slots: int) -> list[Sample]:
    """Random pictures, half of each without a label, the rest in patches of some classes."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for i in range(count):
        image = torch.randint(0, 256, (3, size, size), generator=generator, dtype=torch.uint8)
        patches = torch.randint(1, slots, (size // 16, size // 16), generator=generator, dtype=torch.int16)
        mask = patches.repeat_interleave(16, 0).repeat_interleave(16, 1).clone()
        mask[: size // 2] = -1
        made.append(Sample(image, mask, id=str(i), complete=frozenset({1}), known=slots))
    return made


def prepared(cls: type[Method], args: argparse.Namespace) -> tuple[Method, Batch]:
    names = [f"class {k}" for k in range(1, args.slots)]
    segmenter = Segmenter.create(args.network, encoder=args.encoder, weights=None, classes=names)
    method = cls(segmenter, memory=Memory(capacity=args.images), lr=1e-4)
    made = samples(args.images, args.size, args.slots)
    half = args.images // 2
    method.remember(Batch(tuple(made[half:])))
    return method, Batch(tuple(made[:half]))


def alone(args: argparse.Namespace) -> Callable[[], object]:
    method, _ = prepared(ER, args)
    segmenter, sgd = method.segmenter, torch.optim.SGD(method.segmenter.parameters(), lr=1e-4, momentum=0.9)
    images = torch.stack([s.image for s in samples(args.images, args.size, args.slots)])
    segmenter.training_mode()
    slope = torch.randn_like(segmenter(images)) * 1e-6

    def once() -> None:
        segmenter.training_mode()
        sgd.zero_grad()
        segmenter(images).backward(slope)
        sgd.step()

    return once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[21, 151])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--network", default="deeplabv3plus")
    parser.add_argument("--encoder", default="tf_efficientnet_lite0")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = []
    for slots in args.slots:
        args.slots = slots
        em, em_batch = prepared(EM, args)
        er, er_batch = prepared(ER, args)
        forms = {"network alone": alone(args), "em": partial(em.learn, em_batch), "er": partial(er.learn, er_batch)}
        times: dict[str, list[float]] = {name: [] for name in forms}
        for turn in range(args.repeats + 2):
            for name, once in forms.items():
                started = time.perf_counter()
                once()
                if turn >= 2:
                    times[name].append(time.perf_counter() - started)
        base = statistics.median(times["network alone"])
        for name, taken in times.items():
            median = statistics.median(taken)
            results.append({"slots": slots, "what": name, "seconds": median, "ratio": median / base})
    if args.json:
        print(json.dumps(results, indent=1))
        return 0
    print(f"{args.images} images of {args.size} x {args.size}, {args.threads} threads, torch {torch.__version__}")
    for row in results:
        print(f"K = {row['slots']:4d}   {row['what']:14s} {1000 * row['seconds']:7.0f} ms   {row['ratio']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
