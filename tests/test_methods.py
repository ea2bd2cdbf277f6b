"""em against the paper's formulas, and exactness: switches, seeds, resumption."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from segstream.checks import check_method
from segstream.checks.squares import make, nothing_said, same, snapshot, square, squares
from segstream.classes import UNLABELED, VOID
from segstream.functional.label_space import impossible, targets
from segstream.memory import Memory
from segstream.method import Method, create, load
from segstream.methods.em import EM
from segstream.methods.er import ER
from segstream.methods.finetune import Finetune
from segstream.models import Segmenter
from segstream.types import Batch, UpdateReport

OFF = {"class_balanced": False, "relabelling": False, "cosine": False, "dynamic_sampling": False}


def over(cls: type[Method], policy: str, **settings: object) -> Method:
    segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red"], head="linear", seed=3)
    method = cls(segmenter, memory=Memory(capacity=5, policy=policy), seed=5, lr=0.05, **settings)  # type: ignore[arg-type]
    method.remember(squares(1, range(4), complete=[1]))
    return method


@pytest.mark.parametrize("view", ["ignore", "background"])
@pytest.mark.parametrize("policy", ["reservoir", "class_balanced"])
def test_em_with_all_switches_off_is_er_bit_for_bit(view: str, policy: str) -> None:
    em, er = over(EM, policy, view=view, **OFF), over(ER, policy, view=view)
    for method in (em, er):
        method.add_classes(["blue"])
        for k in range(6):
            method.learn(squares(2, [k, k + 9], known=3, rest=UNLABELED, complete=[2]))
    assert same(snapshot(em), snapshot(er))
    assert er.updates == 6


@pytest.mark.parametrize("switch", ["relabelling", "dynamic_sampling"])
def test_each_switch_does_something(switch: str) -> None:
    with_it, without = over(EM, "reservoir"), over(EM, "reservoir", **{switch: False})
    for method in (with_it, without):
        method.add_classes(["blue"])
        for k in range(3):
            method.learn(squares(2, [k, k + 9], known=3, rest=UNLABELED, complete=[2]))
    assert not same(snapshot(with_it), snapshot(without))


def test_switches_choose_the_memory() -> None:
    assert make(EM).policy() == "class_balanced"
    assert make(EM, class_balanced=False).policy() == "reservoir"


def dense(logits: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.nn.functional.interpolate(logits.double(), size=size, mode="bilinear", align_corners=False)


def test_impossible_classes_benchmark_base_after_growth_and_strokes() -> None:
    # five slots now: a benchmark image of stage {3}, a base image from when there were 3 slots, one with strokes
    excluded = impossible([{3}, {1, 2}, set()], [4, 3, 5], slots=5)
    assert [e.nonzero().flatten().tolist() for e in excluded[:, 0]] == [[3], [1, 2], []]
    assert [e.nonzero().flatten().tolist() for e in excluded[:, 1]] == [[1, 2, 3], [1, 2], [1, 2, 3, 4]]
    assert impossible([set()], [1], slots=4, retired={2})[0].nonzero()[:, 1].tolist() == [2, 2]


def test_views() -> None:
    mask = torch.tensor([[2, 0, UNLABELED, VOID]], dtype=torch.int16)
    assert targets(mask, "ignore").tolist() == [[2, 0, VOID, VOID]]
    assert targets(mask, "background").tolist() == [[2, 0, 0, VOID]]
    assert mask.tolist() == [[2, 0, UNLABELED, VOID]]
    with pytest.raises(ValueError, match="latent"):
        targets(mask, "latent")


def test_confidences_follow_the_running_mean() -> None:
    method = make(EM, dynamic_sampling=False)
    assert isinstance(method, EM)
    method.add_classes(["blue"])
    assert method.confidence[2] == 0.0
    before = dict(method.confidence)
    seen: list[tuple[Tensor, Tensor]] = []
    forward = method.forward
    joined = method.join

    def spy(images: Tensor) -> Tensor:
        seen.append((forward(images), masks[-1]))
        return seen[-1][0]

    masks: list[Tensor] = []

    def spy_join(*groups):  # type: ignore[no-untyped-def]
        joint = joined(*groups)
        masks.append(joint.masks)
        return joint

    method.forward, method.join = spy, spy_join  # type: ignore[method-assign]
    method.learn(squares(2, [1, 2], known=3, rest=UNLABELED, complete=[2]))
    logits, given = seen[0]
    p = dense(logits.detach(), given.shape[1:]).softmax(1)  # type: ignore[arg-type]
    for c in (1, 2):
        mean = float(p[:, c][given == c].mean())
        assert method.confidence[c] == pytest.approx(0.9 * before[c] + 0.1 * mean, rel=1e-5)


def test_base_classes_start_at_the_confidence_over_the_memory_before_growth() -> None:
    method = make(EM)
    assert isinstance(method, EM)
    method.segmenter.eval()
    total, pixels = 0.0, 0
    for exemplar in method.memory_:
        with torch.no_grad():
            p = dense(method.segmenter(exemplar.image[None]), exemplar.mask.shape).softmax(1)[0, 1]  # type: ignore[arg-type]
        total += float(p[exemplar.mask == 1].sum())
        pixels += int((exemplar.mask == 1).sum())
    method.add_classes(["blue"])
    assert method.confidence == {1: pytest.approx(total / pixels, rel=1e-5), 2: 0.0}
    zero = make(EM, base_confidence="zero")
    assert isinstance(zero, EM)
    zero.add_classes(["blue"])
    assert zero.confidence == {1: 0.0, 2: 0.0}


def test_draws_prefer_what_the_model_is_unsure_of() -> None:
    method = make(EM, sharpness=50.0, capacity=20)
    assert isinstance(method, EM)
    method.add_classes(["blue"])
    method.remember(squares(2, range(5), known=3))
    method.confidence = {1: 0.9, 2: 0.1}
    report = method.learn(squares(1, range(50, 54), known=3))
    assert report.drawn == {2: 4}
    assert report.new_share == 1.0


def test_absent_classes_keep_their_confidence() -> None:
    method = make(EM)
    assert isinstance(method, EM)
    method.add_classes(["blue", "green"])
    method.forget(method.memory_.ids())
    before = dict(method.confidence)
    method.learn(Batch((nothing_said(1, void=False),)))
    assert method.confidence == before
    assert len(method.memory_) == 0


@dataclass
class Case:
    name: str
    error: str


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (Batch(()), "empty"),
        (squares(2, [0]), "Call add_classes first"),
        (squares(1, [0], known=7), "known=7"),
        (squares(1, [0], complete=[3]), "complete=\\[3\\]"),
    ],
)
def test_learn_refuses_what_it_cannot_take_and_changes_nothing(batch: Batch, error: str) -> None:
    method = make(EM)
    before = snapshot(method)
    for verb in (method.learn, method.remember):
        with pytest.raises(ValueError, match=error):
            verb(batch)
    assert same(before, snapshot(method))


@pytest.mark.parametrize("setting", [{"threshold": 2.0}, {"lr": 0.0}, {"normalise": "sum"}, {"latent_weight": -1.0}])
def test_impossible_settings_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        make(EM, **setting)


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="Did you mean 'threshold'"):
        create("em", Segmenter.create("tiny", weights=None), settings={"treshold": 0.5})


def test_two_additions_without_an_update_are_one_stage() -> None:
    method = make(EM)
    method.add_classes(["blue"])
    method.add_classes(["green"])
    assert method.newest == {2, 3}
    method.learn(squares(2, [1], known=4))
    method.add_classes(["white"])
    assert method.newest == {4}


def test_a_head_that_outgrows_its_block_keeps_learning_with_its_momentum() -> None:
    small, large = make(ER), make(ER)
    large.add_classes([f"c{i}" for i in range(80)])
    for method in (small, large):
        method.learn(squares(1, range(3)))
    momentum = large.optimiser.buffers()["head.weight"].clone()
    large.add_classes(["more" + str(i) for i in range(60)])
    assert large.optimiser.buffers()["head.weight"].shape[0] > momentum.shape[0]
    assert torch.equal(large.optimiser.buffers()["head.weight"][: len(momentum)], momentum)
    before = large.segmenter.head.weight.detach().clone()
    large.learn(squares(1, range(3)))
    assert not torch.equal(before[1], large.segmenter.head.weight.detach()[1])


def test_a_method_that_raises_has_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make(ER)
    before = snapshot(method)
    with pytest.raises(ValueError, match="exists already"):
        method.add_classes(["blue", "red"])
    assert len(method.segmenter.classes) == 2
    assert same(before, snapshot(method))
    em = make(EM)
    with pytest.raises(ValueError, match="exists already"):
        em.add_classes(["blue", "red"])
    assert em.extra_state() == make(EM).extra_state()  # E(c) is measured when the classes really come


def test_load_says_what_is_wrong(tmp_path) -> None:  # type: ignore[no-untyped-def]
    method = make(Finetune)
    method.segmenter.save(tmp_path / "segmenter")
    with pytest.raises(ValueError, match="segmenter"):
        load(tmp_path / "segmenter")
    method.save(tmp_path / "method")
    assert Segmenter.load(tmp_path / "method").classes.names == ("red",)


def test_the_contract_finds_a_method_that_learns_twice() -> None:
    class Greedy(ER):
        """view"""

        name = "greedy"

        def learn(self, batch: Batch) -> UpdateReport:
            super().learn(batch)
            return super().learn(batch)

    with pytest.raises(AssertionError, match="2 optimiser steps"):
        check_method(Greedy)


def test_report_is_finite_and_plain() -> None:
    report = make(EM).learn(squares(1, [5, 6]))
    plain = report.to_json()
    assert math.isfinite(plain["loss"])
    assert plain["labelled"] > 0
    assert plain["stored"] <= 2
    assert square(1, 5).labels == (1,)
