"""Every network of segmentation_models_pytorch, with any encoder that it or timm has."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import segmentation_models_pytorch as smp
import timm
from segmentation_models_pytorch.encoders.mix_transformer import MixVisionTransformerEncoder
from torch import Tensor, nn

from segstream.models.body import IMAGENET_MEAN, IMAGENET_STD, Body, Color, unknown
from segstream.models.features import Maps
from segstream.models.weights import load_lite0, no_download

__all__ = ["Smp"]

LITE0 = "tu-tf_efficientnet_lite0"
ATROUS_RATES = {16: (6, 12, 18), 8: (12, 24, 36)}  # DeepLab-v3's own for each output stride


@dataclass(frozen=True)
class Architecture:
    """How one class of smp is built.

    width    the argument that sets its decoder's channels; without one the decoder ends in few and is projected
    strides  output strides to choose from; none: the encoder's own
    reads    encoder maps that the decoder reads; none: all but the first, which is the image itself
    coarser  how far the decoder pools the deepest map: sides must stay divisible by that too
    """

    model: type[nn.Module]
    width: str | None = None
    strides: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    coarser: int = 1


ARCHITECTURES = {
    "deeplabv3": Architecture(smp.DeepLabV3, "decoder_channels", (16, 8), reads=(-1,)),
    "deeplabv3plus": Architecture(smp.DeepLabV3Plus, "decoder_channels", (16, 8), reads=(2, -1)),
    "dpt": Architecture(smp.DPT, "decoder_fusion_channels"),
    "fpn": Architecture(smp.FPN, "decoder_segmentation_channels"),
    "linknet": Architecture(smp.Linknet),
    "manet": Architecture(smp.MAnet),
    "pan": Architecture(smp.PAN, "decoder_channels", (16, 32), coarser=8),
    "pspnet": Architecture(smp.PSPNet, "psp_out_channels", reads=(-1,)),
    "segformer": Architecture(smp.Segformer, "decoder_segmentation_channels"),
    "unet": Architecture(smp.Unet),
    "unetplusplus": Architecture(smp.UnetPlusPlus),
    "upernet": Architecture(smp.UPerNet, "decoder_channels"),
}


class Smp:
    """smp's architectures in lower case. Encoders: smp's names, timm's names, with `tu-` in front or without.

    `output_stride` is looked at by `deeplabv3`, `deeplabv3plus` and `pan`; the others have their encoder's own.
    `dpt` takes vision transformers of timm. Features of `unet`, `unetplusplus`, `manet` and `linknet` have the
    resolution of the image or half of it: with many channels they need much memory.

    >>> body = Smp().build("fpn", encoder="resnet18", weights=None, output_stride=16, decoder_channels=64)
    >>> body.out_channels, body.multiple
    (64, 32)
    """

    def architectures(self) -> tuple[str, ...]:
        return tuple(ARCHITECTURES)

    def build(
        self, architecture: str, *, encoder: str, weights: str | None, output_stride: int, decoder_channels: int
    ) -> Body:
        kind = ARCHITECTURES[architecture]
        name = full_name(encoder)
        options: dict[str, Any] = {kind.width: decoder_channels} if kind.width else {}
        if kind.strides:
            if output_stride not in kind.strides:
                choices = " or ".join(map(str, kind.strides))
                raise ValueError(f"{architecture} can have output stride {choices}, not {output_stride}.")
            options["encoder_output_stride"] = output_stride
        if architecture.startswith("deeplabv3"):
            options["decoder_atrous_rates"] = ATROUS_RATES[output_stride]
        if architecture == "fpn" and (decoder_channels < 64 or decoder_channels % 32):
            raise ValueError(
                f"fpn needs decoder_channels of 64, 96, 128, ... (it norms 32 groups), not {decoder_channels}."
            )
        if name.startswith("tu-") and getattr(_config(name), "fixed_input_size", False):
            options["dynamic_img_size"] = True  # transformers that know how to take images of any size
        model = _build(architecture, kind.model, name, weights, options)
        if name == LITE0 and weights == "imagenet":
            load_lite0(model.encoder.model)
        mean, std = normalisation(name, weights)
        cls = _DptBody if architecture == "dpt" else _SmpBody
        return cls(model, kind, decoder_channels=decoder_channels, mean=mean, std=std)


def full_name(encoder: str) -> str:
    """The encoder's name as smp wants it.

    >>> full_name("tf_efficientnet_lite0"), full_name("resnet18"), full_name("tu-convnext_tiny")
    ('tu-tf_efficientnet_lite0', 'resnet18', 'tu-convnext_tiny')
    """
    bare = encoder.removeprefix("tu-").removeprefix("timm-")
    bare = "tf_efficientnet_lite0" if bare == "tf_efficientnet_lite0.in1k" else bare
    if encoder.startswith("tu-") or encoder not in smp.encoders.encoders or bare == "tf_efficientnet_lite0":
        if timm.is_model(bare):
            return f"tu-{bare}"
        if encoder not in smp.encoders.encoders:
            own = sorted(name for name in smp.encoders.encoders if not name.startswith("timm-"))
            raise unknown("encoder", encoder, [*own, *timm.list_models()])
    return encoder


def normalisation(encoder: str, weights: str | None) -> tuple[Color, Color]:
    """Mean and deviation of each colour that the encoder was trained with, for values 0..255."""
    if encoder == LITE0:
        return (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)
    if encoder.startswith("tu-"):
        config = _config(encoder)
        if config is None:
            return IMAGENET_MEAN, IMAGENET_STD
        return _scaled(config.mean, 255.0), _scaled(config.std, 255.0)
    if weights is None:
        return IMAGENET_MEAN, IMAGENET_STD
    settings = smp.encoders.get_preprocessing_params(encoder, weights)  # lies beside the weights just downloaded
    unit = 255.0 if max(settings["input_range"]) <= 1 else 1.0
    return _scaled(settings["mean"], unit), _scaled(settings["std"], unit)


def _config(encoder: str) -> Any:
    """What timm knows of the pretrained weights: None if it has none."""
    try:
        return timm.models.get_pretrained_cfg(encoder.removeprefix("tu-"))
    except RuntimeError as error:
        architecture = encoder.removeprefix("tu-").partition(".")[0]
        tagged = timm.list_pretrained(f"{architecture}.*")
        raise ValueError(f"timm has no weights {encoder!r}; it has {', '.join(tagged) or 'none'}.") from error


def _scaled(values: Any, unit: float) -> Color:
    red, green, blue = (float(v) * unit for v in values)
    return red, green, blue


def _build(architecture: str, model: type[nn.Module], name: str, weights: str | None, options: dict[str, Any]) -> Any:
    wanted: str | bool | None = weights
    if name.startswith("tu-"):
        if weights not in (None, "imagenet"):
            raise ValueError(
                f"There are no weights {weights!r} for {name}: name a variant of a timm encoder by its tag, "
                "such as 'tu-resnet18.a1_in1k', with weights='imagenet'."
            )
        wanted = True if weights and name != LITE0 else None
    elif weights is not None and weights not in (known := smp.encoders.encoders[name]["pretrained_settings"]):
        raise ValueError(f"There are no weights {weights!r} for {name}; known: {', '.join(known) or 'none'}.")
    with no_download(name), warnings.catch_warnings():
        # smp warns of a `readout` that does not matter where a transformer has no class token.
        warnings.filterwarnings("ignore", message="Encoder does not have prefix tokens")
        try:
            return model(encoder_name=name, encoder_weights=wanted, **options)
        except OSError:  # some versions of the hub raise one that is a ValueError too
            raise
        except (AssertionError, AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            what = "" if weights is None else f" with the weights {weights!r}"
            raise ValueError(f"The encoder {name!r} cannot be used in {architecture}{what}: {error}") from error


class _SmpBody(Body):
    """smp's encoder and decoder; between them only the maps that the decoder reads."""

    def __init__(self, model: Any, kind: Architecture, *, decoder_channels: int, mean: Color, std: Color) -> None:
        ends_in = decoder_channels if kind.width else model.segmentation_head[0].in_channels
        projected = ends_in < decoder_channels
        super().__init__(
            model.encoder,
            model.decoder,
            out_channels=decoder_channels if projected else ends_in,
            multiple=self._multiple(model.encoder, kind),
            mean=mean,
            std=std,
        )
        self.reads = kind.reads
        self.project: nn.Module = nn.Identity()
        if projected:
            # Few channels hold few directions that a cosine can tell apart; the ReLU makes room for more.
            conv = nn.Conv2d(ends_in, decoder_channels, 1, bias=False)
            self.project = nn.Sequential(conv, nn.BatchNorm2d(decoder_channels), nn.ReLU())

    @staticmethod
    def _multiple(encoder: Any, kind: Architecture) -> int:
        stride = int(encoder.output_stride)
        if isinstance(encoder, MixVisionTransformerEncoder):
            stride = max(stride, 32)  # its attention looks at blocks of 32 pixels, whatever the stride
        return stride * kind.coarser

    def encode(self, images: Tensor) -> Maps:
        maps = self.encoder(images)
        return tuple(maps[i] for i in self.reads) if self.reads else tuple(maps[1:])

    def decode(self, maps: Maps) -> Tensor:
        features: Tensor = self.project(self.decoder(self._as_read(maps)))
        return features

    def _as_read(self, maps: Maps) -> list[Tensor]:
        if not self.reads:
            b, _, h, w = maps[0].shape
            return [maps[0].new_empty(b, 0, 2 * h, 2 * w), *maps]  # decoders look at the image's size alone
        places = [maps[-1]] * (max(self.reads) + 2)
        for place, tensor in zip(self.reads, maps, strict=True):
            places[place] = tensor
        return places


class _DptBody(_SmpBody):
    """A vision transformer gives maps and, beside each, its class tokens."""

    @staticmethod
    def _multiple(encoder: Any, kind: Architecture) -> int:
        stride = int(encoder.output_stride)
        if stride & (stride - 1):
            raise ValueError(f"dpt needs patches whose side is a power of two; {encoder.name!r} has {stride}.")
        return max(stride, 32)  # the decoder halves the maps of patches of 16 once more

    def encode(self, images: Tensor) -> Maps:
        maps, tokens = self.encoder(images)
        return (*maps, *(t for t in tokens if t is not None))

    def decode(self, maps: Maps) -> Tensor:
        n = len(self.encoder.out_channels)  # type: ignore[arg-type]
        tokens: list[Tensor | None] = [*maps[n:]] or [None] * n
        features: Tensor = self.project(self.decoder(list(maps[:n]), tokens))
        return features
