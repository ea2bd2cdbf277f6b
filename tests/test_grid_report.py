"""The report on a comparison: the paper's numbers, intervals, tables against slow loops, and what the page says."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import SMALL, VOC, VOC_15_1, make_cell, make_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_report import Page, make_run, paint

from segstream.cli import main
from segstream.report import write_comparison
from segstream.report.blocks import Block, blocks, groups_of, measures
from segstream.report.confusion import confusion
from segstream.report.grid import read_grid
from segstream.report.grid_extras import ablation_sheet, cost_sheet
from segstream.report.grid_order import order, order_words
from segstream.report.grid_tables import class_sheet, group_sheet, memory_sheet, overview_sheet, score_sheet
from segstream.report.grid_words import block_words, lead, progress
from segstream.report.intervals import estimate, t_quantile
from segstream.report.latex import latex
from segstream.report.markdown import markdown
from segstream.report.paper import COMPONENTS, PaperCell, paper
from segstream.report.sheet import Column, Entry, Flat, Sheet, SheetRow, flat, parts, settled
from segstream.storage import StateError

LEVELS = {"finetune": 0.2, "mir": 0.5, "agem": 0.55, "er": 0.6, "lwf": 0.66, "mib": 0.7, "em": 0.8, "joint": 0.9}
VOC_CONFIG = {
    "data": {"dataset": "voc", "root": ""},
    "scenario": {"split": "15-1", "rule": "disjoint", "batch": 4},
    "network": {"name": "torchvision_deeplabv3", "encoder": "resnet101"},
    "memory": {"capacity": 100},
}


def quality(row: str, seed: int, slot: int, stage: int) -> float:
    level = LEVELS[row.split()[0]] - 0.3 * ("background" in row)
    return level - 0.04 * stage + 0.02 * math.sin(7 * seed + slot / 9 + len(row))


def one_block(folder: Path) -> Block:
    (found,) = blocks(read_grid(folder))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The paper


def weights(measure: str) -> int:
    low, _, high = measure.partition("-")
    return int(high or low) - int(low) + 1


def test_the_papers_tables_are_whole() -> None:
    sums: dict[str, list[float]] = {}
    for cell in paper().cells:
        sums.setdefault(cell.table, []).append(cell.percent)
    assert {k: len(v) for k, v in sums.items()} == {
        "voc-splits": 8 * 18, "voc-memory": 8 * 6, "ade": 8 * 14, "ablation": 5,
    }  # fmt: skip
    assert {k: round(math.fsum(v), 2) for k, v in sums.items()} == {  # of the paper's source, added up by a program
        "voc-splits": 7416.27, "voc-memory": 2565.56, "ade": 1393.03, "ablation": 99.92,
    }  # fmt: skip
    assert {c.method for c in paper().cells} == {"er", "lwf", "icarl", "agem", "mir", "mib", "coriseg", "em"}
    assert {c.recipe for c in paper().cells} == {s.recipe for s in paper().scenarios}


@pytest.mark.parametrize(
    ("recipe", "memory", "method", "measure", "percent"),
    [
        ("voc-19-1-disjoint", 100, "er", "0-19", 71.04),
        ("voc-19-1-overlapped", 100, "em", "20", 43.42),
        ("voc-15-5-overlapped", 100, "coriseg", "16-20", 44.37),
        ("voc-15-1-disjoint", 100, "agem", "0-15", 66.90),
        ("voc-15-1-overlapped", 100, "lwf", "all", 60.32),
        ("voc-15-1-disjoint", 20, "icarl", "imiou", 37.93),
        ("voc-15-1-disjoint", 50, "mib", "final", 54.34),
        ("voc-15-1-disjoint", 100, "em", "imiou", 68.06),
        ("ade-100-50", 750, "mir", "101-150", 0.0),
        ("ade-100-10", 750, "em", "111-120", 12.87),
        ("ade-100-10", 750, "er", "141-150", 0.08),
        ("ade-50-50", 750, "coriseg", "0-50", 40.20),
    ],
)
def test_single_numbers_of_the_paper(recipe: str, memory: int, method: str, measure: str, percent: float) -> None:
    found = paper().find(recipe, memory, method, measure)
    assert found is not None
    assert found.percent == percent


def test_groups_give_all_but_where_the_paper_contradicts_itself() -> None:
    """`all` is the mean over classes, so the groups weighed by their slots must give it: a typing error would not."""
    for all_cell in [c for c in paper().cells if c.measure == "all"]:
        place = all_cell.table, all_cell.recipe, all_cell.method
        groups = [c for c in paper().cells if (c.table, c.recipe, c.method) == place and c.measure[0].isdigit()]
        slots = sum(weights(c.measure) for c in groups)
        assert slots == (21 if all_cell.recipe.startswith("voc") else 151)
        mean = sum(weights(c.measure) * c.percent for c in groups) / slots
        broken = abs(mean - all_cell.percent) > 0.02
        assert broken == (place[1:] in {("voc-19-1-disjoint", "mib"), ("voc-15-1-disjoint", "mir")}), place
        if broken:
            assert f"{mean:.2f}" in all_cell.contradiction
            assert all(c.contradiction for c in groups)


def test_two_tables_agree_but_for_agem() -> None:
    by_place = {(c.table, c.method, c.memory, c.measure): c for c in paper().cells if c.recipe == "voc-15-1-disjoint"}
    for method in ("er", "lwf", "icarl", "agem", "mir", "mib", "coriseg", "em"):
        one, other = by_place["voc-splits", method, 100, "all"], by_place["voc-memory", method, 100, "final"]
        assert (one.percent == other.percent) == (method != "agem")
        assert bool(one.contradiction) == bool(other.contradiction) == (method in ("agem", "mir"))


def test_the_contradictory_cells_are_those_that_are_known() -> None:
    marked = [c for c in paper().cells if c.contradiction]
    assert len(marked) == 14
    assert len({c.contradiction for c in marked}) == 5
    assert {(c.memory, c.percent) for c in marked if c.method == "em" and c.table == "voc-memory"} == {
        (20, 60.49),
        (50, 60.14),
    }
    rows = [c for c in paper().cells if c.components is not None]
    assert [len(c.components or ()) for c in rows] == [0, 1, 2, 3, 4]
    assert [bool(c.contradiction) for c in rows] == [False, False, False, True, False]
    assert rows[3].percent - rows[2].percent == pytest.approx(1.86)


def test_a_scenario_is_the_papers_by_what_it_says() -> None:
    def found(recipe: str, **scenario: str) -> str | None:
        given = {"data": {"dataset": scenario.pop("dataset", "")}, "scenario": scenario}
        scenario_found = paper().scenario(recipe, given)
        return scenario_found and scenario_found.recipe

    assert found("mine", dataset="voc", split="15-5", rule="overlapped") == "voc-15-5-overlapped"
    assert found("voc-15-5-overlapped") == "voc-15-5-overlapped"
    assert found("voc-15-5-overlapped", dataset="voc", split="10-1", rule="overlapped") is None
    assert found("ade-100-50", dataset="ade20k", split="100-50", rule="files") == "ade-100-50"
    assert found("ade-100-50", dataset="ade20k", split="100-50", rule="generated") is None  # never as the paper's
    assert found("ade-100-50-generated") is None
    assert found("camvid-6-1") is None


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


def test_t_quantiles_are_those_of_scipy() -> None:
    for freedom in (1, 2, 3, 4, 5, 8, 9, 29, 30, 200):
        for p in (0.01, 0.3, 0.5, 0.75, 0.95, 0.975, 0.9995):
            assert t_quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-9, abs=1e-12)
    for wrong in ((0.0, 2), (1.0, 2), (0.5, 0)):
        with pytest.raises(ValueError, match="needs 0 < p < 1"):
            t_quantile(*wrong)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.lists(st.none() | st.floats(0, 100), max_size=8))
def test_an_estimate_is_mean_and_interval(values: list[float | None]) -> None:
    there = [v for v in values if v is not None]
    found = estimate(values)
    if not there:
        assert found is None
        return
    assert found is not None
    assert found.values == tuple(there)
    assert found.mean == pytest.approx(float(np.mean(there)))
    if len(there) < 3:
        assert found.half is None
        assert (found.low, found.high) == (min(there), max(there))
    else:
        low, high = found.low, found.high
        spread = float(np.std(there, ddof=1)) / math.sqrt(len(there))
        factor = stats.t.ppf(0.975, len(there) - 1)
        assert low == pytest.approx(np.mean(there) - factor * spread, abs=1e-9)
        assert high == pytest.approx(np.mean(there) + factor * spread, abs=1e-9)


def test_only_two_intervals_that_do_not_touch_are_a_difference() -> None:
    low, near, high = (estimate([m - 0.1, m, m + 0.1]) for m in (10.0, 10.3, 20.0))
    pair = estimate([20.0, 21.0])
    assert low is not None
    assert near is not None
    assert high is not None
    assert pair is not None
    assert low.apart(high)
    assert not low.apart(near)
    assert low.overlaps(near)
    assert not low.apart(pair)  # two runs have no interval
    same = estimate([5.0, 5.0, 5.0])
    assert same is not None
    assert same.half == 0
    assert same.apart(low)


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def test_what_cannot_be_read_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    good = [make_cell(tmp_path, "em", seed=s)["id"] for s in range(2)]
    cells = tmp_path / "cells"
    (cells / "broken.json").write_text('{"format": 1, "id"', encoding="utf-8")
    make_cell(tmp_path, "er", format=2)
    short = make_cell(tmp_path, "lwf")
    short.pop("groups")
    (cells / f"{short['id']}.json").write_text(json.dumps(short), encoding="utf-8")
    unfinished = make_cell(tmp_path, "mib")
    unfinished["scores"].pop()
    (cells / f"{unfinished['id']}.json").write_text(json.dumps(unfinished), encoding="utf-8")
    odd = make_cell(tmp_path, "agem")
    odd["scores"] = "none"
    (cells / f"{odd['id']}.json").write_text(json.dumps(odd), encoding="utf-8")
    make_plan(tmp_path, [*sorted(p.stem for p in cells.glob("*.json")), "small_mir_0"])
    (cells / "stray.json").write_text("[]", encoding="utf-8")
    grid = read_grid(tmp_path)
    assert [c.id for c in grid.cells] == good
    assert grid.missing == ("small_mir_0",)
    told = "\n".join(grid.notes)
    for sentence in (
        "cells/broken.json is no readable JSON",
        "cells/small_er_0.json has the format 2; this version reads 1. It was left out.",
        "cells/small_lwf_0.json is damaged: it lacks 'groups'",
        "cells/small_mib_0.json is damaged: its last scores are not those of all its classes",
        "cells/small_agem_0.json is damaged",
        "1 cell lies in the folder without being in its plan; not shown.",
    ):
        assert sentence in told
    assert str(tmp_path) not in told
    page = check_page(write_comparison(tmp_path))
    assert "2 of 3 runs are done" in page.text
    assert "this version reads 1" in page.text


def test_a_damaged_plan_costs_only_what_it_told(tmp_path: Path) -> None:
    make_cell(tmp_path, "em")
    for text in ('{"cells": [', "[1, 2]", '{"cells": 3, "rows": null, "command": "x"}'):
        (tmp_path / "plan.json").write_text(text, encoding="utf-8")
        assert len(read_grid(tmp_path).cells) == 1
    (tmp_path / "tuning.json").write_text("{", encoding="utf-8")
    assert "tuning.json is no readable JSON" in check_page(write_comparison(tmp_path)).text


def test_a_folder_that_is_none_and_a_file_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"is no comparison folder: it has neither plan\.json nor cells/"):
        write_comparison(tmp_path)
    make_cell(tmp_path, "em")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="is a file"):
        write_comparison(tmp_path, tmp_path / "file")


def test_the_same_row_and_seed_counts_once(tmp_path: Path) -> None:
    first = make_cell(tmp_path, "em")
    again = {**first, "id": "again"}
    (tmp_path / "cells" / "again.json").write_text(json.dumps(again), encoding="utf-8")
    grid = read_grid(tmp_path)
    assert len(grid.cells) == 1
    assert "The cells again and small_em_0 are of the same row and seed; the first is shown." in grid.notes


def test_before_anything_is_done(tmp_path: Path) -> None:
    make_plan(tmp_path, ["a", "b"], [{"label": "em", "role": "headline", "seeds": 2}], title="To come")
    page = check_page(write_comparison(tmp_path))
    assert "No run is done yet." in page.text
    assert "0 of 2 runs are done" in page.text
    assert (tmp_path / "scores.csv").read_text(encoding="utf-8").count("\n") == 1


# ---------------------------------------------------------------------------------------------------------------------
# Numbers


def slow_measures(cell: dict[str, Any]) -> dict[str, float | None]:
    """From the pixels of the confusion matrices to every number, in loops."""

    def mean(values: Sequence[float | None]) -> float | None:
        there = [v for v in values if v is not None]
        return math.fsum(there) / len(there) if there else None

    by_stage = {}
    for score in cell["scores"]:
        matrix, iou = score["confusion"], []
        for c in range(len(matrix)):
            truth = sum(matrix[c])
            found = sum(row[c] for row in matrix)
            iou.append(100 * matrix[c][c] / (truth + found - matrix[c][c]) if truth else None)
        by_stage[score["stage"]] = iou
    last = max(by_stage)
    miou = [mean(by_stage[t]) for t in sorted(by_stage)]
    lost = []
    for slot in range(1, 1 + sum(len(g) for g in cell["groups"][:-1])):
        before = [by_stage[t][slot] for t in by_stage if t < last and slot < len(by_stage[t])]
        there = [v for v in before if v is not None]
        if there and by_stage[last][slot] is not None:
            lost.append(max(there) - by_stage[last][slot])
    found: dict[str, float | None] = {
        "imiou": mean(miou[1:]),
        "imiou_with_base": mean(miou),
        "forgetting": mean(lost),
        "all": miou[-1],
    }
    edges = [0]
    for t, group in enumerate(cell["groups"]):
        edges.append(edges[-1] + len(group) + (t == 0))
    ranges = [(edges[t], edges[t + 1] - 1) for t in range(len(cell["groups"]))]
    if len(ranges) > 2:
        ranges.append((edges[1], edges[-1] - 1))
    for low, high in ranges:
        label = str(low) if low == high else f"{low}-{high}"
        found[label] = mean([by_stage[last][slot] for slot in range(low, high + 1)])
    return found


@pytest.mark.parametrize("groups", [SMALL, VOC_15_1, (tuple("abc"), tuple("de"))], ids=["small", "voc", "one stage"])
def test_measures_against_a_slow_loop(tmp_path: Path, groups: Sequence[Sequence[str]]) -> None:
    told = make_cell(tmp_path, "em", groups=groups, quality=quality)
    empty = told["scores"][-1]  # a class without ground truth enters nothing
    empty["confusion"][2] = [0] * len(empty["names"])
    fresh = json.loads(json.dumps(told))
    matrix = np.asarray(empty["confusion"])
    for c in range(len(matrix)):
        union = matrix[c].sum() + matrix[:, c].sum() - matrix[c, c]
        fresh["scores"][-1]["iou"][c] = 100 * matrix[c, c] / union if matrix[c].sum() else None
    (tmp_path / "cells" / f"{told['id']}.json").write_text(json.dumps(fresh), encoding="utf-8")
    (cell,) = read_grid(tmp_path).cells
    found, expected = measures(cell), slow_measures(fresh)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value), key


def test_groups_are_named_as_in_the_paper() -> None:
    assert [g.label for g in groups_of(VOC_15_1)] == ["0-15", "16-20", "16", "17", "18", "19", "20"]
    assert [g.label for g in groups_of((VOC[:19], VOC[19:]))] == ["0-19", "20"]
    names = [str(i) for i in range(150)]
    ade = [g.label for g in groups_of([names[:100], *(names[i : i + 10] for i in range(100, 150, 10))])]
    assert ade == ["0-100", "101-150", "101-110", "111-120", "121-130", "131-140", "141-150"]
    assert groups_of(VOC_15_1)[0].names[0] == "background"
    for printed in paper().cells:  # every group that the paper prints has a place in our tables
        if printed.measure[0].isdigit() and printed.recipe == "ade-100-10":
            assert printed.measure in ade


def test_the_score_table_holds_means_intervals_and_roles(tmp_path: Path) -> None:
    cells = {s: make_cell(tmp_path, "em", seed=s, quality=quality) for s in range(3)}
    for s in range(2):
        make_cell(tmp_path, "er", seed=s, quality=quality, settings={"view": "ignore"})
    make_cell(tmp_path, "er view=background", role="other view", quality=quality, settings={"view": "background"})
    make_cell(tmp_path, "em lr=0.1", quality=quality)
    make_cell(tmp_path, "joint", quality=quality, settings={"view": ""})
    rows = [("joint", "bound", 1), ("em", "headline", 3), ("er", "headline", 3), ("mib", "headline", 2)]
    plan = [{"label": label, "role": role, "seeds": seeds} for label, role, seeds in rows]
    make_plan(tmp_path, [*sorted(p.stem for p in (tmp_path / "cells").glob("*.json")), "x"], plan)
    block = one_block(tmp_path)
    sheet = score_sheet(block)
    assert [r.label for r in sheet.rows] == ["em", "er", "er view=background", "mib", "em lr=0.1", "joint"]
    assert [r.role for r in sheet.rows] == ["headline", "headline", "other view", "headline", "variant", "bound"]
    assert [r.note for r in sheet.rows] == [
        "n = 3, view latent",
        "n = 2 of 3, both values, view ignore",
        "n = 1, a single run, other view",
        "not run yet",
        "n = 1, a single run, view latent",
        "n = 1, a single run, bound",
    ]
    assert [c.title for c in sheet.columns] == ["0-3", "4-6", "all", "stages ≥ 1", "all stages", "forgetting"]
    for k, key in enumerate(("0-3", "4-6", "all", "imiou", "imiou_with_base", "forgetting")):
        values = [slow_measures(cell)[key] for cell in cells.values()]
        found = sheet.rows[0].entries[k].estimate
        assert found is not None
        assert found.mean == pytest.approx(np.mean(values))
        assert found.half == pytest.approx(stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3))
    em, er, other, mib, variant, joint = sheet.rows
    assert er.entries[2].estimate is not None
    assert er.entries[2].estimate.half is None
    assert len(er.entries[2].estimate.values) == 2
    assert all(e.estimate is None for e in mib.entries)
    assert [e.best for e in em.entries] == [True] * 5 + [e.best for e in em.entries][5:]
    assert not any(e.best for row in (other, variant, joint) for e in row.entries)
    assert joint.entries[2].estimate is not None
    assert joint.entries[3].estimate is None  # the bound has one stage
    own, words = flat(sheet), markdown([sheet], title="T")
    assert own[0].texts()[3] == "–"
    assert "| *er view=background* |" in words.replace("\\", "")


def test_the_best_and_what_cannot_be_told_from_it(tmp_path: Path) -> None:
    def column(*values: Sequence[float], lower: bool = False) -> list[bool]:
        rows, _ = settled(
            [[Entry(estimate(v))] for v in values], competing=range(len(values)), lower={0} if lower else set()
        )
        return [row[0].best for row in rows]

    clear, near, far = [60.0, 60.1, 60.2], [59.9, 60.0, 60.15], [50.0, 50.1, 50.2]
    assert column(clear, near, far) == [True, True, False]
    assert column(clear, far) == [True, False]
    assert column(clear, far, lower=True) == [False, True]
    assert column(clear, near) == [False, False]  # everybody: no use
    assert column([60.0], [50.0]) == [True, False]
    assert column([60.0], [60.01], [50.0]) == [True, True, False]  # they look the same
    assert column(clear, [60.15], far) == [True, True, False]  # a single run within the interval


def paper_folder(folder: Path) -> Path:
    more: dict[str, Any] = {
        "recipe": "voc-15-1-disjoint",
        "groups": VOC_15_1,
        "quality": quality,
        "title": "VOC 15-1, disjoint",
    }
    for method in ("er", "mib", "em"):
        for seed in range(3):
            make_cell(folder, method, seed=seed, config=VOC_CONFIG, **more)
        for size in (20, 50):
            config = {**VOC_CONFIG, "memory": {"capacity": size}}
            make_cell(folder, f"{method} memory.capacity={size}", config=config, **more)
    for method in ("mir", "agem"):
        make_cell(folder, method, config=VOC_CONFIG, **more)
    make_cell(folder, "er view=background", role="other view", config=VOC_CONFIG, **more)
    make_cell(folder, "er memory.policy=class_balanced", config=VOC_CONFIG, **more)
    return folder


def test_the_papers_value_stands_beside_ours(tmp_path: Path) -> None:
    made = blocks(read_grid(paper_folder(tmp_path)))
    assert [block.capacity for block in made] == [20, 50, 100]
    sheet = score_sheet(made[-1])
    rows = {row.label: row.entries for row in sheet.rows}
    printed = [(e.printed.percent, e.mark) if e.printed else None for e in rows["em"][:6]]
    assert printed == [(73.88, ""), (37.15, ""), (65.14, ""), (68.06, ""), None, None]
    entry = rows["em"][2]
    assert entry.estimate is not None
    assert entry.difference == pytest.approx(entry.estimate.mean - 65.14)
    for method, mark in zip(sorted(("mir", "agem"), key=list(rows).index), "†‡", strict=True):
        for k in range(3):
            assert rows[method][k].mark == mark
            assert rows[method][k].difference is None  # never a target
        assert not rows[method][3].mark
    assert len(sheet.footnotes) == 2
    assert all(note[0] in "†‡" and note.endswith("Not a target.") for note in sheet.footnotes)
    assert all(e.printed is None for e in rows["er view=background"])
    assert "er memory.policy=class_balanced" not in rows  # extra columns of er
    assert [c.over for c in sheet.columns[-2:]] == ["class-balanced memory"] * 2
    assert rows["er"][-1].estimate is not None
    assert rows["em"][-1].estimate is None
    groups = group_sheet(made[-1])
    assert groups is not None
    assert [c.title for c in groups.columns] == ["0-15", "16", "17", "18", "19", "20", "all"]
    texts = [column.texts() for column in flat(sheet)[:3]]
    place = [row.label for row in sheet.rows].index("mir")
    assert texts[1][place] in ("64.46†", "64.46‡")
    assert texts[2][place] == "–"


def test_memory_sizes_side_by_side(tmp_path: Path) -> None:
    made = blocks(read_grid(paper_folder(tmp_path)))
    sheet = memory_sheet(made)
    assert sheet is not None
    assert [(c.over, c.title) for c in sheet.columns] == [
        (f"memory of {n}", title) for n in (20, 50, 100) for title in ("imIoU", "final mIoU")
    ]
    rows = {row.label: row for row in sheet.rows}
    assert set(rows) == {"er", "mib", "em"}  # those with several sizes
    assert [e.printed.percent for e in rows["em"].entries if e.printed] == [64.64, 60.49, 65.57, 60.14, 68.06, 65.14]
    assert [bool(e.mark) for e in rows["em"].entries] == [False, True, False, True, False, False]
    assert rows["em"].note == "n = 1 to 3"
    assert rows["em"].n == "1 to 3"
    assert memory_sheet(made[-1:]) is None


def test_what_keeps_no_memory_stands_in_every_size(tmp_path: Path) -> None:
    for row in ("finetune", "joint", "em memory.capacity=20", "em memory.capacity=30"):
        make_cell(tmp_path, row, quality=quality)
    made = blocks(read_grid(tmp_path))
    assert [(block.capacity, [line.name for line in block.lines]) for block in made] == [
        (20, ["em", "finetune", "joint"]),
        (30, ["em", "finetune", "joint"]),
    ]
    sheet = memory_sheet(made)
    assert sheet is not None
    assert all(e.estimate for row in sheet.rows for e in row.entries)


def test_recipes_that_differ_in_memory_alone_are_sizes_of_one_scenario(tmp_path: Path) -> None:
    for size in (20, 100):
        config = {**VOC_CONFIG, "name": f"mine-{size}", "memory": {"capacity": size}}
        make_cell(tmp_path, "em", recipe=f"mine-{size}", groups=VOC_15_1, config=config)
    made = blocks(read_grid(tmp_path))
    assert memory_sheet(made) is not None
    assert overview_sheet(made) is not None  # of blocks; the page gives it one block for each scenario
    assert "Final mIoU by scenario" not in check_page(write_comparison(tmp_path)).text


def test_the_ablation(tmp_path: Path) -> None:
    config = {
        "data": {"dataset": "ade20k"},
        "scenario": {"split": "50-50", "rule": "files"},
        "memory": {"capacity": 750},
    }
    names = list(COMPONENTS)
    for n in range(5):
        off = names[n:]
        row = " ".join(["em", *(f"{name}=false" for name in off)])
        switches = {name: name not in off for name in names}
        make_cell(tmp_path, row, recipe="ade-50-50", config=config, settings=switches, quality=quality)
    make_cell(tmp_path, "em lr=0.1", recipe="ade-50-50", config=config, quality=quality)
    block = one_block(tmp_path)
    sheet = ablation_sheet(block)
    assert sheet is not None
    assert [[e.words for e in row.entries[:4]] for row in sheet.rows] == [["✓"] * n + ["–"] * (4 - n) for n in range(5)]
    assert [row.label for row in sheet.rows] == [
        "none",
        "+ class-balanced memory",
        "+ relabelling with the composite loss",
        "+ cosine head",
        "+ dynamic sampling",
    ]
    assert [c.title for c in sheet.columns[:4]] == ["CBES", "C.R.", "C.N.", "D.S."]
    printed = [row.entries[4].printed for row in sheet.rows]
    assert [p.percent for p in printed if p] == [17.94, 18.63, 19.32, 21.18, 22.85]
    assert [bool(row.entries[4].mark) for row in sheet.rows] == [False, False, False, True, False]
    assert [row.label for row in score_sheet(block).rows] == ["em", "em lr=0.1"]
    (tmp_path / "cells" / "ade-50-50_em_0.json").unlink()
    for path in list((tmp_path / "cells").glob("*cosine*")):
        path.unlink()
    assert ablation_sheet(one_block(tmp_path)) is None  # one row is no ablation


def test_classes_and_cost(tmp_path: Path) -> None:
    for method, seconds in (("finetune", 0.1), ("em", 0.25)):
        for seed in range(2):
            cost = {"updates": 40, "median_seconds": seconds + 0.1 * seed, "total_seconds": 9, "peak_bytes": 2**30}
            make_cell(tmp_path, method, seed=seed, quality=quality, cost=cost)
    make_cell(tmp_path, "joint", quality=quality)
    block = one_block(tmp_path)
    sheet = class_sheet(block)
    assert sheet is not None
    assert [row.label for row in sheet.rows] == ["background", *(n for g in SMALL for n in g)]
    assert [row.entries[0].words for row in sheet.rows] == ["0", "0", "0", "0", "1", "2", "2"]
    cells = [c for c in read_grid(tmp_path).cells if c.method == "em"]
    for slot, row in enumerate(sheet.rows):
        assert row.entries[1].heat == pytest.approx(np.mean([c.scores[-1].iou[slot] for c in cells]))
        assert [e.best for e in row.entries] == [False, True, False, False]
    cost_table = cost_sheet(block)
    assert cost_table is not None
    em, finetune = cost_table.rows
    assert [e.words for e in finetune.entries] == ["0.150", "1.00", "1.00", "1.00", "40", "9.0"]
    assert em.entries[1].words == "2.00"


def test_the_overview_of_several_scenarios(tmp_path: Path) -> None:
    for recipe, groups in (("small", SMALL), ("other", (("a", "b"), ("c",)))):
        for method in ("er", "em"):
            make_cell(tmp_path, method, recipe=recipe, groups=groups, quality=quality)
    make_cell(tmp_path, "mib", recipe="other", groups=(("a", "b"), ("c",)), quality=quality)
    made = blocks(read_grid(tmp_path))
    sheet = overview_sheet(made)
    assert sheet is not None
    order_of = [block.title for block in made]
    heads = {"small": ["0-3", "4-6", "all"], "other": ["0-2", "3", "all"]}
    assert [c.title for c in sheet.columns] == [t for name in order_of for t in heads[name]]
    mib = next(row for row in sheet.rows if row.label == "mib")
    assert sum(e.estimate is None for e in mib.entries) == 3
    assert overview_sheet(made[:1]) is None


def test_runs_with_other_settings_are_no_seeds_of_one_row(tmp_path: Path) -> None:
    make_cell(tmp_path, "em", seed=0, settings={"lr": 0.01})
    make_cell(tmp_path, "em", seed=1, settings={"lr": 0.1}, about={"segstream": "0.3.0"})
    grid = read_grid(tmp_path)
    told = progress(grid, blocks(grid))
    assert "The runs of em on small differ in lr, not just in the seed." in told
    assert "The runs come from several versions of segstream: 0.2.0 (1 run) and 0.3.0 (1 run)." in told


# ---------------------------------------------------------------------------------------------------------------------
# Words


def level(value: float, *, spread: float = 0.0) -> Any:
    return lambda row, seed, slot, stage: value + spread * (seed - 1)


def compared(folder: Path, *rows: tuple[str, float, float, int], **more: Any) -> Block:
    for row, value, spread, seeds in rows:
        for seed in range(seeds):
            make_cell(folder, row, seed=seed, quality=level(value, spread=spread), **more)
    return one_block(folder)


def test_a_clear_winner_is_called_one(tmp_path: Path) -> None:
    block = compared(tmp_path, ("em", 0.8, 0.002, 3), ("er", 0.6, 0.002, 3), ("joint", 0.9, 0, 1))
    said = block_words(block)
    value = r"[\d.]+ ± [\d.]+ %"
    sentence = rf"em ends highest, at {value} mIoU \(n = 3\): [\d.]+ points above er \({value}\), clearly\."
    assert re.fullmatch(sentence, said[0])
    assert any(s.startswith("It leads on average over the stages too") and s.endswith("; clearly).") for s in said)
    assert any(re.search(r"joint, the bound\) reaches [\d.]+ %; em keeps \d+ % of that", s) for s in said)


def test_overlapping_intervals_are_no_difference(tmp_path: Path) -> None:
    block = compared(tmp_path, ("em", 0.8, 0.03, 3), ("er", 0.79, 0.03, 3), ("mib", 0.5, 0.001, 3))
    assert re.match(
        r"em ends highest, at .* but not clearly: its interval overlaps that of er \(", block_words(block)[0]
    )


def test_few_runs_tell_no_difference(tmp_path: Path) -> None:
    said = block_words(compared(tmp_path / "a", ("em", 0.8, 0, 1), ("er", 0.3, 0, 2)))
    assert "(one run)" in said[0]
    assert "clearly" not in said[0]
    assert said[1] == "With fewer than three runs of a method, chance cannot be told from a difference."
    said = block_words(compared(tmp_path / "b", ("em", 0.8, 0.001, 3), ("er", 0.3, 0.001, 3), ("mib", 0.2, 0, 1)))
    assert said[0].endswith("clearly.")
    assert said[1] == "Of mib there are fewer than three runs, so nothing is sure against it."


def test_a_tie_is_a_tie(tmp_path: Path) -> None:
    for row in ("em", "mib"):
        cell = make_cell(tmp_path, row, quality=level(0.8))
        told = json.loads((tmp_path / "cells" / "small_em_0.json").read_text(encoding="utf-8"))
        path = tmp_path / "cells" / f"{cell['id']}.json"
        path.write_text(json.dumps({**cell, "scores": told["scores"]}), encoding="utf-8")
    said = block_words(one_block(tmp_path))
    assert re.fullmatch(r"em and mib end level, at [\d.]+ % mIoU\.", said[0])
    assert re.fullmatch(r"On average over the stages \(imIoU\) em and mib are level, at [\d.]+ %\.", said[1])


def test_one_method_alone_and_none(tmp_path: Path) -> None:
    said = block_words(compared(tmp_path, ("em", 0.8, 0, 1)))
    assert re.fullmatch(r"em ends at [\d.]+ % mIoU \(one run\)\.", said[0])
    assert lead([]) == ["No run is done yet."]


def test_the_other_view_is_told_where_it_did_better(tmp_path: Path) -> None:
    block = compared(tmp_path, ("er", 0.4, 0, 1), ("em", 0.8, 0, 1))
    assert not any("view" in s for s in block_words(block))
    make_cell(tmp_path, "er view=background", role="other view", quality=level(0.6))
    assert any(s.startswith("er view=background ends at") for s in block_words(one_block(tmp_path)))


def test_reversed_pairs_are_named(tmp_path: Path) -> None:
    """The paper's order on VOC 15-1 disjoint, memory of 100: em, mib, lwf, coriseg, er, icarl."""
    rows = [("em", 0.6, 0.001, 3), ("er", 0.8, 0.001, 3), ("mib", 0.7, 0.0, 1), ("mir", 0.9, 0.001, 3)]
    block = compared(tmp_path, *rows, recipe="voc-15-1-disjoint", groups=VOC_15_1, config=VOC_CONFIG)
    found = order(block)
    assert found is not None
    assert found.same
    assert found.pairs == 3  # mir is contradictory there and never compared
    named = [(r.upper, r.lower, r.clear) for r in found.reversals]
    assert named[0] == ("em", "er", True)
    assert set(named[1:]) == {("em", "mib", False), ("mib", "er", False)}  # of mib there is one run
    assert found.reversals[0].printed == (65.14, 56.69)
    said = order_words(found)
    assert said[0] == "Against the paper's order, 3 of 3 pairs of methods stand the other way round."
    assert said[1].startswith("The paper has em above er (65.14 and 56.69); here er is above em (")
    assert said[1].endswith("the intervals do not touch).")
    assert said[2].startswith("Of the 3, 2 are not clear")


