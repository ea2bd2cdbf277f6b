"""Features of a frozen encoder, kept for images that come again. A cache, never state: nothing of it is saved."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn

__all__ = ["FeatureCache", "Fingerprint", "Maps", "content_hash"]

Maps = tuple[Tensor, ...]


def content_hash(tensors: Iterable[Tensor]) -> str:
    """A hash of type, shape and content.

    >>> content_hash([torch.zeros(2)]) == content_hash([torch.zeros(2)]) != content_hash([torch.zeros(1, 2)])
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class Fingerprint:
    """The hash of a module's parameters and buffers, computed anew only when one of them was written to.

    >>> layer, fingerprint = nn.Linear(2, 2), Fingerprint()
    >>> before = fingerprint(layer)
    >>> _ = nn.init.zeros_(layer.weight)
    >>> fingerprint(layer) != before, fingerprint(layer) == fingerprint(layer)
    (True, True)
    """

    def __init__(self) -> None:
        self._seen: tuple[tuple[int, int], ...] | None = None
        self._value = ""

    def __call__(self, module: nn.Module) -> str:
        tensors = [*module.parameters(), *module.buffers()]
        seen = tuple((t.data_ptr(), t._version) for t in tensors)
        if seen != self._seen:
            self._value, self._seen = content_hash(tensors), seen
        return self._value


class FeatureCache:
    """Encoder outputs by image content and encoder; the least recently used go when `capacity_bytes` is reached.

    Images are encoded one at a time, found or not, so that a hit and a miss give the same bits. May be shared by
    segmenters and threads.

    >>> cache = FeatureCache(capacity_bytes=1000)
    >>> image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    >>> for _ in range(2):
    ...     maps = cache.fetch(image, lambda: (torch.ones(1, 2),), encoder="abc")
    >>> cache.hits, cache.misses, cache.nbytes
    (1, 1, 8)
    """

    def __init__(self, *, capacity_bytes: int = 256 << 20) -> None:
        if capacity_bytes < 0:
            raise ValueError(f"A cache of {capacity_bytes} bytes cannot be; give 0 or more.")
        self.capacity_bytes = capacity_bytes
        self.nbytes = self.hits = self.misses = 0
        self._kept: OrderedDict[tuple[str, str], Maps] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def __deepcopy__(self, memo: object) -> FeatureCache:
        return self  # a copied segmenter shares the cache; keys tell encoders apart

    def fetch(self, image: Tensor, encode: Callable[[], Maps], *, encoder: str) -> Maps:
        """The maps of an image [3, H, W], each with a batch of 1 in front. Nobody writes into them."""
        key = (content_hash([image]), encoder)
        with self._lock:
            if key in self._kept:
                self.hits += 1
                self._kept.move_to_end(key)
                return self._kept[key]
            self.misses += 1
        maps = encode()
        size = sum(m.nbytes for m in maps)
        with self._lock:
            if size <= self.capacity_bytes and key not in self._kept:
                self._kept[key] = maps
                self.nbytes += size
            while self.nbytes > self.capacity_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.nbytes -= sum(m.nbytes for m in oldest)
        return maps

    def fetch_all(self, images: Tensor, encode: Callable[[int], Maps], *, encoder: str) -> Maps:
        """The maps of images [B, 3, H, W]: new tensors with B in front. `encode` gives those of the image at i."""
        each = [self.fetch(image, partial(encode, i), encoder=encoder) for i, image in enumerate(images)]
        return tuple(torch.cat(maps) for maps in zip(*each, strict=True))

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.nbytes = 0
