"""CoRiSeg-style: its distillation and its updates against loops, and the selection of its memory against a slow one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from segstream.checks import METHOD_CHECKS, check_policy
from segstream.checks.squares import make, nothing_said, same, snapshot, squares
from segstream.classes import UNLABELED, VOID
from segstream.functional.distillation import softmax_distillation
from segstream.joint import Joint
from segstream.memory import Evidence, Memory
from segstream.memory.policies.representative import Representative
from segstream.memory.selection import Candidate
from segstream.method import Method, create, load
from segstream.methods.coriseg import CoRiSeg
from segstream.methods.er import ER
from segstream.models import Segmenter
from segstream.types import Batch, Sample

VIEWS = ("ignore", "background")


def full(logits: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(logits.double(), size=size, mode="bilinear", align_corners=False)


def softmax(values: Sequence[float]) -> list[float]:
    top = max(values)
    total = sum(math.exp(v - top) for v in values)
    return [math.exp(v - top) / total for v in values]


def slow(logits: Tensor, teacher: Tensor, entering: Tensor, temperature: float, retired: Collection[int] = ()) -> float:
    """Mean over the pixels of T^2 sum_k q_k log(q_k / p_k), over the teacher's classes."""
    size, total = (entering.shape[1], entering.shape[2]), 0.0
    z, t = full(logits, size), full(teacher, size)
    old = [k for k in range(teacher.shape[1]) if k not in retired]
    for i, y, x in entering.nonzero().tolist():
        p, q = (softmax([float(u[i, k, y, x]) / temperature for k in old]) for u in (z, t))
        total += temperature**2 * sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return total / max(1, int(entering.sum()))


# ---- the distillation


def test_distillation_of_a_2x2_image_by_hand() -> None:
    student = torch.tensor([[1.0, 1.0, 9.0], [1.0, 3.0, 1.0], [5.0, 7.0, 1.0], [2.0, 1.0, 1.0]]).log() * 2
    teacher = torch.tensor([[1.0, 3.0], [1.0, 3.0], [1.0, 1.0], [1.0, 2.0]]).log() * 2
    z, t = (x.T.reshape(1, -1, 2, 2) for x in (student, teacher))
    entering = torch.tensor([[[True, True], [False, True]]])
    by_hand = [  # at T = 2 the odds are those written above
        1 / 4 * math.log(1 / 2) + 3 / 4 * math.log(3 / 2),
        0.0,
        1 / 3 * math.log(1 / 2) + 2 / 3 * math.log(2),
    ]
    found = softmax_distillation(z, t, entering, temperature=2.0)
    assert found.item() == pytest.approx(4 * sum(by_hand) / 3, rel=1e-6)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.data())
def test_distillation_and_its_gradient_equal_loops_and_float64(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 5), "slots")
    known = data.draw(st.integers(1, slots), "known")
    retired = data.draw(st.sets(st.integers(1, max(1, slots - 1))), "retired") if slots > 1 else set()
    temperature = data.draw(st.sampled_from([0.5, 1.0, 2.0]), "temperature")
    dice = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    logits = 3 * torch.randn(2, slots, 2, 3, generator=dice)
    teacher = 3 * torch.randn(2, known, 3, 2, generator=dice)
    entering = torch.rand(2, 5, 4, generator=dice) < data.draw(st.sampled_from([0.0, 0.6, 1.0]), "share")
    student = logits.clone().requires_grad_()
    found = softmax_distillation(student, teacher, entering, temperature=temperature, retired=retired)
    assert found.item() == pytest.approx(slow(logits, teacher, entering, temperature, retired), abs=1e-5)
    found.backward()
    exact = logits.double().requires_grad_()
    size, old = (5, 4), [k for k in range(known) if k not in retired]
    p, q = ((full(x, size)[:, old] / temperature).softmax(1) for x in (exact, teacher))
    each = temperature**2 * (q * (q / p).log()).sum(1)
    (each[entering].sum() / max(1, int(entering.sum()))).backward()
    assert student.grad is not None
    assert torch.allclose(student.grad.double(), exact.grad, atol=1e-6)  # type: ignore[arg-type]
    silent = [k for k in range(slots) if k not in old]
    assert not bool(student.grad[:, silent].any())


def test_shares_of_two_processes_add_up() -> None:
    dice = torch.Generator().manual_seed(0)
    logits, teacher = torch.randn(3, 4, 2, 2, generator=dice), torch.randn(3, 2, 2, 2, generator=dice)
    entering = torch.rand(3, 4, 4, generator=dice) < 0.7

    def whole(count: Tensor) -> Tensor:
        return torch.full_like(count, float(entering.sum()))

    parts = [softmax_distillation(logits[s], teacher[s], entering[s], reduce=whole) for s in (slice(1), slice(1, 3))]
    assert sum(float(p) for p in parts) == pytest.approx(
        softmax_distillation(logits, teacher, entering).item(), rel=1e-6
    )