def test_another_dataset_is_compared_in_order_only(tmp_path: Path) -> None:
    groups = (("a", "b", "c"), ("d",), ("e",))
    config = {"scenario": {"rule": "overlapped"}, "memory": {"capacity": 50}}
    block = compared(tmp_path, ("em", 0.8, 0, 1), ("er", 0.6, 0, 1), groups=groups, config=config)
    found = order(block)
    assert found is not None
    assert not found.same
    assert found.column == "VOC 15-1, overlapped, memory of 100"
    assert not found.reversals
    assert order_words(found)[0].startswith(
        "The one pair of methods stands in the order of the paper's VOC 15-1, overlapped, memory of 100 (its numbers"
    )
    assert all(e.printed is None for row in score_sheet(block).rows for e in row.entries)


def test_several_scenarios_are_counted(tmp_path: Path) -> None:
    for recipe, best in (("one", "em"), ("two", "em"), ("three", "er")):
        for method in ("em", "er"):
            for seed in range(3):
                value = level(0.8 if method == best else 0.5, spread=0.001 if recipe == "one" else 0.4)
                make_cell(tmp_path, method, recipe=recipe, seed=seed, quality=value, groups=(("a", recipe), ("b",)))
    said = lead(blocks(read_grid(tmp_path)))
    assert said[0] == "Highest at the end: em in 2 of 3 scenarios (clearly in 1); er on three (not clearly)."


