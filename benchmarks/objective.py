"""Time and memory of the objective against the form that public code uses.

    python benchmarks/objective.py                      # both sizes, two threads
    python benchmarks/objective.py --slots 151 --json

Each form is run forward and backward on the same logits and masks: half of the images are new ones (a few labelled
pixels, the rest unlabelled), half are replayed ones with annotated background. Times are the least of several
repetitions, the forms taking turns; memory is what a process of its own holds at its peak beyond what it held before.

naive   F.interpolate to full size, softmax, logsumexp, autograd: gigabytes
plain   segstream's reference in blocks of rows (SEGSTREAM_OBJECTIVE=plain)
quad    segstream's machine code, the default on a CPU
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from segstream.classes import UNLABELED, VOID
from segstream.functional import objective
from segstream.functional.objective import em_objective

THRESHOLD, LATENT_WEIGHT = 0.8, 0.1
FORMS = ("naive", "plain", "quad")


def naive(logits: Tensor, masks: Tensor, excluded: Tensor) -> Tensor:
    full = F.interpolate(logits, masks.shape[1:], mode="bilinear", align_corners=False)  # B K H W
    background = (masks == 0)[:, None]
    impossible = torch.where(background, excluded[:, 1, :, None, None], excluded[:, 0, :, None, None])
    latent = (masks == 0) | (masks == UNLABELED)
    with torch.no_grad():
        best, slot = full.softmax(1).masked_fill_(impossible, 0).max(1)
        target = torch.where(latent, torch.where(best > THRESHOLD, slot, -1), masks.long())
        target[masks == VOID] = -1
    labels = F.cross_entropy(full, target, ignore_index=-1, reduction="sum")
    rest = full.logsumexp(1) - full.masked_fill(impossible, -torch.inf).logsumexp(1)
    return (labels + LATENT_WEIGHT * rest[latent].sum()) / (masks != VOID).sum()


def ours(logits: Tensor, masks: Tensor, excluded: Tensor) -> Tensor:
    return em_objective(logits, masks, excluded, threshold=THRESHOLD, latent_weight=LATENT_WEIGHT).loss


def problem(images: int, slots: int, low: int, full: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits as a cosine head gives them after some training, masks of blobs."""
    g = torch.Generator().manual_seed(0)
    masks = torch.randint(0, slots, (images, 8, 8), generator=g).to(torch.int16)
    masks = masks.repeat_interleave(full // 8, 1).repeat_interleave(full // 8, 2)
    centres = F.one_hot(masks[:, :: full // low, :: full // low].long(), slots).permute(0, 3, 1, 2)
    logits = (torch.randn(images, slots, low, low, generator=g) * 1.5 + 6 * centres).clamp(-12, 12)
    new = torch.arange(images)[:, None, None] < images // 2
    chance = torch.rand(masks.shape, generator=g)
    masks = torch.where(new & (masks < slots * 3 // 4), UNLABELED, masks)
    masks = torch.where(~new & (masks < slots // 4), 0, masks)
    masks = torch.where(chance < 0.03, VOID, masks)
    excluded = torch.zeros(images, 2, slots, dtype=torch.bool)
    excluded[:, 0, slots * 3 // 4 :] = True
    excluded[:, 1, 1 : slots * 3 // 4] = True
    return logits.contiguous(), masks.to(torch.int16), excluded


def run(form: str, given: tuple[Tensor, Tensor, Tensor]) -> tuple[float, Tensor]:
    os.environ[objective.FORM] = "plain" if form == "plain" else "auto"
    leaf = given[0].clone().requires_grad_()
    compute: Callable[..., Tensor] = naive if form == "naive" else ours
    start = time.perf_counter()
    compute(leaf, *given[1:]).backward()
    assert leaf.grad is not None
    return time.perf_counter() - start, leaf.grad


def resident(field: str) -> int:
    """Bytes that this process holds (VmRSS) or held at its peak (VmHWM). Linux only."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def extra_memory(form: str, sizes: list[int], threads: int) -> int:
    """Peak beyond what was held before, in this process; a small problem first loads what is loaded once."""
    torch.set_num_threads(threads)
    run(form, problem(1, sizes[1], 8, 32))
    leaf_and_rest = problem(*sizes)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")  # the peak counts from here
    before = resident("VmRSS")
    run(form, leaf_and_rest)
    return resident("VmHWM") - before - leaf_and_rest[0].nbytes  # `run` copies the logits


def memory_of(form: str, sizes: list[int], threads: int) -> int:
    """`extra_memory` in a process of its own, in which freed memory goes back to the system at once (glibc)."""
    values = dict(zip(("--images", "--slots", "--low", "--full", "--threads"), [*sizes, threads], strict=True))
    command = [sys.executable, __file__, "--memory-of", form, *(str(x) for pair in values.items() for x in pair)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def measure(sizes: list[int], forms: list[str], threads: int, repeats: int) -> list[dict[str, float | str | int]]:
    given = problem(*sizes)
    times: dict[str, list[float]] = {form: [] for form in forms}
    slopes: dict[str, Tensor] = {}
    run("quad", problem(1, sizes[1], 8, 32))
    for turn in range(repeats):
        for form in forms:
            if form != "naive" or turn < 2:
                seconds, slopes[form] = run(form, given)
                times[form].append(seconds)
    leaf = given[0].double().requires_grad_()
    ours(leaf, *given[1:]).backward()
    exact = leaf.grad
    assert exact is not None
    rows: list[dict[str, float | str | int]] = []
    for form in forms:
        memory = memory_of(form, sizes, threads)
        row: dict[str, float | str | int] = {"slots": sizes[1], "form": form, "seconds": min(times[form])}
        row |= {"times_naive": min(times["naive"]) / min(times[form])} if "naive" in forms else {}
        row["extra_megabytes"] = round(memory / 1e6)
        row["gradient_error"] = float((slopes[form] - exact).norm() / exact.norm())  # against float64
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[151, 21], help="classes, background included")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--low", type=int, default=64, help="side of the logits")
    parser.add_argument("--full", type=int, default=256, help="side of the masks, a multiple of it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="of each form; the naive one runs twice at most")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = [[options.images, slots, options.low, options.full] for slots in options.slots]
    if options.memory_of:
        print(extra_memory(options.memory_of, sizes[0], options.threads))
        return
    rows = [row for size in sizes for row in measure(size, options.forms, options.threads, options.repeats)]
    if options.json:
        print(json.dumps({"torch": torch.__version__, "threads": options.threads, "rows": rows}, indent=1))
        return
    print(f"{options.images} images, {options.low} to {options.full} pixels a side, {options.threads} threads")
    print(f"{'slots':>5}  {'form':5}  {'seconds':>8}  {'x naive':>8}  {'extra MB':>8}  gradient error")
    for row in rows:
        times, error = (row.get(name, float("nan")) for name in ("times_naive", "gradient_error"))
        start = f"{row['slots']:>5}  {row['form']:5}  {row['seconds']:8.3f}"
        print(f"{start}  {times:8.1f}  {row['extra_megabytes']:>8}  {error:.1e}")


if __name__ == "__main__":
    main()
