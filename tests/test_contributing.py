"""What README and CONTRIBUTING show works as it stands: plug-ins keep the contract, examples and commands run."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import typer

from segstream import plugins
from segstream.checks import check_dataset, check_method, check_network, check_policy
from segstream.cli.app import build

ROOT = Path(__file__).parents[1]
FILES = re.findall(
    r'^```python title="segstream/(\S+)/(\w+)\.py"\n(.*?)^```',
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    flags=re.DOTALL | re.MULTILINE,
)
KIND = {package.removeprefix("segstream.").replace(".", "/"): kind for kind, package in plugins.KINDS.items()}
LEARNED = ("tree", "house", "car", "boat", "kite", "lamp", "fish", "book")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Each file of the page as if it lay in its folder; by kind the module."""
    found: dict[str, ModuleType] = {}
    for folder, name, text in FILES:
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / f"{name}.py").write_text(text, encoding="utf-8")
        package = importlib.import_module(plugins.KINDS[KIND[folder]])
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(place)])
        importlib.invalidate_caches()
        found[KIND[folder]] = importlib.import_module(f"{package.__name__}.{name}")
    yield found
    for kind, module in found.items():
        del sys.modules[module.__name__]
        delattr(importlib.import_module(plugins.KINDS[kind]), module.__name__.rpartition(".")[2])


def test_the_worked_examples_keep_the_contract(put: dict[str, ModuleType]) -> None:
    assert put.keys() == plugins.KINDS.keys()
    names = {kind: module.__name__.rpartition(".")[2] for kind, module in put.items()}
    for kind, name in names.items():
        assert name in plugins.available(kind)
    check_method(plugins.load("methods", names["methods"]))
    open_splits = plugins.load("datasets", names["datasets"])
    check_dataset(lambda: open_splits(train_size=4, val_size=2, test_size=2, image_size=(32, 40)))
    (architecture,) = plugins.load("networks", names["networks"])().architectures()
    check_network(architecture)
    check_policy(names["policies"])
    for module in put.values():
        failed, tried = doctest.testmod(module)
        assert tried, f"{module.__name__} has no example"
        assert not failed, module.__name__


def test_the_worked_examples_keep_the_house_rules(tmp_path: Path) -> None:
    for _, name, text in FILES:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    options = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["check"], ["format", "--check"]):
        run = [sys.executable, "-m", "ruff", *command, *options]
        done = subprocess.run(run, check=False, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    # The same on fewer and smaller pictures.
    for large, small in (("train_size=200, image_size=(128, 128)", "train_size=24, test_size=2, image_size=(32, 32)"),
                         ("epochs=8, batch=16", "epochs=1, batch=12")):  # fmt: skip
        assert code.count(large) == 1, f"The README does not say {large!r} any more."
        code = code.replace(large, small)
    monkeypatch.chdir(tmp_path)
    spoken: dict[str, Any] = {"__name__": "readme", "print": lambda report: None}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        exec(compile(code, "README.md", "exec"), spoken)
    finally:
        torch.set_num_threads(threads)
    assert spoken["method"].segmenter.classes.names == LEARNED
    assert spoken["report"].updated or spoken["mask"].eq(spoken["pictures"].test.names.index("book")).sum() == 0
    assert (len(spoken["train"]), len(spoken["test"])) == (9, 3)
    assert spoken["found"].masks[0].shape == spoken["image"].shape[1:]


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.name, line[2:]) for line in lines if line.startswith("$ ")]
    return found


def test_the_commands_shown_exist() -> None:
    root: Any = typer.main.get_command(build())
    shown = [(page, shlex.split(line, comments=True)) for page, line in commands()]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    ours = 0
    for page, (program, *words) in shown:
        if program == "make":
            assert all(word in targets or "=" in word for word in words), f"{page}: make {' '.join(words)}"
        if program != "segstream" or not words or words[0].startswith("-"):
            continue
        ours += 1
        assert words[0] in root.commands, f"{page}: segstream {words[0]}"
        command = root.commands[words[0]]
        with root.make_context("segstream", words, resilient_parsing=True) as above:
            # Parsed, not run: an unknown option, a value of the wrong kind or a missing argument raises.
            command.make_context(words[0], words[1:], parent=above).close()
    assert ours > 10


def test_no_page_names_a_file_that_is_not_there() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:segstream|tests|benchmarks|docs|results)/[a-z\d_./-]+)`", text):
            shown = [f"segstream/{folder}/{stem}.py" for folder, stem, _ in FILES]
            assert (ROOT / name).exists() or name in shown, f"{page.name} names {name}"
