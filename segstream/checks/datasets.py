"""What every dataset and every stream promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch

from segstream.checks.squares import require
from segstream.classes import UNLABELED, VOID
from segstream.data import Source, Splits, Stream
from segstream.types import Batch, NewClasses

__all__ = ["check_dataset", "check_stream"]


def check_dataset(open_splits: Callable[[], Splits]) -> None:
    """Ids are unique, masks hold only known values, a picture is the same each time, no picture in two splits.

    >>> from segstream.data.datasets.scenes import open_scenes
    >>> check_dataset(lambda: open_scenes(train_size=3, val_size=1, test_size=1, image_size=(48, 48)))
    """
    splits, again = open_splits(), open_splits()
    require(splits.train.names[0] == "background", "The first class name of a dataset must be 'background'.")
    require(len(set(splits.train.names)) == len(splits.train.names), "A class name occurs twice.")
    ids: list[str] = []
    for part, other in zip((splits.train, splits.val, splits.test), (again.train, again.val, again.test), strict=True):
        require(part.names == splits.train.names, "The splits have different class lists.")
        ids += part.ids
        for i in range(min(len(part), 8)):
            _check_item(part, other, i)
    twice = [name for name, n in Counter(ids).items() if n > 1]
    require(not twice, f"These ids occur in two splits or twice in one: {twice[:3]}.")


def _check_item(part: Source, other: Source, i: int) -> None:
    image, mask = part.load(i)
    require(image.dtype == torch.uint8 and image.shape[0] == 3, f"{part.ids[i]}: the image must be uint8 [3, H, W].")
    require(
        mask.dtype == torch.int16 and mask.shape == image.shape[1:], f"{part.ids[i]}: the mask must be int16 [H, W]."
    )
    low, high = int(mask.min()), int(mask.max())
    require(low >= VOID and high < len(part.names), f"{part.ids[i]}: mask values {low}..{high} are beyond the classes.")
    here = frozenset(v for v in set(mask.flatten().tolist()) if v >= 1)
    require(part.present(i) == here, f"{part.ids[i]}: `present` says {part.present(i)}, the mask holds {here}.")
    image2, mask2 = other.load(i)
    require(torch.equal(image, image2) and torch.equal(mask, mask2), f"{part.ids[i]}: two readings differ.")


def _items(stream: Stream) -> list[tuple[str, ...]]:
    return [item.names if isinstance(item, NewClasses) else item.ids for item in stream]


def check_stream(make: Callable[[int, int], Stream]) -> None:
    """`make(seed, start)` gives a stream. Each image once a stage, other classes hidden, resumable, seeded.

    >>> from segstream.classes import ClassTable
    >>> from segstream.data import Scenario, wrap
    >>> picture = torch.zeros(3, 2, 2, dtype=torch.uint8)
    >>> source = wrap([(picture, torch.full((2, 2), 1 + k % 2)) for k in range(12)], ["background", "road", "car"])
    >>> scenario = Scenario(("road",), (("car",),))
    >>> table = ClassTable(("road",))
    >>> check_stream(lambda seed, start: Stream(source, scenario, classes=table, batch=2, seed=seed, start=start))
    """
    _check_content(list(make(0, 0)))
    whole = _items(make(0, 0))
    require(whole == _items(make(0, 0)), "Two streams with the same seed differ.")
    require(whole != _items(make(1, 0)), "Another seed gave the same order.")
    for k in (1, len(whole) // 2, len(whole) - 1):
        require(
            _items(make(0, k)) == whole[k:], f"A stream resumed at item {k} differs from the rest of the whole one."
        )


def _check_content(items: Sequence[NewClasses | Batch]) -> None:
    require(isinstance(items[0], NewClasses), "A stream starts with the classes that are new.")
    stage, seen = 0, set[str]()
    for item in items:
        if isinstance(item, NewClasses):
            stage, seen = stage + 1, set()
            continue
        for sample in item:
            require(sample.id not in seen, f"Stage {stage} showed {sample.id} twice.")
            seen.add(sample.id)
            values = set(sample.mask.flatten().tolist())
            hidden = values - sample.complete - {UNLABELED, VOID}
            require(not hidden, f"{sample.id} shows slots {sorted(hidden)}, which its stage does not teach.")
            require(bool(values & sample.complete), f"{sample.id} has no pixel of its stage's classes.")
