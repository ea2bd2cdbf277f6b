"""One look for all plots: colours that the page decides on, so that one drawing serves light, dark and print.

A plot is drawn by Matplotlib with placeholder colours; `svg` turns these into the page's CSS variables and keeps
the text as text, which stays readable, selectable and in the page's own font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "GRID",
    "HEAT",
    "INK",
    "MUTED",
    "SURFACE",
    "figure",
    "house_style",
    "method_colors",
    "series",
    "spread",
    "svg",
]

INK, MUTED, GRID, SURFACE = "#010101", "#010102", "#010103", "#010104"
HEAT = (37 / 255, 99 / 255, 235 / 255)  # shown with an opacity: it lies on the page's own colour, light or dark
SERIES = 9  # --s0 .. --s8 of style.css: distinct for the colour-blind too
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", SURFACE: "var(--surface)"}
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "segstream",  # the same numbers give the same file
    "text.parse_math": False,  # a class may be called "$"
    "font.family": ["DejaVu Sans"],  # comes with Matplotlib; only measures, the page's font draws
    "font.size": 12.0,
}
# A method keeps its colour in every plot of every report.
_HOME = {"em": 0, "er": 1, "finetune": 2, "mib": 3, "lwf": 4, "icarl": 5, "agem": 6, "mir": 7, "coriseg": 8}


def series(number: int) -> str:
    """The placeholder of the page's n-th series colour.

    >>> series(1), series(10) == series(1)
    ('#020001', True)
    """
    return f"#0200{number % SERIES:02x}"


def method_colors(methods: Sequence[str], labels: Sequence[str]) -> dict[str, int]:
    """Label -> number of its colour: a known method has its own; a second run of it, or a stranger, a free one.

    >>> method_colors(["er", "em", "mine"], ["er", "em", "mine"])
    {'er': 1, 'em': 0, 'mine': 2}
    """
    given: dict[str, int] = {}
    for method, label in zip(methods, labels, strict=True):
        home = _HOME.get(method)
        if home is not None and home not in given.values():
            given[label] = home
    for label in labels:
        if label not in given:
            free = [n for n in range(SERIES) if n not in given.values()]
            given[label] = free[0] if free else len(given) % SERIES
    return {label: given[label] for label in labels}


@contextmanager
def house_style() -> Iterator[None]:
    """Our settings alone, also as a decorator: what somebody has in a matplotlibrc must not change a report."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A bare plot of so many CSS pixels: no frame, a quiet axis."""
    with house_style():
        drawing = Figure(figsize=(width / 72, height / 72), dpi=72)
        axes = drawing.add_subplot()
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, labelcolor=MUTED, labelsize=12, pad=6)
    axes.set_axisbelow(True)
    return drawing, axes


def spread(places: Sequence[float], gap: float, *, low: float, high: float) -> list[float]:
    """Places for labels: as near as possible to where they belong, but `gap` apart and inside the axis.

    >>> spread([10.0, 10.0, 50.0], 4.0, low=0.0, high=100.0)
    [8.0, 12.0, 50.0]
    """
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    blocks: list[list[float]] = []  # middle, size: neighbours that touch are moved as one
    for i in order:
        blocks.append([places[i], 1.0])
        while True:
            blocks[-1][0] = min(
                max(blocks[-1][0], low + gap * (blocks[-1][1] - 1) / 2), high - gap * (blocks[-1][1] - 1) / 2
            )
            if len(blocks) < 2 or blocks[-1][0] - blocks[-2][0] >= gap * (blocks[-1][1] + blocks[-2][1]) / 2:
                break
            middle, size = blocks.pop()
            total = blocks[-1][1] + size
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + middle * size) / total, total]
    found = [0.0] * len(places)
    sorted_places = [m + gap * (k - (n - 1) / 2) for m, n in blocks for k in range(int(n))]
    for i, place in zip(order, sorted_places, strict=True):
        found[i] = place
    return found


def svg(drawing: Figure, *, description: str) -> str:
    """The drawing as an inline SVG that asks nothing of anybody: no fonts, no links, no style for the rest of the page.

    >>> drawing, axes = figure(100, 80)
    >>> text = svg(drawing, description="empty")
    >>> text.startswith('<svg role="img" aria-label="empty"'), "http" in text
    (True, False)
    """
    out = io.StringIO()
    with house_style(), warnings.catch_warnings():
        # The measuring font lacks some scripts; the reader's fonts draw the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        drawing.savefig(out, format="svg", transparent=True)
    text = out.getvalue()
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    width, height = (float(v) for v in size.groups()) if size else (0.0, 0.0)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.S)
    body = re.sub(r" font-family: [^;\"]*;?", "", body)
    body = _colours(_own_ids(body, description), {**_VARIABLES, **{series(n): f"var(--s{n})" for n in range(SERIES)}})
    body = re.sub(r"\n\s*", " ", body).strip()
    return (
        f'<svg role="img" aria-label="{escape(description)}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">{body}</svg>'
    )


def _own_ids(body: str, description: str) -> str:
    """Ids that nothing points to go; the others get a prefix, since several drawings share one page.

    The prefix comes from what is drawn and said, so that the same numbers give the same page.
    """
    used = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', body))
    prefix = f"p{sha256((description + body).encode()).hexdigest()[:8]}"
    body = re.sub(r' id="([\w.-]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", body)
    return re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", body)


def _colours(body: str, variables: Mapping[str, str]) -> str:
    """Only where a colour stands: a class may be called "#010101"."""
    return re.sub(r"(fill|stroke): (#0[12]0[01][0-9a-f]{2})\b", lambda m: f"{m[1]}: {variables.get(m[2], m[2])}", body)
