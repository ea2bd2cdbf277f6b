"""Nearest mean of exemplars (Rebuffi et al., iCaRL, 2017), pixel by pixel.

phi  a feature divided by its length;  mu_k: mean of phi over all pixels of slot k in the memory, divided by its length

    score_k = scale * cos(mu_k, phi),   so that their softmax is a confidence

    B images   D feature channels   h w low resolution   H W full size   K slots, background included
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["class_sums", "nearest_mean_scores"]


def class_sums(features: Tensor, masks: Tensor, *, slots: int) -> Tensor:
    """Sum of phi over the pixels of each slot, [K, D]. Added up over images and normalised they are the means.

    features [B, D, h, w];  masks [B, H, W]. A feature counts for each slot by how many of its cell's pixels show it.

    >>> features = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    >>> class_sums(features, torch.tensor([[[1, 1], [0, -1]]]), slots=3).tolist()
    [[0.6000000238418579, 0.800000011920929], [1.2000000476837158, 1.600000023841858], [0.0, 0.0]]
    """
    phi = F.normalize(features, dim=1)
    (h, w), (height, width) = features.shape[-2:], masks.shape[-2:]
    sums = phi.new_zeros(slots, phi.shape[1])
    shown = [k for k in torch.unique(masks).tolist() if k >= 0]
    if shown:
        here = masks[:, None] == torch.tensor(shown, device=masks.device)[:, None, None]  # B K' H W
        pixels = F.adaptive_avg_pool2d(here.to(phi), (h, w)) * (height * width / (h * w))  # B K' h w
        sums[shown] = torch.einsum("bkhw,bdhw->kd", pixels, phi)
    return sums


def nearest_mean_scores(features: Tensor, means: Tensor, *, scale: float) -> Tensor:
    """scale * cos(mu_k, phi) [B, K, h, w]; -inf for a slot whose row is all 0: it has no mean.

    features [B, D, h, w];  means [K, D] of any length

    >>> features, means = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1), torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    >>> [round(s, 4) for s in nearest_mean_scores(features, means, scale=10.0).flatten().tolist()]
    [8.0, -inf, 6.0]
    """
    phi, mu = F.normalize(features, dim=1), F.normalize(means, dim=1)
    scores = scale * torch.einsum("kd,bdhw->bkhw", mu, phi)
    return scores.masked_fill(~means.any(dim=1)[:, None, None], -torch.inf)
