"""The run folder: whose it is, what is recorded, and that a resumed run leaves the record of one never stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segstream.config import load_recipe
from segstream.runs import Run, claim
from segstream.storage import StateError, save_folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- whose folder it is


def test_new_and_empty_folders_are_ours(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "desktop").mkdir()
    (tmp_path / "desktop" / ".DS_Store").touch()
    for name in ("empty", "desktop", "new/deep"):
        Run.create(tmp_path / name, config="", about={})
        assert names(tmp_path / name) >= {"segstream.json", "config.toml", "about.json"}


@pytest.mark.parametrize("replace", [False, True])
def test_folders_of_others_are_refused_and_stay(tmp_path: Path, replace: bool) -> None:
    for name, content in [("photos", {"a.png": "mine"}), ("hidden", {".config": "mine"}), ("model", {})]:
        folder = tmp_path / name
        folder.mkdir()
        for file, text in content.items():
            (folder / file).write_text(text)
    save_folder(tmp_path / "model", kind="method", document={}, files={"weights.bin": b"1"})
    (tmp_path / "file").write_text("mine")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "segstream.json").write_text("{")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for name, sentence in [
        ("photos", "photos is not empty and not of segstream"),
        ("hidden", "hidden is not empty"),
        ("model", "model holds a method, not a run"),
        ("file", "file is a file"),
        ("damaged", "no readable JSON"),
    ]:
        with pytest.raises(StateError, match=sentence):
            Run.create(tmp_path / name, config="", about={}, replace=replace)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_an_earlier_run_is_replaced_only_when_asked(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "photo.png").write_text("mine")
    folder = tmp_path / "run"
    run = Run.create(folder, config="", about={"method": "em"})
    run.event("start")
    run.predictions.mkdir()
    (run.predictions / "a.png").touch()
    (folder / "link").symlink_to(outside, target_is_directory=True)
    with pytest.raises(StateError, match="run holds an earlier run; continue it with --resume, or give another folder"):
        Run.create(folder, config="", about={})
    assert Run(folder).events("start")
    again = Run.create(folder, config="", about={"method": "er"}, replace=True)
    assert again.about == {"method": "er"}
    assert again.events() == []
    assert names(folder) == {"segstream.json", "config.toml", "about.json"}
    assert (outside / "photo.png").read_text() == "mine", "a link is removed, never what it leads to"
    with pytest.raises(StateError, match="run holds a run, not a demo"):
        claim(folder, kind="demo", replace=True)


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    save_folder(tmp_path / "model", kind="method", document={}, files={})
    for name, sentence in [("none", "There is no run folder"), (".", "is no run folder"), ("model", "holds a method")]:
        with pytest.raises(StateError, match=sentence):
            Run(tmp_path / name)


def test_a_run_stopped_while_it_was_made_can_be_read(tmp_path: Path) -> None:
    claim(tmp_path / "run", kind="run")
    run = Run(tmp_path / "run")
    assert (run.config, run.about, run.events(), run.finished, run.summary) == ({}, {}, [], False, None)
    assert run.last_position == 0
    run.rewind(0)


# ---- what is recorded


def test_what_was_written_is_read(tmp_path: Path) -> None:
    recipe = load_recipe("demo", ["base.epochs=3"])
    run = Run.create(tmp_path / "run", config=recipe.to_toml(), about={"method": "em", "seed": 1})
    run.event("start", at=1)
    run.event("update", stage=1, batch=0, loss=0.5, kept={"1": 0.25})
    run.event("end", seconds=2.5)
    run.write_summary({"final": 50.0})
    run = Run(tmp_path / "run")
    assert run.config == recipe.to_dict()
    assert load_recipe(run.folder / "config.toml") == recipe
    assert run.about == {"method": "em", "seed": 1}
    assert run.events("update") == [{"event": "update", "stage": 1, "batch": 0, "loss": 0.5, "kept": {"1": 0.25}}]
    assert [e["event"] for e in run.events()] == ["start", "update", "end"]
    assert run.finished
    assert run.summary == {"final": 50.0}
    assert (run.state, run.predictions) == (run.folder / "state", run.folder / "predictions")


def test_a_reader_beside_a_writer_leaves_out_the_unfinished_line(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config="", about={})
    run.event("start")
    with open(run.folder / "events.jsonl", "ab") as file:
        file.write(b'{"event": "upda')
    assert run.events() == [{"event": "start"}]
    assert not run.finished


def test_damage_gets_a_sentence(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config="", about={})
    for file, text, sentence in [
        ("about.json", "{", r"about\.json is no readable JSON"),
        ("about.json", "[]", r"about\.json is damaged"),
        ("config.toml", "a =", r"config\.toml is not valid TOML"),
        (
            "events.jsonl",
            '{"event": "start"}\n{"stage": 1}\n',
            r"Line 2 of .*events\.jsonl is damaged: it does not say",
        ),
        ("events.jsonl", '{"event": \n{"event": "start"}\n', r"Line 1 of .*events\.jsonl is damaged"),
    ]:
        (run.folder / file).write_text(text)
        with pytest.raises(StateError, match=sentence):
            _ = (run.about, run.config, run.events())
        (run.folder / file).unlink()


# ---- going on


def test_resume_needs_the_same_recipe_and_method(tmp_path: Path) -> None:
    text = load_recipe("demo").to_toml()
    Run.create(tmp_path / "run", config=text, about={"method": "em"})
    assert Run.resume(tmp_path / "run", config=text, about={"method": "em"}).folder == tmp_path / "run"
    other = load_recipe("demo", ["memory.capacity=7", "methods.em.threshold=0.5"]).to_toml()
    with pytest.raises(StateError, match=r"was started with memory\.capacity = 50, not 7; ask for the same"):
        Run.resume(tmp_path / "run", config=other, about={"method": "em"})
    other = load_recipe("demo", ["methods.em.threshold=0.5"]).to_toml()
    with pytest.raises(StateError, match=r"methods\.em\.threshold = nothing, not 0\.5"):
        Run.resume(tmp_path / "run", config=other, about={"method": "em"})
    with pytest.raises(StateError, match='method = "em", not "er"'):
        Run.resume(tmp_path / "run", config=text, about={"method": "er"})
    with pytest.raises(StateError, match="There is no run folder"):
        Run.resume(tmp_path / "none", config=text, about={"method": "em"})


def happen(run: Run, first: int, last: int) -> None:
    for n in range(first, last):
        run.event("update", batch=n, loss=n / 3)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(checkpoint=st.integers(0, 6), stopped=st.integers(0, 6), cut=st.integers(0, 40))
def test_a_resumed_run_leaves_the_same_record(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: int, stopped: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    whole = Run.create(folder / "whole", config="", about={})
    happen(whole, 0, 8)
    run = Run.create(folder / "stopped", config="", about={})
    happen(run, 0, checkpoint)
    position = run.mark()
    assert position == checkpoint
    happen(run, checkpoint, checkpoint + stopped)
    path = run.folder / "events.jsonl"
    if stopped:  # killed in the middle of its last line
        path.write_bytes(path.read_bytes()[: -min(cut, 20) or None])
    run = Run(folder / "stopped")
    run.rewind(position)
    happen(run, position, 8)
    assert path.read_bytes() == (whole.folder / "events.jsonl").read_bytes()


def test_a_record_shorter_than_its_checkpoint_is_told(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config="", about={})
    run.event("start")
    with pytest.raises(StateError, match=r"events\.jsonl has 1 events, but the checkpoint was saved after 2"):
        run.rewind(2)


def test_the_mark_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "run", config="", about={})
    run.event("start")
    synced = []
    monkeypatch.setattr("segstream.runs.sync_file", synced.append)
    run.mark()
    assert synced == [run.folder / "events.jsonl"]


def test_reading_a_run_needs_no_torch() -> None:
    code = "import sys, segstream.runs; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
