"""The paper's four tables as data: every printed number with what it measures, and which of them contradict others."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

__all__ = ["COMPONENTS", "Paper", "PaperCell", "PaperScenario", "paper"]

# The ablation's switches in the order in which the paper turns them on, and what it calls them.
COMPONENTS = {"class_balanced": "CBES", "relabelling": "C.R.", "cosine": "C.N.", "dynamic_sampling": "D.S."}
_SAME = {"all": "final", "final": "all"}  # two names of the final mIoU, in different tables


@dataclass(frozen=True)
class PaperCell:
    """One printed number.

    measure        a group of slots such as "0-15" or "16-20" (slot 0 is the background), "all", "final" or "imiou"
    components     the ablation's switches that are on; None in the other tables
    contradiction  why the number can be no target; empty for all but a few
    """

    table: str
    recipe: str
    memory: int
    method: str
    measure: str
    percent: float
    components: frozenset[str] | None = None
    contradiction: str = ""


@dataclass(frozen=True)
class PaperScenario:
    """A scenario of the paper, as a recipe for it says it."""

    recipe: str
    title: str
    dataset: str
    split: str
    rule: str


@dataclass(frozen=True)
class Paper:
    """All cells and scenarios, and what the paper tells of its training as dotted recipe keys."""

    cells: tuple[PaperCell, ...]
    scenarios: tuple[PaperScenario, ...]
    setting: Mapping[str, Any]

    def find(self, recipe: str, memory: int, method: str, measure: str) -> PaperCell | None:
        """The number for a method in a scenario; "all" and "final" serve for each other.

        >>> paper().find("voc-15-1-disjoint", 50, "em", "all").percent
        60.14
        >>> paper().find("voc-15-1-disjoint", 50, "em", "0-15") is None
        True
        """
        at = recipe, memory, method
        return self._by_place.get((*at, measure)) or self._by_place.get((*at, _SAME.get(measure, "")))

    @cached_property
    def _by_place(self) -> dict[tuple[str, int, str, str], PaperCell]:
        plain = (c for c in self.cells if c.components is None)
        return {(c.recipe, c.memory, c.method, c.measure): c for c in plain}

    def ablation(self, recipe: str, memory: int, components: frozenset[str]) -> PaperCell | None:
        """The imIoU with these components on.

        >>> paper().ablation("ade-50-50", 750, frozenset({"class_balanced"})).percent
        18.63
        """
        asked = (recipe, memory, components)
        return next((c for c in self.cells if (c.recipe, c.memory, c.components) == asked), None)

    def scenario(self, recipe: str, config: Mapping[str, Any]) -> PaperScenario | None:
        """The paper's scenario that a resolved recipe is, by what it says or, where it says nothing, by its name.

        A file with the name of a paper's recipe but other stages is none of the paper's.

        >>> told = {"data": {"dataset": "voc"}, "scenario": {"split": "15-1", "rule": "disjoint"}}
        >>> paper().scenario("mine", told).recipe
        'voc-15-1-disjoint'
        >>> told["scenario"]["rule"] = "generated"
        >>> paper().scenario("voc-15-1-disjoint", told) is None
        True
        """
        dataset = _text(config, "data", "dataset")
        split, rule = _text(config, "scenario", "split"), _text(config, "scenario", "rule")
        for found in self.scenarios:
            told = [
                (given, own)
                for given, own in ((dataset, found.dataset), (split, found.split), (rule, found.rule))
                if given
            ]
            if all(given == own for given, own in told) and (len(told) == 3 or recipe == found.recipe):
                return found
        return None


def _text(config: Mapping[str, Any], section: str, key: str) -> str:
    value = (config.get(section) or {}).get(key)
    return value if isinstance(value, str) else ""


@cache
def paper() -> Paper:
    """The paper, read once.

    >>> len(paper().cells)
    309
    """
    data = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
    reasons = {name: entry["sentence"] for entry in data["contradiction"] for name in entry["cells"]}
    cells = dict((*_tables(data["table"]), *_ablation(data["ablation"])))
    if unknown := sorted(set(reasons) - set(cells)):
        raise ValueError(f"paper.toml marks {unknown[0]!r}, which is no cell of its tables.")
    return Paper(
        tuple(replace(cell, contradiction=reasons.get(name, "")) for name, cell in cells.items()),
        tuple(PaperScenario(**entry) for entry in data["scenario"]),
        data["setting"],
    )


def _tables(tables: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, PaperCell]]:
    for table in tables:
        for method, row in table["rows"].items():
            for column, percent in zip(table["columns"], row, strict=True):
                recipe, memory, measure = column.split()
                name = f"{table['id']} {method} {column}"
                yield name, PaperCell(table["id"], recipe, int(memory), method, measure, float(percent))


def _ablation(table: Mapping[str, Any]) -> Iterator[tuple[str, PaperCell]]:
    for row in table["rows"]:
        parts = frozenset(row["components"])
        place = table["id"], table["recipe"], table["memory"], table["method"], table["measure"]
        yield f"{table['id']} {len(parts)}", PaperCell(*place, float(row["percent"]), parts)
