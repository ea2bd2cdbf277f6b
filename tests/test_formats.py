"""Folders that earlier versions saved are read by this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from segstream import load
from segstream.checks.squares import square, squares
from segstream.methods.em import EM
from segstream.storage import FORMAT

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_a_folder_of_each_format_is_read_and_goes_on(number: int, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / f"format-{number}", tmp_path / "old")
    method = load(tmp_path / "old")
    assert isinstance(method, EM)
    assert method.segmenter.classes.names == ("red", "blue", "green")
    assert method.segmenter.classes.retired == {3}
    assert method.updates == 3
    assert set(method.confidence) == {1, 2}
    assert len(method.memory_) == 3
    assert method.augment is not None
    assert method.augment.crop == 16
    assert method.predict([square(1, 0).image]).masks[0].shape == (24, 24)
    assert method.learn(squares(2, [9], known=4)).updated
    method.save(tmp_path / "new")
    assert load(tmp_path / "new").updates == 4
