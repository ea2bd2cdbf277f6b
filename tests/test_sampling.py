"""Class probabilities and confidences against slow loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segstream.functional.sampling import class_probabilities, update_confidence

confidences = st.dictionaries(st.integers(1, 40), st.floats(0, 1), min_size=1, max_size=12)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(confidences, st.floats(0, 30))
def test_probabilities_are_the_gibbs_distribution(confidence: dict[int, float], sharpness: float) -> None:
    got = class_probabilities(confidence, sharpness=sharpness)
    total = np.float64(0)
    for value in confidence.values():
        total += np.exp(np.float64(-sharpness * value))
    assert list(got) == list(confidence)
    for c, value in confidence.items():
        assert got[c] == pytest.approx(float(np.exp(np.float64(-sharpness * value)) / total), rel=1e-9)
    assert math.fsum(got.values()) == pytest.approx(1, abs=1e-12)


def test_probabilities_by_hand() -> None:
    got = class_probabilities({2: 0.5, 7: 0.5 + math.log(3) / 10}, sharpness=10)
    assert got == pytest.approx({2: 0.75, 7: 0.25})


def test_probabilities_are_stable_and_empty_is_empty() -> None:
    assert class_probabilities({}, sharpness=1) == {}
    assert class_probabilities({1: 0.9, 2: 1.0}, sharpness=1e6) == {1: 1.0, 2: 0.0}


@settings(deadline=None, max_examples=50, derandomize=True)
@given(confidences, st.integers(0, 2**31), st.floats(0, 1))
def test_confidence_is_the_moving_average_of_pixel_means(old: dict[int, float], seed: int, momentum: float) -> None:
    rng = np.random.default_rng(seed)
    slots = 45
    given_labels, p = rng.integers(0, slots, 60), rng.random(60)
    sums, counts = torch.zeros(slots, dtype=torch.float64), torch.zeros(slots, dtype=torch.int64)
    for label, value in zip(given_labels, p, strict=True):
        sums[label] += value
        counts[label] += 1
    before = dict(old)
    got = update_confidence(old, sums, counts, momentum=momentum)
    assert old == before
    assert set(got) == set(old)
    for c, was in old.items():
        seen = [value for label, value in zip(given_labels, p, strict=True) if label == c]
        if seen:
            assert got[c] == pytest.approx(momentum * was + (1 - momentum) * float(np.mean(seen)), rel=1e-12)
        else:
            assert got[c] == was  # bit for bit
    as_lists = update_confidence(old, sums.tolist(), counts.tolist(), momentum=momentum)
    as_maps = update_confidence(
        old, dict(enumerate(sums.tolist())), dict(enumerate(counts.tolist())), momentum=momentum
    )
    assert got == as_lists == as_maps


def test_a_class_beyond_the_vectors_keeps_its_confidence() -> None:
    assert update_confidence({5: 0.3}, sums=[1.0, 2.0], counts=[1, 2], momentum=0.9) == {5: 0.3}


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="`sharpness` is -1"):
        class_probabilities({1: 0.5}, sharpness=-1)
    with pytest.raises(ValueError, match="Slot 0"):
        class_probabilities({0: 0.5}, sharpness=1)
    with pytest.raises(ValueError, match="slot 3 is nan"):
        class_probabilities({3: math.nan}, sharpness=1)
    with pytest.raises(ValueError, match=r"`momentum` is 1\.5"):
        update_confidence({1: 0.5}, [0, 1], [0, 1], momentum=1.5)
