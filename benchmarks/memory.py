"""What one add and one sample cost in a memory of 1,000 and of 1,000,000 exemplars (of 16x16 pixels).

    python benchmarks/memory.py [--sizes 1000 1000000] [--rounds 4000] [--json]

Nothing in the memory looks at more than a few exemplars, so that what grows is only the time a cache miss takes.
Exit code 1 if any verb costs more than 5 times as much in the largest memory as in the smallest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from segstream.memory import Memory
from segstream.types import Sample

CLASSES = tuple(range(1, 21))
SIDE = 16
LIMIT = 5.0


def picture(number: int) -> Sample:
    """A picture of two classes, all of the same few tensors: making it costs next to nothing."""
    return Sample(IMAGES[number % 64], MASKS[number % 380], f"picture{number}", frozenset({1 + number % 20}), 21)


def make_masks() -> list[torch.Tensor]:
    masks = []
    for first in CLASSES:
        for second in (c for c in CLASSES if c != first):
            mask = torch.full((SIDE, SIDE), -1, dtype=torch.int16)
            mask[:8, :8], mask[8:, 8:] = first, second
            masks.append(mask)
    return masks


IMAGES = list(torch.randint(0, 256, (64, 3, SIDE, SIDE), dtype=torch.uint8))
MASKS = make_masks()


def microseconds(act: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = act()
    return (time.perf_counter() - start) * 1e6, result


def measure(size: int, policy: str, rounds: int) -> dict[str, Any]:
    """Median and mean of each verb in a full memory. Of adds, those count that replaced an exemplar."""
    memory, dice = Memory(capacity=size, policy=policy), torch.Generator().manual_seed(0)
    start = time.perf_counter()
    for i in range(size):
        memory.offer(picture(i), active=CLASSES, generator=dice)
    fill = time.perf_counter() - start
    weights = {c: 1.0 / c for c in CLASSES}
    costs: dict[str, list[float]] = {"add": [], "sample": [], "sample by class": [], "replace by id": [], "forget": []}
    for i in range(rounds):
        new = picture(size + i)
        cost, stored = microseconds(lambda new=new: memory.offer(new, active=CLASSES, generator=dice))  # type: ignore[misc]
        if stored:
            costs["add"].append(cost)
        costs["sample"].append(microseconds(lambda: memory.draw(1, generator=dice))[0])
        drawn = microseconds(lambda: memory.draw(1, generator=dice, class_weights=weights))
        costs["sample by class"].append(drawn[0])
        again = drawn[1].samples[0]
        costs["replace by id"].append(
            microseconds(lambda again=again: memory.offer(again, active=CLASSES, generator=dice))[0]  # type: ignore[misc]
        )
        costs["forget"].append(microseconds(lambda again=again: memory.forget([again.id]))[0])  # type: ignore[misc]
        memory.offer(again, active=CLASSES, generator=dice)
    assert len(memory) == size
    facts = {
        verb: {"median": statistics.median(c), "mean": statistics.fmean(c), "n": len(c)} for verb, c in costs.items()
    }
    return {"size": size, "policy": policy, "fill_seconds": fill, "microseconds": facts}


def show(results: list[dict[str, Any]], ratios: dict[str, dict[str, float]]) -> None:
    print(
        f"{'policy':<16}{'verb':<18}"
        + "".join(f"{r['size']:>24,}" for r in results if r["policy"] == results[0]["policy"])
    )
    for policy, verbs in ratios.items():
        rows = [r for r in results if r["policy"] == policy]
        for verb, ratio in verbs.items():
            cells = [r["microseconds"][verb] for r in rows]
            line = "".join(f"{c['median']:>9.1f} ({c['mean']:>7.1f}) us" for c in cells)
            print(f"{policy:<16}{verb:<18}{line}   x {ratio:.2f}")
        print(f"{policy:<16}{'filled in':<18}" + "".join(f"{r['fill_seconds']:>22.1f} s" for r in rows))
    print(f"median (mean) of one call; largest memory of this process: {peak_gigabytes():.2f} GB")


def peak_gigabytes() -> float:
    if sys.platform == "win32":
        return float("nan")
    import resource  # does not exist on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 1_000_000], help="numbers of exemplars")
    parser.add_argument("--policies", nargs="+", default=["reservoir", "class_balanced"])
    parser.add_argument("--rounds", type=int, default=4_000, help="how often each verb is timed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(size, policy, options.rounds) for policy in options.policies for size in sorted(options.sizes)]
    ratios = {}
    for policy in options.policies:
        costs = [r["microseconds"] for r in results if r["policy"] == policy]
        ratios[policy] = {verb: costs[-1][verb]["median"] / costs[0][verb]["median"] for verb in costs[0]}
    worst = max(ratio for verbs in ratios.values() for ratio in verbs.values())
    if options.json:
        facts = {
            "results": results,
            "ratios": ratios,
            "worst": worst,
            "limit": LIMIT,
            "peak_gigabytes": peak_gigabytes(),
        }
        print(json.dumps(facts, indent=2))
    else:
        show(results, ratios)
        print(f"worst ratio {worst:.2f}, allowed {LIMIT:.0f}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
