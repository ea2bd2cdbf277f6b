"""The paper's benchmark from end to end on small trees in the real layouts: every method and the bound, to a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from trees import ade_tree, voc_tree

from segstream import plugins, storage
from segstream.compare import Asked, Comparison, Ended, Failed, LeftOut, Task
from segstream.compare.tasks import Event
from segstream.compare.worker import JOBS
from segstream.report import write_comparison

SMALL = """
[network]
name = "tiny_bn"
encoder = ""
weights = ""
decoder_channels = 8

[augment]
crop = 32
scale = [1.0, 1.0]

[base]
epochs = 1
batch = 16

[run]
precision = "32-true"
threads = 1
device = "cpu"
"""


class Here:
    """Does each task at once and in this process: thirty processes would spend a minute importing PyTorch."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.ended: list[Event] = []

    def has_room(self) -> bool:
        return not self.ended

    def has_base(self, name: str) -> bool:
        return (self.cache / name / storage.INDEX).exists()

    def start(self, task: Task) -> None:
        self.ended.append(Ended(task, JOBS[task.kind](task.job, lambda at: None)))

    def hear(self) -> Sequence[Event]:
        heard, self.ended = self.ended, []
        return heard

    def stop(self) -> None:
        self.ended = []


def small(folder: Path, recipe: str, root: Path, scenario: str = "") -> str:
    """The package's recipe over a tree, with a network of seconds; everything else is as it is published."""
    path = folder / f"{recipe}.toml"
    text = f'extends = "{recipe}"\nname = "{recipe}"\n[data]\nroot = "{root}"\n{SMALL}\n{scenario}'
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_voc_and_ade20k_with_every_method_to_a_report(tmp_path: Path) -> None:
    voc = voc_tree(tmp_path / "voc", layout="torchvision").root
    ade = ade_tree(tmp_path / "ade").root
    recipes = [
        small(tmp_path, "voc-15-1-disjoint", voc, "[scenario]\nmax_images = 2\n"),
        small(tmp_path, "ade-50-50-generated", ade, "[scenario]\nmax_images = 4\n"),
    ]
    out, cache = tmp_path / "out", tmp_path / "cache"
    asked = Asked(recipes=recipes, methods="all,joint", out=out, cache=cache, other_view_seeds=0)
    comparison = Comparison(asked)
    wrong = [event for event in comparison.go(lambda logs: Here(cache)) if isinstance(event, Failed | LeftOut)]
    assert not wrong, wrong
    methods = [*plugins.available("methods"), "joint"]
    assert len(methods) == 10
    for recipe, stages, slots in (("voc-15-1-disjoint", 5, 21), ("ade-50-50-generated", 2, 151)):
        for method in methods:
            cell = storage.read_json(out / "cells" / f"{recipe}_{method}_0.json")
            assert [s["stage"] for s in cell["scores"]] == ([stages] if method == "joint" else list(range(stages + 1)))
            assert len(cell["scores"][-1]["names"]) == slots
            assert all(math.isfinite(s["miou"]) for s in cell["scores"])
        heads = {m: storage.read_json(out / "cells" / f"{recipe}_{m}_0.json")["base"] for m in ("em", "er", "lwf")}
        assert [(b["head"], b["loss"]) for b in heads.values()] == [
            ("cosine", "softmax"), ("linear", "softmax"), ("linear", "sigmoid"),
        ]  # fmt: skip
        for method, like in (("mib", "er"), ("icarl", "lwf"), ("agem", "er")):  # weights are shared, to the bit
            base = storage.read_json(out / "cells" / f"{recipe}_{method}_0.json")["base"]
            assert base["weights"] == heads[like]["weights"]
    assert len(list(cache.glob("base-*"))) == 6
    page = write_comparison(out)
    tables = (out / "tables.md").read_text(encoding="utf-8")
    assert "65.1" in tables  # what the paper has for em on VOC 15-1 disjoint, beside ours
    assert all(method in tables for method in methods)
    assert "http" not in page.read_text(encoding="utf-8").replace("http://www.w3.org", "")
