"""A search over a small stated grid, with the same budget for every method; what it found, as files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from segstream.schema import nearest, to_toml
from segstream.storage import StateError

__all__ = ["best", "chosen_text", "mean_later", "next_trials", "read_chosen", "spelled"]

Settings = Mapping[str, Any]


def spelled(settings: Settings) -> str:
    """Settings as one text, by which a trial's score is found.

    >>> spelled({"view": "ignore", "lr": 0.01})
    '{"lr": 0.01, "view": "ignore"}'
    """
    return json.dumps(dict(settings), sort_keys=True)


def next_trials(
    axes: Mapping[str, Sequence[Any]], start: Settings, budget: int, scores: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """What to try next, given the scores so far (None: it failed); empty at the end.

    The whole product of the axes where the budget allows it. Else one axis after the other, the best so far carried
    on, until the budget is used.

    >>> axes = {"lr": [0.001, 0.01], "weight": [10, 30, 100]}
    >>> next_trials(axes, {"lr": 0.001, "weight": 10}, 4, {})
    [{'lr': 0.001, 'weight': 10}, {'lr': 0.01, 'weight': 10}]
    """
    everything = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(everything) <= budget:
        return [settings for settings in everything if spelled(settings) not in scores]
    for some in _along(axes, start, budget, scores):
        if wanted := [settings for settings in some if spelled(settings) not in scores]:
            return wanted
    return []


def best(axes: Mapping[str, Sequence[Any]], scores: Mapping[str, float | None]) -> dict[str, Any] | None:
    """The settings of the highest score, the first of equal ones; None where every trial failed.

    >>> best({"lr": [0.001, 0.01]}, {'{"lr": 0.001}': 40.0, '{"lr": 0.01}': 45.0})
    {'lr': 0.01}
    """
    tried = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    known = [(settings, scores.get(spelled(settings))) for settings in tried]
    scored = [(settings, score) for settings, score in known if score is not None]
    return max(scored, key=lambda pair: pair[1])[0] if scored else None


def _along(
    axes: Mapping[str, Sequence[Any]], start: Settings, budget: int, scores: Mapping[str, float | None]
) -> Iterator[list[dict[str, Any]]]:
    """The trials of each axis in turn; the next one is asked for when these have their scores."""
    at = {axis: start[axis] if start.get(axis) in values else values[0] for axis, values in axes.items()}
    seen: set[str] = set()
    for axis, values in axes.items():
        some = []
        for value in values:
            settings = {**at, axis: value}
            if spelled(settings) in seen or len(seen) < budget:
                seen.add(spelled(settings))
                some.append(settings)
        yield some
        at = max(some, key=lambda settings: _number(scores.get(spelled(settings))))


def _number(score: float | None) -> float:
    return float("-inf") if score is None else score


def mean_later(scores: Sequence[Mapping[str, Any]]) -> float | None:
    """imIoU: the mean of mIoU over the stages after the base.

    >>> mean_later([{"stage": 0, "miou": 70.0}, {"stage": 1, "miou": 50.0}, {"stage": 2, "miou": 40.0}])
    45.0
    """
    later = [s["miou"] for s in scores if s["stage"] >= 1 and s["miou"] is not None]
    return sum(later) / len(later) if later else None


# ---- chosen.toml


def chosen_text(chosen: Mapping[str, Settings], trials: Sequence[Mapping[str, Any]], *, where: str) -> str:
    """The file for `--settings`: what was chosen, with every trial's score as a comment.

    >>> trials = [{"method": "er", "settings": {"lr": 0.01}, "imiou": 45.25}]
    >>> print(chosen_text({"er": {"lr": 0.01}}, trials, where="demo, split val"), end="")
    # Chosen by imIoU on demo, split val.
    # er: lr=0.01: 45.25
    <BLANKLINE>
    [methods.er]
    lr = 0.01
    """
    lines = [f"# Chosen by imIoU on {where}."]
    for trial in trials:
        told = ", ".join(f"{key}={json.dumps(value).strip(chr(34))}" for key, value in trial["settings"].items())
        score = "failed" if trial["imiou"] is None else f"{trial['imiou']:.2f}"
        lines.append(f"# {trial['method']}: {told}: {score}")
    return "\n".join(lines) + "\n\n" + to_toml({"methods": {name: dict(found) for name, found in chosen.items()}})


def read_chosen(path: Path, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What `--settings` names: [methods.NAME] sections. Each method checks its own.

    >>> read_chosen(Path("no.toml"), [])
    Traceback (most recent call last):
    segstream.atomic.StateError: There is no file no.toml.
    """
    if not path.is_file():
        raise StateError(f"There is no file {path}.")
    try:
        found = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from None
    sections = found.pop("methods", {})
    if found or not isinstance(sections, dict) or not all(isinstance(s, dict) for s in sections.values()):
        raise ValueError(f"{path} must hold sections [methods.NAME] and nothing else, as `compare --tune` writes it.")
    for name in sections:
        if name not in methods:
            raise ValueError(f"{path} sets something for a method {name!r}.{nearest(name, methods)}")
    return sections
