"""An experiment's run: killed at any moment and resumed, it is the run that was never stopped."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from segstream import online, runs, storage
from segstream.config import load_recipe
from segstream.experiment import Experiment
from segstream.runs import Run, claim
from segstream.storage import StateError

SMALL = [
    *("data.train_size=24", "data.val_size=6", "data.test_size=8", "data.image_size=[32, 32]", "augment.crop=32"),
    *("network.name=tiny", "network.weights=", "network.decoder_channels=8", "base.epochs=1", "base.batch=8"),
    *("scenario.max_images=8", "memory.capacity=6", "run.device=cpu", "run.threads=1"),
]


def experiment(cache: Path, *settings: str) -> Experiment:
    return Experiment(load_recipe("demo", [*SMALL, *settings]), cache=cache)


def work(cache: Path, out: Path, kill_at: int) -> None:
    """One process of a run: it kills itself right before the durable step of that number, and counts them if 0."""
    os.environ["SEGSTREAM_OBJECTIVE"] = "plain"  # compiled code would take seconds to load
    steps = 0

    def counted(call: Any) -> Any:
        def instead(*args: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return instead

    os.replace, os.fsync = counted(os.replace), counted(os.fsync)
    runs.append_json_line = counted(runs.append_json_line)  # type: ignore[attr-defined]
    online.CHECKPOINT_SECONDS = 0.02
    experiment(cache).run("em", out, resume=True, tuning_split="val", pictures=2)
    if not kill_at:
        out.with_suffix(".steps").write_text(str(steps))


def result(out: Path) -> dict[str, Any]:
    """All that a run leaves, but for what it took in seconds."""
    found: dict[str, Any] = {
        "summary": Run(out).summary,
        "events": [{k: v for k, v in event.items() if k != "seconds"} for event in Run(out).events()],
    }
    state = storage.load_folder(out / "state")
    found["state"] = {name: state.read(name) for name in state.names} | {"document": state.document}
    found["pictures"] = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*.png"))}
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and fork servers are of POSIX")
def test_a_run_killed_three_times_equals_one_never_stopped(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["segstream.experiment"])

    def go(name: str, kill_at: int) -> int | None:
        process = context.Process(target=work, args=(tmp_path / "cache", tmp_path / name, kill_at))
        process.start()
        process.join()
        return process.exitcode

    assert go("through", 0) == 0
    steps = int((tmp_path / "through.steps").read_text())
    dice = random.Random()
    moments = [dice.randint(1, steps // 2) for _ in range(3)]
    killed = [go("stopped", moment) for moment in moments]
    assert go("stopped", 0) == 0
    assert -signal.SIGKILL in killed
    through, stopped = result(tmp_path / "through"), result(tmp_path / "stopped")
    assert len(through["pictures"]) > 8
    for part in through:
        assert through[part] == stopped[part], f"killed at the steps {moments}: the {part} differ"


def test_a_run_killed_while_its_folder_was_made_can_be_resumed(tmp_path: Path) -> None:
    claim(tmp_path / "run", kind="run")
    resumed = Run.resume(tmp_path / "run", config="[run]\nseed = 1", about={"method": "em", "seed": 1})
    assert resumed.about["method"] == "em"
    assert resumed.config == {"run": {"seed": 1}}
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".segstream.json.segstream.tmp").write_text("{")
    Run.create(tmp_path / "killed", config="", about={})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 7}, "seed = 0, not 7"),
        ({"settings": {"view": "background"}}, 'settings.view = nothing, not "background"'),
        ({"split": "val"}, 'split = "test", not "val"'),
    ],
)
def test_a_run_is_not_resumed_as_another(tmp_path: Path, other: dict[str, Any], told: str) -> None:
    small = experiment(tmp_path / "cache")
    small.run("finetune", tmp_path / "run", pictures=0)
    with pytest.raises(StateError, match=told):
        small.run("finetune", tmp_path / "run", pictures=0, resume=True, **({"settings": {}} | other))


def test_the_cosine_switch_of_em_chooses_the_base(tmp_path: Path) -> None:
    small = experiment(tmp_path / "cache", "scenario.stages=[['kite']]")
    for cosine, head in ((True, "cosine"), (False, "linear")):
        small.run("em", tmp_path / head, settings={"cosine": cosine}, pictures=0)
        assert storage.load_folder(tmp_path / head / "state").document["segmenter"]["head"] == head


def test_all_methods_start_from_the_same_base_and_memory_and_share_no_weights(tmp_path: Path) -> None:
    small = experiment(tmp_path / "cache", "memory.policy=reservoir")
    base = small.base()
    before = base.to_state()[1]
    em, er = (small.method(name, base, {}, seed=3) for name in ("em", "er"))
    assert em.memory_.ids() == er.memory_.ids()
    em.add_classes(["kite", "balloon"])
    em.lr = 0.5
    em.learn(list(small.stream(seed=3))[1])  # type: ignore[arg-type]
    for method_or_base in (base, er.segmenter):
        now = method_or_base.to_state()[1]
        assert all(torch.equal(now[k], before[k]) for k in before)


def test_a_corrected_mask_makes_another_base(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for i in range(6):
        picture = Image.new("RGB", (32, 32), (40 * i, 0, 90))
        picture.save(root / "images" / f"{i}.png")
        Image.new("L", (32, 32), 1 + i % 2).save(root / "masks" / f"{i}.png")
    (root / "classes.txt").write_text("background\nroad\ncar\n")
    (root / "train.txt").write_text("0\n1\n2\n3\n")
    (root / "val.txt").write_text("4\n5\n")
    data = ["data.dataset=folder", f"data.root={root}", "scenario.base=['road']", "scenario.stages=[['car']]"]

    def bases() -> int:
        Experiment(load_recipe("demo", [*SMALL, *data]), cache=root / "cache").base()
        return len(list((root / "cache").iterdir()))

    assert (bases(), bases()) == (1, 1)
    mask = Image.new("L", (32, 32), 1)
    mask.putpixel((0, 0), 0)
    mask.save(root / "masks" / "2.png")
    assert bases() == 2
