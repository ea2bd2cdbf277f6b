"""The drawings: curves over stages, what each class lost, and what the method watched while it learned.

Every function takes records and gives a Matplotlib figure; `theme.svg` makes it part of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from segstream.report.record import Record, Update
from segstream.report.tables import summary, text
from segstream.report.theme import GRID, HEAT, INK, MUTED, SURFACE, figure, house_style, series, spread

__all__ = ["Curve", "History", "curves", "draw_curves", "forgetting", "history"]

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "p")  # a second sign beside the colour
WIDTH = 520  # CSS pixels; a small window scales this by at most a third
NARROW = 330  # three abreast
NAMED_ROWS = 36  # more classes than this are told by stage, not each by name


@dataclass(frozen=True)
class Curve:
    """mIoU by stage: `points` are (stage, value, half of its interval or None), `color` is the number of a series."""

    label: str
    color: int
    points: Sequence[tuple[int, float, float | None]]

    @property
    def end(self) -> tuple[int, float]:
        return self.points[-1][0], self.points[-1][1]


def curves(records: Sequence[Record], colors: Mapping[str, int], bound: Mapping[str, Any] | None = None) -> Figure:
    """mIoU after each stage of single runs, every curve labelled at its end."""
    found = [
        Curve(r.label, colors[r.label], [(t, v, None) for t, v in enumerate(summary(r)["miou"]) if v is not None])
        for r in records
    ]
    return draw_curves(found, max(max(r.last for r in records), 1), bound)


@house_style()
def draw_curves(found: Sequence[Curve], last: int, bound: Mapping[str, Any] | None = None) -> Figure:
    """Curves with the bands of their intervals, up to the stage `last`; each labelled at its end."""
    found = [curve for curve in found if curve.points]
    drawing, axes = figure(WIDTH, max(340, 140 + 34 * len(found)))
    right = _room(
        [c.label + "(stage)" * (c.end[0] < last) for c in found]
        + ([str(bound.get("label", "joint"))] if bound else []),
        54,
    )
    drawing.subplots_adjust(left=0.085, right=1 - right / WIDTH, top=0.96, bottom=0.14)
    ends: list[tuple[float, str, str]] = []
    for curve in found:
        n, x = curve.color, [t for t, _, _ in curve.points]
        y = [v for _, v, _ in curve.points]
        banded = [(t, v - h, v + h) for t, v, h in curve.points if h is not None]
        if banded:
            t, low, high = zip(*banded, strict=True)
            axes.fill_between(t, low, high, color=series(n), alpha=0.16, lw=0, zorder=1)
        axes.plot(x, y, color=series(n), lw=2.2, marker=MARKERS[n], ms=6.5, mec=SURFACE, mew=1.2, clip_on=False)
        where = f" (stage {x[-1]})" if x[-1] < last else ""
        ends.append((y[-1], f"{curve.label}  {text(y[-1])}{where}", series(n)))
    if bound and bound.get("miou") is not None:
        axes.axhline(bound["miou"], color=MUTED, lw=1.4, ls=(0, (2, 3)), zorder=1)
        ends.append((bound["miou"], f"{bound.get('label', 'joint')}  {text(bound['miou'])}", MUTED))
    top = min(100.0, 10 * np.ceil(max((e[0] for e in _heights(axes)), default=90.0) / 10 + 0.2))
    _percent_axis(axes, top)
    axes.set_xlim(-0.3, last + 0.12)
    axes.set_xticks(range(last + 1), [("stage 0" if last < 8 else "0") if t == 0 else str(t) for t in range(last + 1)])
    gap = top * 17 / (drawing.get_figheight() * 72 * 0.82)
    for (_, label, color), place in zip(ends, spread([e[0] for e in ends], gap, low=0, high=top), strict=True):
        _end_label(axes, label, color, last + 0.12, place)
    return drawing


def _heights(axes: Axes) -> list[tuple[float]]:
    return [(float(np.max(np.asarray(line.get_ydata(), dtype=float))),) for line in axes.get_lines()]


def _percent_axis(axes: Axes, top: float) -> None:
    axes.set_ylim(0, top)
    ticks = np.arange(0, top + 1, 20 if top > 50 else 10)
    axes.set_yticks(ticks, [f"{v:.0f}" for v in ticks[:-1]] + [f"{ticks[-1]:.0f} %"])
    axes.grid(axis="y", color=GRID, lw=1)


def _room(labels: Sequence[str], extra: float) -> float:
    """Pixels that the longest of these labels takes at the right of a plot."""
    return min(max((len(label) for label in labels), default=0) * 7.2 + extra, 230)


def _end_label(axes: Axes, label: str, color: str, x: float, y: float) -> None:
    axes.annotate(
        label, (x, y), xytext=(7, 0), textcoords="offset points", color=color, fontsize=12.5, va="center",
        fontweight="bold" if color != MUTED else "normal", annotation_clip=False,
    )  # fmt: skip


@house_style()
def forgetting(lost: Mapping[str, Mapping[str, float]], colors: Mapping[str, int]) -> Figure | None:
    """Points that each old class lost against its best, by name and class: a dot for a class, a bar for the mean."""
    shown = [label for label in lost if lost[label]]
    if not shown:
        return None
    height = 56 + (56 if len(shown) < 6 else 44) * len(shown)
    drawing, axes = figure(WIDTH, height)
    values = [v for label in shown for v in lost[label].values()]
    low, high = min(0.0, *values), max(10.0, *values)
    worst = {label: max(lost[label], key=lambda name: lost[label][name]) for label in shown}
    left, right = _room(shown, 16), _room([_short(name, 14) for name in worst.values()], 14)
    drawing.subplots_adjust(left=left / WIDTH, right=1 - right / WIDTH, top=1 - 22 / height, bottom=30 / height)
    axes.set_xlim(low - (high - low) * 0.02, high + (high - low) * 0.02)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    near = (high - low) * 7.5 / (WIDTH - left - right)  # a dot's width
    for row, label in enumerate(shown):
        _dots(axes, row, lost[label], worst[label], series(colors[label]), near)
    axes.axvline(0, color=MUTED, lw=1, zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_yticks(range(len(shown)), shown)
    for label, tick in zip(shown, axes.get_yticklabels(), strict=True):
        tick.set_color(series(colors[label]))
        tick.set_fontweight("bold")
    axes.grid(axis="x", color=GRID, lw=1)
    return drawing


def _dots(axes: Axes, row: int, lost: Mapping[str, float], worst: str, color: str, near: float) -> None:
    """One method's line: its classes, their mean, and the name of the class that lost most."""
    points = np.array(sorted(lost.values()))
    heights = row + _swarm(points, near)
    axes.scatter(points, heights, s=34, color=color, alpha=0.55, linewidths=0, zorder=3, clip_on=False)
    average = float(points.mean())
    axes.plot([average] * 2, [row - 0.3, row + 0.3], color=INK, lw=2.4, zorder=4, solid_capstyle="round")
    axes.text(average, row - 0.33, text(average), color=INK, fontsize=12, fontweight="bold", ha="center", va="bottom")
    axes.annotate(
        _short(worst, 14), (points[-1], heights[-1]), xytext=(8, 0), textcoords="offset points", color=MUTED,
        fontsize=11, va="center", annotation_clip=False,
    )  # fmt: skip


