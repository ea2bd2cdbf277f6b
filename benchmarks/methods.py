"""What one update costs: every method's time and peak memory, relative to fine-tuning on the batch alone.

    python benchmarks/methods.py [--device cuda] [--methods em er mir] [--rounds 5] [--out costs.json]

All methods learn the same batches from the same start, after new classes have come, so that teachers are there and the
memory is full. Time: one process, the methods in turns, so that whatever else the machine does meets all of them; a
ratio is taken within each round, and the median over the rounds is shown. Peak memory: a process for each method, what
it held at most during its updates beyond what it held before them (CUDA: tensors; CPU: resident memory, Linux only).
What a method measures on the images that it offers to its memory (icarl, coriseg) is part of its update.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from segstream import Batch, Memory, Sample, Segmenter, plugins
from segstream.about import about
from segstream.devices import make_fabric
from segstream.functional.objective import warm_up
from segstream.method import Method, create

REFERENCE = "finetune"
WARM_UP = 2  # rounds that are not counted: caches, machine code, the choice of convolutions
UPDATES = 2  # in the process that measures memory; the first makes the momentum


def sample(number: int, size: int, slots: Sequence[int], *, rest: int, known: int) -> Sample:
    """A random picture, the upper half without classes, the lower in patches of them, all annotated exhaustively."""
    generator = torch.Generator().manual_seed(number)
    image = torch.randint(0, 256, (3, size, size), generator=generator, dtype=torch.uint8)
    cells = -(-size // 16)
    patches = torch.randint(slots[0], slots[-1] + 1, (cells, cells), generator=generator, dtype=torch.int16)
    mask = patches.repeat_interleave(16, 0).repeat_interleave(16, 1)[:size, :size].clone()
    mask[: size // 2] = rest
    return Sample(image, mask, id=str(number), complete=frozenset(slots), known=known)


def prepared(name: str, args: argparse.Namespace) -> Method:
    """A method whose memory is full of base images and whose newest classes have just come."""
    base, new = args.slots
    cls: type[Method] = plugins.load("methods", name)
    probe = cls(Segmenter.create("tiny", weights=None))
    names = [f"class {k}" for k in range(1, base + new + 1)]
    segmenter = Segmenter.create(
        args.network, encoder=args.encoder, weights=None, classes=names[:base], head=probe.head() or "linear"
    )
    policy = probe.policy()
    memory = None if policy is None else Memory(capacity=args.memory, policy=policy)
    fabric = make_fabric(args.device, precision=args.precision)
    method = create(name, segmenter, memory=memory, fabric=fabric, settings={"lr": 1e-4})
    for number in range(args.memory):
        method.remember(Batch((sample(number, args.size, range(1, base + 1), rest=0, known=base + 1),)))
    method.add_classes(names[base:])
    return method


def batches(count: int, args: argparse.Namespace) -> list[Batch]:
    """What comes: labels of the new classes alone."""
    base, new = args.slots
    known, slots = base + new + 1, range(base + 1, base + new + 1)
    numbers = iter(range(args.memory, args.memory + count * args.batch))
    return [
        Batch(tuple(sample(next(numbers), args.size, slots, rest=-1, known=known) for _ in range(args.batch)))
        for _ in range(count)
    ]


def waited(device: str) -> float:
    """The time at which the device has done all that it was asked for."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def times(names: Sequence[str], args: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each counted update; round by round the methods take turns, another one first each time."""
    methods = {name: prepared(name, args) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn, batch in enumerate(batches(WARM_UP + args.rounds, args)):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            started = waited(args.device)
            assert methods[name].learn(batch).updated
            if turn >= WARM_UP:
                found[name].append(waited(args.device) - started)
    return found


def resident(field: str) -> int:
    """Bytes that this process holds (VmRSS) or held at its peak (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def peak(name: str, args: argparse.Namespace) -> int:
    """Bytes beyond those that were held before, at most, during some updates of this process."""
    warm_up()
    method, coming = prepared(name, args), batches(UPDATES, args)
    if args.device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
            reset.write("5")  # the peak counts from here
        before = resident("VmRSS")
    for batch in coming:
        method.learn(batch)
    return (torch.cuda.max_memory_allocated() if args.device.startswith("cuda") else resident("VmHWM")) - before


def peak_apart(name: str, args: argparse.Namespace) -> int | None:
    """`peak` in a process of its own, in which freed memory goes back to the system at once (glibc)."""
    if not args.device.startswith("cuda") and not Path("/proc/self/clear_refs").exists():
        return None
    options = {k: v for k, v in vars(args).items() if k not in ("methods", "out", "rounds", "peak_of")}
    words = [str(w) for k, v in options.items() for w in (f"--{k}", *(v if isinstance(v, list) else [v]))]
    command = [sys.executable, __file__, "--peak-of", name, *words]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "1048576"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def table(rows: Sequence[dict[str, Any]], args: argparse.Namespace) -> str:
    base, new = args.slots
    lines = [
        f"{args.network}, {args.encoder}, batches of {args.batch} images of {args.size} x {args.size}, "
        f"{base} + {new} classes and background, {args.memory} exemplars, {args.device}, {args.precision}, "
        f"{args.threads} threads, torch {torch.__version__}",
        "",
        "| method | time of one update | relative | peak memory | relative |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        size = "not measured" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f} MiB"
        share = "" if row["peak_ratio"] is None else f"{row['peak_ratio']:.2f}"
        lines.append(f"| {row['method']} | {row['seconds'] * 1e3:.0f} ms | {row['ratio']:.2f} | {size} | {share} |")
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="deeplabv3plus")
    parser.add_argument("--encoder", default="tf_efficientnet_lite0")
    parser.add_argument("--size", type=int, default=256, help="side of the images")
    parser.add_argument("--batch", type=int, default=4, help="images that come at once; as many are replayed")
    parser.add_argument("--slots", type=int, nargs=2, default=[15, 5], metavar=("BASE", "NEW"), help="classes")
    parser.add_argument("--memory", type=int, default=32, help="exemplars")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", default="32-true", help="or bf16-mixed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=plugins.available("methods"), help="all, unless named")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    args = parsed()
    torch.set_num_threads(args.threads)
    if args.peak_of:
        print(peak(args.peak_of, args))
        return 0
    names = [REFERENCE, *(n for n in args.methods or plugins.available("methods") if n != REFERENCE)]
    seconds = times(names, args)
    with ThreadPoolExecutor(1 if args.device.startswith("cuda") else 2) as pool:  # what one holds the other does not
        peaks = dict(zip(names, pool.map(partial(peak_apart, args=args), names), strict=True))
    least = peaks[REFERENCE]
    rows = []
    for name in names:
        ratios = [a / b for a, b in zip(seconds[name], seconds[REFERENCE], strict=True)]
        size = peaks[name]
        row: dict[str, Any] = {"method": name, "seconds": statistics.median(seconds[name])}
        row |= {"ratio": statistics.median(ratios), "ratios": ratios, "peak_bytes": size}
        rows.append(row | {"peak_ratio": size / least if size and least else None})
    print(table(rows, args))
    if args.out:
        given = {k: v for k, v in vars(args).items() if k not in ("methods", "out", "peak_of")}
        args.out.write_text(json.dumps({"about": about(), "given": given, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
