"""From images to classes and confidence at full size, without ever holding full-size logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segstream.types import Prediction

__all__ = ["decide", "evaluating", "mirrored", "same_size", "segment"]

BLOCK = 1 << 20  # values of upsampled logits at a time
PIXELS = 1 << 19  # of images that go through the network together


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module is in the mode in which it was.

    >>> layers = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    >>> with evaluating(layers):
    ...     layers[0].training
    False
    >>> [layer.training for layer in layers]
    [True, False]
    """
    training = [m for m in module.modules() if m.training]
    for m in training:
        m.training = False
    try:
        yield
    finally:
        for m in training:
            m.training = True


def mirrored(images: Tensor, multiple: int) -> Tensor:
    """Images [..., H, W] of any type, continued at the right and at the bottom by their mirror image until they fit.

    >>> mirrored(torch.tensor([[1, 2, 3, 4]]), 3).tolist()
    [[1, 2, 3, 4, 3, 2], [1, 2, 3, 4, 3, 2], [1, 2, 3, 4, 3, 2]]
    """
    for dim in (-2, -1):
        n = images.shape[dim]
        size = -(-n // multiple) * multiple
        if size > n:
            i = torch.arange(size, device=images.device) % max(2 * n - 2, 1)
            images = images.index_select(dim, torch.where(i < n, i, 2 * n - 2 - i))
    return images


def same_size(images: Sequence[Tensor]) -> list[list[int]]:
    """Indices of images that can go through the network together: of one size, and not too many pixels.

    >>> same_size([torch.zeros(3, 2, 2), torch.zeros(3, 4, 2), torch.zeros(3, 2, 2)])
    [[0, 2], [1]]
    """
    by_size: dict[tuple[int, ...], list[int]] = {}
    for i, image in enumerate(images):
        by_size.setdefault(tuple(image.shape), []).append(i)
    groups = []
    for (_, h, w), members in by_size.items():
        n = max(1, PIXELS // (h * w))
        groups += [members[i : i + n] for i in range(0, len(members), n)]
    return groups


def segment(
    images: Sequence[Tensor],
    *,
    network: Callable[[Tensor], Tensor],
    slots: Sequence[int],
    multiple: int,
    device: torch.device,
) -> Prediction:
    """Classes and confidence of uint8 images [3, H, W] of any sizes, on the devices that they came from.

    network  images [B, 3, H, W] with sides that are multiples of `multiple` -> logits [B, K, h, w]
    """
    for i, image in enumerate(images):
        if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3 or image.numel() == 0:
            raise ValueError(f"Image {i} is {image.dtype} of shape {list(image.shape)}; expected uint8 [3, H, W].")
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for group in same_size(images):
        _, height, width = images[group[0]].shape
        batch = mirrored(torch.stack([images[i] for i in group]).to(device), multiple)
        padded = (batch.shape[2], batch.shape[3])
        for i, logits in zip(group, network(batch), strict=True):
            masks, confidence = decide(logits, slots=slots, padded=padded, size=(height, width))
            found[i] = masks.to(images[i].device), confidence.to(images[i].device)
    order = range(len(images))
    return Prediction(tuple(found[i][0] for i in order), tuple(found[i][1] for i in order))


def decide(
    logits: Tensor, *, slots: Sequence[int], padded: tuple[int, int], size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """The likeliest of `slots` for each pixel (int16 [H, W]), and its softmax probability among them (float32).

    logits [K, h, w] belong to an image of `padded` size, of which `size` is shown. A class whose scores are -inf
    everywhere takes no part. Equal to bilinear upsampling (align_corners=False), then softmax, then the maximum.

    >>> logits = torch.tensor([0.0, 5.0, 9.0]).view(3, 1, 1)
    >>> classes, confidence = decide(logits, slots=[0, 1], padded=(4, 4), size=(1, 3))
    >>> classes.tolist(), round(float(confidence[0, 0]), 4)
    ([[1, 1, 1]], 0.9933)
    """
    kept = torch.tensor(slots, device=logits.device)
    low = logits[kept].float()
    possible = ~torch.isneginf(low).all(dim=2).all(dim=1)
    low, kept = low[possible], kept[possible].to(torch.int16)
    height, width = size
    classes = torch.empty(height, width, dtype=torch.int16, device=logits.device)
    confidence = torch.empty(height, width, device=logits.device)
    step = max(1, BLOCK // (len(kept) * padded[1]))
    for top in range(0, height, step):
        rows = slice(top, min(top + step, height))
        block = _upsampled(low, rows, padded)[:, :, :width]  # K rows W
        best, index = block.max(dim=0)
        classes[rows] = kept[index]
        confidence[rows] = block.sub_(best).exp_().sum(dim=0).reciprocal_()  # p of the best class
    return classes, confidence


def _upsampled(low: Tensor, rows: slice, padded: tuple[int, int]) -> Tensor:
    """Some rows of the bilinear upsampling of [K, h, w] to the padded size."""
    h = low.shape[1]
    y = torch.arange(rows.start, rows.stop, device=low.device, dtype=torch.float32)
    y = ((y + 0.5) * (h / padded[0]) - 0.5).clamp_(0, h - 1)
    above = y.floor().long()
    below = (above + 1).clamp_max(h - 1)
    between = torch.lerp(low[:, above], low[:, below], (y - above)[:, None])  # K rows w
    return F.interpolate(between[None], size=(len(y), padded[1]), mode="bilinear", align_corners=False)[0]
