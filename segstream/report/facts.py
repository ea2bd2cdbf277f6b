"""What surrounds the scores: what updates cost, and the settings, versions and devices in which runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from segstream.report.record import Record, flatten

__all__ = ["Cost", "costs", "differences", "machine"]


@dataclass(frozen=True)
class Cost:
    """What a run's updates took, in seconds."""

    label: str
    updates: int
    median: float
    slow: float  # nine of ten updates took no longer
    updating: float
    whole: float | None


def costs(records: Sequence[Record]) -> list[Cost]:
    """A line for each run that timed its updates.

    The median says what an update costs: the first ones also pay for compiling and caches.
    """
    lines = []
    for record in records:
        times = sorted(u.seconds for u in record.updates if u.seconds > 0)
        if times:
            slow = times[min(len(times) - 1, int(0.9 * len(times)))]
            lines.append(Cost(record.label, len(times), median(times), slow, sum(times), record.seconds))
    return lines


def machine(about: Mapping[str, Any]) -> str:
    """Processor and devices of a run as `about.json` knows them; empty where it knows none.

    >>> machine({"processor": "A CPU", "cores": 2, "threads": 1, "devices": [{"device": "cuda:0", "name": "A GPU"}]})
    'A CPU (2 cores, 1 thread), A GPU'
    """
    if not about.get("processor"):
        return ""
    counts = ", ".join(f"{n} {k if n != 1 else k[:-1]}" for k in ("cores", "threads") if (n := about.get(k)))
    devices = about.get("devices") or []
    return ", ".join([f"{about['processor']}{f' ({counts})' if counts else ''}", *(str(d["name"]) for d in devices)])


def differences(facts: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Facts in which runs differ (a value for each run, '–' where it has none), and those that they share.

    >>> differences([{"x": 1, "run": {"seed": 2}}, {"x": 1}])
    ({'run.seed': ['2', '–']}, {'x': '1'})
    """
    flats = [flatten(f) for f in facts]
    varied, shared = {}, {}
    for key in dict.fromkeys(k for flat in flats for k in flat):
        shown = [_shown(flat[key]) if key in flat else "–" for flat in flats]
        if len(set(shown)) > 1:
            varied[key] = shown
        else:
            shared[key] = shown[0]
    return varied, shared


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(f"({_shown(v)})" if isinstance(v, list | tuple) else _shown(v) for v in value) or "(none)"
    return f"{value:g}" if isinstance(value, float) else str(value)
