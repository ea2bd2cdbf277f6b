"""Teaching from a folder: what it learns, keeps, refuses, and how it goes on after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from segstream import storage, teach
from segstream.augment import Augment
from segstream.classes import ClassTable
from segstream.joint import seeded
from segstream.lesson import open_lesson, open_rehearsal
from segstream.method import load
from segstream.methods.em import EM
from segstream.models import Segmenter
from segstream.online import Progress
from segstream.types import Batch, Sample

SIZE = (32, 40)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A tiny network, few updates, one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(teach, "NETWORK", "tiny")
    monkeypatch.setattr(teach, "FRESH", replace(teach.FRESH, updates=40))
    monkeypatch.setattr(teach, "LATER", replace(teach.LATER, updates=12))
    monkeypatch.setattr(teach, "LATER_PART", replace(teach.LATER_PART, updates=12))
    yield
    torch.set_num_threads(threads)


def make_folder(
    root: Path, names: tuple[str, ...] = ("car",), *, count: int = 6, value: int = 1, rest: int = 0
) -> Path:
    """Dark noise with one bright square in the colour of the class; `rest` is the mask value beside it."""
    (root / "images").mkdir(parents=True)
    (root / "masks").mkdir()
    dice = np.random.default_rng(len(names))
    for k in range(count):
        image = dice.integers(0, 60, (*SIZE, 3), dtype=np.uint8)
        mask = np.full(SIZE, rest, np.uint8)
        y, x = dice.integers(0, 16), dice.integers(0, 24)
        image[y : y + 14, x : x + 14, value % 3] = 250
        mask[y : y + 14, x : x + 14] = value
        Image.fromarray(image).save(root / "images" / f"{k}.png")
        Image.fromarray(mask).save(root / "masks" / f"{k}.png")
    (root / "classes.txt").write_text("\n".join(("background", *names)))
    return root


def taught(tmp_path: Path, name: str = "model", **options: object) -> teach.TeachResult:
    settings = {"data": tmp_path / "data", "classes": ["car"], "out": tmp_path / name, "device": "cpu", **options}
    return teach.teach(**settings)  # type: ignore[arg-type]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return Segmenter.load(folder).state_dict()


# ---- what it does


def test_teaches_a_class_from_nothing_and_leaves_a_whole_method(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    told: list[Progress] = []
    result = taught(tmp_path, progress=told.append)
    assert (result.learned, result.held, result.trainable, result.old) == (5, 1, "decoder", ())
    assert result.before["car"] == 0
    assert result.after["car"] > 50
    assert (result.updates, result.warnings) == (result.passes * 5, ())
    method = load(tmp_path / "model")
    assert isinstance(method, EM)
    assert method.segmenter.classes.names == ("car",)
    assert method.memory_.counts() == {1: 5}
    assert method.lr == pytest.approx(teach.FRESH.lr * teach.AFTERWARDS), "it must not go on at a rate of zero"
    assert not (tmp_path / "model" / teach.TRAINING).exists()
    phases = [p.phase for p in told]
    assert [p for k, p in enumerate(phases) if phases[k - 1 : k] != [p]] == ["before", "teach", "after"]
    assert (told[-2].phase, told[-2].done) == ("teach", told[-2].total)


def test_the_same_seed_gives_the_same_model_and_the_encoder_stays(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        taught(tmp_path, name, seed=seed, passes=2)
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])
    fresh = Segmenter.create("tiny", decoder_channels=teach.CHANNELS, seed=3).state_dict()
    assert all(torch.equal(a[n], fresh[n]) for n in a if n.startswith("body.encoder"))


def test_without_classes_txt_the_values_are_the_taught_classes(tmp_path: Path) -> None:
    make_folder(tmp_path / "data", value=2)
    (tmp_path / "data" / "classes.txt").unlink()
    with pytest.raises(ValueError, match="labelled pixel of cat"):
        open_lesson(tmp_path / "data", ["cat", "dog"], ClassTable())
    for mask in (tmp_path / "data" / "masks").iterdir():
        values = np.array(Image.open(mask))
        values[0, 0] = 1
        Image.fromarray(values).save(mask)
    lesson = open_lesson(tmp_path / "data", ["cat", "dog"], ClassTable())
    assert lesson.learn[0].labels == (1, 2)


def test_later_classes_come_beside_the_old_ones_which_the_memory_rehearses(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    taught(tmp_path)
    make_folder(tmp_path / "dogs", ("dog",), value=1)
    result = taught(tmp_path, "both", data=tmp_path / "dogs", classes=["dog"], model=tmp_path / "model", passes=1)
    assert (result.old, result.trainable) == (("car",), "decoder"), "what was taught in part stays so"
    assert set(result.before) == {"car", "dog"} == set(result.after)
    method = load(tmp_path / "both")
    assert method.segmenter.classes.names == ("car", "dog")
    assert method.memory_.counts() == {1: 5, 2: 5}
    assert load(tmp_path / "model").segmenter.classes.names == ("car",), "the model that it started from stays"


def test_old_classes_that_nothing_rehearses_are_named(tmp_path: Path) -> None:
    Segmenter.create("tiny", weights=None, classes=["road", "sky"], decoder_channels=8).save(tmp_path / "base")
    make_folder(tmp_path / "data")
    alone = taught(tmp_path, model=tmp_path / "base", passes=1)
    assert alone.trainable == "all"
    assert any("No picture of road, sky" in w and "--base-data" in w for w in alone.warnings)
    make_folder(tmp_path / "roads", ("road",), count=8)
    result = taught(tmp_path, "kept", model=tmp_path / "base", base_data=tmp_path / "roads", passes=1)
    assert any("does not label sky" in w for w in result.warnings)
    assert "road" in result.before
    assert any("base data" in s for s in result.scored_on)
    memory = load(tmp_path / "kept").memory_
    assert memory.counts() == {1: 7, 3: 5}
    road = next(s for s in memory if 1 in s.labels)
    assert road.complete == {1}
    assert bool((road.mask == -1).any()), "its list does not tell sky from background"


def test_a_loss_of_old_classes_is_said(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    pupil = teach.Pupil.open(None, trainable=None, device="cpu", seed=0)
    pupil = replace(pupil, known=ClassTable(("road", "sky")))
    judge = teach.Judge(
        open_lesson(tmp_path / "data", ["car"], pupil.known), open_rehearsal(None, pupil.known), pupil, print
    )
    assert judge.lost({"road": 80.0, "sky": 90.0, "car": 5.0}, {"road": 79.0, "sky": 90.0, "car": 0.0}) == ()
    (sentence,) = judge.lost({"road": 80.0, "sky": 90.0}, {"road": 70.0})
    assert "sky (90.0 to 0.0 % IoU), road (80.0 to 70.0 % IoU)" in sentence


def test_strokes_leave_the_rest_open(tmp_path: Path) -> None:
    make_folder(tmp_path / "data", rest=254)
    lesson = open_lesson(tmp_path / "data", ["car"], ClassTable(), unlabeled=254)
    assert lesson.complete == ()
    assert lesson.learn[0].complete == frozenset()
    assert set(lesson.learn[0].mask.unique().tolist()) == {-1, 1}
    assert "everywhere" in lesson.warnings[0], "nothing says what is not a car"
    finished = open_lesson(tmp_path / "data", ["car"], ClassTable(), unlabeled=254, complete=["car"])
    assert finished.learn[0].complete == {1}


def test_few_pictures_are_all_learned(tmp_path: Path) -> None:
    make_folder(tmp_path / "data", count=3)
    result = taught(tmp_path, passes=1)
    assert (result.learned, result.held, result.before, result.after) == (3, 0, {}, {})
    assert "too few pictures" in result.scored_on[0]


def test_val_txt_is_held_back_but_not_too_much_of_it(tmp_path: Path) -> None:
    make_folder(tmp_path / "data", count=30)
    (tmp_path / "data" / "val.txt").write_text("\n".join(str(k) for k in range(25)))
    lesson = open_lesson(tmp_path / "data", ["car"], ClassTable())
    assert lesson.held is not None
    assert (len(lesson.learn), len(lesson.held)) == (5, 20)
    assert not {name.removeprefix("car/") for name in lesson.learn.ids} & set(lesson.held.ids)


def test_each_taught_class_keeps_a_picture_to_learn_from(tmp_path: Path) -> None:
    make_folder(tmp_path / "data", ("car", "dog"), count=12)
    rare = tmp_path / "data" / "masks" / "7.png"
    values = np.array(Image.open(rare))
    Image.fromarray(np.where(values == 1, 2, values).astype(np.uint8)).save(rare)
    for seed in range(12):
        lesson = open_lesson(tmp_path / "data", ["car", "dog"], ClassTable(), seed=seed)
        assert "car+dog/7" in lesson.learn.ids


# ---- interruption


class _Stopped(KeyboardInterrupt):
    pass


def test_an_interrupted_lesson_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "data")
    taught(tmp_path, "whole", passes=3)
    monkeypatch.setattr(teach, "CHECKPOINT_SECONDS", 0.0)

    def stop(progress: Progress) -> None:
        if (progress.phase, progress.done) == ("teach", 7):
            raise _Stopped

    with pytest.raises(_Stopped):
        taught(tmp_path, "torn", passes=3, progress=stop)
    with pytest.raises(storage.StateError, match="another lesson: its passes"):
        taught(tmp_path, "torn", passes=4, resume=True)
    result = taught(tmp_path, "torn", passes=3, resume=True)
    assert (result.updates, result.before) == (15, {"car": 0.0})
    for name in ("weights", "optimiser", "memory", "generator"):
        whole, torn = (storage.load_folder(tmp_path / f) for f in ("whole", "torn"))
        assert whole.read(f"{name}.safetensors") == torn.read(f"{name}.safetensors"), name
    assert not (tmp_path / "torn" / teach.TRAINING).exists()
    with pytest.raises(storage.StateError, match="come to its end"):
        taught(tmp_path, "torn", passes=3, resume=True)


def test_resume_without_anything_begins(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    assert taught(tmp_path, resume=True, passes=1).updates == 5


# ---- bad input


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"data": Path("no/such")}, "no folder no/such"),
        ({"classes": []}, "no class to teach"),
        ({"classes": ["cat"]}, "no class 'cat'"),
        ({"classes": ["dog"]}, "no picture of|labelled pixel of dog"),
        ({"classes": ["car", "car"]}, "twice|exists already"),
        ({"passes": 0}, "passes"),
        ({"trainable": "encoder"}, "'all', 'decoder', 'head'"),
        ({"complete": ["dog"]}, "not taught"),
        ({"model": Path("no/model")}, "no folder no/model"),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_bad_input_is_a_sentence_and_writes_nothing(tmp_path: Path, options: dict[str, object], sentence: str) -> None:
    make_folder(tmp_path / "data", ("car", "dog"))
    with pytest.raises(ValueError, match=sentence):
        taught(tmp_path, **options)
    assert not (tmp_path / "model").exists()


def test_a_class_that_exists_is_refused_with_what_to_do(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    taught(tmp_path, passes=1)
    with pytest.raises(ValueError, match=r"knows 'car' already.*--rename 'car=old car'"):
        taught(tmp_path, "again", model=tmp_path / "model")
    assert not (tmp_path / "again").exists()


def test_an_unreadable_picture_is_found_before_anything_is_written(tmp_path: Path) -> None:
    make_folder(tmp_path / "data")
    file = tmp_path / "data" / "images" / "3.png"
    file.write_bytes(file.read_bytes()[:900])
    with pytest.raises(ValueError, match=r"3\.png"):
        taught(tmp_path)
    assert not (tmp_path / "model").exists()


# ---- the pieces that other parts lend


def test_variants_bound_the_crops_and_half_of_them_are_mirrored() -> None:
    image = torch.randint(0, 255, (3, 24, 24), dtype=torch.uint8, generator=seeded(0))
    sample = Sample(image, torch.ones(24, 24, dtype=torch.int16), id="a", known=2)
    augment, generator = Augment(crop=16, scale=(0.8, 1.4), variants=4), seeded(1)
    found = {bytes(augment(sample, generator=generator).image.numpy()) for _ in range(60)}
    assert len(found) == 4
    assert {
        bytes(torch.frombuffer(bytearray(b), dtype=torch.uint8).view(3, 16, 16).flip(2).numpy()) for b in found
    } == (found)
    other = replace(sample, id="b")
    assert not found & {bytes(augment(other, generator=generator).image.numpy()) for _ in range(20)}


def test_balance_adds_the_log_of_the_shares_and_survives_saving(tmp_path: Path) -> None:
    method = EM(Segmenter.create("tiny", weights=None, classes=["car"], decoder_channels=8), balance=0.5, lr=1e-3)
    logits = torch.zeros(1, 2, 1, 1)
    assert torch.equal(method.adjusted(logits), logits), "nothing is known yet"
    mask = torch.zeros(8, 8, dtype=torch.int16)
    mask[0, :4] = 1
    mask[7] = -2
    method.learn(Batch((Sample(torch.zeros(3, 8, 8, dtype=torch.uint8), mask, id="a", known=2),)))
    want = 0.5 * torch.tensor([52 / 56, 4 / 56]).log()
    assert torch.allclose(method.adjusted(logits).flatten(), want)
    method.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again, EM)
    assert again.pixels == method.pixels == {0: 52.0, 1: 4.0}
    again.add_classes(["dog"])
    found = again.adjusted(torch.zeros(1, 3, 1, 1)).flatten()
    assert found[2] == pytest.approx(0.5 * np.log(1 / 56)), "a class that has not come counts as one pixel"


def test_dropout_draws_from_the_methods_own_generator() -> None:
    mask = torch.ones(8, 8, dtype=torch.int16)
    batch = Batch((Sample(torch.zeros(3, 8, 8, dtype=torch.uint8), mask, id="a", known=2),))
    found = []
    for _ in range(2):
        segmenter = Segmenter.create("tiny", weights=None, classes=["car"], decoder_channels=8)
        segmenter.body.decoder.append(torch.nn.Dropout(0.5))
        method, state = EM(segmenter, seed=1, lr=0.1), torch.get_rng_state()
        method.learn(batch)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(segmenter.head.weight.detach().clone())
        torch.rand(3)
    assert torch.equal(*found)
