"""BatchNorm as a stream needs it: a batch of one works, frozen stays frozen, an extra pass moves nothing.

Every BatchNorm layer of any library gets a hook that decides, right before the layer runs, whether it uses the
batch's statistics. Parameters and state-dict keys stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["freeze", "layers", "moving", "prepare", "still_statistics"]

_FROZEN = "_segstream_frozen"
_LENT = "_segstream_lent"


def layers(module: nn.Module) -> list[_BatchNorm]:
    """All BatchNorm layers below a module (timm's with a built-in activation are among them)."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]


def moving(module: nn.Module) -> list[_BatchNorm]:
    """The layers whose running statistics a forward pass would move now.

    >>> both = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3).eval())
    >>> moving(both) == [both[0]]
    True
    """
    return [m for m in layers(module) if m.training and m.track_running_stats and not getattr(m, _FROZEN, False)]


def prepare(module: nn.Module) -> None:
    """Give every BatchNorm layer below `module` the hooks; doing it again changes nothing.

    A layer in training mode that sees one value per channel would raise; now it uses its running statistics for
    that batch and leaves them as they are.

    >>> import torch
    >>> layer = nn.BatchNorm2d(3)
    >>> prepare(layer)
    >>> [round(v, 3) for v in layer(torch.ones(1, 3, 1, 1)).flatten().tolist()]
    [1.0, 1.0, 1.0]
    """
    for layer in layers(module):
        if not hasattr(layer, _FROZEN):
            setattr(layer, _FROZEN, False)
            setattr(layer, _LENT, False)
            layer.register_forward_pre_hook(_before)
            layer.register_forward_hook(_after, always_call=True)


def freeze(module: nn.Module, frozen: bool = True) -> None:
    """Make the layers below use their running statistics and never move them, whatever `train()` says later.

    >>> layer = nn.BatchNorm2d(3)
    >>> prepare(layer)
    >>> freeze(layer)
    >>> import torch
    >>> _ = layer.train()(torch.randn(4, 3, 2, 2))
    >>> layer.running_mean.tolist()
    [0.0, 0.0, 0.0]
    """
    for layer in layers(module):
        setattr(layer, _FROZEN, frozen)


@contextmanager
def still_statistics(module: nn.Module) -> Iterator[None]:
    """Inside, layers in training mode use the batch's statistics but do not move the running ones.

    >>> import torch
    >>> layer = nn.BatchNorm2d(3)
    >>> with still_statistics(layer):
    ...     _ = layer(torch.randn(4, 3, 2, 2))
    >>> layer.running_mean.tolist(), int(layer.num_batches_tracked)
    ([0.0, 0.0, 0.0], 0)
    """
    tracking = [layer for layer in layers(module) if layer.track_running_stats]
    for layer in tracking:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in tracking:
            layer.track_running_stats = True


def _before(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    values: Tensor = inputs[0]
    if layer.training and (getattr(layer, _FROZEN) or values.numel() <= values.shape[1]):
        layer.training = False
        setattr(layer, _LENT, True)


def _after(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
    if getattr(layer, _LENT):
        layer.training = True
        setattr(layer, _LENT, False)
