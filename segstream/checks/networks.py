"""What every network promises."""

from __future__ import annotations

import torch

from segstream.checks.squares import require
from segstream.models import Segmenter

__all__ = ["check_network"]


def check_network(architecture: str, *, encoder: str = "resnet18") -> None:
    """Seeded weights, features at a stride, images of any size, and a state that is whole.

    >>> check_network("tiny")
    """
    made = [Segmenter.create(architecture, encoder=encoder, weights=None, classes=["cat"], seed=1) for _ in range(2)]
    weights = [m.to_state()[1] for m in made]
    require(weights[0].keys() == weights[1].keys(), "Two segmenters of one seed have different tensors.")
    require(all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0]), "The seed does not decide the weights.")
    segmenter = made[0].eval()
    side = segmenter.stride_multiple * 2
    with torch.no_grad():
        logits = segmenter(torch.zeros(2, 3, side, side, dtype=torch.uint8))
    require(logits.shape[:2] == (2, 2), f"Logits of 2 images and 2 slots have the shape {list(logits.shape)}.")
    require(logits.dtype == torch.float32, f"Logits are {logits.dtype}; they must be float32.")
    found = segmenter.predict([torch.zeros(3, 33, 47, dtype=torch.uint8)])
    require(found.masks[0].shape == (33, 47), "An image of 33 x 47 gave a mask of another size.")
    again = Segmenter.from_state(*segmenter.to_state())
    same = again.predict([torch.zeros(3, 33, 47, dtype=torch.uint8)])
    require(torch.equal(found.confidence[0], same.confidence[0]), "A segmenter made from its state predicts otherwise.")
