"""Images and masks at another size. Colours may be mixed, class numbers never."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["nearest_index", "resize_image", "resize_mask"]


def resize_image(image: Tensor, size: tuple[int, int]) -> Tensor:
    """uint8 [C, H, W] to [C, h, w]: bilinear, with antialiasing where it shrinks.

    >>> resize_image(torch.full((3, 8, 6), 7, dtype=torch.uint8), (4, 3)).shape
    torch.Size([3, 4, 3])
    """
    if tuple(image.shape[1:]) == tuple(size):
        return image
    if size[1] == 1:
        # PyTorch's kernel for bytes writes wrong colours into a picture one pixel wide, or raises (seen in 2.15).
        return _bilinear(image.float(), size).round_().to(torch.uint8)
    return _bilinear(image, size)


def _bilinear(image: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(image[None], size=list(size), mode="bilinear", align_corners=False, antialias=True)[0]


def nearest_index(old: int, new: int) -> Tensor:
    """For each of `new` pixels in a row the pixel of `old` in which its centre lies.

    PyTorch's mode "nearest" takes the left edge instead of the centre and so shifts a mask against its image.

    >>> nearest_index(6, 3).tolist(), nearest_index(2, 4).tolist()
    ([1, 3, 5], [0, 0, 1, 1])
    """
    return (torch.arange(new) * 2 + 1).mul_(old).div_(2 * new, rounding_mode="floor")


def resize_mask(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """int16 [H, W] to [h, w] by the nearest pixel, so that no value arises that was not there.

    >>> resize_mask(torch.tensor([[1, 2], [3, -2]], dtype=torch.int16), (2, 4)).tolist()
    [[1, 1, 2, 2], [3, 3, -2, -2]]
    """
    if tuple(mask.shape) == tuple(size):
        return mask
    rows, columns = nearest_index(mask.shape[0], size[0]), nearest_index(mask.shape[1], size[1])
    return mask.index_select(0, rows).index_select(1, columns)
