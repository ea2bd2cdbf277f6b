"""torchvision's DeepLab-v3 on ResNet-50 or ResNet-101: the network of the paper's tables."""

from __future__ import annotations

from torch import Tensor, nn
from torchvision.models import resnet50, resnet101
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.segmentation.deeplabv3 import ASPP

from segstream.models.body import Body, unknown
from segstream.models.features import Maps
from segstream.models.weights import no_download

__all__ = ["Torchvision"]

# Which of the last three stages keep their resolution, and the atrous rates that DeepLab-v3 has at that stride.
STRIDES = {16: ((False, False, True), (6, 12, 18)), 8: ((False, True, True), (12, 24, 36))}
ENCODERS = {"resnet50": resnet50, "resnet101": resnet101}


class Torchvision:
    """`torchvision_deeplabv3` with encoder `resnet50` or `resnet101` and output stride 16 or 8.

    >>> Torchvision().architectures()
    ('torchvision_deeplabv3',)
    """

    def architectures(self) -> tuple[str, ...]:
        return ("torchvision_deeplabv3",)

    def build(
        self, architecture: str, *, encoder: str, weights: str | None, output_stride: int, decoder_channels: int
    ) -> Body:
        if encoder not in ENCODERS:
            raise unknown(f"encoder for {architecture}", encoder, sorted(ENCODERS))
        if output_stride not in STRIDES:
            raise ValueError(f"{architecture} can have output stride 16 or 8, not {output_stride}.")
        if weights not in (None, "imagenet"):
            raise ValueError(f"{architecture} has the weights 'imagenet' or none, not {weights!r}.")
        dilated, rates = STRIDES[output_stride]
        with no_download(encoder):
            # The first weights, as DeepLab's own training used; the second recipe's are tuned for classification.
            resnet = ENCODERS[encoder](
                weights="IMAGENET1K_V1" if weights else None, replace_stride_with_dilation=list(dilated)
            )
        decoder = nn.Sequential(
            ASPP(2048, rates, decoder_channels),
            nn.Conv2d(decoder_channels, decoder_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(decoder_channels),
            nn.ReLU(),
        )
        stages = IntermediateLayerGetter(resnet, return_layers={"layer4": "out"})
        return _TorchvisionBody(stages, decoder, out_channels=decoder_channels, multiple=output_stride)


class _TorchvisionBody(Body):
    def encode(self, images: Tensor) -> Maps:
        return (self.encoder(images)["out"],)