def _swarm(points: npt.NDArray[np.float64], near: float) -> npt.NDArray[np.float64]:
    """Heights that keep dots of almost the same value apart: each takes the free place nearest to the middle."""
    places = np.array([0, 1, -1, 2, -2]) * 0.13
    taken = np.full(len(places), -np.inf)
    heights = np.zeros(len(points))
    for i, point in enumerate(points):
        free = np.flatnonzero(point - taken >= near)
        place = free[0] if len(free) else np.argmin(taken)
        taken[place] = point
        heights[i] = places[place]
    return heights


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


@dataclass(frozen=True)
class History:
    """A drawing of one number for each class over the updates; `top` is the value that has the full colour."""

    drawing: Figure
    top: float


@house_style()
def history(
    record: Record, values: Callable[[Update], Mapping[int, float]], *, columns: int = 160, top: float | None = None
) -> History | None:
    """One number for each class over all updates, as shades: rows are classes, columns updates in order.

    Updates that share a column are averaged; where nothing was told nothing is drawn.
    """
    told = [values(u) for u in record.updates]
    slots = range(1, max([len(record.names), *(max(t, default=0) + 1 for t in told)]))
    if not any(told) or not slots:
        return None
    grid = np.full((len(slots), len(told)), np.nan)
    for column, row in enumerate(told):
        for slot, value in row.items():
            if slot >= 1:
                grid[slot - 1, column] = value
    grid = _binned(grid, columns)
    shown = grid[~np.isnan(grid)]  # empty where only the background was ever told
    limit = top or max(float(shown.max(initial=0.0)), 1e-9)
    return History(_shades(record, grid / limit, len(told)), limit)


