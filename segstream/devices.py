"""Which device, which precision, how many processes: one Fabric for all of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from lightning_fabric import Fabric
from torch import Tensor

__all__ = ["PRECISIONS", "make_fabric", "sum_over"]

PRECISIONS = ("32-true", "bf16-mixed")


def make_fabric(device: str = "auto", *, precision: str = "32-true") -> Fabric:
    """A Fabric for `auto` (CUDA, else MPS, else CPU), `cpu`, `cuda`, `cuda:1` or `mps`.

    >>> make_fabric("cpu").device.type
    'cpu'
    """
    if precision not in PRECISIONS:
        raise ValueError(f"The precision {precision!r} is none of {', '.join(PRECISIONS)}.")
    kind, _, number = device.partition(":")
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind == "auto":
        kind = next(name for name in ("cuda", "mps", "cpu") if here[name])
    if kind not in here or (number and not number.isdigit()):
        raise ValueError(f"The device {device!r} is none of auto, cpu, cuda, cuda:N, mps.")
    if not here[kind]:
        raise ValueError(f"The device {device!r} was asked for, but this machine has none that PyTorch can use.")
    chosen = [int(number)] if number else 1
    return Fabric(accelerator=kind, devices=chosen, precision=precision)  # type: ignore[arg-type]


def sum_over(fabric: Fabric) -> Callable[[Tensor], Tensor] | None:
    """Sums a tensor over all processes; None where there is a single one.

    >>> sum_over(make_fabric("cpu")) is None
    True
    """
    if fabric.world_size == 1:
        return None

    def total(values: Tensor) -> Tensor:
        # On the device, whatever holds the values: NCCL knows no other place.
        summed = fabric.all_reduce(values.to(fabric.device, copy=True), reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed.to(values.device)

    return total
