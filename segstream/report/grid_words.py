"""What a comparison says, in plain sentences: who is best and how sure that is, and where the paper has it otherwise.

A difference is called one where two intervals do not touch. With fewer than three runs there are no intervals, and the
sentences say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from segstream.report.blocks import Block, Line
from segstream.report.facts import machine
from segstream.report.grid import Grid
from segstream.report.grid_order import by_value, joined, order, order_words, told
from segstream.report.intervals import Estimate
from segstream.report.tables import text

__all__ = ["block_words", "lead", "progress"]


def lead(shown_blocks: Sequence[Block]) -> list[str]:
    """The page's first words. Of one scenario all that there is to say, of several who ends highest where."""
    if not shown_blocks:
        return ["No run is done yet."]
    if len(shown_blocks) == 1:
        return block_words(shown_blocks[0])
    winners: dict[str, list[tuple[Block, bool]]] = {}
    for block in shown_blocks:
        if ranking := by_value(block.ranked):
            clear = all(ranking[0][1].apart(other) for _, other in ranking[1:])
            winners.setdefault(ranking[0][0].name, []).append((block, clear and len(ranking) > 1))
    parts = []
    for name, places in sorted(winners.items(), key=lambda item: -len(item[1])):
        sure = sum(clear for _, clear in places)
        where = f"in {len(places)} of {len(shown_blocks)} scenarios" if len(places) > 1 else f"on {places[0][0].title}"
        how = "clearly" if sure == len(places) else f"clearly in {sure}" if sure else "nowhere clearly"
        if len(places) == 1:
            how = "clearly" if sure else "not clearly"
        parts.append(f"{name} {where} ({how})")
    if not parts:
        return ["No run has been scored yet."]
    return [
        f"Highest at the end: {'; '.join(parts)}.",
        "Clearly means that no other method's 95 % interval touches the best one's.",
    ]


def block_words(block: Block) -> list[str]:
    """All sentences on one scenario; the first can stand alone."""
    ranking = by_value(block.ranked)
    if not ranking:
        return ["No run has been scored yet."]
    said = [*_result(ranking), *_average(ranking, block), *_bound(ranking[0], block), *_forgetting(block)]
    return said + _views(block) + _beside_paper(block) + order_words(order(block))


def _result(ranking: Sequence[tuple[Line, Estimate]]) -> list[str]:
    line, best = ranking[0]
    if len(ranking) == 1:
        return [f"{line.name} ends at {told(best)} mIoU ({_runs(best.n)})."]
    level = [k.name for k, e in ranking if text(e.mean) == text(best.mean)]
    if len(level) > 1:
        return [f"{joined(level)} end level, at {text(best.mean)} % mIoU."]
    start = f"{line.name} ends highest, at {told(best)} mIoU ({_runs(best.n)})"
    other, second = ranking[1]
    gap = f"{text(best.mean - second.mean)} points above {other.name} ({told(second)})"
    few = [k.name for k, e in ranking[1:] if best.half is None or e.half is None]
    if len(few) == len(ranking) - 1:
        return [f"{start}: {gap}.", "With fewer than three runs of a method, chance cannot be told from a difference."]
    touched = [f"{k.name} ({told(e)})" for k, e in ranking[1:] if k.name not in few and not best.apart(e)]
    if touched:
        whose = "that" if len(touched) == 1 else "those"
        said = [f"{start}, but not clearly: its interval overlaps {whose} of {joined(touched)}."]
    else:
        said = [f"{start}: {gap}{', clearly' if other.name not in few else ''}."]
    if few:
        them = "these" if len(few) > 1 else "it"
        said.append(f"Of {joined(few)} there are fewer than three runs, so nothing is sure against {them}.")
    return said


def _runs(n: int) -> str:
    """
    >>> _runs(1), _runs(3)
    ('one run', 'n = 3')
    """
    return {1: "one run", 2: "the mean of two runs"}.get(n, f"n = {n}")


