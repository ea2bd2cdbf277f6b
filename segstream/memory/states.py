"""A shelf as plain facts and a few large tensors, and back.

images   uint8 [sum of 3HW]   all images, one after the other, by place
masks    int16 [sum of HW]    all masks
table    int64 [N, 5]         for each: height, width, known, arrival, number of its `complete` in the document's list
members  int64 [sum of |M^c|] the places in each class's list, class after class: future draws depend on this order
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from segstream.memory.shelf import Exemplar, IndexedShelf

__all__ = ["shelf_from_state", "shelf_state"]


def shelf_state(shelf: IndexedShelf) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Document and tensors of all that a shelf holds.

    >>> document, tensors = shelf_state(IndexedShelf(capacity=3))
    >>> document["ids"], tensors["table"].shape
    ([], torch.Size([0, 5]))
    """
    complete: dict[frozenset[int], int] = {}
    table = torch.empty(len(shelf), 5, dtype=torch.int64)
    rows = table.numpy()
    for i, e in enumerate(shelf.exemplars):
        rows[i] = (*e.size, e.known, e.arrival, complete.setdefault(e.complete, len(complete)))
    counts = shelf.counts()
    document = {
        "ids": [e.id for e in shelf.exemplars],
        "arrivals": shelf.arrivals,
        "counts": {str(slot): count for slot, count in counts.items()},
        "complete": [sorted(slots) for slots in complete],
    }
    tensors = {
        "images": _joined([e.image for e in shelf.exemplars], torch.uint8),
        "masks": _joined([e.mask for e in shelf.exemplars], torch.int16),
        "table": table,
        "members": torch.tensor([e.place for slot in counts for e in shelf.members[slot]], dtype=torch.int64),
    }
    return document, tensors


def shelf_from_state(shelf: IndexedShelf, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Fills an empty shelf with what `shelf_state` gave."""
    ids, counts = document["ids"], {int(slot): int(count) for slot, count in document["counts"].items()}
    complete = [frozenset(slots) for slots in document["complete"]]
    table = tensors["table"].tolist()
    images, masks = (tensors[name].view(torch.uint8).numpy() for name in ("images", "masks"))
    pixels = sum(height * width for height, width, *_ in table)
    if not (len(ids) == len(table) and images.nbytes == 3 * pixels and masks.nbytes == 2 * pixels):
        raise ValueError(f"The saved memory names {len(ids)} exemplars, but its tensors hold others; it is damaged.")
    if sum(counts.values()) != tensors["members"].numel():
        raise ValueError("The saved memory counts its classes otherwise than its tensors do; it is damaged.")
    at = 0
    for name, (height, width, known, arrival, group) in zip(ids, table, strict=True):
        end = at + height * width
        image, mask = images[3 * at : 3 * end].tobytes(), masks[2 * at : 2 * end].tobytes()
        shelf.put(Exemplar(name, image, mask, (height, width), complete[group], known, arrival), ())
        at = end
    members = iter(tensors["members"].tolist())
    for slot in sorted(counts):
        for _ in range(counts[slot]):
            shelf.join(shelf.exemplars[next(members)], slot)
    shelf.arrivals = int(document["arrivals"])


def _joined(pieces: list[bytes], dtype: torch.dtype) -> Tensor:
    joined = bytearray().join(pieces)
    return torch.frombuffer(joined, dtype=dtype) if joined else torch.empty(0, dtype=dtype)