def test_training_otherwise_than_the_paper_is_told(tmp_path: Path) -> None:
    config = {**VOC_CONFIG, "network": {"name": "tiny", "encoder": "resnet101"}, "base": {"epochs": 2}}
    block = compared(tmp_path, ("em", 0.8, 0, 1), recipe="voc-15-1-disjoint", groups=VOC_15_1, config=config)
    told = " ".join(block.differences)
    assert "network.name tiny (paper: deeplabv3)" in told
    assert "base.epochs 2 (paper: 60)" in told
    assert "encoder" not in told
    assert "far fewer than the paper's test set has" in told
    assert any("trained otherwise than the paper says" in s for s in block_words(block))


# ---------------------------------------------------------------------------------------------------------------------
# Confusion


def test_confusion_in_shares_of_each_class() -> None:
    one, two = [[8, 2, 0], [1, 3, 0], [0, 0, 0]], [[10, 0, 0], [0, 4, 0], [0, 0, 0]]
    found = confusion("em", [one, two], [["a"], ["b"]])
    assert found is not None
    assert found.rows[0][1] == pytest.approx((90.0, 10.0, 0.0))
    assert found.rows[1][1] == pytest.approx((12.5, 87.5, 0.0))
    assert found.rows[2] == ("b", (None, None, None))
    assert confusion("em", [(), ()], [["a"]]) is None