def _average(ranking: Sequence[tuple[Line, Estimate]], block: Block) -> list[str]:
    """With one stage after stage 0 the mean over the stages is the final value."""
    average = by_value(block.ranked, "imiou")
    if block.stages < 2 or len(average) < 2:
        return []
    (line, best), (other, second) = average[:2]
    level = [k.name for k, e in average if text(e.mean) == text(best.mean)]
    if len(level) > 1:
        return [f"On average over the stages (imIoU) {joined(level)} are level, at {text(best.mean)} %."]
    after = f"imIoU {told(best)}; next {other.name}, {told(second)}; {'' if best.apart(second) else 'not '}clearly"
    if line.name == ranking[0][0].name:
        return [f"It leads on average over the stages too ({after})."]
    return [f"On average over the stages {line.name} leads instead ({after})."]


def _bound(best: tuple[Line, Estimate], block: Block) -> list[str]:
    limit = block.bound.estimate("all") if block.bound else None
    if limit is None or not limit.mean:
        return []
    start = f"Training on all classes and all pictures at once (joint, the bound) reaches {told(limit)}"
    share = 100 * best[1].mean / limit.mean
    if share > 100:
        return [f"{start}; {best[0].name} even lies above it, so the bound is not a tight one here."]
    return [f"{start}; {best[0].name} keeps {text(share, 0)} % of that."]


def _forgetting(block: Block) -> list[str]:
    lost = by_value(block.ranked, "forgetting")
    if len(lost) < 2:
        return []
    (most, worst), (least, best) = lost[0], lost[-1]
    return [
        f"The classes known before the last stage lost least with {least.name} ({text(best.mean)} points against their "
        f"best) and most with {most.name} ({text(worst.mean)})."
    ]


def _views(block: Block) -> list[str]:
    """Where the view that was not chosen did better: the table shows it, and so do the words."""
    said = []
    for line in block.having("other view"):
        head = next((k for k in block.having("headline") if k.method == line.method), None)
        own, other = (k.estimate("all") if k else None for k in (head, line))
        if head and own and other and other.mean > own.mean:
            said.append(
                f"{line.name} ends at {told(other)}, above the row {head.name} ({told(own)}), which keeps the view "
                "that was set before these pictures were scored."
            )
    return said


def _beside_paper(block: Block) -> list[str]:
    line = next((k for k in block.having("headline") if k.name == "em"), None)
    found, printed = (line.estimate("all"), block.printed(line, "all")) if line else (None, None)
    if found is None or printed is None or printed.contradiction:
        return []
    gap = found.mean - printed.percent
    how = f"{text(abs(gap))} points {'above' if gap > 0 else 'below'}" if text(gap) != "0.0" else "level with"
    otherwise = " It was trained otherwise than the paper says (below the table)." if block.differences else ""
    return [f"em's final mIoU is {how} the paper's {printed.percent:.2f} %.{otherwise}"]


# ---- how far it came


def progress(grid: Grid, made: Sequence[Block]) -> list[str]:
    """What the reader must know of the comparison as a whole: what is missing, where it ran, what was left out."""
    said = []
    if grid.missing:
        done = len(grid.cells)
        said.append(f"{done} of {done + len(grid.missing)} runs are done; the rest is shown as –.")
    by_version = Counter(str(cell.about.get("segstream") or "unknown") for cell in grid.cells)
    if len(by_version) > 1:
        said.append(f"The runs come from several versions of segstream: {_counted(by_version)}.")
    days = sorted({cell.finished[:10] for cell in grid.cells if cell.finished})
    if days:
        machines = sorted({machine(cell.about) for cell in grid.cells} - {""})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        said.append(f"Runs ended {when}{f' on {joined(machines)}' if machines else ''}.")
    for block in made:
        for line in block.lines:
            said += _mixed(block, line)
    return list(dict.fromkeys([*said, *grid.notes]))


def _counted(counts: Mapping[str, int]) -> str:
    return joined([f"{name} ({n} {'runs' if n > 1 else 'run'})" for name, n in counts.items()])


def _mixed(block: Block, line: Line) -> list[str]:
    """A row whose runs differ in more than the seed is no row."""
    first = line.cells[0].settings if line.cells else {}
    keys = [
        key for key in first if key != "seed" and any(cell.settings.get(key) != first[key] for cell in line.cells[1:])
    ]
    if not keys:
        return []
    return [f"The runs of {line.name} on {block.title} differ in {joined(keys)}, not just in the seed."]
