"""The report: its numbers against slow loops, its page against what a browser, a printer and a listener need."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from segstream.classes import ClassTable
from segstream.report import score_table, summary, write_report
from segstream.report.facts import costs, differences
from segstream.report.headline import headline
from segstream.report.pictures import gallery
from segstream.report.plots import _binned, _swarm, curves, history
from segstream.report.record import Record, Score, labelled, read, same_classes
from segstream.report.tables import class_means, class_rows, forgotten
from segstream.report.theme import SERIES, figure, house_style, method_colors, series, spread, svg
from segstream.runs import Run
from segstream.storage import StateError

GROUPS = (("road", "sky", "tree"), ("car",), ("pole", "sign"))
Curve = Callable[[int, int], float | None]


def make_run(
    folder: Path,
    method: str,
    curve: Curve,
    *,
    groups: Sequence[Sequence[str]] = GROUPS,
    planned: int | None = None,
    updates: int = 4,
    watched: bool = False,
    memory: bool = True,
    finished: bool = True,
    about: Mapping[str, Any] | None = None,
    config: str = "",
) -> Path:
    """A run folder in which slot s has IoU `curve(s, t)` after stage t."""
    later = list(groups[1:] if planned is None else [()] * planned)
    told = json.dumps([list(g) for g in later], ensure_ascii=False)
    text = f"[scenario]\nbase = {json.dumps(list(groups[0]), ensure_ascii=False)}\nstages = {told}\n\n{config}"
    run = Run.create(folder, config=text, about={"method": method, "seed": 0, **(about or {})})
    run.event("start")
    names = ["background"]
    for t, group in enumerate(groups):
        names += group
        run.event("stage", stage=t, classes=list(group), batches=updates if t else 0)
        for k in range(updates if t else 0):
            slots = [str(s) for s in range(1, len(names))] if watched else []
            run.event(
                "update", stage=t, batch=k, updated=True, seconds=0.1 * (k + 1),
                kept=dict.fromkeys(slots, 0.25), confidence=dict.fromkeys(slots, 0.5),
                drawn={slots[-1]: 4} if slots else {}, new_share=1.0 if slots else None,
            )  # fmt: skip
        scores = {"names": list(names), "iou": [curve(s, t) for s in range(len(names))], "miou": 0.0, "accuracy": 50.0}
        run.event("score", stage=t, scores=scores)
        if memory:
            run.event("memory", stage=t, counts={n: 3 * t + i for i, n in enumerate(names[1:])})
    if finished:
        run.event("end", seconds=9.0)
    return folder


def paint(run: Path, name: str, *, stages: int = 3, size: tuple[int, int] = (12, 10), guess: int = 0) -> np.ndarray:
    """One picture with truth and prediction after each stage; the truth's first column is void."""
    table = ClassTable(tuple(n for group in GROUPS for n in group))
    truth = np.arange(size[0] * size[1], dtype=np.uint8).reshape(size) % 4
    truth[:, 0] = 255
    place = run / "predictions"
    files: dict[Path, Image.Image] = {place / "images" / f"{name}.png": Image.new("RGB", size[::-1], (200, 90, 30))}
    for t in range(stages):
        for folder, values in ((place / "truth", truth), (place, np.full(size, guess, dtype=np.uint8))):
            indexed = Image.fromarray(values)
            indexed.putpalette(table.palette())
            files[folder / f"stage-{t}" / f"{name}.png"] = indexed
    for path, image in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    return truth


def record(method: str, *stages: Sequence[float | None], **more: Any) -> Record:
    """A record with classes a, b, c, ... where stage t knows as many as it has values."""
    names = ("background", *"abcdefghij")
    scores = tuple(Score(t, names[: len(iou)], tuple(iou)) for t, iou in enumerate(stages))
    return Record(Path(method), method, scores=scores, **more)


