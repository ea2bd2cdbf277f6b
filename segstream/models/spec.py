"""How a segmenter is made, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from segstream.models.body import Body, build_body
from segstream.models.head import KINDS
from segstream.storage import StateError

__all__ = ["TRAINABLE", "Spec", "check_choice"]

TRAINABLE = ("all", "decoder", "head")


@dataclass(frozen=True)
class Spec:
    """The arguments of `Segmenter.create`, but for the classes.

    >>> spec = Spec("tiny", "", None, "cosine", 12.0, 16, 8, "all", 0)
    >>> spec.body(pretrained=None).out_channels, Spec.from_json(spec.to_json()) == spec
    (8, True)
    """

    network: str
    encoder: str
    weights: str | None
    head: str
    scale: float
    output_stride: int
    decoder_channels: int
    trainable: str
    seed: int

    def __post_init__(self) -> None:
        check_choice("head", self.head, KINDS)
        check_choice("trainable", self.trainable, TRAINABLE)
        if self.decoder_channels < 1:
            raise ValueError(f"decoder_channels={self.decoder_channels} must be at least 1.")

    def body(self, *, pretrained: str | None) -> Body:
        """Encoder and decoder: the seed decides what no pretrained weights decide. No global generator moves."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return build_body(
                self.network,
                encoder=self.encoder,
                weights=pretrained,
                output_stride=self.output_stride,
                decoder_channels=self.decoder_channels,
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Spec:
        names = [f.name for f in fields(cls)]
        if missing := [name for name in names if name not in document]:
            raise StateError(f"The saved segmenter's document lacks {', '.join(missing)}.")
        return cls(**{name: document[name] for name in names})


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices.

    >>> check_choice("head", "conic", ("cosine", "linear"))
    Traceback (most recent call last):
    ValueError: head='conic' is none of 'cosine', 'linear'.
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r} is none of {', '.join(map(repr, choices))}.")
