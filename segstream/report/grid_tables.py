"""The tables of a comparison's scores as sheets: by scenario, by the stages' classes, by class, by memory size."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from segstream.report.blocks import Block, Group, Line, groups_of
from segstream.report.grid import spelled
from segstream.report.grid_extras import ablation_lines
from segstream.report.sheet import Column, Entry, Sheet, SheetRow, settled, sized
from segstream.report.tables import text

__all__ = ["class_sheet", "group_sheet", "memory_sheet", "overview_sheet", "score_sheet"]


def score_sheet(block: Block) -> Sheet:
    """Groups, all, both imIoU and forgetting, a row for each line; class-balanced memory as extra columns."""
    heads = [*(_head(group) for group in groups_of(block.groups)[:2]), Column("all", _FINAL, "final mIoU")]
    measures = [head.title for head in heads]
    heads += [Column("stages ≥ 1", "imIoU"), Column("all stages", "imIoU"), Column("forgetting")]
    measures += ["imiou", "imiou_with_base", "forgetting"]
    balanced = _balanced(block)
    taken = {line.name for line in (*balanced.values(), *ablation_lines(block).values()) if line.role == "variant"}
    lines = [line for line in block.lines if line.name not in taken or line in block.ranked]
    rows = [[_entry(block, line, measure) for measure in measures] for line in lines]
    if balanced:
        heads += [Column(name, "class-balanced memory") for name in ("imIoU", "all")]
        for line, row in zip(lines, rows, strict=True):
            extra = balanced.get(line.name)
            row += [Entry(extra.estimate(m) if extra else None) for m in ("imiou", "all")]
    caption = f"Recipe {block.recipe}, scored on the split {block.split or 'of the recipe'}."
    return _sheet("scores", block, "", caption, heads, lines, rows, lower={measures.index("forgetting")})


_FINAL = "final mIoU by classes"


def _head(group: Group) -> Column:
    foreground = [name for name in group.names if name != "background"]
    named = ", ".join(group.names)
    many = f"{len(foreground)} classes" if len(foreground) > 1 else foreground[0]
    return Column(group.label, _FINAL, named if len(named) <= 22 else many)


def _entry(block: Block, line: Line, measure: str) -> Entry:
    return Entry(line.estimate(measure), printed=block.printed(line, measure))


def _balanced(block: Block) -> dict[str, Line]:
    """For a line's name the same method with class-balanced memory."""
    found = {}
    for line in block.having("variant"):
        asked = {key: value.strip("\"'") for key, value in spelled(line.name).items()}
        if asked == {"memory.policy": "class_balanced"} and any(
            k.name == line.method for k in block.having("headline")
        ):
            found[line.method] = line
    return found


def _sheet(
    id: str,
    block: Block,
    what: str,
    caption: str,
    heads: Sequence[Column],
    lines: Sequence[Line],
    rows: Sequence[Sequence[Entry]],
    lower: Collection[int] = (),
) -> Sheet:
    names = {line.name for line in block.ranked}
    competing = [i for i, line in enumerate(lines) if line.name in names]
    done, footnotes = settled(rows, competing=competing, lower=lower)
    made = tuple(
        SheetRow(line.name, row, line.role, str(line.n), _note(line)) for line, row in zip(lines, done, strict=True)
    )
    title = f"{block.title}, memory of {block.capacity}{f': {what}' if what else ''}"
    return Sheet(id, title, caption, tuple(heads), made, footnotes)


def _note(line: Line) -> str:
    notes = (
        sized(line.n, line.planned),
        f"view {line.view}" if line.view and "view" not in spelled(line.name) else "",
        {"bound": "bound", "other view": "other view"}.get(line.role, ""),
    )
    return ", ".join(note for note in notes if note)


def group_sheet(block: Block) -> Sheet | None:
    """The final mIoU of the classes of each stage; None where the score table has it all."""
    if block.stages < 2:
        return None
    base, _, *stages = groups_of(block.groups)
    heads = [*(_head(group) for group in (base, *stages)), Column("all", _FINAL)]
    lines = [*block.ranked, *([block.bound] if block.bound else [])]
    rows = [[_entry(block, line, head.title) for head in heads] for line in lines]
    caption = "Final mIoU of the classes that each stage brought; the first group holds the background."
    return _sheet("groups", block, "by the stages' classes", caption, heads, lines, rows)