def test_many_classes_are_told_by_stage() -> None:
    draw = np.random.default_rng(0)
    groups = [[f"a{i}" for i in range(20)], [f"b{i}" for i in range(8)]]
    matrix = draw.integers(1, 50, (29, 29))
    found = confusion("em", [matrix.tolist()], groups)
    assert found is not None
    assert found.heads == ("right", "background", "stage 0", "stage 1")
    edges = [(0, 1), (1, 21), (21, 29)]
    for (low, high), (_, shares) in zip(edges, found.rows, strict=True):
        whole = matrix[low:high].sum()
        right = sum(matrix[i, i] for i in range(low, high))
        taken = [sum(matrix[i, k] for i in range(low, high) for k in range(a, b) if i != k) for a, b in edges]
        assert shares == pytest.approx([100 * v / whole for v in (right, *taken)])
        assert sum(v for v in shares if v is not None) == pytest.approx(100)


# ---------------------------------------------------------------------------------------------------------------------
# Files


NASTY = ((r"a_b & 50 %", "道路", r"\input{x} $1$"), ("crème #1 {~^}",), ('"quoted" <b> | `c`', "naïve 🚲"))


def nasty_sheet() -> Sheet:
    printed = PaperCell("t", "r", 1, "em", "all", 50.0, contradiction="A & B differ by 1 %.")
    rows, notes = settled(
        [[Entry(estimate([1.0, 2.0, 3.0]), printed=printed), Entry(words=name)] for g in NASTY for name in g],
        competing=range(5),
    )
    names = [name for group in NASTY for name in group]
    made = tuple(SheetRow(n, r, n="3") for n, r in zip(names, rows, strict=True))
    heads = (Column("0-15", "m_I|U"), Column("✓ & co", words=True))
    return Sheet("t", "T_1 & 道", "100 % {of} \\all.", heads, made, notes)