# ---- updates


def stage(view: str = "ignore", **chosen: Any) -> Method:
    method = make(CoRiSeg, view=view, **chosen)
    method.learn(squares(1, [40, 41], complete=[1]))
    method.add_classes(["blue", "green"])
    return method


def mixed() -> Batch:
    """New labels with the rest unlabelled, and an image with void and an old label beside."""
    new, other = squares(2, [1, 2], rest=UNLABELED, known=4, complete=[2, 3])
    mask = other.mask.clone()
    mask[:6] = VOID
    mask[20:] = 1
    return Batch((new, Sample(other.image, mask, "b", known=4)))


@dataclass
class Seen:
    logits: Tensor
    joint: Joint
    loss: float


def watch(method: Method, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> tuple[Seen, Any]:
    """One update, and what went through `join`, `forward` and `step` in it."""
    seen: dict[str, Any] = {}

    def noting(name: str, call: Callable[..., Any], take: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def instead(*args: Any, **more: Any) -> Any:
            found = call(*args, **more)
            seen[name] = take(args, found)
            return found

        return instead

    monkeypatch.setattr(method, "join", noting("joint", method.join, lambda _, joint: joint))
    monkeypatch.setattr(method, "forward", noting("logits", method.forward, lambda _, z: z.detach().clone()))
    monkeypatch.setattr(method, "step", noting("loss", method.step, lambda args, _: float(args[0].detach())))
    report = method.learn(batch)
    return Seen(**seen), report


@pytest.mark.parametrize("view", VIEWS)
def test_the_loss_of_an_update_is_that_of_slow_loops(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = stage(view, distillation=3.0, temperature=1.5)
    assert method.teacher is not None
    before = {k: v.clone() for k, v in method.teacher.to_state()[1].items()}
    for k in range(4):  # right after growth the old outputs are still the teacher's
        method.learn(squares(2, [20 + k, 30 + k], known=4, rest=UNLABELED, complete=[2, 3]))
    seen, report = watch(method, mixed(), monkeypatch)
    masks = seen.joint.masks
    z, total, count = full(seen.logits, (24, 24)), 0.0, 0
    for i, y, x in (masks != VOID).nonzero().tolist():
        label = int(masks[i, y, x])
        if label == UNLABELED and view == "ignore":
            continue
        total -= math.log(softmax(z[i, :, y, x].tolist())[max(label, 0)])
        count += 1
    entering = (masks != VOID) & (masks != 2) & (masks != 3)  # blue and green came after the teacher
    assert 0 < int(entering.sum()) < int((masks != VOID).sum())
    with torch.no_grad():
        said = method.teacher(seen.joint.images)
    term = slow(seen.logits, said, entering, 1.5)
    assert 3.0 * term > 0.01 * total / count  # enough to be seen
    expected = total / count + 3.0 * term
    assert seen.loss == pytest.approx(expected, rel=1e-5)
    assert report.loss == pytest.approx(expected, rel=1e-5)
    assert report.labelled == count
    assert same(before, method.teacher.to_state()[1])


def test_without_distillation_it_is_er_over_the_same_memory() -> None:
    for view in VIEWS:
        found: list[Method] = []
        for cls, chosen in ((CoRiSeg, {"distillation": 0.0}), (ER, {})):
            segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red"], head="linear", seed=3)
            memory = Memory(capacity=5, policy="representative")
            method = cls(segmenter, memory=memory, seed=5, lr=0.05, view=view, **chosen)
            method.remember(squares(1, range(4), complete=[1]))
            method.add_classes(["blue"])
            for k in range(4):
                method.learn(squares(2, [k, k + 9], known=3, rest=UNLABELED, complete=[2]))
            method.teacher = None  # er takes none
            found.append(method)
        assert same(snapshot(found[0]), snapshot(found[1]))


def test_views_and_teacher_change_what_is_learned() -> None:
    runs = []
    for view, distillation in (("ignore", 1.0), ("background", 1.0), ("ignore", 0.0)):
        method = stage(view, distillation=distillation)
        method.learn(mixed())
        runs.append(snapshot(method))
    assert not any(same(runs[a], runs[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("view", VIEWS)
def test_what_is_unlabelled_is_learned_by_way_of_the_teacher(view: str) -> None:
    for method, updates in ((make(CoRiSeg, view=view), view == "background"), (stage(view), True)):
        method.forget(method.memory_.ids())
        before = snapshot(method)
        report = method.learn(Batch((nothing_said(1, void=False),)))
        assert report.updated is updates
        assert same(before, snapshot(method)) is not updates
    method = stage(view, distillation=0.0)
    method.forget(method.memory_.ids())
    assert method.learn(Batch((nothing_said(1, void=False),))).updated is (view == "background")


@dataclass(kw_only=True, eq=False)
class InBackground(CoRiSeg):
    """view"""

    view: Literal["ignore", "background"] = "background"


# A saved method is loaded by its name; and this view does push the rest of a stroke's object away.
NOT_HERE = ("is_complete_as_a_plugin", "a_stroke_never_pushes_its_object_away")


@pytest.mark.parametrize("check", [c for c in METHOD_CHECKS if c.__name__ not in NOT_HERE], ids=lambda c: c.__name__)
def test_the_contract_in_view_background(check: Callable[[type[Method]], None]) -> None:
    check(InBackground)


@pytest.mark.parametrize(
    "chosen", [{"view": "latent"}, {"distillation": -1.0}, {"temperature": 0.0}, {"temperature": math.inf}]
)
def test_impossible_settings_are_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(chosen))):
        make(CoRiSeg, **chosen)


def test_a_search_can_use_what_is_tunable() -> None:
    for key, values in CoRiSeg.tunable.items():
        for value in values:
            made = create("coriseg", Segmenter.create("tiny", weights=None), settings={key: value})
            assert made.settings()[key] == value


# ---- who stays


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / length if length else 0.0


def slow_pick(slot: int, everyone: Sequence[Candidate], staying: set[str], quota: int) -> str:
    """By the words: the surest 2q; of these, who makes the sum of the largest cosines largest."""

    def known(one: Candidate) -> bool:
        return one.evidence is not None and slot in one.evidence.vectors

    order = sorted(everyone, key=lambda one: (not known(one), -one.confidence(slot), one.arrival))
    pool = [one for one in order[: 2 * quota] if one.id not in staying]
    best, chosen = -math.inf, pool[0]
    for one in pool:
        if not known(one):
            continue
        total = 0.0
        for other in filter(known, everyone):
            them = [k for k in everyone if known(k) and (k.id in staying or k is one)]
            total += max(cosine(list(other.vector(slot)), list(k.vector(slot))) for k in them)  # type: ignore[arg-type]
        if total > best + 1e-7:
            best, chosen = total, one
    return chosen.id


def slow_choice(candidates: Sequence[Candidate], room: int, active: Sequence[int]) -> list[str]:
    """A quota for each class, by ascending number of candidates; what is left over goes on in rounds."""
    showing = {c: [one for one in candidates if c in one.labels] for c in active}
    share = max(1, room // len(active))
    kept: list[str] = []
    for quota in range(share, share * (len(candidates) + 1), share):
        for c in sorted((c for c in active if showing[c]), key=lambda c: (len(showing[c]), c)):
            while len(kept) < room:
                mine = {one.id for one in showing[c] if one.id in kept}
                if len(mine) >= min(quota, len(showing[c])):
                    break
                kept.append(slow_pick(c, showing[c], mine, quota))
    return kept


def some(data: st.DataObject, count: int, *, measured: bool = True) -> list[Candidate]:
    """Small whole numbers, so that there are twins, ties and zeros."""
    out = []
    for i in range(count):
        labels = tuple(sorted(data.draw(st.sets(st.integers(1, 3), min_size=1), "labels")))
        evidence = None
        if measured or data.draw(st.booleans(), "measured"):
            vector = st.lists(st.integers(-2, 2), min_size=3, max_size=3)
            confidence = {c: data.draw(st.integers(0, 4), "confidence") / 4 for c in labels}
            vectors = {c: np.array(data.draw(vector, "vector"), np.float32) for c in labels}
            evidence = Evidence(confidence, vectors)
        out.append(Candidate(f"{i}", labels, evidence, arrival=i))
    return out


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.data())
def test_the_choice_equals_a_slow_one(data: st.DataObject) -> None:
    candidates = some(data, data.draw(st.integers(1, 9), "count"), measured=data.draw(st.booleans(), "all measured"))
    room = data.draw(st.integers(1, 7), "room")
    found = [one.id for one in Representative().choose(candidates, room=room, active=(1, 2, 3))]
    assert found == slow_choice(candidates, room, (1, 2, 3))


def seen(name: str, arrival: int, confidence: float, *vector: float, labels: Sequence[int] = (1,)) -> Candidate:
    """The same for each of its classes."""
    of = {c: np.array(vector, np.float32) for c in labels}
    return Candidate(name, tuple(labels), Evidence(dict.fromkeys(labels, confidence), of), arrival)


def picked(rest: Sequence[Candidate], chosen: Sequence[Candidate] = (), quota: int = 2) -> str:
    return Representative().pick(1, rest, chosen, quota=quota).id


def test_only_the_surest_may_stay_but_all_are_to_be_resembled() -> None:
    crowd = [seen(f"crowd {i}", 10 + i, 0.2, 0, 1) for i in range(5)]
    sure = [seen("a", 0, 0.9, 1, 0), seen("b", 1, 0.8, 1, 0.3), seen("c", 2, 0.7, 1, 0.2), seen("d", 3, 0.6, 1, 0.1)]
    assert picked([*crowd, *sure]) == "b"  # of the surest 2q = 4 the one nearest to the crowd that may not stay
    assert picked([*crowd, *sure], quota=1) == "b"
    assert picked([*crowd, *sure[1:]], [sure[0]], quota=1 + 1) == "b"
    assert picked([*crowd, *sure], quota=9) == "crowd 0"  # now it may


def test_length_does_not_matter_and_twins_go_by_confidence_then_age() -> None:
    assert picked([seen("long", 1, 0.5, 90, 0), seen("short", 0, 0.5, 1, 0)]) == "short"
    assert picked([seen("old", 0, 0.5, 1, 0), seen("sure", 1, 0.6, 1, 0)]) == "sure"


def test_whom_another_class_brought_counts_as_staying_however_unsure() -> None:
    brought = seen("brought", 9, 0.0, 0, 1, labels=(1, 2))
    alike, other = seen("alike", 0, 0.9, 0, 1), seen("other", 1, 0.8, 1, 0)
    assert picked([alike, other, seen("third", 2, 0.7, 0, 1)]) == "alike"
    assert picked([alike, other, seen("third", 2, 0.7, 0, 1)], [brought]) == "other"
    kept = Representative().choose([alike, other, brought], room=4, active=(1, 2))
    assert [one.id for one in kept] == [
        "brought",
        "other",
        "alike",
    ]  # class 2, the rarer, is served first


def test_what_was_not_measured_comes_last_by_arrival() -> None:
    blind = [Candidate(f"blind {i}", (1,), None, arrival=i) for i in (3, 1, 2)]
    assert picked(blind) == "blind 1"
    assert picked(blind, [seen("chosen", 9, 0.5, 1, 0)]) == "blind 1"
    assert picked([*blind, seen("measured", 9, 0.0, 0, 0)]) == "measured"
    about_another = Candidate("b", (1, 2), Evidence({2: 1.0}, {2: np.ones(2, np.float32)}), arrival=0)
    assert picked([about_another, seen("measured", 9, 0.1, 0, 1)], quota=1) == "measured"


def test_the_policy_keeps_every_policys_promises() -> None:
    check_policy("representative")


def test_a_memory_keeps_its_evidence_and_chooses_on_as_before() -> None:
    sample = squares(1, [1]).samples[0]

    def offer(memory: Memory, name: str, confidence: float, *vector: float) -> bool:
        told = [Evidence({1: confidence}, {1: np.array(vector, np.float32)})]
        one = Sample(sample.image, sample.mask, name, known=2)
        dice = torch.Generator().manual_seed(0)
        return bool(memory.offer_all([one], active=(1,), generator=dice, evidence=told))

    memory = Memory(capacity=2, policy="representative")
    assert offer(memory, "a", 0.9, 1, 0)
    assert offer(memory, "b", 0.8, 1, 0.1)
    again = Memory.from_state(*memory.state())
    for each in (memory, again):
        assert offer(each, "c", 0.7, 0, 1)  # unlike both: one of the two that are alike goes
        assert sorted(each.ids()) == ["b", "c"]
        assert not offer(each, "unsure twin", 0.1, 0, 1)
        assert offer(each, "d", 0.6, -1, 0)
    assert memory.ids() == again.ids()
    tensors = zip(memory.state()[1].items(), again.state()[1].items(), strict=True)
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in tensors)


def test_the_method_measures_what_its_memory_is_offered() -> None:
    method = make(CoRiSeg, capacity=4)
    state = method.memory_.state()[1]
    assert state["vectors"].shape == (4, method.segmenter.head.weight.shape[1])
    assert bool((state["confidence"] > 0).all())
    method.add_classes(["blue"])
    method.learn(squares(2, [1, 2], known=3))
    assert method.memory_.counts() == {1: 2, 2: 2}
    assert create("coriseg", Segmenter.create("tiny", weights=None)).memory_.settings()["policy"] == "representative"


def test_a_saved_method_goes_on_choosing_as_before(tmp_path: Path) -> None:
    methods = [stage(), stage()]
    methods[1].save(tmp_path / "saved")
    methods[1] = load(tmp_path / "saved")
    for method in methods:
        for k in range(5):
            method.learn(squares(2 + k % 2, [k, k + 9], known=4, rest=UNLABELED, complete=[2, 3]))
    assert same(snapshot(methods[0]), snapshot(methods[1]))
