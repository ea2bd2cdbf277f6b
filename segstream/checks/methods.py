"""What every method promises."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from segstream import plugins
from segstream.checks.squares import make, nothing_said, require, same, snapshot, square, squares
from segstream.classes import UNLABELED
from segstream.method import Method, create, load
from segstream.types import Batch

__all__ = ["METHOD_CHECKS", "check_method"]


def predicts_before_learning(cls: type[Method]) -> None:
    found = make(cls).predict([square(1, 0).image])
    require(found.masks[0].shape == (24, 24), "A fresh method must predict masks of the image's size.")


def steps_at_most_once_a_batch(cls: type[Method]) -> None:
    method, steps = make(cls), 0

    def count(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal steps
        steps += 1

    method.add_classes(["blue"])
    hook = register_optimizer_step_post_hook(count)
    try:
        method.learn(squares(2, range(3), known=3))
    finally:
        hook.remove()
    require(steps <= 1, f"One batch made {steps} optimiser steps; the stream allows one.")


def leaves_the_input_alone(cls: type[Method]) -> None:
    method, batch = make(cls), squares(1, range(9, 12))
    before = [(s.image.clone(), s.mask.clone()) for s in batch]
    method.remember(batch)
    method.learn(batch)
    unchanged = all(torch.equal(s.image, i) and torch.equal(s.mask, m) for s, (i, m) in zip(batch, before, strict=True))
    require(unchanged, "`remember` or `learn` wrote into the batch it was given.")


def memory_shares_nothing_with_the_input(cls: type[Method]) -> None:
    method = make(cls)
    if method.memory is None:
        return
    batch = squares(1, [20, 21])
    method.remember(batch)
    method.learn(batch)
    before = snapshot(method)
    for sample in batch:
        sample.image.zero_()
        sample.mask.fill_(UNLABELED)
    require(same(before, snapshot(method)), "The memory changed when the caller reused the batch's storage.")


def predict_is_pure(cls: type[Method]) -> None:
    method = make(cls, network="tiny_bn")
    method.learn(squares(1, [7]))
    before, modes = snapshot(method), [m.training for m in method.segmenter.modules()]
    rng = torch.random.get_rng_state()
    first = method.predict([square(1, 3).image, square(1, 4, size=17).image])
    again = method.predict([square(1, 3).image])
    require(same(before, snapshot(method)), "`predict` changed the state.")
    require(modes == [m.training for m in method.segmenter.modules()], "`predict` left other module modes behind.")
    require(torch.equal(rng, torch.random.get_rng_state()), "`predict` drew from the global generator.")
    require(torch.equal(first.masks[0], again.masks[0]), "`predict` gave two answers for one image.")


def memory_is_bounded(cls: type[Method]) -> None:
    method = make(cls, capacity=3)
    for seed in range(8):
        method.learn(squares(1, [seed, seed + 50]))
        require(len(method.memory or ()) <= 3, "The memory grew beyond its capacity.")


def growth_keeps_old_logits_and_new_rows_move(cls: type[Method]) -> None:
    method = make(cls)
    method.learn(squares(1, range(3)))
    image = square(1, 5).image.unsqueeze(0)
    method.segmenter.eval()
    with torch.no_grad():
        before = method.segmenter(image)[:, 1:]
        method.add_classes(["blue", "green"])
        after = method.segmenter(image)
    require(torch.equal(before, after[:, 1:2]), "Growing the head changed the logits of a class known before.")
    weight = method.segmenter.head.weight
    fresh = weight.detach()[2:4].clone()
    method.learn(squares(2, range(3), known=4))
    require(not torch.equal(fresh[0], method.segmenter.head.weight.detach()[2]), "A new class's row never moved.")


def same_seed_same_run(cls: type[Method]) -> None:
    def go() -> dict[str, Tensor]:
        method = make(cls)
        method.add_classes(["blue"])
        for seed in range(3):
            method.learn(squares(2, [seed, seed + 9], known=3, rest=UNLABELED, complete=[2]))
        return snapshot(method)

    require(same(go(), go()), "Two runs with the same seed differ.")


def state_round_trip_continues_bit_for_bit(cls: type[Method]) -> None:
    batches = [squares(2, [k, k + 9], known=3, rest=UNLABELED, complete=[2]) for k in range(4)]
    through, stopped = make(cls), make(cls)
    for method in (through, stopped):
        method.add_classes(["blue"])
        method.learn(batches[0])
        method.learn(batches[1])
    with tempfile.TemporaryDirectory() as folder:
        stopped.save(Path(folder) / "saved")
        stopped = load(Path(folder) / "saved")
    require(same(snapshot(through), snapshot(stopped)), "Loading gave another state than was saved.")
    require(through.settings() == stopped.settings(), "Loading gave other settings than were saved.")
    reports = [[m.learn(b).to_json() | {"seconds": 0} for b in batches[2:]] for m in (through, stopped)]
    require(reports[0] == reports[1], "After save and load the reports differ from never having stopped.")
    require(same(snapshot(through), snapshot(stopped)), "After save and load a run differs from never having stopped.")


def stays_finite_where_nothing_is_said(cls: type[Method]) -> None:
    method = make(cls)
    for void in (False, True):
        report = method.learn(Batch((nothing_said(1, void=void), nothing_said(2, void=void))))
        require(report.loss is None or math.isfinite(report.loss), "A batch without labels gave a loss beyond numbers.")
        finite = all(bool(t.isfinite().all()) for t in snapshot(method).values() if t.is_floating_point())
        require(finite, "A batch without labels left weights that are not finite.")


def nothing_to_learn_changes_nothing(cls: type[Method]) -> None:
    method = make(cls, network="tiny_bn")
    if method.memory is not None:
        method.forget(method.memory.ids())
    before, extra = snapshot(method), method.extra_state()
    report = method.learn(Batch((nothing_said(1, void=True),)))
    require(not report.updated, "A batch of void pixels alone counted as an update.")
    require(same(before, snapshot(method)), "A batch of void pixels alone changed the state.")
    require(extra == method.extra_state(), "A batch of void pixels alone changed the method's own state.")


def learns_a_batch_of_one(cls: type[Method]) -> None:
    for network in ("tiny", "tiny_bn"):
        method = make(cls, network=network)
        before = snapshot(method)
        require(method.learn(squares(1, [30])).updated, "A batch of one image was dropped.")
        require(not same(before, snapshot(method)), "A batch of one image changed nothing.")


def learns_a_square(cls: type[Method]) -> None:
    method = make(cls, lr=0.1)
    for k in range(15):  # a teacher that knows nothing teaches that nothing is known
        method.learn(squares(1, [4 * k + i for i in range(4)], complete=[1]))
    method.add_classes(["blue"])
    for k in range(40):
        method.learn(squares(2, [4 * k + i for i in range(4)], known=3, complete=[2]))
    shown = [square(2, seed) for seed in (900, 901, 902)]
    found = method.predict([s.image for s in shown]).masks
    hit = sum(int(((p == 2) & (s.mask == 2)).sum()) for p, s in zip(found, shown, strict=True))
    union = sum(int(((p == 2) | (s.mask == 2)).sum()) for p, s in zip(found, shown, strict=True))
    require(hit / union > 0.5, f"After 40 batches a blue square is found with an IoU of {hit / union:.2f} only.")


def forgets_what_forget_names(cls: type[Method]) -> None:
    method = make(cls)
    if method.memory is None:
        return
    gone = method.memory.ids()[0]
    method.forget([gone])
    require(gone not in method.memory.ids(), "`forget` left the exemplar in the memory.")


def a_retired_class_is_never_predicted(cls: type[Method]) -> None:
    method = make(cls, lr=0.1)
    for k in range(15):
        method.learn(squares(1, [4 * k + i for i in range(4)], complete=[1]))
    method.retire_classes(["red"])
    require(not bool((method.predict([square(1, 60).image]).masks[0] == 1).any()), "A retired class was predicted.")
    method.add_classes(["blue"])
    report = method.learn(squares(2, range(3), known=3))
    require(1 not in report.drawn, "A retired class was drawn for replay.")
    require(not bool((method.predict([square(1, 61).image]).masks[0] == 1).any()), "A retired class came back.")


def statistics_move_at_most_once(cls: type[Method]) -> None:
    method = make(cls, network="tiny_bn")
    counters = [b for n, b in method.segmenter.named_buffers() if n.endswith("num_batches_tracked")]
    require(bool(counters), "The network of this check has no BatchNorm.")
    before = [int(c) for c in counters]
    method.learn(squares(1, range(3)))
    moved = max(int(c) - b for c, b in zip(counters, before, strict=True))
    require(moved <= 1, f"BatchNorm statistics moved {moved} times for one batch.")
    frozen = make(cls, network="tiny_bn", batchnorm="frozen")
    means = [b.clone() for n, b in frozen.segmenter.named_buffers() if n.endswith("running_mean")]
    frozen.learn(squares(1, range(3)))
    now = [b for n, b in frozen.segmenter.named_buffers() if n.endswith("running_mean")]
    require(all(map(torch.equal, means, now)), "batchnorm='frozen' moved the running statistics.")


def a_stroke_never_pushes_its_object_away(cls: type[Method]) -> None:
    """Gradient of the loss at full-size logits, on the unpainted rest of an object under a stroke."""
    method = make(cls)
    if method.memory is not None:
        method.forget(method.memory.ids())
    sample = square(1, 5)
    inside = sample.mask == 1
    mask = torch.full_like(sample.mask, UNLABELED)
    mask[(torch.arange(24) % 5 == 0)[:, None] & inside] = 1
    generator = torch.Generator().manual_seed(0)
    logits = 0.1 * torch.randn(1, 2, 24, 24, generator=generator)  # so unsure that no pseudo label is kept
    logits.requires_grad_()

    def forward(images: Tensor, *, bare: bool = False) -> Tensor:
        return logits

    method.forward = forward  # type: ignore[method-assign]
    method.step = lambda loss: torch.autograd.backward(loss)  # type: ignore[method-assign]
    method.learn(Batch.of([sample.image], [mask], ids=["stroke"], known=2))
    rest = inside & (mask == UNLABELED)
    assert logits.grad is not None
    push = float(logits.grad[0, 1][rest].max())
    require(push <= 1e-9, f"The gradient lowers the stroke's class on the rest of its object (up to {push:.2g}).")


def a_teacher_is_what_was_known_before_growth(cls: type[Method]) -> None:
    method = make(cls)
    require(method.teacher is None, "There is a teacher before any class came.")
    method.add_classes(["blue"])
    if not cls.wants_teacher:
        require(method.teacher is None, "A teacher was taken that nobody asked for.")
        return
    taken = method.teacher
    require(taken is not None, "No teacher was taken before the head grew.")
    assert taken is not None
    require(len(taken.classes) == 2, f"The teacher knows {len(taken.classes)} slots; before growth there were 2.")
    before = {k: v.clone() for k, v in taken.to_state()[1].items()}
    method.add_classes(["green"])
    require(method.teacher is taken, "A second addition with no update between took another teacher.")
    method.learn(squares(2, range(3), known=4))
    require(same(before, taken.to_state()[1]), "Learning changed the teacher.")
    method.add_classes(["white"])
    require(method.teacher is not taken, "The next stage kept the last stage's teacher.")


def is_complete_as_a_plugin(cls: type[Method]) -> None:
    require(bool(cls.__doc__), "A method needs a docstring that names its settings.")
    if cls.name in plugins.available("methods"):
        require(plugins.load("methods", cls.name) is cls, f"The file {cls.name}.py must export the method named so.")
    method = make(cls)
    plain = json.loads(json.dumps(method.settings()))
    if cls.name in plugins.available("methods"):
        again = create(cls.name, method.segmenter, settings=plain)
        require(again.settings() == method.settings(), "Settings do not survive being written as JSON.")
    own = [n for n in cls.setting_names() if n in vars(cls).get("__annotations__", {})]
    undocumented = [n for n in own if n not in (cls.__doc__ or "")]
    require(not undocumented, f"The docstring does not mention the settings {', '.join(undocumented)}.")


METHOD_CHECKS: tuple[Callable[[type[Method]], None], ...] = (
    predicts_before_learning,
    steps_at_most_once_a_batch,
    leaves_the_input_alone,
    memory_shares_nothing_with_the_input,
    predict_is_pure,
    memory_is_bounded,
    growth_keeps_old_logits_and_new_rows_move,
    same_seed_same_run,
    state_round_trip_continues_bit_for_bit,
    stays_finite_where_nothing_is_said,
    nothing_to_learn_changes_nothing,
    learns_a_batch_of_one,
    learns_a_square,
    forgets_what_forget_names,
    a_retired_class_is_never_predicted,
    statistics_move_at_most_once,
    a_stroke_never_pushes_its_object_away,
    a_teacher_is_what_was_known_before_growth,
    is_complete_as_a_plugin,
)


def check_method(cls: type[Method]) -> None:
    """Run every check on a method; an AssertionError says in a sentence what it got wrong.

    >>> from segstream.methods.finetune import Finetune
    >>> check_method(Finetune)
    """
    for check in METHOD_CHECKS:
        check(cls)
