"""The model: encoder, decoder and a head that grows with its classes.

B images, C = 3 colours, H W image size, h w size of the features, D feature channels, K slots (background is 0).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from segstream import storage
from segstream.classes import VOID, ClassTable
from segstream.models import batchnorm
from segstream.models.body import Body
from segstream.models.features import FeatureCache, Fingerprint, Maps
from segstream.models.head import Head
from segstream.models.prediction import evaluating, mirrored, segment
from segstream.models.spec import TRAINABLE, Spec, check_choice
from segstream.models.weights import WeightsReport, check_finite, check_same, is_weights_file, load_weights
from segstream.types import Prediction

__all__ = ["Segmenter"]

BATCHNORM = ("train", "frozen")
WEIGHTS = "weights.safetensors"


class Segmenter(nn.Module):
    """Images in, low-resolution logits out; owns normalisation, padding, growth and BatchNorm modes.

    Make one with `create` or `load`.

    >>> segmenter = Segmenter.create("tiny", classes=["road", "sky"], decoder_channels=16)
    >>> list(segmenter(torch.zeros(1, 3, 8, 12, dtype=torch.uint8)).shape)
    [1, 3, 2, 3]
    >>> _ = segmenter.add_classes(["sofa"], generator=torch.Generator().manual_seed(0))
    >>> found = segmenter.predict([torch.zeros(3, 5, 7, dtype=torch.uint8)])
    >>> segmenter.classes.names, list(found.masks[0].shape)
    (('road', 'sky', 'sofa'), [5, 7])
    """

    body: Body
    head: Head
    mean: Tensor
    std: Tensor

    def __init__(self, body: Body, head: Head, classes: ClassTable, *, spec: Spec) -> None:
        super().__init__()
        # On a CPU too, channels last takes 0.7 of the time of a training step (EfficientNet-Lite0, DeepLab-v3+).
        self.body = body.to(memory_format=torch.channels_last)
        self.head = head
        self.register_buffer("mean", torch.tensor(body.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(body.std).view(1, 3, 1, 1), persistent=False)
        self.cache: FeatureCache | None = None
        self.weights_report: WeightsReport | None = None
        self._spec = spec
        self._classes = classes
        self._immutable = False
        self._batchnorm = "train"
        self._fingerprint = Fingerprint()
        batchnorm.prepare(self)
        self.trainable = spec.trainable

    # ---- making one

    @classmethod
    def create(
        cls,
        network: str = "deeplabv3plus",
        *,
        encoder: str = "tf_efficientnet_lite0",
        weights: str | None = "imagenet",
        classes: Sequence[str] = (),
        head: str = "cosine",
        scale: float = 12.0,
        output_stride: int = 16,
        decoder_channels: int = 256,
        trainable: str = "all",
        seed: int = 0,
    ) -> Segmenter:
        """A new segmenter; the same seed gives the same bits, and no global generator moves.

        network           an architecture of a plug-in in `models/networks`
        weights           'imagenet', another name that the encoder has, a .safetensors file, or None
        classes           foreground classes, slots 1, 2, ...
        output_stride     of the encoder, where the network lets one choose
        decoder_channels  D
        trainable         what learns: 'all', the 'decoder' with the head, or the 'head'
        """
        table = ClassTable().extend(classes)
        spec = Spec(network, encoder, weights, head, float(scale), output_stride, decoder_channels, trainable, seed)
        file = weights if weights is not None and is_weights_file(weights) else None
        body = spec.body(pretrained=None if file else weights)
        rows = Head(body.out_channels, kind=head, scale=scale)
        rows.grow(len(table), generator=torch.Generator().manual_seed(seed))
        segmenter = cls(body, rows, table, spec=spec).eval()
        if file:
            segmenter.weights_report = load_weights(segmenter.body, file)
        return segmenter

    # ---- what it is

    @property
    def classes(self) -> ClassTable:
        return self._classes

    @property
    def spec(self) -> dict[str, Any]:
        """The arguments of `create`, but for the classes."""
        return self._spec.to_json()

    @property
    def stride_multiple(self) -> int:
        """Sides of images must be multiples of it."""
        return self.body.multiple

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def trainable(self) -> str:
        """What learns: 'all', the 'decoder' with the head, or the 'head'. The rest is fixed, its BatchNorm too."""
        return self._spec.trainable

    @trainable.setter
    def trainable(self, value: str) -> None:
        check_choice("trainable", value, TRAINABLE)
        self._change()
        self._spec = replace(self._spec, trainable=value)
        self.requires_grad_(True)
        for part in self._fixed():
            part.requires_grad_(False)
        self.train(self.training)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """What an optimiser needs."""
        return [p for p in self.parameters() if p.requires_grad]

    def _fixed(self) -> tuple[nn.Module, ...]:
        return {"all": (), "decoder": (self.body.encoder,), "head": (self.body,)}[self.trainable]

    # ---- computing

    def forward(self, images: Tensor) -> Tensor:
        """Images [B, 3, H, W], uint8 or float 0..255 -> logits [B, K, h, w] in float32."""
        return self.scores(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Images [B, 3, H, W] -> features [B, D, h, w]. What is fixed runs without gradient."""
        x = self._normalised(images)
        if self.trainable == "all":
            features: Tensor = self.body(x)
            return features
        with torch.no_grad():
            maps = self.body.encode(x) if self.cache is None else self._encode_by(self.cache, images, x)
            if self.trainable == "head":
                return self.body.decode(maps)
        return self.body.decode(maps)

    def scores(self, features: Tensor) -> Tensor:
        """Features [B, D, h, w] -> logits [B, K, h, w], those of retired classes among them."""
        logits: Tensor = self.head(features)
        return logits

    def _normalised(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if images.ndim != 4 or images.shape[1] != 3 or height % self.stride_multiple or width % self.stride_multiple:
            raise ValueError(
                f"Images of shape {list(images.shape)} do not fit: expected [B, 3, H, W] with H and W multiples of "
                f"{self.stride_multiple} (`pad` makes them so)."
            )
        x = (images.to(self.mean.dtype) - self.mean) / self.std
        return x.contiguous(memory_format=torch.channels_last)

    def _encode_by(self, cache: FeatureCache, images: Tensor, x: Tensor) -> Maps:
        kind = x.device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        parts = (self._fingerprint(self.body.encoder), self.body.mean, self.body.std, x.device, cast)
        return cache.fetch_all(images, lambda i: self.body.encode(x[i : i + 1]), encoder=" ".join(map(str, parts)))

    def pad(self, images: Tensor, masks: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Images [B, 3, H, W] mirrored, and masks [B, H, W] made VOID, at the right and the bottom, until they fit.

        >>> segmenter = Segmenter.create("tiny", decoder_channels=16)
        >>> images, masks = segmenter.pad(torch.zeros(1, 3, 1, 6), torch.zeros(1, 1, 6, dtype=torch.int16))
        >>> list(images.shape), masks[0, 0].tolist()
        ([1, 3, 4, 8], [0, 0, 0, 0, 0, 0, -2, -2])
        """
        images = mirrored(images, self.stride_multiple)
        if masks is not None:
            room = (0, images.shape[-1] - masks.shape[-1], 0, images.shape[-2] - masks.shape[-2])
            masks = nn.functional.pad(masks, room, value=VOID)
        return images, masks

    @torch.no_grad()
    def predict(self, images: Sequence[Tensor], *, scorer: Callable[[Tensor], Tensor] | None = None) -> Prediction:
        """The class of each pixel, and its probability, for uint8 images [3, H, W] of any sizes. Changes nothing.

        `scorer` takes the place of `scores`; a class to which it gives -inf everywhere takes no part.
        """
        score = self.scores if scorer is None else scorer
        with evaluating(self):
            return segment(
                images,
                network=lambda batch: score(self.features(batch)),
                slots=(0, *self.classes.active),
                multiple=self.stride_multiple,
                device=self.device,
            )

    # ---- classes

    def add_classes(self, names: Sequence[str], *, generator: torch.Generator) -> bool:
        """Append classes. True if the head's Parameters are new objects, which an optimiser must be told."""
        self._change()
        self._classes = self._classes.extend(names)
        return self.head.grow(len(names), generator=generator)

    def retire_classes(self, names: Sequence[str]) -> None:
        """Never predict these again; their slots and rows stay."""
        self._change()
        self._classes = self._classes.retire(names)

    def rename_class(self, old: str, new: str) -> None:
        self._change()
        self._classes = self._classes.rename(old, new)

    def set_color(self, name: str, color: tuple[int, int, int]) -> None:
        self._change()
        if len(color) != 3 or not all(0 <= v <= 255 for v in color):
            raise ValueError(f"The colour {color!r} is not three numbers from 0 to 255.")
        colors = {**self._classes.own_colors, self._classes.slot(name): color}
        self._classes = replace(self._classes, own_colors=colors)

    # ---- modes

    def training_mode(self, batchnorm: str = "train") -> None:
        """Ready for an update. BatchNorm 'train': statistics of the batch, the running ones move once for each
        forward pass. 'frozen': running statistics, which stay, whatever `train()` says later."""
        check_choice("batchnorm", batchnorm, BATCHNORM)
        self._change()
        self._batchnorm = batchnorm
        self.train()

    def train(self, mode: bool = True) -> Segmenter:
        """As for any module, but fixed parts stay in evaluation mode, and a frozen copy does as a whole."""
        super().train(mode and not self._immutable)
        batchnorm.freeze(self, self._batchnorm == "frozen" or self._immutable)
        for part in self._fixed():
            part.eval()
            batchnorm.freeze(part)
        return self

    @contextmanager
    def still_statistics(self) -> Iterator[None]:
        """Inside, BatchNorm in training mode uses the batch's statistics but does not move the running ones."""
        with batchnorm.still_statistics(self):
            yield

    def frozen(self) -> Segmenter:
        """An immutable copy in evaluation mode: a teacher, a reader, an export.

        >>> teacher = Segmenter.create("tiny", decoder_channels=16).frozen()
        >>> teacher.train().training, any(p.requires_grad for p in teacher.parameters())
        (False, False)
        """
        twin = copy.deepcopy(self)
        twin.requires_grad_(False)
        twin._immutable = True
        twin.train(False)
        return twin

    def _change(self) -> None:
        if getattr(self, "_immutable", False):
            raise RuntimeError("This segmenter is a frozen copy; change the one it was made from.")

    # ---- state

    def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything it is: a document for JSON, and tensors that share no memory with it."""
        document = {
            **self._spec.to_json(),
            "mean": list(self.body.mean),
            "std": list(self.body.std),
            "classes": self._classes.to_json(),
        }
        plain = torch.contiguous_format
        return document, {n: t.detach().cpu().clone(memory_format=plain) for n, t in self.state_dict().items()}

    @classmethod
    def from_state(cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Segmenter:
        """The same segmenter again. Nothing is downloaded; a tensor too many or too few is an error."""
        if missing := sorted({"classes", "mean", "std"} - document.keys()):
            raise storage.StateError(f"The saved segmenter's document lacks {', '.join(missing)}.")
        spec, classes = Spec.from_json(document), ClassTable.from_json(document["classes"])
        body = spec.body(pretrained=None)
        body.mean, body.std = document["mean"], document["std"]  # of the pretrained weights, which are not asked for
        head = Head(body.out_channels, kind=spec.head, scale=spec.scale, count=len(classes))
        segmenter = cls(body, head, classes, spec=spec).eval()
        check_same(tensors, segmenter.state_dict(), f"{spec.network} with {spec.encoder}")
        check_finite(tensors, "the saved segmenter")
        segmenter.load_state_dict(dict(tensors))
        return segmenter

    def save(self, folder: str | Path) -> None:
        """Write the whole state; an earlier one in the folder is replaced, whole or not at all."""
        document, tensors = self.to_state()
        storage.save_folder(
            Path(folder),
            kind="segmenter",
            document={"segmenter": document},
            files={WEIGHTS: safetensors.torch.save(tensors)},
        )

    @classmethod
    def load(cls, folder: str | Path) -> Segmenter:
        """A saved segmenter, or the one in a saved method's folder.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> Segmenter.create("tiny", classes=["road"], decoder_channels=16).save(folder)
        >>> Segmenter.load(folder).classes.names
        ('road',)
        """
        saved = storage.load_folder(Path(folder))
        if "segmenter" not in saved.document:
            raise storage.StateError(f"{folder} holds a saved {saved.kind}, not a segmenter or a method.")
        return cls.from_state(saved.document["segmenter"], safetensors.torch.load(saved.read(WEIGHTS)))
