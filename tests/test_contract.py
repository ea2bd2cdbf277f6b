"""Every plug-in against the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from segstream import plugins
from segstream.checks import METHOD_CHECKS, check_dataset, check_network, check_policy, check_stream
from segstream.classes import ClassTable
from segstream.data import Scenario, Stream
from segstream.data.datasets.scenes import open_scenes
from segstream.method import Method


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", plugins.available("methods"))
def test_method(name: str, check: Callable[[type[Method]], None]) -> None:
    check(plugins.load("methods", name))


@pytest.mark.parametrize("name", plugins.available("policies"))
def test_policy(name: str) -> None:
    check_policy(name)


@pytest.mark.parametrize("architecture", ["tiny", "tiny_bn", "unet", "deeplabv3plus"])
def test_network(architecture: str) -> None:
    check_network(architecture)


def test_scenes() -> None:
    check_dataset(lambda: open_scenes(train_size=6, val_size=2, test_size=2, image_size=(48, 64)))


@pytest.mark.parametrize("rule", ["overlapped", "disjoint"])
def test_stream(rule: str) -> None:
    train = open_scenes(train_size=60, val_size=1, test_size=1, image_size=(32, 32)).train
    names = train.names[1:]
    scenario = Scenario(names[:6], (names[6:9], names[9:]), rule=rule)

    def make(seed: int, start: int) -> Stream:
        return Stream(train, scenario, classes=ClassTable(names[:6]), batch=4, seed=seed, start=start)

    check_stream(make)