def _binned(grid: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.float64]:
    """Means of neighbouring updates, at most so many columns; NaN where nothing was told."""
    each = -(-grid.shape[1] // most)
    pad = -grid.shape[1] % each
    parts = np.pad(grid, ((0, 0), (0, pad)), constant_values=np.nan).reshape(grid.shape[0], -1, each)
    there = ~np.isnan(parts)
    counts = there.sum(-1)
    means: npt.NDArray[np.float64] = np.where(
        counts > 0, np.where(there, parts, 0).sum(-1) / np.maximum(counts, 1), np.nan
    )
    return means


def _shades(record: Record, grid: npt.NDArray[np.float64], updates: int) -> Figure:
    names = [n if i < len(record.names) else f"class {i}" for i, n in _numbered(record.names, grid.shape[0])]
    named = len(names) <= NAMED_ROWS
    height = max(8 + 15.0 * len(names), 96) if named else min(max(2.5 * len(names), 360), 700)
    drawing, axes = figure(NARROW, height + 46)
    labels, places = _row_labels(record, names, named)
    left = min(max((len(n) for n in labels), default=0) * 6.6 + 12, 130)
    drawing.subplots_adjust(left=left / NARROW, right=0.985, top=1 - 20 / (height + 46), bottom=26 / (height + 46))
    shade = np.zeros((*grid.shape, 4))
    shade[..., :3] = HEAT
    shade[..., 3] = np.clip(np.nan_to_num(grid), 0, 1)
    axes.imshow(shade, aspect="auto", interpolation="none", extent=(0, updates, len(names), 0))
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", labelsize=11, labelcolor=INK)
    _stage_marks(axes, record, updates, height)
    return drawing


def _numbered(names: Sequence[str], count: int) -> list[tuple[int, str]]:
    return [(slot, names[slot] if slot < len(names) else "") for slot in range(1, count + 1)]


def _row_labels(record: Record, names: Sequence[str], named: bool) -> tuple[list[str], list[float]]:
    """Each class by name, or where these would not fit, each stage's rows together."""
    if named:
        return [_short(n, 17) for n in names], [i + 0.5 for i in range(len(names))]
    labels, places, start = [], [], 0
    for stage, group in enumerate(record.groups):
        labels.append(f"stage {stage} ({len(group)})")
        places.append(start + len(group) / 2)
        start += len(group)
    return labels, places


def _stage_marks(axes: Axes, record: Record, updates: int, height: float) -> None:
    """A line and a number where each stage begins, above the rows; the classes' own beginnings as steps."""
    first: dict[int, int] = {}
    for column, update in enumerate(record.updates):
        first.setdefault(update.stage, column)
    apart = updates * 0.1
    told = -apart
    for stage, column in first.items():
        axes.axvline(column, color=MUTED, lw=0.8, zorder=3)
        if column - told >= apart:
            axes.text(
                column,
                -6 / height * axes.get_ylim()[0],
                f"{stage}" if told >= 0 else f"stage {stage}",
                color=MUTED,
                fontsize=11,
                va="bottom",
            )
            told = column
    edge = 0
    for group in record.groups:
        if edge:
            axes.axhline(edge, color=MUTED, lw=0.8, zorder=3)
        edge += len(group)
    axes.set_xticks([updates], [f"{updates} updates"], ha="right")