class Page(HTMLParser):
    """What a test wants to know of a page: its elements with attributes, whether they nest, and the visible text."""

    VOID = frozenset({"meta", "link", "img", "br", "line", "path", "use", "circle", "polyline", "image", "rect"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        for parent in self.open[-1:]:
            self.inside.setdefault(parent, []).append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"[ \n\t]+", " ", " ".join(self.words))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def check_page(path: Path) -> Page:
    """Nothing is fetched, everything nests, pictures have words, tables have captions, links lead somewhere."""
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert not page.open
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.found:
        for key in ("src", "href", "xlink:href", "srcset", "data", "action"):
            link = attrs.get(key)
            if link is not None:
                assert link.startswith(("data:", "#")) or link == "scores.csv", link
            if link is not None and link.startswith("#"):
                assert link[1:] in ids
    assert not [tag for tag, _ in page.found if tag in {"script", "iframe", "object", "embed", "base", "form"}]
    style = html[html.index("<style>") : html.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style
    for target in re.findall(r"url\((.*?)\)", html):
        assert target.startswith("#")
        assert target[1:] in ids
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing.get("aria-label") or drawing.get("aria-hidden") for drawing in page.all("svg"))
    captions = [tag for tag in page.inside.get("table", []) if tag == "caption"]
    assert len(captions) == len([t for t in page.all("table") if t.get("class") != "plain"]) + len(
        re.findall(r'class="plain"><caption>', html)
    )
    assert not re.search(r"#0[12]0[01][0-9a-f]{2}\b", html), "a placeholder colour was left"
    return page


# ---------------------------------------------------------------------------------------------------------------------
# Numbers


def slow_summary(stages: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """The definitions of METHODS, section 3, written out."""
    miou = [slow_mean(iou) for iou in stages]
    lost = []
    for slot in range(1, len(stages[-2]) if len(stages) > 1 else 0):
        best = None
        for iou in stages[:-1]:
            value = iou[slot] if slot < len(iou) else None
            if value is not None and (best is None or value > best):
                best = value
        last = stages[-1][slot]
        if best is not None and last is not None:
            lost.append(best - last)
    return {
        "miou": miou,
        "imiou": None if None in miou[1:] else slow_mean(miou[1:]),
        "imiou_with_base": None if None in miou else slow_mean(miou),
        "final": miou[-1],
        "forgetting": slow_mean(lost),
    }


def slow_mean(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return math.fsum(there) / len(there) if there else None


@st.composite
def histories(draw: st.DrawFn) -> list[list[float | None]]:
    sizes = sorted(draw(st.lists(st.integers(2, 8), min_size=1, max_size=5)))
    value = st.none() | st.floats(0, 100, allow_nan=False)
    return [draw(st.lists(value, min_size=n, max_size=n)) for n in sizes]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(histories())
def test_summary_against_a_slow_loop(stages: list[list[float | None]]) -> None:
    found, expected = summary(record("em", *stages)), slow_summary(stages)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        pairs = zip(found[key], value, strict=True) if key == "miou" else [(found[key], value)]  # type: ignore[literal-required]
        for one, other in pairs:
            assert (one is None) == (other is None), key
            assert one is None or one == pytest.approx(other, rel=1e-12, abs=1e-12), key


def test_summary_by_hand(tmp_path: Path) -> None:
    """Two stages on a real folder: a class gained, one lost, one without ground truth, one that is new."""
    table = {0: [50.0, 80.0, 40.0, None], 1: [10.0, 20.0, 70.0, None, 60.0]}
    folder = make_run(tmp_path / "r", "em", lambda s, t: table[t][s], groups=(("a", "b", "c"), ("d",)))
    told = summary(folder)
    assert told["miou"] == pytest.approx([170 / 3, 40.0])
    assert told["imiou"] == pytest.approx(40.0)
    assert told["imiou_with_base"] == pytest.approx((170 / 3 + 40) / 2)
    assert told["final"] == pytest.approx(40.0)
    assert told["forgetting"] == pytest.approx(
        (60 - 30) / 2
    )  # a lost 60, b gained 30; d and the background do not count
    assert forgotten(read(folder)) == {"a": 60.0, "b": -30.0}
    assert summary(Run(folder)) == told


def test_summary_from_confusion_matrices(tmp_path: Path) -> None:
    """From pixels to the printed number, in loops over every pixel pair."""
    generator = np.random.default_rng(3)
    shown: dict[int, list[float | None]] = {}
    expected = []
    for t, size in enumerate((4, 5, 7)):
        truth, found = generator.integers(0, size, (2, 400))
        truth[truth == 2] = 1  # slot 2 never occurs
        iou: list[float | None] = []
        for c in range(size):
            both = sum(1 for a, b in zip(truth, found, strict=True) if a == c and b == c)
            either = sum(1 for a, b in zip(truth, found, strict=True) if c in (a, b))
            iou.append(100 * both / either if c in truth else None)
        shown[t] = iou
        there = [v for v in iou if v is not None]
        expected.append(sum(there) / len(there))
    assert shown[0][2] is None
    folder = make_run(tmp_path / "r", "em", lambda s, t: shown[t][s])
    assert summary(folder)["miou"] == pytest.approx(expected, rel=1e-12)


def test_a_stage_without_scores_hides_the_means_that_need_it() -> None:
    names = ("background", "a")
    run = Record(Path("r"), "em", scores=(Score(0, names, (10.0, 20.0)), Score(2, names, (30.0, 40.0))))
    assert summary(run) == {
        "miou": [15.0, None, 35.0],
        "imiou": None,
        "imiou_with_base": None,
        "final": 35.0,
        "forgetting": -20.0,
    }


def test_the_best_of_each_column_is_marked_and_ties_share() -> None:
    runs = [
        record("em", [50.0, 50.0], [40.0, 40.0, 40.04]),
        record("er", [50.0, 50.0], [40.0, 40.0, 40.0]),
        record("finetune", [50.0, 50.0], [0.0, 0.0, 60.0]),
    ]
    table = score_table(runs, {"label": "joint", "miou": 80.0})
    assert table.columns == ("stage 0", "stage 1", "imIoU", "imIoU with stage 0", "final", "forgetting")
    assert [row.label for row in table.rows] == ["em", "er", "finetune", "joint"]
    assert table.row("em").best == (False, True, True, True, True, True)  # stage 0 is everyone's: nobody is best
    assert table.row("er").best == table.row("em").best  # 40.0 and 40.01 look the same
    assert not any(table.row("finetune").best)
    joint = table.row("joint")
    assert joint.bound
    assert joint.values == (None, None, None, None, 80.0, None)
    assert table.row("finetune").texts() == ["finetune", "50.0", "20.0", "20.0", "35.0", "20.0", "50.0"]


def test_less_forgetting_is_better() -> None:
    runs = [record("em", [50.0, 90.0], [50.0, 30.0, 99.0]), record("er", [50.0, 50.0], [50.0, 49.0, 0.0])]
    table = score_table(runs)
    assert table.row("em").best[-1] is False
    assert table.row("er").best[-1] is True


def test_runs_that_cannot_be_ranked_are_listed_and_say_why() -> None:
    short = record("er", [99.0, 99.0], config={"scenario": {"stages": [["b"]]}})
    other = Record(Path("x"), "mib", scores=(Score(0, ("background", "zebra"), (99.0, 99.0)),))
    runs = [record("em", [50.0, 50.0], [40.0, 40.0, 40.0]), record("lwf", [50.0, 50.0], [1.0, 1.0, 1.0]), short, other]
    table = score_table([*runs, Record(Path("new"), "mir")])
    assert table.row("em").best[-2]
    assert table.row("er").values == (99.0, None, None, None, None, None)
    assert "stopped after stage 0" in table.row("er").note
    assert "other classes" in table.row("mib").note
    assert "not scored yet" in table.row("mir").note
    assert not any(any(table.row(k).best) for k in ("er", "mib", "mir"))
    said = " ".join(headline(runs))
    assert "er has not come as far as the others" in said
    assert "mib (x) learned other classes, or the same in other stages (1)" in said
    assert [[r.method for r in part] for part in same_classes(runs)] == [["em", "lwf", "er"], ["mib"]]


def test_the_same_classes_in_other_stages_are_another_list() -> None:
    one = Record(Path("a"), "em", stages={0: ("a",), 1: ("b",), 2: ("c",)})
    two = Record(Path("b"), "er", stages={0: ("a",), 1: ("b", "c")})
    assert [len(part) for part in same_classes([one, one, two])] == [2, 1]


def test_namesakes_are_told_apart() -> None:
    def er(folder: str, **config: Any) -> Record:
        return Record(Path(folder), "er", config=config, about={"seed": 0})

    views = [er("a", methods={"er": {"view": "ignore"}}), er("b", methods={"er": {"view": "background"}})]
    assert [r.label for r in labelled(views)] == ["er (view ignore)", "er (view background)"]
    assert [r.label for r in labelled([er("a"), er("b")])] == ["er (a)", "er (b)"]
    sizes = [er("a", memory={"capacity": n}) for n in (20, 50)] + [Record(Path("c"), "em")]
    assert [r.label for r in labelled(sizes)] == ["er (capacity 20)", "er (capacity 50)", "em"]


def test_class_rows_and_means() -> None:
    runs = labelled([record("em", [50.0, 80.0], [None, 60.0, 30.0]), record("er", [50.0, 80.0], [None, 20.0, 30.0])])
    rows = class_rows(runs, {"label": "joint", "miou": 1.0, "iou": [None, 90.0, 40.0]})
    assert [(r.name, r.stage, r.bound) for r in rows] == [("background", 0, None), ("a", 0, 90.0), ("b", 1, 40.0)]
    assert rows[1].final == {"em": 60.0, "er": 20.0}
    assert rows[1].best == {"em"}
    assert rows[1].lost == {"em": 20.0, "er": 60.0}
    assert rows[0].curves["em"] == ((0, 50.0),)
    assert not rows[0].best
    assert not rows[2].best  # a tie
    assert class_means(rows) == [
        ("base classes", {"em": 60.0, "er": 20.0}, 90.0),
        ("later classes", {"em": 30.0, "er": 30.0}, 40.0),
    ]


def test_costs_are_medians_of_what_was_timed(tmp_path: Path) -> None:
    timed = read(make_run(tmp_path / "em", "em", lambda s, t: 1.0, updates=5))
    (cost,) = costs(labelled([timed, record("er", [1.0, 1.0])]))
    assert (cost.label, cost.updates, cost.whole) == ("em", 10, 9.0)
    assert cost.median == pytest.approx(0.3)
    assert cost.updating == pytest.approx(3.0)
    assert cost.slow == pytest.approx(0.5)


def test_settings_are_compared_by_their_printed_form() -> None:
    varied, shared = differences([{"a": True, "b": [1, [2, 3]], "c": ""}, {"a": False, "b": [1, [2, 3]], "c": ""}])
    assert varied == {"a": ["yes", "no"]}
    assert shared == {"b": "1, (2, 3)", "c": "(empty)"}


# ---------------------------------------------------------------------------------------------------------------------
# Sentences


def flat(method: str, first: float, last: float, **more: Any) -> Record:
    return record(method, [first, first], [last, last, last], [last, last, last, last], **more)


def test_the_winner_is_named_whoever_it_is() -> None:
    runs = [flat("finetune", 70.0, 5.0), flat("er", 70.0, 45.5), flat("em", 70.0, 40.25)]
    said = headline(runs, {"label": "joint", "miou": 60.0})
    assert said[0] == "er ends highest, at 45.5 % mIoU: 5.2 points above em and 40.5 above finetune."
    assert (
        "Training on all classes and all images at once (joint, the bound) reaches 60.0 %; er keeps 76 % of that."
        in said
    )
    assert "It leads on average over the stages too: imIoU 45.5 %, 5.2 above em." in said
    assert said[-1].endswith("er lost 12.2, em lost 14.9 and finetune lost 32.5 points against their best.")
    assert headline(list(reversed(runs)), {"label": "joint", "miou": 60.0})[0] == said[0]


def test_small_gaps_ties_and_split_verdicts_are_not_dressed_up() -> None:
    close = headline([flat("em", 70.0, 40.0), flat("er", 70.0, 39.2)])
    assert close[-1] == "A gap as small as that between em and er can be chance in one run of each."
    tie = headline([flat("em", 70.0, 40.0), flat("er", 70.0, 40.01)])
    assert tie[0] == "er and em end level at 40.0 % mIoU."
    split = [record("em", [9.0, 9.0], [20.0, 20.0], [50.0, 50.0]), record("er", [9.0, 9.0], [60.0, 60.0], [40.0, 40.0])]
    said = headline(split)
    assert said[0].startswith("em ends highest, at 50.0 % mIoU: 10.0 points above er.")
    assert "On average over the stages er leads instead: imIoU 50.0 % against 35.0 % of em." in said
    assert "it so the bound" not in " ".join(said)
    above = headline([flat("em", 70.0, 40.0)], {"label": "joint", "miou": 30.0})
    assert "em even lies 10.0 points above it" in " ".join(above)


def test_em_and_er_are_compared_where_another_wins() -> None:
    said = headline([flat("em", 70.0, 40.0), flat("er", 70.0, 43.0), flat("mib", 70.0, 50.0)])
    assert "Of em and er, er ends 3.0 points above em." in said


def test_runs_under_way_do_not_end() -> None:
    running = {"config": {"scenario": {"stages": [["b"], ["c"], ["d"]]}}}
    said = headline([flat("em", 70.0, 40.0, **running), flat("er", 70.0, 20.0, **running)])
    assert said[0] == "em stands highest after stage 2, at 40.0 % mIoU: 20.0 points above er."
    assert said[-1] == "There are stages up to 3; this is not the end."
    assert headline([]) == ["No run has been scored yet."]


# ---------------------------------------------------------------------------------------------------------------------
# Drawings


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_labels_keep_apart_in_order_and_inside(places: list[float]) -> None:
    found = spread(places, 6.0, low=0.0, high=100.0)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    moved = [found[i] for i in order]
    assert all(b - a >= 6.0 - 1e-6 for a, b in itertools.pairwise(moved))
    assert min(moved) >= -1e-6
    assert max(moved) <= 100 + 1e-6
    if all(b - a >= 6 for a, b in itertools.pairwise(sorted(places))):
        assert found == places


def test_dots_do_not_hide_each_other() -> None:
    points = np.array([1.0, 1.0, 1.0, 1.05, 1.1, 3.0])
    dots = list(zip(points, _swarm(points, 0.2), strict=True))
    assert len({(round(x / 0.2), y) for x, y in dots}) == len(dots)
    assert dots[-1][1] == 0


def test_updates_that_share_a_column_are_averaged() -> None:
    nan = float("nan")
    grid = np.array([[1.0, 3.0, nan, nan, 5.0], [nan, 2.0, 4.0, 4.0, nan]])
    np.testing.assert_array_equal(_binned(grid, 3), [[2.0, nan, 5.0], [2.0, 4.0, nan]])
    np.testing.assert_array_equal(_binned(grid, 5), grid)


def test_history_scales_to_its_largest_value_or_to_a_given_one(tmp_path: Path) -> None:
    run = read(make_run(tmp_path / "r", "em", lambda s, t: 1.0, watched=True))
    kept = history(run, lambda u: u.kept)
    assert kept is not None
    assert kept.top == 0.25
    fixed = history(run, lambda u: u.confidence, top=1.0)
    assert fixed is not None
    (shades,) = (image.get_array() for image in fixed.drawing.axes[0].get_images())
    assert shades is not None
    np.testing.assert_allclose(shades[0, :, 3], 0.5)  # known from stage 0 on
    np.testing.assert_allclose(shades[-1, :, 3], [0.0] * 4 + [0.5] * 4)  # came with stage 2
    assert history(read(make_run(tmp_path / "er", "er", lambda s, t: 1.0)), lambda u: u.kept) is None


def test_a_drawing_takes_the_colours_of_the_page_and_is_the_same_each_time() -> None:
    @house_style()
    def draw() -> str:
        drawing, axes = figure(200, 100)
        axes.plot([0, 1], [0, 1], color=series(2))
        axes.text(0, 0, '<"#010101" $x$ 道>', color="#010101")
        return svg(drawing, description='a "b" <c>')

    text = draw()
    assert text == draw()
    assert "stroke: var(--s2)" in text
    assert "fill: var(--ink)" in text
    assert '#010101" $x$ 道&gt;' in text.replace("&quot;", '"')
    assert 'aria-label="a &quot;b&quot; &lt;c&gt;"' in text
    assert "font-family" not in text
    assert "<style" not in text
    assert "<tspan" not in text  # dollars are no formula


def test_a_users_matplotlib_settings_change_nothing() -> None:
    import matplotlib

    def draw() -> str:
        return svg(curves(labelled([record("em", [50.0, 60.0], [40.0, 50.0, 60.0])]), {"em": 0}), description="d")

    plain = draw()
    with matplotlib.rc_context({"figure.autolayout": True, "axes.grid": True, "font.size": 30, "lines.linewidth": 9}):
        assert draw() == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_methods_keep_their_colours_and_no_two_share_one() -> None:
    names = ["finetune", "er", "em", "mib", "lwf", "icarl", "agem", "mir", "coriseg"]
    colors = method_colors(names, names)
    assert len(set(colors.values())) == len(names) == SERIES
    assert method_colors(["er", "em"], ["er", "em"]) == {k: colors[k] for k in ("er", "em")}
    twice = method_colors(["em", "em", "mine"], ["em (a)", "em (b)", "mine"])
    assert twice["em (a)"] == colors["em"]
    assert len(set(twice.values())) == 3


# What the cones of the colour-blind leave of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
SEEN_BY = {
    "most": np.eye(3),
    "protanopes": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopes": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopes": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(color: str) -> np.ndarray:
    value = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """The ratio of WCAG 2."""
    light, dark = sorted((float(c @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB; distances in it are what an eye sees, roughly."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb.clip(0, 1)
    xyz = xyz / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_read_and_told_apart(mode: str) -> None:
    import segstream.report

    style = (Path(segstream.report.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
    block = style.split("@media")[0 if mode == "light" else 1]
    colors = {k: linear(v) for k, v in re.findall(r"--(\w+): (#[0-9a-f]{6})", block)}
    methods = [f"s{n}" for n in range(SERIES)]
    for name in ("ink", "muted", "accent", *methods):
        assert contrast(colors[name], colors["paper"]) >= 4.5, name
    heat = re.search(r"--heat: (\d+) (\d+) (\d+)", block)
    paper = re.search(r"--paper: (#[0-9a-f]{6})", block)
    assert heat is not None
    assert paper is not None
    shade = [(int(v) + int(paper[1][i : i + 2], 16)) // 2 for v, i in zip(heat.groups(), (1, 3, 5), strict=True)]
    assert contrast(colors["ink"], linear("#" + "".join(f"{v:02x}" for v in shade))) >= 4.5
    for eyes, matrix in SEEN_BY.items():
        seen = {name: lab(matrix @ colors[name]) for name in methods}
        for one, other in itertools.combinations(methods, 2):
            far = 15 if {one, other} <= {"s0", "s1", "s2", "s3"} else 7  # em, er, finetune, mib share most pages
            assert np.linalg.norm(seen[one] - seen[other]) >= far, (eyes, one, other)


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def test_pictures_are_what_the_folders_hold(tmp_path: Path) -> None:
    run = make_run(tmp_path / "em", "em", lambda s, t: 50.0)
    truth = paint(run, "street", guess=1)
    shown = gallery(labelled([read(run)]))
    (picture,) = shown.pictures
    assert (picture.id, picture.stages) == ("street", (0, 1, 2))
    mask = picture.found["em"][1]
    assert mask.right == pytest.approx(100 * (truth[:, 1:] == 1).mean())  # void is left out
    assert mask.words == "road 100 %"
    decoded = Image.open(io.BytesIO(base64.b64decode(picture.truth[0].uri.split(",")[1])))
    np.testing.assert_array_equal(np.asarray(decoded), truth)
    assert decoded.mode == "P"
    assert [name for name, _ in shown.legend] == ["background", "road", "sky", "tree", "void, not scored"]
    assert dict(shown.legend)["road"] == "#800000"
    assert picture.image is not None


def test_large_pictures_shrink_without_new_colours_and_many_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "em", "em", lambda s, t: 50.0)
    for i in range(9):
        paint(run, f"p{i}", stages=1, size=(900, 600) if i == 0 else (6, 6))
    shown = gallery(labelled([read(run)]))
    assert [p.id for p in shown.pictures] == [f"p{i}" for i in range(6)]
    assert shown.left == 3
    small = Image.open(io.BytesIO(base64.b64decode(shown.pictures[0].truth[0].uri.split(",")[1])))
    assert max(small.size) == 384
    assert set(np.unique(np.asarray(small)).tolist()) <= {0, 1, 2, 3, 255}


def test_a_broken_picture_is_said_not_raised(tmp_path: Path) -> None:
    run = make_run(tmp_path / "em", "em", lambda s, t: 50.0)
    paint(run, "street")
    (run / "predictions" / "stage-1" / "street.png").write_bytes(b"not a picture")
    Image.new("RGB", (4, 4)).save(run / "predictions" / "stage-2" / "street.png")
    page = check_page(write_report([run], tmp_path / "out", title="T"))
    assert "Could not be read, so not shown" in page.text
    assert "stage-1/street.png" in page.text
    assert "stage-2/street.png" in page.text


# ---------------------------------------------------------------------------------------------------------------------
# The page


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods with everything that a run can have, and their report."""
    place = tmp_path_factory.mktemp("compared")
    about = {"versions": {"torch": "2.15"}, "processor": "A CPU", "cores": 2, "devices": []}
    more: dict[str, Any] = {"about": about, "config": "[network]\nhead = 'cosine'\n"}
    runs = [
        make_run(place / "finetune", "finetune", lambda s, t: 60.0 - 25 * t, memory=False, **more),
        make_run(place / "er", "er", lambda s, t: 60.0 - 12 * t + s, about={**about, "settings": {"view": "ignore"}}),
        make_run(place / "em", "em", lambda s, t: 62.0 - 6 * t + s, watched=True, **more),
    ]
    for run in runs:
        paint(run, "street", guess=1)
    bound = {"label": "joint", "miou": 70.0, "iou": [70.0] * 7}
    write_report(runs, place, title="Three methods", bound=bound, notes=["All have the cosine head."])
    return place


def test_the_page_needs_nobody(compared: Path) -> None:
    page = check_page(compared / "report.html")
    html = (compared / "report.html").read_text(encoding="utf-8")
    assert "http:" not in html
    assert "https:" not in html
    assert {path.name for path in compared.iterdir() if path.is_file()} == {"report.html", "scores.csv"}
    assert len(page.all("img")) == 1 + 3 + 9
    for condition in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert condition in html
    assert page.all("html")[0]["lang"] == "en"


def test_the_page_says_what_the_runs_hold(compared: Path) -> None:
    page = check_page(compared / "report.html")
    told = summary(compared / "em")
    assert told["final"] is not None
    assert f"em ends highest, at {told['final']:.1f}\N{NO-BREAK SPACE}% mIoU" in page.text
    assert "All have the cosine head." in page.text
    for section in ("scores", "classes", "pictures", "memory", "learning", "cost", "settings"):
        assert {"id": section} in page.all("section")
        assert {"href": f"#{section}"} in page.all("a")
    for words in (
        "view ignore",
        "joint",
        "bound",
        "100 % of the draws",
        "method.view",
        "torch",
        "er em",
        "Measured on A CPU (2 cores).",
    ):
        assert words in page.text
    alts = [image["alt"] for image in page.all("img")]
    assert "em on street after stage 2: road 100 %" in alts
    labels = " ".join(str(drawing.get("aria-label")) for drawing in page.all("svg"))
    assert "em: confidence, by class, over 8 updates. At the end: road 0.50" in labels
    assert "em: draws for replay, by class, over 8 updates. At the end: road 0.00" in labels
    assert "sign 4.00" in labels


def test_the_table_of_the_page_is_the_table(compared: Path) -> None:
    html = (compared / "report.html").read_text(encoding="utf-8")
    table = html[html.index("Score table") : html.index("</table>")]
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in table.split("<tbody>")[1].split("<tr")[1:]]
    expected = score_table([read(compared / m) for m in ("finetune", "er", "em")], {"label": "joint", "miou": 70.0})
    for row, line in zip(expected.rows, rows, strict=True):
        assert [re.sub(r"<.*?>", "", cell) for cell in line] == [t.rstrip("*") for t in row.texts()[1:]]
        assert ["<b>" in cell for cell in line] == list(row.best)


def test_the_csv_is_tidy_and_whole(compared: Path) -> None:
    with (compared / "scores.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    run = read(compared / "er")
    found = [line for line in lines if line["run"] == "er" and line["measure"] == "iou"]
    assert [(int(x["stage"]), x["class"], int(x["slot"]), float(x["percent"])) for x in found] == [
        (s.stage, name, slot, iou)
        for s in run.scores
        for slot, (name, iou) in enumerate(zip(s.names, s.iou, strict=True))
    ]
    told = summary(run)
    for measure, values in (("miou", told["miou"]), ("accuracy", [50.0] * 3)):
        rows = [line for line in lines if line["run"] == "er" and line["measure"] == measure]
        assert [(int(x["stage"]), float(x["percent"])) for x in rows] == list(enumerate(values))
    by_measure = {line["measure"]: line["percent"] for line in lines if line["run"] == "er"}
    for measure in ("imiou", "imiou_with_base", "final", "forgetting"):
        assert float(by_measure[measure]) == dict(told)[measure]
    assert {line["view"] for line in lines if line["run"] == "er"} == {"ignore"}
    assert [line["percent"] for line in lines if line["run"] == "joint"] == ["70.0"] * 8


def test_one_run_alone(tmp_path: Path) -> None:
    page = check_page(write_report([make_run(tmp_path / "r", "er", lambda s, t: 50.0)], tmp_path / "o", title="One"))
    assert "er ends at 50.0\N{NO-BREAK SPACE}% mIoU." in page.text
    assert "Bold" not in page.text
    assert {"id": "learning"} not in page.all("section")
    assert {"id": "pictures"} not in page.all("section")


def test_runs_at_every_point_of_their_lives(tmp_path: Path) -> None:
    """Just made, within the first stage, after the base alone, in the middle: no state breaks the page."""
    Run.create(tmp_path / "made", config="", about={})
    started = Run.create(tmp_path / "started", config="", about={"method": "mir"})
    started.event("stage", stage=0, classes=list(GROUPS[0]), batches=0)
    started.event("stage", stage=1, classes=list(GROUPS[1]), batches=3)
    started.event("update", stage=1, batch=0, confidence={"1": 0.5}, kept={}, drawn={}, seconds=0.0)
    based = make_run(tmp_path / "based", "em", lambda s, t: 50.0, groups=GROUPS[:1], planned=2, finished=False)
    middle = make_run(tmp_path / "middle", "er", lambda s, t: 50.0, groups=GROUPS[:2], planned=2, finished=False)
    with (middle / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "upda')  # it is writing just now
    everything = [tmp_path / "made", tmp_path / "started", based, middle]
    for runs in ([everything[0]], [everything[1]], [based], [middle], everything):
        page = check_page(write_report(runs, tmp_path / "out", title="T"))
    assert "er stands at 50.0\N{NO-BREAK SPACE}% mIoU after stage 1." in page.text
    assert "em has not come as far as the others" not in page.text.replace("made, mir and em have", "")
    assert "There are stages up to 2" in page.text
    heads = page.text.split("Class by class")[-1].split("background")[0]
    assert "er" in heads.split()  # the class table compares final values: of those alone that came as far
    assert "em" not in heads.split()


def test_a_run_with_another_class_list_stands_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / m, m, lambda s, t: 40.0 + s) for m in ("em", "er")]
    runs.append(make_run(tmp_path / "zoo", "mib", lambda s, t: 99.0, groups=(("zebra",), ("lion",))))
    page = check_page(write_report(runs, tmp_path / "out", title="T"))
    assert "mib (zoo) learned other classes" in page.text
    assert "zebra" not in page.text.split("What an update costs")[0]
    assert "other classes, not ranked" in page.text


def test_names_of_any_script_are_text_and_nothing_else(tmp_path: Path) -> None:
    groups = (("道路", "<script>alert(1)</script>", '"quoted" & $x_1$'), ("crème {{ 7 * 7 }}",), ("🚲",))
    runs = [make_run(tmp_path / m, m, lambda s, t: 60.0 - 9 * t, groups=groups, watched=True) for m in ("em", "er")]
    table = ClassTable(tuple(n for g in groups for n in g))
    indexed = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8))
    indexed.putpalette(table.palette())
    for stage in range(3):
        (runs[0] / "predictions" / f"stage-{stage}").mkdir(parents=True)
        indexed.save(runs[0] / "predictions" / f"stage-{stage}" / "naïve photo.png")
    page = check_page(write_report(runs, tmp_path / "out", title="Ü <b>", notes=["<i>"]))
    for name in (n for group in groups for n in group):
        assert name in page.text
    assert "Ü <b>" in page.text
    assert (tmp_path / "out" / "scores.csv").read_text(encoding="utf-8").count("🚲") == 2


def test_a_hundred_and_fifty_classes_stay_readable(tmp_path: Path) -> None:
    groups = [tuple(f"class {i}" for i in range(100))] + [tuple(f"new {t} {i}" for i in range(10)) for t in range(5)]
    runs = [
        make_run(tmp_path / m, m, lambda s, t: float(s % 90), groups=groups, watched=m == "em", updates=2)
        for m in ("em", "er")
    ]
    page = check_page(write_report(runs, tmp_path / "out", title="T"))
    boxes = [attrs for attrs in page.all("div") if "tall" in (attrs.get("class") or "").split()]
    assert len(boxes) >= 5  # long tables scroll by themselves
    assert "stage 0 (100)" in page.text  # rows are told by stage where names would not fit
    assert "100 classes" in page.text
    assert (tmp_path / "out" / "report.html").stat().st_size < 1_500_000


def test_ten_methods_and_many_stages(tmp_path: Path) -> None:
    groups = [("a", "b"), *((f"n{t}",) for t in range(11))]
    names = ["finetune", "er", "em", "mib", "lwf", "icarl", "agem", "mir", "coriseg", "mine"]

    def curve(place: int) -> Curve:
        return lambda s, t: 80.0 - 3 * t - place

    runs = [make_run(tmp_path / m, m, curve(i), groups=groups, updates=1) for i, m in enumerate(names)]
    page = check_page(write_report(runs, tmp_path / "out", title="T"))
    assert "1.0 points above er, the next, and 9.0 above mine, the last." in page.text


def test_bad_input_is_a_sentence_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], out, title="T")
    with pytest.raises(StateError, match="no run folder"):
        write_report([tmp_path / "nowhere"], out, title="T")
    run = make_run(tmp_path / "r", "em", lambda s, t: 1.0)
    Run(run).event("score", stage=3)
    with pytest.raises(StateError, match=r"events\.jsonl holds an event of another form"):
        write_report([run], out, title="T")
    assert not out.exists()
    (tmp_path / "file").write_text("x")
    good = make_run(tmp_path / "good", "em", lambda s, t: 1.0)
    with pytest.raises(ValueError, match="is a file"):
        write_report([good], tmp_path / "file", title="T")


def test_a_stage_scored_twice_counts_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", "em", lambda s, t: 10.0)
    names = ["background", *(n for g in GROUPS for n in g)]
    Run(folder).event("score", stage=2, scores={"names": names, "iou": [90.0] * 7, "miou": 90.0})
    assert summary(folder)["miou"] == [10.0, 10.0, 90.0]


def test_the_report_needs_neither_torch_nor_pyplot() -> None:
    code = "import segstream.report, sys; assert not {'torch', 'matplotlib.pyplot'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
