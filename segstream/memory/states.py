"""A shelf as plain facts and a few large tensors, and back.

images   uint8 [sum of 3HW]   all images, one after the other, by place
masks    int16 [sum of HW]    all masks
table    int64 [N, 5]         for each: height, width, known, arrival, number of its `complete` in the document's list
members  int64 [sum of |M^c|] the places in each class's list, class after class: future draws depend on this order

Where a policy asked for evidence, for each exemplar and class of which there is some:
measured    int64 [M, 2]   place and slot;  confidence: float64 [M];  vectors: float32 [M, D]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from segstream.memory.selection import Evidence
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
    return document, tensors | _evidence_state(shelf)


def _evidence_state(shelf: IndexedShelf) -> dict[str, Tensor]:
    found = [(e.place, c, e.evidence) for e in shelf.exemplars if e.evidence for c in sorted(e.evidence.vectors)]
    if not found:
        return {}
    return {
        "measured": torch.tensor([(place, c) for place, c, _ in found], dtype=torch.int64),
        "confidence": torch.tensor([e.confidence.get(c, 0.0) for _, c, e in found], dtype=torch.float64),
        "vectors": torch.stack([torch.from_numpy(e.vectors[c].copy()) for _, c, e in found]),
    }


def _take_evidence(shelf: IndexedShelf, tensors: Mapping[str, Tensor]) -> None:
    rows: dict[int, list[int]] = {}
    places, slots = tensors["measured"].unbind(1)
    for row, place in enumerate(places.tolist()):
        rows.setdefault(place, []).append(row)
    for place, own in rows.items():
        confidence = {int(slots[r]): float(tensors["confidence"][r]) for r in own}
        shelf.exemplars[place].evidence = Evidence(
            confidence, {int(slots[r]): tensors["vectors"][r].numpy().copy() for r in own}
        )


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
    if "measured" in tensors:
        _take_evidence(shelf, tensors)


def _joined(pieces: list[bytes], dtype: torch.dtype) -> Tensor:
    joined = bytearray().join(pieces)
    return torch.frombuffer(joined, dtype=dtype) if joined else torch.empty(0, dtype=dtype)
