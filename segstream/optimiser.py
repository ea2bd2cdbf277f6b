"""SGD over a segmenter whose head grows, under Fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from segstream.models import Segmenter, batchnorm

__all__ = ["Optimiser"]


class Optimiser:
    """SGD with momentum. Growth of the head keeps the momentum of old rows and starts new ones without any.

    With several processes the loss must be a share of the whole joint batch's loss (its denominators summed over
    all processes): the gradients are then summed, not averaged.

    >>> segmenter = Segmenter.create("tiny", weights=None, classes=["car"])
    >>> optimiser = Optimiser(segmenter, Fabric(accelerator="cpu", devices=1), lr=0.1, momentum=0.9, weight_decay=0)
    >>> optimiser.step(optimiser.module(torch.zeros(1, 3, 8, 8)).sum())
    >>> "head.weight" in optimiser.buffers()
    True
    """

    def __init__(
        self, segmenter: Segmenter, fabric: Fabric, *, lr: float, momentum: float, weight_decay: float
    ) -> None:
        self.segmenter = segmenter
        self.fabric = fabric
        self.options: dict[str, Any] = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        self._set_up({})

    def _set_up(self, buffers: Mapping[str, Tensor]) -> None:
        self._named = {n: p for n, p in self.segmenter.named_parameters() if p.requires_grad}
        self._sgd = torch.optim.SGD(self._named.values(), **self.options)
        # The segmenter is wrapped but never replaced: state and verbs keep using the bare one.
        self.module, self._wrapped = self.fabric.setup(self.segmenter, self._sgd)
        self.load_buffers(buffers)

    def buffers(self) -> dict[str, Tensor]:
        """Momentum by parameter name; empty before the first step."""
        found = {n: self._sgd.state.get(p, {}).get("momentum_buffer") for n, p in self._named.items()}
        return {n: b for n, b in found.items() if b is not None}

    def load_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Take over momentum; rows that the head has gained since start without any."""
        for name, buffer in buffers.items():
            if name not in self._named:
                raise ValueError(f"The saved optimiser has momentum for {name!r}, which the network does not train.")
            full = torch.zeros_like(self._named[name])
            full[: len(buffer)] = buffer.to(full.device)
            self._sgd.state[self._named[name]]["momentum_buffer"] = full

    def after_growth(self, new: Sequence[int]) -> None:
        """New rows have no momentum. A head that outgrew its block has new Parameters: set up again with the old."""
        if any(p is not self._named.get(n) for n, p in self.segmenter.named_parameters() if p.requires_grad):
            self._set_up(self.buffers())
        for name, buffer in self.buffers().items():
            if name.startswith("head."):
                buffer[list(new)] = 0.0

    def step(self, loss: Tensor, *, lr: float | None = None) -> None:
        """One step down the loss, at a rate of its own if given."""
        if lr is not None:
            for group in self._sgd.param_groups:
                group["lr"] = lr
        self._wrapped.zero_grad(set_to_none=True)
        self.fabric.backward(loss * self.fabric.world_size)  # DDP averages; the loss is a share of a sum
        self._wrapped.step()
        if self.fabric.world_size > 1:
            self._share_statistics()

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The loss's gradient by trainable parameter, in float32, without any step; over all processes summed.

        The loss must come from the bare segmenter: the wrapper's own reduction waits for an ordinary backward pass.
        """
        found = torch.autograd.grad(loss, list(self._named.values()), allow_unused=True)
        pairs = zip(found, self._named.values(), strict=True)
        values = [torch.zeros_like(p, dtype=torch.float32) if g is None else g.float() for g, p in pairs]
        if self.fabric.world_size == 1:
            return values
        flat = self.fabric.all_reduce(torch.cat([v.flatten() for v in values]), reduce_op="sum")
        assert isinstance(flat, Tensor)
        parts = torch.split(flat, [v.numel() for v in values])
        return [part.view_as(v) for part, v in zip(parts, values, strict=True)]

    def apply(self, gradients: Sequence[Tensor], *, lr: float | None = None) -> None:
        """One step with these gradients, one for each trainable parameter."""
        if lr is not None:
            for group in self._sgd.param_groups:
                group["lr"] = lr
        for parameter, gradient in zip(self._named.values(), gradients, strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        self._wrapped.step()
        if self.fabric.world_size > 1:
            self._share_statistics()

    def named(self) -> dict[str, torch.nn.Parameter]:
        """What it trains, by name."""
        return dict(self._named)

    @torch.no_grad()
    def _share_statistics(self) -> None:
        """Running statistics, which each process moves by its own images, become their mean."""
        for layer in batchnorm.moving(self.segmenter):
            for buffer in (layer.running_mean, layer.running_var):
                if buffer is not None:
                    mean = self.fabric.all_reduce(buffer.clone(), reduce_op="mean")
                    assert isinstance(mean, Tensor)
                    buffer.copy_(mean)
