"""The demo from end to end, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from segstream import load
from segstream.config import Recipe, load_recipe
from segstream.demo import VIEWS, run_demo
from segstream.storage import StateError

SMALL = [
    "network.name=tiny",
    "data.train_size=60",
    "data.test_size=12",
    "data.val_size=12",
    "data.image_size=[32, 32]",
    "augment.crop=32",
    "base.epochs=1",
    "scenario.max_images=4",
    "memory.capacity=10",
    "run.threads=1",
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def reduced(name: str, overrides: list[str]) -> Recipe:
        return load_recipe(name, [*overrides, *SMALL])

    monkeypatch.setattr("segstream.demo.load_recipe", reduced)


@pytest.mark.usefixtures("small")
def test_demo_writes_what_it_promises_and_starts_afresh(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    first = run_demo(out=out, seed=3)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["unit"] == "percent"
    assert set(summary["methods"]) == {"finetune", "er", "em"}
    assert 0 <= summary["joint"] <= 100
    for name, scores in summary["methods"].items():
        assert len(scores["miou"]) == 4, "stage 0 and three more"
        assert scores["final"] == scores["miou"][-1]
        assert scores["imiou"] == pytest.approx(sum(scores["miou"][1:]) / 3)
        assert (out / summary["runs"][name] / "summary.json").exists()
    for name in ("finetune", "er"):  # the view is the one that was better on pictures that the table does not use
        tuned = {v: json.loads((out / f"{name}-{v}" / "summary.json").read_text())["tuning"]["imiou"] for v in VIEWS}
        assert tuned[summary["methods"][name]["view"]] == max(tuned.values())
    assert summary["methods"]["em"]["view"] == "latent"
    assert "joint" in (out / "report.html").read_text()
    assert len(load(out / "model").segmenter.classes) == 17

    (out / "stale.txt").touch()
    again = run_demo(out=out, seed=3)
    assert not (out / "stale.txt").exists()
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in first.items() if k != "seconds"}


@pytest.mark.usefixtures("small")
def test_demo_refuses_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(StateError, match="not of segstream"):
        run_demo(out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
