"""One update the slow way: dense logits, autograd on a copy in double precision, SGD with momentum by hand."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from segstream.checks.squares import square
from segstream.classes import BACKGROUND, UNLABELED, VOID
from segstream.method import Method
from segstream.models import Segmenter
from segstream.types import Batch, Sample

State = dict[str, Tensor]


def targets_of(mask: Tensor, view: str) -> Tensor:
    out = mask.clone()
    out[mask == UNLABELED] = BACKGROUND if view == "background" else VOID
    return out


def mean_loss(segmenter: Segmenter, samples: Sequence[Sample], view: str) -> Tensor:
    return mean_over(segmenter(torch.stack([s.image for s in samples])), samples, view)


def mean_over(logits: Tensor, samples: Sequence[Sample], view: str) -> Tensor:
    """Dense logits, one log softmax for each pixel; the mean over all pixels that enter. All images of one size."""
    masks = torch.stack([targets_of(s.mask, view) for s in samples]).long()
    full = F.interpolate(logits, size=masks.shape[1:], mode="bilinear", align_corners=False)
    losses = F.cross_entropy(full, masks.clamp_min(0), reduction="none")
    return losses[masks != VOID].mean()


def gradient(segmenter: Segmenter, samples: Sequence[Sample], view: str) -> State:
    """On a copy in double precision, in training mode; the copy is thrown away, its statistics too."""
    twin = copy.deepcopy(segmenter).double().train()
    named = dict(twin.named_parameters())
    found = torch.autograd.grad(mean_loss(twin, samples, view), list(named.values()))
    return dict(zip(named, found, strict=True))


def product(a: State, b: State) -> float:
    return sum(float((a[n] * b[n]).sum()) for n in a)


def after_sgd(method: Method, slope: State) -> tuple[State, State]:
    """Parameters and momentum after one step by hand."""
    parameters, momentum = {}, {}
    buffers = method.optimiser.buffers()
    for name, p in method.segmenter.named_parameters():
        d = slope[name] + method.weight_decay * p.detach().double()
        before = buffers.get(name)
        momentum[name] = d if before is None else method.momentum * before.double() + d
        parameters[name] = p.detach().double() - method.lr * momentum[name]
    return parameters, momentum


def assert_close(method: Method, parameters: State, momentum: State) -> None:
    for name, p in method.segmenter.named_parameters():
        assert torch.allclose(p.detach().double(), parameters[name], atol=1e-6, rtol=1e-5), name
        held = method.optimiser.buffers()[name].double()
        assert torch.allclose(held, momentum[name], atol=1e-5, rtol=1e-4), name


def contradicting() -> Batch:
    """The red squares that `make` remembers as class 1, with class and background exchanged."""
    samples = []
    for seed in range(4):
        red = square(1, seed)
        samples.append(Sample(red.image, 1 - red.mask, id=f"contradiction/{seed}", known=2))
    return Batch(tuple(samples))
