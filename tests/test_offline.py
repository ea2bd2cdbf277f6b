"""Offline training, evaluation and the engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torchmetrics.classification import MulticlassJaccardIndex

from segstream.augment import Augment
from segstream.checks.squares import make, same, snapshot, square, squares
from segstream.classes import VOID, ClassTable
from segstream.engine import StageEnd, run
from segstream.evaluate import evaluate
from segstream.functional.scores import Scores, confusion_matrix
from segstream.methods.er import ER
from segstream.models import Segmenter
from segstream.offline import FitProgress, Schedule, fit
from segstream.types import NewClasses, UpdateReport

DATA = squares(1, range(7), complete=[1]).samples
CUT = Augment(crop=16, scale=(0.8, 1.2))


def fresh() -> Segmenter:
    return Segmenter.create("tiny_bn", weights=None, classes=["red"], seed=1)


def test_fit_learns_and_normalises_rows() -> None:
    segmenter = fresh()
    fit(segmenter, DATA, schedule=Schedule(epochs=25, batch=4, lr=0.1))
    scores = evaluate(segmenter, [square(1, 100)], classes=segmenter.classes)
    assert scores.iou[1] is not None
    assert scores.iou[1] > 70
    assert segmenter.head.rows.detach().norm(dim=1).tolist() == pytest.approx([1, 1], abs=1e-6)


@pytest.mark.parametrize("workers", [0, 3])
def test_fit_stopped_and_resumed_equals_never_stopped(tmp_path: Path, workers: int) -> None:
    through, schedule = fresh(), Schedule(epochs=4, batch=3, lr=0.1)
    fit(through, DATA, schedule=schedule, augment=CUT, workers=0)

    def stop(at: FitProgress) -> None:
        if at.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(fresh(), DATA, schedule=schedule, augment=CUT, checkpoint=tmp_path / "c", progress=stop, workers=workers)
    resumed = fresh()
    fit(resumed, DATA, schedule=schedule, augment=CUT, checkpoint=tmp_path / "c", workers=workers)
    ours, theirs = resumed.to_state()[1], through.to_state()[1]
    assert all(torch.equal(ours[k], theirs[k]) for k in theirs)
    with pytest.raises(ValueError, match="another training: its schedule"):
        fit(fresh(), DATA, schedule=Schedule(epochs=5), augment=CUT, checkpoint=tmp_path / "c")


def test_fit_skips_a_batch_of_void_pixels() -> None:
    sample = square(1, 0)
    void = type(sample)(sample.image, torch.full_like(sample.mask, VOID), id="void")
    segmenter = fresh()
    before = segmenter.to_state()[1]
    fit(segmenter, [void], schedule=Schedule(epochs=2))
    after = segmenter.to_state()[1]
    assert all(torch.equal(before[k], after[k]) for k in before if "head" not in k)


def test_scores_against_torchmetrics() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted, truth = torch.randint(0, 5, (2, 40, 30), generator=generator)
    truth[:5] = VOID
    scores = Scores.of(confusion_matrix(predicted, truth, slots=6), list("abcdef"))
    oracle = MulticlassJaccardIndex(6, average=None, ignore_index=VOID)(predicted, truth)
    assert scores.iou[5] is None
    assert [v for v in scores.iou[:5] if v is not None] == pytest.approx((100 * oracle[:5]).tolist(), rel=1e-5)
    assert scores.miou == pytest.approx(100 * float(oracle[:5].mean()), rel=1e-5)


def test_a_class_without_truth_is_not_scored_however_often_it_is_predicted() -> None:
    scores = Scores.of(torch.tensor([[3, 0, 1], [0, 2, 2], [0, 0, 0]]), ["background", "a", "b"])
    assert scores.iou == (75.0, 50.0, None)
    assert scores.miou == 62.5


def test_retired_classes_count_as_background() -> None:
    segmenter = Segmenter.create("tiny", weights=None, classes=["red"], seed=1)
    segmenter.retire_classes(["red"])
    scores = evaluate(segmenter, [square(1, 0)], classes=segmenter.classes)
    assert scores.iou == (100.0, None)


def test_evaluating_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no image"):
        evaluate(fresh(), [], classes=ClassTable())


def test_engine_ends_a_stage_before_the_next_classes_come() -> None:
    method = make(ER)
    items = [NewClasses(("blue",)), squares(2, [0], known=3), NewClasses(("green",)), squares(3, [0], known=4)]
    seen = [(type(item).__name__, len(method.segmenter.classes)) for item in run(items, method)]
    assert seen == [("UpdateReport", 3), ("StageEnd", 3), ("UpdateReport", 4), ("StageEnd", 4)]


def test_engine_goes_on_in_the_middle_of_a_stage() -> None:
    items = [NewClasses(("blue",)), *(squares(2, [k], known=3) for k in range(3)), NewClasses(("green",))]
    through, stopped = make(ER), make(ER)
    ends = [x for x in run(items, through) if isinstance(x, StageEnd)]
    first = list(run(items[:2], stopped))
    assert isinstance(first[0], UpdateReport)
    rest = [x for x in run(items[2:], stopped, stage=1, taken=2) if isinstance(x, StageEnd)]
    assert ends == rest == [StageEnd(1, 4), StageEnd(2, 5)]
    assert same(snapshot(through), snapshot(stopped))


def test_fit_draws_from_its_own_seed_alone(tmp_path: Path) -> None:
    """A decoder with dropout: the global generator neither decides anything nor moves."""

    def go(checkpoint: Path | None = None, stop: bool = False) -> dict[str, torch.Tensor]:
        segmenter = fresh()
        segmenter.body.decoder.append(torch.nn.Dropout(0.5))  # type: ignore[operator]

        def told(at: FitProgress) -> None:
            if stop and at.epoch == 1:
                raise KeyboardInterrupt

        before = torch.random.get_rng_state()
        schedule = Schedule(epochs=2, batch=4)
        try:
            fit(segmenter, DATA, schedule=schedule, checkpoint=checkpoint, progress=told)
        finally:
            assert torch.equal(before, torch.random.get_rng_state())
        return segmenter.to_state()[1]

    through = go()
    torch.rand(3)
    again = go()
    assert all(torch.equal(through[k], again[k]) for k in through)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "c", stop=True)
    torch.rand(3)
    resumed = go(tmp_path / "c")
    assert all(torch.equal(through[k], resumed[k]) for k in through)


@pytest.mark.parametrize("other", [{"seed": 1}, {"classes": ["blue"]}])
def test_fit_refuses_to_go_on_with_another_training(tmp_path: Path, other: dict[str, object]) -> None:
    schedule = Schedule(epochs=1)
    loss = fit(fresh(), DATA, schedule=schedule, checkpoint=tmp_path)
    assert fit(fresh(), DATA, schedule=schedule, checkpoint=tmp_path) == loss
    names = other.pop("classes", ["red"])
    segmenter = Segmenter.create("tiny_bn", weights=None, classes=names, seed=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="another training"):
        fit(segmenter, DATA, schedule=schedule, checkpoint=tmp_path, **other)  # type: ignore[arg-type]
