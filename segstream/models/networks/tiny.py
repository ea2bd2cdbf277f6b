"""A network of three convolutions, for tests and examples: no download, milliseconds on a CPU."""

from __future__ import annotations

import math

from torch import nn

from segstream.models.body import Body

__all__ = ["Tiny"]

STRIDE = 4


class Tiny:
    """`tiny` without statistics of a batch (GroupNorm), `tiny_bn` with them (BatchNorm).

    There is no encoder to choose, no output stride and no pretrained weights; these settings are not looked at.

    >>> body = Tiny().build("tiny", encoder="", weights=None, output_stride=4, decoder_channels=16)
    >>> sum(p.numel() for p in body.parameters())
    9776
    """

    def architectures(self) -> tuple[str, ...]:
        return ("tiny", "tiny_bn")

    def build(
        self, architecture: str, *, encoder: str, weights: str | None, output_stride: int, decoder_channels: int
    ) -> Body:
        batch_statistics = architecture == "tiny_bn"

        def block(before: int, after: int, stride: int) -> list[nn.Module]:
            norm = nn.BatchNorm2d(after) if batch_statistics else nn.GroupNorm(math.gcd(4, after), after)
            return [nn.Conv2d(before, after, 3, stride, 1, bias=False), norm, nn.ReLU()]

        return Body(
            nn.Sequential(*block(3, 16, 2), *block(16, 32, 2)),
            nn.Sequential(*block(32, decoder_channels, 1)),
            out_channels=decoder_channels,
            multiple=STRIDE,
        )