@pytest.mark.parametrize("engine", ["pdflatex", "xelatex", "lualatex"])
def test_the_latex_compiles(tmp_path: Path, engine: str) -> None:
    if shutil.which(engine) is None:
        pytest.skip(f"{engine} is not installed")
    folder = paper_folder(tmp_path / "comparison")
    write_comparison(folder)
    (tmp_path / "nasty.tex").write_text(latex([nasty_sheet()], notes=["a\nb % c"]), encoding="utf-8")
    shutil.copy(folder / "tables.tex", tmp_path)
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{tables}\input{nasty}\end{document}"
    (tmp_path / "d.tex").write_text(document, encoding="utf-8")
    done = subprocess.run(
        [engine, "-halt-on-error", "-interaction=nonstopmode", "d.tex"],
        cwd=tmp_path, check=False, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


def test_the_latex_is_well_formed(tmp_path: Path) -> None:
    """What a compiler would object to, for where there is none."""
    write_comparison(paper_folder(tmp_path))
    for text in ((tmp_path / "tables.tex").read_text(encoding="utf-8"), latex([nasty_sheet()])):
        body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
        assert body.count(r"\begin{tabular}") == body.count(r"\end{tabular}") == body.count(r"\toprule")
        assert body.count(r"\begin{table*}") == body.count(r"\end{table*}") == body.count(r"\caption{")
        plain = re.sub(r"\\[\\{}$&#%_]", "", body)
        assert plain.count("{") == plain.count("}")
        assert plain.count("$") % 2 == 0
        assert len(set(re.findall(r"\\label\{(.*?)\}", body))) == body.count(r"\label{")
        for table in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", body, re.S):
            rows = [line for line in table[1].splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
            assert len(rows) > 1
            assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(table[0])}
    nasty = latex([nasty_sheet()])
    assert r"a\_b \& 50 \%" in nasty
    assert r"\textbackslash{}input\{x\} \$1\$" in nasty
    assert r"\segchar{道}{U+9053}" in nasty
    assert r"cr\`{e}me \#1 \{\textasciitilde{}\textasciicircum{}\}" in nasty
    assert r"50.00\dag{}" in nasty


def test_markdown_tables_have_one_cell_for_each_column(tmp_path: Path) -> None:
    write_comparison(paper_folder(tmp_path))
    for text in ((tmp_path / "tables.md").read_text(encoding="utf-8"), markdown([nasty_sheet()], title="a|b")):
        table: list[int] = []
        for line in [*text.splitlines(), ""]:
            if line.startswith("|"):
                table.append(len(re.findall(r"(?<!\\)\|", line)))
            elif table:
                assert len(set(table)) == 1
                assert len(table) > 2
                table = []


def test_wide_tables_are_cut_between_numbers() -> None:
    entry = (Entry(),)
    columns = [Flat("", f"{i}", kind, entry) for i in range(5) for kind in ("own", "paper", "difference")]
    found = parts(columns, 7)
    assert [len(part) for part in found] == [6, 6, 3]
    assert all(part[0].kind == "own" for part in found)
    assert [c for part in found for c in part] == columns
    assert [len(part) for part in parts(columns, 1)] == [3] * 5


def test_the_csv_files_hold_every_number(tmp_path: Path) -> None:
    write_comparison(paper_folder(tmp_path))
    with (tmp_path / "scores.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    grid = read_grid(tmp_path)
    for cell in grid.cells:
        own = [
            x for x in lines if (x["row"], x["memory"], x["seed"]) == (cell.line, str(cell.capacity), str(cell.seed))
        ]
        iou = [(int(x["stage"]), int(x["slot"]), x["class"], float(x["percent"])) for x in own if x["measure"] == "iou"]
        assert iou == [
            (s.stage, slot, name, value)
            for s in cell.scores
            for slot, (name, value) in enumerate(zip(s.names, s.iou, strict=True))
        ]
        told = {x["measure"]: x["percent"] for x in own if not x["stage"]}
        assert told == {k: "" if v is None else str(v) for k, v in measures(cell).items()}
    printed = [x for x in lines if x["source"] == "paper"]
    expected = [c for c in paper().cells if c.recipe == "voc-15-1-disjoint"]
    assert sorted(float(x["percent"]) for x in printed) == sorted(c.percent for c in expected)
    assert sum(x["role"] == "contradictory" for x in printed) == sum(bool(c.contradiction) for c in expected)
    with (tmp_path / "cells.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [c["cell"] for c in cells] == [c.id for c in grid.cells]
    assert [float(c["all"]) for c in cells] == [measures(c)["all"] for c in grid.cells]


# ---------------------------------------------------------------------------------------------------------------------
# The page


def check_page(path: Path) -> Page:
    """Nothing is fetched, everything nests, pictures and drawings have words, links lead somewhere."""
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert not page.open
    assert "http:" not in html
    assert "https:" not in html
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    beside = {"scores.csv", "cells.csv", "tables.md", "tables.tex"}
    for _, attrs in page.found:
        for key in ("src", "href", "xlink:href", "srcset", "data", "action"):
            link = attrs.get(key)
            if link is not None:
                assert link.startswith("data:") or link.removeprefix("#") in ids or link in beside, link
    assert all((path.parent / name).is_file() for name in beside)
    assert not [tag for tag, _ in page.found if tag in {"script", "iframe", "object", "embed", "base", "form"}]
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing.get("aria-label") or drawing.get("aria-hidden") for drawing in page.all("svg"))
    assert not re.search(r"#0[12]0[01][0-9a-f]{2}\b", html), "a placeholder colour was left"
    return page


def test_a_whole_comparison(tmp_path: Path) -> None:
    folder = paper_folder(tmp_path)
    for row, seed in (("em", 0), ("mib", 1)):
        run = make_run(
            folder / "runs" / f"voc-15-1-disjoint_{row}_{seed}", row, lambda s, t: 50.0,
            groups=VOC_15_1, watched=row == "em",
        )  # fmt: skip
        paint(run, "street", stages=3)
    trials = [{"method": "er", "settings": {"lr": lr, "view": "ignore"}, "imiou": 40 + lr} for lr in (0.001, 0.01)]
    trials.append({"method": "er", "settings": {"lr": 1.0}, "imiou": None})
    tuning = {"recipe": "r", "split": "holdout", "trials": trials, "chosen": {"er": trials[1]["settings"]}}
    (folder / "tuning.json").write_text(json.dumps(tuning), encoding="utf-8")
    ids = sorted(p.stem for p in (folder / "cells").glob("*.json"))
    make_plan(folder, [*ids, "later"], title="Ü <b> all", command=["segstream", "compare", "--out", "/home/me/x"])
    path = write_comparison(folder, tmp_path / "out")
    page = check_page(path)
    for words in (
        "Ü <b> all",
        f"{len(ids)} of {len(ids) + 1} runs are done",
        "Runs ended 2026-11-20 on A CPU (1 thread).",
        "memory of 20",
        "The same pictures after each stage",
        "What the methods watched while they learned",
        "em, seed 0",
        "lr 0.01, view ignore",
        "failed",
        "chosen",
        "segstream compare --out PATH",
        "base-cosine",
        "Not a target.",
        "No pictures of agem",
        "What is taken for what",
    ):
        assert words in page.text, words
    assert "/home/me" not in path.read_text(encoding="utf-8")
    alts = [str(image["alt"]) for image in page.all("img")]
    assert any(alt.startswith("em on street after stage 2") for alt in alts)
    assert any(alt.startswith("mib on street after stage 0") for alt in alts)
    spoken = " ".join(str(drawing.get("aria-label")) for drawing in page.all("svg"))
    assert "mIoU by stage on VOC 15-1, disjoint. agem " in spoken
    assert "em: confidence, by class" in spoken


def test_the_table_of_the_page_is_the_table(tmp_path: Path) -> None:
    path = write_comparison(paper_folder(tmp_path))
    html = path.read_text(encoding="utf-8")
    sheet = score_sheet(blocks(read_grid(tmp_path))[-1])
    table = html[html.index(f'aria-label="{sheet.title}"') :].split("<tbody>")[1].split("</tbody>")[0]
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in table.split("<tr")[1:]]
    assert len(rows) == len(sheet.rows)
    for row, cells in zip(sheet.rows, rows, strict=True):
        for entry, cell in zip(row.entries, cells, strict=True):
            assert ("<b>" in cell) == entry.best
            assert ('class="printed"' in cell) == (entry.printed is not None)
            if entry.estimate is not None:
                assert f"{entry.estimate.mean:.1f}" in cell
                assert (f"± {entry.estimate.half or 0:.1f}" in cell) == (entry.estimate.half is not None)


def test_no_runs_no_pictures_and_damaged_events(tmp_path: Path) -> None:
    make_cell(tmp_path, "em", quality=quality)
    page = check_page(write_comparison(tmp_path))
    assert "No pictures of em: no run of it has a folder runs/…/predictions here." in page.text
    assert not page.all("img")
    run = make_run(tmp_path / "runs" / "small_em_0", "em", lambda s, t: 50.0, watched=True)
    (run / "events.jsonl").write_text('{"event": "start"}\nnot json\n{"event": "end"}\n', encoding="utf-8")
    page = check_page(write_comparison(tmp_path))
    assert "Line 2 of runs/small_em_0/events.jsonl is damaged" in page.text


def test_names_of_any_script_are_text_and_nothing_else(tmp_path: Path) -> None:
    for method in ("em", "er"):
        make_cell(tmp_path, method, recipe="odd", groups=NASTY, quality=quality, title="<script>alert(1)</script>")
    page = check_page(write_comparison(tmp_path))
    for name in (n for group in NASTY for n in group):
        assert name in page.text
    assert "<script>alert(1)</script>" in page.text


def test_a_hundred_and_fifty_classes_and_sixty_cells_are_fast(tmp_path: Path) -> None:
    names = [f"thing {i}" for i in range(150)]
    groups = [names[:100], names[100:]]
    for method in LEVELS:
        make_cell(tmp_path, method, recipe="many", groups=groups, quality=quality)
    for method in ("er", "mib", "em"):
        for recipe in ("a", "b", "c"):
            for seed in range(6):
                make_cell(tmp_path, method, recipe=recipe, groups=VOC_15_1, seed=seed, quality=quality)
    started = time.process_time()
    page = check_page(write_comparison(tmp_path))
    assert time.process_time() - started < 10
    assert "stage 0 (100 classes)" in page.text
    assert "Final mIoU by scenario" in page.text
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_the_command_reports_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_cell(tmp_path / "c", "em", quality=quality)
    main(["report", str(tmp_path / "c"), "--out", str(tmp_path / "o"), "--title", "Mine"])
    assert str(tmp_path / "o" / "report.html") in capsys.readouterr().out
    assert "Mine" in check_page(tmp_path / "o" / "report.html").text
    run = make_run(tmp_path / "r", "em", lambda s, t: 50.0)
    assert main(["report", str(tmp_path / "c"), str(run)]) != 0
    assert "give it alone" in capsys.readouterr().err


def test_the_report_needs_neither_torch_nor_scipy() -> None:
    code = "import segstream.report, sys; assert not {'torch', 'scipy', 'matplotlib.pyplot'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