def class_sheet(block: Block) -> Sheet | None:
    """The final IoU of each class, a column for each line: means over the seeds."""
    lines = [*block.ranked, *([block.bound] if block.bound else [])]
    final = [line.average().scores[-1].iou for line in lines]
    if not final:
        return None
    stage_of = [0, *(t for t, group in enumerate(block.groups) for _ in group)]
    rows = []
    for slot, name in enumerate(block.names):
        values = [iou[slot] for iou in final]
        rivals = [v for v, line in zip(values, lines, strict=True) if v is not None and line.role != "bound"]
        top = text(max(rivals)) if len({text(v) for v in rivals}) > 1 else ""
        entries = [Entry(words=str(stage_of[slot]))]
        for value, line in zip(values, lines, strict=True):
            entries.append(Entry(words=text(value), heat=value, best=text(value) == top and line.role != "bound"))
        rows.append(SheetRow(name, tuple(entries)))
    heads = (Column("stage", words=True), *(Column(line.name, words=True) for line in lines))
    title = f"{block.title}, memory of {block.capacity}: by class"
    caption = "Final IoU of each class, percent, means over the seeds. Bold: best of its row. –: no ground truth."
    return Sheet("classes", title, caption, heads, tuple(rows), head="class", reading="")


def memory_sheet(sizes: Sequence[Block]) -> Sheet | None:
    """Blocks of one scenario side by side; None where there is one size only."""
    if len({block.capacity for block in sizes}) < 2:
        return None
    columns = [
        (block, measure, Column(name, f"memory of {block.capacity}"))
        for block in sizes
        for measure, name in (("imiou", "imIoU"), ("all", "final mIoU"))
    ]
    names = _names(sorted(sizes, key=lambda block: -len(block.lines)), "headline")
    several = [name for name in names if sum(name in _names([block], "headline") for block in sizes) > 1]
    caption = "imIoU over the stages after stage 0, and final mIoU."
    return _across("memory", f"{sizes[0].title}: memory sizes", caption, columns, several) if several else None


def overview_sheet(shown: Sequence[Block]) -> Sheet | None:
    """The final mIoU on several scenarios side by side; None where there is one only."""
    if len(shown) < 2:
        return None
    columns = []
    for block in shown:
        over = f"{block.title} ({block.capacity})"
        labels = [*(group.label for group in groups_of(block.groups)[:2]), "all"]
        columns += [(block, label, Column(label, over)) for label in labels]
    caption = (
        "Final mIoU by groups of classes; the first holds the background. In brackets the number of exemplars in "
        "memory."
    )
    names = [*_names(shown, "headline"), *_names(shown, "bound")]
    return _across("overview", "Final mIoU by scenario", caption, columns, names)


def _names(shown: Sequence[Block], role: str) -> list[str]:
    return list(dict.fromkeys(line.name for block in shown for line in block.having(role)))


def _across(
    id: str, title: str, caption: str, columns: Sequence[tuple[Block, str, Column]], names: Sequence[str]
) -> Sheet:
    """A row for each name over columns from several blocks."""
    table = {
        name: [(block, next((k for k in block.lines if k.name == name), None), m) for block, m, _ in columns]
        for name in names
    }
    rows = [[_entry(block, line, m) if line else Entry() for block, line, m in row] for row in table.values()]
    bound = [any(line is not None and line.role == "bound" for _, line, _ in row) for row in table.values()]
    done, footnotes = settled(rows, competing=[i for i, is_bound in enumerate(bound) if not is_bound])
    made = []
    for name, entries, is_bound in zip(names, done, bound, strict=True):
        lines = [line for _, line, _ in table[name] if line is not None]
        counts = sorted({line.n for line in lines})
        n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        note = sized(counts[0]) if len(counts) == 1 else f"n = {n}"
        made.append(SheetRow(name, entries, "bound" if is_bound else "headline", n, note))
    return Sheet(id, title, caption, tuple(column for _, _, column in columns), tuple(made), footnotes)
