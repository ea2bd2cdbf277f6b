"""Pure functions: the mathematics, without `self` and without global state."""

from __future__ import annotations

from segstream.functional.label_space import impossible, targets
from segstream.functional.objective import Objective, cross_entropy, em_objective
from segstream.functional.sampling import class_probabilities, update_confidence
from segstream.functional.scores import Scores, confusion_matrix

__all__ = [
    "Objective",
    "Scores",
    "class_probabilities",
    "confusion_matrix",
    "cross_entropy",
    "em_objective",
    "impossible",
    "targets",
    "update_confidence",
]
