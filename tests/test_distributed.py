"""Two processes equal one on the same joint batches, the head growing in the middle."""

from __future__ import annotations

from pathlib import Path

import torch
from lightning_fabric import Fabric

from segstream.checks.squares import nothing_said, snapshot, squares
from segstream.classes import UNLABELED
from segstream.memory import Memory
from segstream.method import Method
from segstream.methods.agem import AGEM
from segstream.methods.coriseg import CoRiSeg
from segstream.methods.em import EM
from segstream.methods.er import ER
from segstream.methods.icarl import ICaRL
from segstream.methods.lwf import LwF
from segstream.methods.mib import MiB
from segstream.methods.mir import MIR
from segstream.models import Segmenter
from segstream.offline import Schedule, fit
from segstream.types import Batch


def learn(fabric: Fabric) -> dict[str, torch.Tensor]:
    """em in both normalisations and others, over a network without batch statistics; then a short offline training."""
    out: dict[str, torch.Tensor] = {}
    for name, cls, settings in (
        ("em", EM, {}),
        ("per_term", EM, {"normalise": "per_term", "threshold": 0.55}),
        ("er", ER, {}),
        ("agem", AGEM, {"lr": 0.01}),  # at 0.05 it learns so wildly that rounding errors grow
        ("mir", MIR, {"candidates": 4}),
        ("lwf", LwF, {"view": "background"}),
        ("hard", LwF, {"form": "hard"}),
        ("softmax", LwF, {"form": "softmax"}),
        ("icarl", ICaRL, {}),
        ("mib", MiB, {}),
        ("coriseg", CoRiSeg, {"view": "background"}),
    ):
        head = "linear" if cls is MiB else "cosine"
        segmenter = Segmenter.create("tiny", weights=None, classes=["red"], head=head, seed=3)
        policy = "class_balanced" if cls is EM else cls.default_policy or ""
        method: Method = cls(
            segmenter, memory=Memory(capacity=5, policy=policy), fabric=fabric, **{"lr": 0.05, **settings}
        )
        method.remember(squares(1, range(3), complete=[1]))
        method.learn(squares(1, [7, 8]))
        method.add_classes(["blue"])
        for k in range(3):
            method.learn(squares(2, [k, k + 9, k + 20], known=3, rest=UNLABELED, complete=[2]))
        method.learn(Batch((nothing_said(0, void=True),)))  # one image and two processes: one has nothing of its own
        method.learn(squares(2, [50], known=3, complete=[2]))
        out |= {f"{name}.{k}": v for k, v in snapshot(method).items() if not k.startswith("memory")}
        out[f"{name}.confidence"] = torch.tensor([getattr(method, "confidence", {}).get(c, 0.0) for c in (1, 2)])
        out[f"{name}.ids"] = torch.tensor([hash_of(i) for i in method.memory_.ids()])
    for name, value in normalised(fabric).items():
        out[f"normalised.{name}"] = value
    segmenter = Segmenter.create("tiny", weights=None, classes=["red"], seed=3)
    fit(segmenter, squares(1, range(5)).samples, schedule=Schedule(epochs=2, batch=3), fabric=fabric)
    return out | {f"fit.{k}": v for k, v in segmenter.to_state()[1].items()}


def normalised(fabric: Fabric) -> dict[str, torch.Tensor]:
    """A network with batch statistics, whose head outgrows its block: other numbers than one process's, but alike."""
    out: dict[str, torch.Tensor] = {}
    for cls in (EM, AGEM, MIR):
        segmenter = Segmenter.create("tiny_bn", weights=None, classes=["red"], seed=3)
        method: Method = cls(segmenter, memory=Memory(capacity=5), fabric=fabric, lr=0.05)
        method.remember(squares(1, range(3), complete=[1]))
        method.add_classes(["blue", *(f"class {i}" for i in range(80))])
        for k in range(2):
            method.learn(squares(2, [k, k + 9, k + 20], known=83, rest=UNLABELED, complete=[2]))
        out |= {f"{cls.name}.{k}": v for k, v in snapshot(method).items()}
    return out


def hash_of(name: str) -> int:
    return sum(ord(c) * 31**i for i, c in enumerate(name)) % 2**40


def work(fabric: Fabric, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.save(learn(fabric), folder / f"{fabric.global_rank}.pt")


def test_two_processes_equal_one(tmp_path: Path) -> None:
    alone = learn(Fabric(accelerator="cpu", devices=1))
    two = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn")
    two.launch(work, tmp_path)
    both = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for name, value in alone.items():
        for other in both if not name.startswith("normalised") else ():
            if value.is_floating_point():
                assert torch.allclose(other[name], value, atol=1e-5, rtol=0), name
            else:
                assert torch.equal(other[name], value), name
        assert torch.equal(both[0][name], both[1][name]), f"{name} differs between the processes"
