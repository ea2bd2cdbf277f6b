"""What a network plug-in builds: encoder and decoder without a last layer."""

from __future__ import annotations

import difflib
from typing import Protocol

from torch import Tensor, nn

from segstream import plugins
from segstream.models.features import Maps

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Body", "Network", "build_body", "networks", "unknown"]

Color = tuple[float, float, float]
IMAGENET_MEAN: Color = (123.675, 116.28, 103.53)
IMAGENET_STD: Color = (58.395, 57.12, 57.375)


class Body(nn.Module):
    """Normalised images [B, 3, H, W] -> features [B, D, h, w]; `decode(encode(images))`.

    Between the two lie maps, tensors with B in front, which can be cached when the encoder is frozen. A plug-in whose
    encoder gives one map uses this class as it is; others override `encode` and `decode`.

    out_channels  D
    multiple      H and W must be multiples of it
    mean, std     of each colour, for pixel values 0..255

    >>> import torch
    >>> body = Body(nn.Conv2d(3, 4, 2, stride=2), nn.Conv2d(4, 8, 1), out_channels=8, multiple=2)
    >>> list(body(torch.zeros(1, 3, 6, 4)).shape)
    [1, 8, 3, 2]
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        out_channels: int,
        multiple: int,
        mean: Color = IMAGENET_MEAN,
        std: Color = IMAGENET_STD,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.out_channels = out_channels
        self.multiple = multiple
        self.mean = mean
        self.std = std

    def encode(self, images: Tensor) -> Maps:
        return (self.encoder(images),)

    def decode(self, maps: Maps) -> Tensor:
        features: Tensor = self.decoder(*maps)
        return features

    def forward(self, images: Tensor) -> Tensor:
        return self.decode(self.encode(images))


class Network(Protocol):
    """A plug-in in `networks/`: a class without arguments, the first name of its module's `__all__`."""

    def architectures(self) -> tuple[str, ...]:
        """Names that `Segmenter.create` takes. None of them belongs to another plug-in."""

    def build(
        self, architecture: str, *, encoder: str, weights: str | None, output_stride: int, decoder_channels: int
    ) -> Body:
        """A body with random weights, or with the encoder's pretrained ones of that name."""


def networks() -> dict[str, str]:
    """Every architecture and the plug-in that builds it.

    >>> networks()["tiny"], networks()["torchvision_deeplabv3"]
    ('tiny', 'torchvision')
    """
    return {a: name for name in plugins.available("networks") for a in _plugin(name).architectures()}


def build_body(
    architecture: str, *, encoder: str, weights: str | None, output_stride: int, decoder_channels: int
) -> Body:
    """Ask the plug-in that knows the architecture.

    >>> body = build_body("tiny", encoder="", weights=None, output_stride=4, decoder_channels=8)
    >>> body.out_channels, body.multiple
    (8, 4)
    """
    # The plug-in whose name the architecture bears is asked first: `tiny` need not import the large libraries.
    for name in sorted(plugins.available("networks"), key=lambda name: not architecture.startswith(name)):
        plugin = _plugin(name)
        if architecture in plugin.architectures():
            return plugin.build(
                architecture,
                encoder=encoder,
                weights=weights,
                output_stride=output_stride,
                decoder_channels=decoder_channels,
            )
    raise unknown("network", architecture, sorted(networks()))


def unknown(what: str, name: str, choices: list[str], *, shown: int = 40) -> ValueError:
    """The error for a name that does not exist, with the nearest that does."""
    near = difflib.get_close_matches(name, choices, n=3)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known: {', '.join(choices[:shown])}."
    return ValueError(f"There is no {what} {name!r}. {hint}")


def _plugin(name: str) -> Network:
    plugin: Network = plugins.load("networks", name)()
    return plugin
