"""The ablation of em and what updates cost, as sheets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from segstream.report.blocks import Block, Line
from segstream.report.grid import Cell, spelled
from segstream.report.paper import COMPONENTS, paper
from segstream.report.sheet import Column, Entry, Sheet, SheetRow, settled, sized
from segstream.report.tables import text

__all__ = ["ablation_lines", "ablation_sheet", "cost_sheet"]

_WORDS = {
    "class_balanced": "class-balanced memory",
    "relabelling": "relabelling with the composite loss",
    "cosine": "cosine head",
    "dynamic_sampling": "dynamic sampling",
}


def ablation_lines(block: Block) -> dict[frozenset[str], Line]:
    """em with its components switched, by those that are on, fewest first; empty where there are not two such lines."""
    found: dict[frozenset[str], Line] = {}
    for line in block.having("headline", "variant"):
        if line.method == "em" and not set(spelled(line.name)) - set(COMPONENTS):
            found.setdefault(frozenset(name for name in COMPONENTS if _on(line.cells[0], name)), line)
    return dict(sorted(found.items(), key=lambda item: len(item[0]))) if len(found) > 1 else {}


def _on(cell: Cell, component: str) -> bool:
    return bool(cell.settings.get(component, cell.given.get(component, True)))


def ablation_sheet(block: Block) -> Sheet | None:
    """em's components one after the other, like the paper's last table; None where they were not run."""
    found = ablation_lines(block)
    if not found:
        return None
    rows = []
    for on, line in found.items():
        original = block.original
        printed = paper().ablation(original.recipe, block.capacity, on) if original else None
        checks = [Entry(words="✓" if name in on else "–") for name in COMPONENTS]
        numbers = [Entry(line.estimate(m)) for m in ("imiou_with_base", "all", "forgetting")]
        rows.append([*checks, Entry(line.estimate("imiou"), printed=printed), *numbers])
    heads = [Column(short, words=True) for short in COMPONENTS.values()]
    heads += [Column("stages ≥ 1", "imIoU"), Column("all stages", "imIoU"), Column("final mIoU"), Column("forgetting")]
    done, footnotes = settled(rows, competing=range(len(rows)), lower={len(heads) - 1})
    made = tuple(
        SheetRow(_step(list(found), i), row, n=str(line.n), note=sized(line.n, line.planned))
        for i, (line, row) in enumerate(zip(found.values(), done, strict=True))
    )
    named = "; ".join(f"{short}: {_WORDS[name]}" for name, short in COMPONENTS.items())
    title = f"{block.title}, memory of {block.capacity}: em's components"
    return Sheet("ablation", title, f"{named}.", tuple(heads), made, footnotes, head="em with")


def _step(sets: Sequence[frozenset[str]], i: int) -> str:
    """What a row adds to the one above.

    >>> _step([frozenset(), frozenset({"cosine"})], 1)
    '+ cosine head'
    """
    if not sets[i]:
        return "none"
    if i and sets[i] > sets[i - 1]:
        return "+ " + ", ".join(_WORDS[name] for name in COMPONENTS if name in sets[i] - sets[i - 1])
    return " + ".join(_WORDS[name] for name in COMPONENTS if name in sets[i])


def cost_sheet(block: Block) -> Sheet | None:
    """Seconds and bytes of an update, beside those of finetune; None where no run tells them."""
    lines = [line for line in block.having("headline") if _told(line, "median_seconds") is not None]
    if not lines:
        return None
    reference = next((line for line in lines if line.method == "finetune"), lines[0])
    times = f"× {reference.name}"
    columns: list[tuple[str, str, Callable[[Line], str]]] = [
        ("median, s", "one update", lambda k: _seconds(_told(k, "median_seconds"))),
        (times, "one update", lambda k: _ratio(k, reference, "median_seconds")),
        ("GiB", "peak memory", lambda k: _gib(_told(k, "peak_bytes"))),
        (times, "peak memory", lambda k: _ratio(k, reference, "peak_bytes")),
        ("updates", "", lambda k: text(_told(k, "updates"), 0)),
        ("whole run, s", "", lambda k: _seconds(_told(k, "total_seconds"))),
    ]
    if all(_told(line, "peak_bytes") is None for line in lines):
        columns = [column for column in columns if column[1] != "peak memory"]
    rows = tuple(
        SheetRow(
            line.name,
            tuple(Entry(words=told(line)) for _, _, told in columns),
            n=str(line.n),
            note=sized(line.n, line.planned),
        )
        for line in lines
    )
    heads = tuple(Column(title, over, words=True) for title, over, _ in columns)
    caption = "The median update of each run, means over the runs. Runs that share a machine slow each other."
    return Sheet("cost", f"{block.title}, memory of {block.capacity}: cost", caption, heads, rows, reading="")


def _told(line: Line, key: str) -> float | None:
    values = [v for cell in line.cells if isinstance(v := cell.cost.get(key), int | float)]
    return mean(values) if values else None


def _ratio(line: Line, reference: Line, key: str) -> str:
    own, other = _told(line, key), _told(reference, key)
    return text(own / other, 2) if own is not None and other else "–"


def _gib(value: float | None) -> str:
    return text(None if value is None else value / 2**30, 2)


def _seconds(value: float | None) -> str:
    """
    >>> _seconds(0.0421), _seconds(75.2), _seconds(None)
    ('0.042', '75.2', '–')
    """
    return text(value, 3 if value is not None and value < 1 else 1)
