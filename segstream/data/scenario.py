"""Which classes come when, and which pictures belong to each stage."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from segstream.data.source import DataError, Source, origin
from segstream.data.stages import generate_stages, read_stages

__all__ = ["RULES", "Scenario"]

log = logging.getLogger(__name__)
RULES = ("overlapped", "disjoint", "files", "generated")


@dataclass(frozen=True)
class Scenario:
    """Ordered groups of classes and the rule by which pictures go to stages.

    base        classes of stage 0; may be empty
    stages      the classes that come with each later stage
    rule        "overlapped": stage t takes every picture with a pixel of one of its classes;
                "disjoint": of these, only pictures without a class of a later stage;
                "files": the pictures that the lists in the folder `files` name (`stages.read_stages`);
                "generated": each picture in one stage, drawn with `seed` (`stages.generate_stages`)
    max_images  at most so many pictures for each stage after the base, chosen by a fixed shuffle; 0 means all

    A class of the data that no stage teaches counts as background and decides nothing.

    >>> Scenario(base=("road", "sky"), stages=(("car",), ("sign", "pole"))).seen(1)
    ('road', 'sky', 'car')
    """

    base: tuple[str, ...]
    stages: tuple[tuple[str, ...], ...] = ()
    rule: str = "overlapped"
    max_images: int = 0
    files: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        groups: tuple[object, ...] = (self.base, self.stages, *self.stages)
        if any(isinstance(group, str) for group in groups):
            raise DataError("A scenario takes a list of base classes and a list of lists, one for each stage.")
        object.__setattr__(self, "base", tuple(self.base))
        object.__setattr__(self, "stages", tuple(tuple(stage) for stage in self.stages))
        if self.rule not in RULES:
            raise DataError(f"There is no rule {self.rule!r}; the rules are {', '.join(RULES)}.")
        if self.max_images < 0:
            raise DataError(f"`max_images` is {self.max_images}; it counts pictures, and 0 means all.")
        if self.seed < 0:
            raise DataError(f"The seed of a scenario is {self.seed}; it must be 0 or more.")
        if bool(self.files) != (self.rule == "files"):
            needs = "needs a folder with one list a stage" if self.rule == "files" else "takes no lists"
            raise DataError(f"The rule {self.rule!r} {needs}: `files` (--files DIR, or --set scenario.files=DIR).")
        for number, stage in enumerate(self.stages, start=1):
            if not stage:
                raise DataError(f"Stage {number} has no classes.")
        if "background" in self.names:
            raise DataError("The background is always there; it is not a class of a scenario.")
        for name in self.names:
            if self.names.count(name) > 1:
                raise DataError(f"The scenario names {name!r} twice; every class comes once.")

    @classmethod
    def split(
        cls,
        names: Sequence[str],
        notation: str,
        rule: str = "overlapped",
        max_images: int = 0,
        *,
        files: str = "",
        seed: int = 0,
    ) -> Scenario:
        """The usual notation: "15-1" is 15 base classes, then one at a time.

        names   the foreground classes in their order ("background" in front is passed over)

        >>> Scenario.split(["background", "a", "b", "c", "d", "e"], "2-2").stages
        (('c', 'd'), ('e',))
        """
        classes = [name for name in names if name != "background"]
        match = re.fullmatch(r"(\d+)-(\d+)", notation)
        if not match or int(match[2]) < 1 or int(match[1]) >= len(classes):
            raise DataError(
                f"The split {notation!r} does not suit {len(classes)} classes; write the number of base classes and of "
                "classes for each stage, such as 15-1."
            )
        first, step = int(match[1]), int(match[2])
        stages = tuple(tuple(classes[i : i + step]) for i in range(first, len(classes), step))
        return cls(tuple(classes[:first]), stages, rule, max_images, files, seed)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The classes of each stage, stage 0 being the base."""
        return (self.base, *self.stages)

    @property
    def names(self) -> tuple[str, ...]:
        """All classes, in the order in which they come."""
        return tuple(name for group in self.groups for name in group)

    def seen(self, stage: int) -> tuple[str, ...]:
        """The classes that came up to and with a stage."""
        if not 0 <= stage <= len(self.stages):
            raise DataError(f"There is no stage {stage}; they run from 0 (the base) to {len(self.stages)}.")
        return tuple(name for group in self.groups[: stage + 1] for name in group)

    def values(self, source: Source) -> dict[str, int]:
        """The mask value of each class in a source's numbering."""
        value = {name: v for v, name in enumerate(source.names) if v >= 1}
        for name in self.names:
            if name not in value:
                near = difflib.get_close_matches(name, value, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(value) or 'none'}."
                raise DataError(f"The data have no class {name!r}. {hint}")
        return {name: value[name] for name in self.names}

    def select(self, source: Source) -> list[list[int]]:
        """The pictures of each stage, ascending, stage 0 first. Depends on the data alone, not on a run's seed.

        >>> from segstream.data.wrap import wrap
        >>> pixels = np.zeros((1, 2, 3), np.uint8)
        >>> masks = [np.array([values]) for values in ([1, 1], [1, 2], [0, 2])]
        >>> source = wrap([(pixels, mask) for mask in masks], ["background", "road", "car"])
        >>> Scenario(("road",), (("car",),)).select(source)
        [[0, 1], [1, 2]]
        >>> Scenario(("road",), (("car",),), rule="disjoint").select(source)
        [[0], [1, 2]]
        """
        value = self.values(source)
        groups = [frozenset(value[name] for name in group) for group in self.groups]
        if self.rule in ("files", "generated"):
            chosen = self._listed(source, groups)
        else:
            chosen = self._by_rule([source.present(i) for i in range(len(source))], groups)
        return [self._limited(found, stage) for stage, found in enumerate(chosen)]

    def _by_rule(self, present: Sequence[frozenset[int]], groups: Sequence[frozenset[int]]) -> list[list[int]]:
        chosen = []
        for stage, group in enumerate(groups):
            later = frozenset[int]().union(*groups[stage + 1 :]) if self.rule == "disjoint" else frozenset[int]()
            chosen.append([i for i, classes in enumerate(present) if classes & group and not classes & later])
        return chosen

    def _listed(self, source: Source, groups: Sequence[frozenset[int]]) -> list[list[int]]:
        """Lists and draws are about the whole training list; of a part of it, each stage has what is in the part."""
        whole = origin(source)
        if self.rule == "files":
            stages = read_stages(self.files, whole.ids, len(groups))
        else:
            stages = generate_stages([whole.present(i) for i in range(len(whole))], groups, seed=self.seed)
        here = {name: i for i, name in enumerate(source.ids)}
        chosen = [sorted(here[whole.ids[i]] for i in stage if whole.ids[i] in here) for stage in stages]
        for stage, (found, group) in enumerate(zip(chosen, groups, strict=True)):
            without = [i for i in found if not source.present(i) & group]
            if self.rule == "files" and group and found and len(without) == len(found):
                raise DataError(
                    f"None of the {len(found)} pictures that {self.files} gives to stage {stage} shows a class of it "
                    f"({', '.join(self.groups[stage])}): are the lists of another scenario?"
                )
            if without:
                log.warning("%d of the %d pictures of stage %d show none of its classes.",
                            len(without), len(found), stage)  # fmt: skip
        return chosen

    def _limited(self, found: list[int], stage: int) -> list[int]:
        if stage == 0 or not 0 < self.max_images < len(found):
            return found
        order = np.random.default_rng([0, stage]).permutation(len(found))
        return sorted(found[k] for k in order[: self.max_images])
