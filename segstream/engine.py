"""The only loop: items go in, what the method did comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from segstream.method import Method
from segstream.types import Batch, NewClasses, UpdateReport

__all__ = ["StageEnd", "run"]


@dataclass(frozen=True)
class StageEnd:
    """No batch of this stage is left. `items` have been taken so far, the next stage's NewClasses not among them.

    >>> StageEnd(stage=1, items=12).items
    12
    """

    stage: int
    items: int


def run(
    items: Iterable[NewClasses | Batch], method: Method, *, stage: int = 0, taken: int = 0
) -> Iterator[UpdateReport | StageEnd]:
    """Feed a method with a stream, a folder, or a person's strokes.

    Yields a report for each batch, and a stage's end before the classes of the next one are added: whoever
    consumes it evaluates, saves or stops there. A run that goes on says how far it was: `stage` is the one that
    was going on (0: none yet), `taken` the items that it had taken.

    >>> from segstream import Segmenter
    >>> from segstream.methods.finetune import Finetune
    >>> method = Finetune(Segmenter.create("tiny", weights=None), seed=0)
    >>> [type(x).__name__ for x in run([NewClasses(("cat",)), NewClasses(("dog",))], method)]
    ['StageEnd', 'StageEnd']
    """
    for item in items:
        if isinstance(item, NewClasses):
            if stage:
                yield StageEnd(stage, taken)
            method.add_classes(item.names)
            stage += 1
        else:
            yield method.learn(item)
        taken += 1
    if stage:
        yield StageEnd(stage, taken)
