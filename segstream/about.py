"""Where something was computed: versions, processor, devices. Every run stores it; `segstream info` prints it.

Nothing that tells who or where: no names of users, machines or folders.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import torch

from segstream import __version__

__all__ = ["about", "describe"]


def about() -> dict[str, Any]:
    """Versions and devices as plain data.

    >>> found = about()
    >>> found["segstream"] == __version__, found["versions"]["torch"] == torch.__version__
    (True, True)
    """
    return {
        "segstream": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": _cores(),
        "memory_gib": _memory_gib(),
        "threads": torch.get_num_threads(),
        "devices": _devices(),
        "versions": _versions(),
    }


def describe(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The same as lines for people: a label and a text each.

    >>> describe({"segstream": "0.1.0", "cores": 2, "versions": {"torch": "2.11.0"}})
    [('segstream', '0.1.0'), ('cores', '2'), ('torch', '2.11.0')]
    """
    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            lines += [(name, str(text)) for name, text in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            lines += [(key, ", ".join(str(item) for item in device.values())) for device in value] or [(key, "none")]
        else:
            lines.append((key.replace("_gib", " (GiB)"), "unknown" if value is None else str(value)))
    return lines


def _versions() -> dict[str, str]:
    """The packages that segstream is built on, as its own metadata names them; what is missing is left out."""
    try:
        wanted = [line for line in requires("segstream") or [] if "extra ==" not in line]
    except PackageNotFoundError:  # run from a folder without being installed
        wanted = ["torch"]
    found = {}
    for line in wanted:
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return dict(sorted({**found, "torch": torch.__version__}.items()))  # PyTorch's own has its build, such as +cpu


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.machine()


def _cores() -> int:
    """The cores that this process may use, which in a container are fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)


def _devices() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for i in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(i)
        found.append({"device": f"cuda:{i}", "name": device.name, "memory_gib": round(device.total_memory / 2**30, 1)})
    if torch.backends.mps.is_available():
        found.append({"device": "mps", "name": platform.machine()})
    return found
