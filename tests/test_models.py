"""The segmenter and its head: growth, modes, prediction, state."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from segstream import storage
from segstream.classes import VOID
from segstream.models import FeatureCache, Head, Segmenter, batchnorm, prediction
from segstream.models.weights import load_weights


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def image(height: int, width: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=seeded(seed))


def tiny(network: str = "tiny", classes: tuple[str, ...] = ("road", "sky"), **options: object) -> Segmenter:
    return Segmenter.create(network, weights=None, classes=classes, decoder_channels=16, **options)  # type: ignore[arg-type]


def bits(segmenter: Segmenter) -> dict[str, Tensor]:
    return segmenter.to_state()[1]


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# ---- head


def test_cosine_head_against_a_slow_loop() -> None:
    head = Head(5, scale=12.0).double()
    head.grow(3, generator=seeded())
    with torch.no_grad():
        head.rows.mul_(torch.tensor([[0.3], [2.0], [5.0]]))
    features = torch.randn(2, 5, 2, 3, dtype=torch.float64, generator=seeded(1), requires_grad=True)
    logits = head(features)
    rows, values = head.rows.tolist(), features.tolist()
    for b, k, i, j in torch.cartesian_prod(*map(torch.arange, logits.shape)).tolist():
        f = [values[b][d][i][j] for d in range(5)]
        cosine = sum(u * v for u, v in zip(rows[k], f, strict=True)) / math.hypot(*rows[k]) / math.hypot(*f)
        assert logits[b, k, i, j].item() == pytest.approx(12 * cosine, abs=1e-12)
    assert torch.autograd.gradcheck(head, features)
    # A cosine does not change along the vector itself.
    (gradient,) = torch.autograd.grad(logits.square().sum(), features)
    assert (gradient * features).sum(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_cosine_stays_in_bounds_under_autocast(dtype: torch.dtype) -> None:
    head = Head(256)
    head.grow(20, generator=seeded())
    features = (head.rows.detach() * 37.0).T[None, :, :, None].to(dtype)  # every row meets its own direction
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(features)
    assert logits.dtype == torch.float32
    assert logits.abs().max() <= 12.0 + 1e-4
    assert logits[0, :, :, 0].diagonal().min() > 11.99


def test_zero_features_give_zero_logits_and_a_finite_gradient() -> None:
    head = Head(4)
    head.grow(2, generator=seeded())
    features = torch.zeros(1, 4, 1, 2, requires_grad=True)
    logits = head(features)
    logits.sum().backward()
    assert (logits == 0).all()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert head.weight.grad is not None
    assert head.weight.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_growth_is_exact(kind: str) -> None:
    features = torch.rand(2, 16, 6, 7, generator=seeded(3))
    slow, fast = Head(16, kind=kind), Head(16, kind=kind)
    one, all_at_once = seeded(), seeded()
    slow.grow(1, generator=one)
    weight, before = slow.weight, slow(features)
    for n in range(2, 71):
        assert slow.grow(1, generator=one) == (n == 65)
        after = slow(features)
        assert torch.equal(after[:, :-1], before), f"growth to {n} rows changed the bits of an old logit"
        assert (slow.weight is weight) == (n <= 64)
        before = after
    assert fast.grow(70, generator=all_at_once)
    assert torch.equal(fast.weight, slow.weight)
    assert not slow.weight[70:].any()
    before.square().mean().backward()
    assert slow.weight.grad is not None
    assert not slow.weight.grad[70:].any()
    assert slow.weight.grad[:70].abs().amax(dim=1).min() > 0


def test_normalised_rows_give_the_same_logits() -> None:
    head = Head(8)
    head.grow(4, generator=seeded())
    assert torch.allclose(head.rows.norm(dim=1), torch.ones(4))
    with torch.no_grad():
        head.rows.mul_(torch.tensor([[0.3], [2.0], [5.0], [1.0]]))
    features = torch.randn(1, 8, 3, 3, generator=seeded(1))
    before = head(features)
    head.normalise_rows()
    assert torch.allclose(head.rows.norm(dim=1), torch.ones(4))
    assert torch.allclose(head(features), before, atol=1e-5)


# ---- classes


def test_growth_of_a_segmenter_keeps_old_logits() -> None:
    segmenter = tiny()
    x = torch.stack([image(16, 24), image(16, 24, 1)])
    before = segmenter(x)
    assert not segmenter.add_classes(["sofa", "dog"], generator=seeded(5))
    after = segmenter(x)
    assert after.shape[1] == 5
    assert torch.equal(after[:, :3], before)
    assert segmenter.classes.slot("dog") == 4
    with pytest.raises(ValueError, match="exists already"):
        segmenter.add_classes(["sofa"], generator=seeded())
    assert segmenter.head.count == len(segmenter.classes) == 5


def test_retired_classes_are_never_shown_and_take_no_probability() -> None:
    segmenter = tiny()
    picture = image(21, 18)
    found = segmenter.predict([picture])
    winner = int(found.masks[0].flatten().mode().values)
    if winner == 0:  # make a foreground class win
        with torch.no_grad():
            segmenter.head.weight[[0, 1]] = segmenter.head.weight[[1, 0]]
        winner = 1
    raw = segmenter(segmenter.pad(picture[None])[0])
    segmenter.retire_classes([segmenter.classes.name(winner)])
    assert torch.equal(segmenter(segmenter.pad(picture[None])[0]), raw)  # training still sees its logit
    masks, confidence = naive(raw[0], [0, 3 - winner], (24, 20), (21, 18))
    found = segmenter.predict([picture])
    assert torch.equal(found.masks[0], masks)
    assert torch.allclose(found.confidence[0], confidence, atol=1e-5)
    assert not (found.masks[0] == winner).any()


# ---- prediction


def naive(logits: Tensor, slots: list[int], padded: tuple[int, int], size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Upsampling, softmax and maximum as anyone would write them, in float64."""
    full = F.interpolate(logits[None, slots].double(), size=padded, mode="bilinear", align_corners=False)[0]
    best = full.softmax(dim=0)[:, : size[0], : size[1]].max(dim=0)
    return torch.tensor(slots, dtype=torch.int16)[best.indices], best.values.float()


@pytest.mark.parametrize("block", [1, 700, 1 << 20])
@pytest.mark.parametrize("low", [(1, 1), (3, 5), (16, 4)])
def test_blocks_of_rows_equal_the_whole(block: int, low: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "BLOCK", block)
    logits = torch.randn(6, *low, generator=seeded(2)) * 5
    logits[4] = -math.inf  # a class without any evidence takes no part
    for padded, size in (((16, 20), (16, 20)), ((16, 20), (9, 13)), ((17, 4), (1, 1))):
        masks, confidence = prediction.decide(logits, slots=[0, 1, 2, 4, 5], padded=padded, size=size)
        expected = naive(logits, [0, 1, 2, 5], padded, size)
        assert torch.equal(masks, expected[0])
        assert torch.allclose(confidence, expected[1], atol=1e-5)


def test_predict_takes_any_sizes_in_any_order() -> None:
    segmenter = tiny()
    sizes = [(1, 1), (5, 7), (16, 16), (1, 40), (5, 7), (33, 2)]
    pictures = [image(h, w, seed) for seed, (h, w) in enumerate(sizes)]
    found = segmenter.predict(pictures)
    for picture, masks, confidence in zip(pictures, found.masks, found.confidence, strict=True):
        assert masks.dtype == torch.int16
        assert confidence.dtype == torch.float32
        assert masks.shape == confidence.shape == picture.shape[1:]
        assert ((confidence > 1 / 3 - 1e-6) & (confidence <= 1)).all()
        alone = segmenter.predict([picture])
        assert torch.equal(alone.masks[0], masks)
    assert segmenter.predict([]).masks == ()
    with pytest.raises(ValueError, match=r"Image 1 is torch.float32 of shape \[3, 2, 2\]"):
        segmenter.predict([pictures[0], torch.zeros(3, 2, 2)])


def test_predict_by_another_scorer() -> None:
    segmenter = tiny()

    def second_class(features: Tensor) -> Tensor:
        return segmenter.scores(features).mul(0) + torch.tensor([0.0, -math.inf, 3.0]).view(1, 3, 1, 1)

    found = segmenter.predict([image(6, 6)], scorer=second_class)
    assert (found.masks[0] == 2).all()
    assert found.confidence[0][0, 0].item() == pytest.approx(1 / (1 + math.exp(-3)), abs=1e-6)


def test_predict_is_pure() -> None:
    segmenter = tiny("tiny_bn")
    segmenter.training_mode()
    segmenter.body.decoder.eval()  # a mixture of modes comes back as it was
    modes = [m.training for m in segmenter.modules()]
    before, rng = bits(segmenter), torch.random.get_rng_state()
    found = segmenter.predict([image(9, 9), image(30, 8)])
    assert modes == [m.training for m in segmenter.modules()]
    assert same(bits(segmenter), before)
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert not found.confidence[0].requires_grad
    assert all(p.grad is None for p in segmenter.parameters())
    with pytest.raises(ZeroDivisionError):
        segmenter.predict([image(9, 9)], scorer=lambda features: features / (1 // 0))
    assert modes == [m.training for m in segmenter.modules()]


def test_padding_mirrors_images_and_voids_masks() -> None:
    segmenter = tiny()
    images, masks = segmenter.pad(image(5, 2)[None], torch.ones(1, 5, 2, dtype=torch.int16))
    assert images.shape == (1, 3, 8, 4)
    assert torch.equal(images[:, :, 5:], images[:, :, [3, 2, 1]])
    assert torch.equal(images[..., 2:], images[..., [0, 1]])
    assert masks is not None
    assert (masks[:, :5, :2] == 1).all()
    assert int((masks == VOID).sum()) == 8 * 4 - 10
    with pytest.raises(ValueError, match=r"\[1, 3, 5, 2\] do not fit.*multiples of 4"):
        segmenter(image(5, 2)[None])


def test_bytes_and_floats_give_the_same_logits() -> None:
    segmenter = tiny()
    x = image(8, 8)[None]
    assert torch.equal(segmenter(x), segmenter(x.float()))


# ---- modes


def statistics(module: nn.Module) -> list[Tensor]:
    return [b.clone() for layer in batchnorm.layers(module) for b in layer.buffers()]


@pytest.mark.parametrize("make", [nn.BatchNorm2d, BatchNormAct2d])
def test_batchnorm_with_one_value_uses_its_running_statistics(make: type[nn.BatchNorm2d]) -> None:
    layer = make(3)
    layer.running_mean = torch.tensor([1.0, 2.0, 3.0])
    keys = list(layer.state_dict())
    batchnorm.prepare(layer)
    batchnorm.prepare(layer)
    assert list(layer.state_dict()) == keys
    x, before = torch.full((1, 3, 1, 1), 5.0), statistics(layer)
    layer.train()
    shown = layer(x)
    assert layer.training
    assert torch.equal(shown, layer.eval()(x))
    layer.train()
    assert all(map(torch.equal, before, statistics(layer)))
    layer(torch.randn(1, 3, 1, 2, generator=seeded()))  # two values are a batch
    assert int(layer.num_batches_tracked or 0) == 1
    assert not torch.equal(before[0], statistics(layer)[0])


def test_batchnorm_modes_of_a_segmenter() -> None:
    segmenter = tiny("tiny_bn")
    x = torch.stack([image(16, 16), image(16, 16, 1)])

    def moved() -> int:
        before = statistics(segmenter)
        segmenter(x)
        return sum(not torch.equal(a, b) for a, b in zip(before, statistics(segmenter), strict=True))

    segmenter.training_mode()
    assert moved() == 9  # mean, variance and count of three layers
    assert all(int(layer.num_batches_tracked or 0) == 1 for layer in batchnorm.layers(segmenter))
    trained = segmenter(x)
    with segmenter.still_statistics():
        assert moved() == 0
        assert torch.equal(segmenter(x), trained)
    assert moved() == 9
    segmenter.training_mode(batchnorm="frozen")
    segmenter.train()
    for layer in batchnorm.layers(segmenter):
        layer.train()  # whoever comes later and means well
    assert moved() == 0
    frozen = segmenter(x)
    assert torch.equal(frozen, segmenter.eval()(x))
    segmenter.training_mode()
    assert moved() == 9
    with pytest.raises(ValueError, match="batchnorm='sync' is none of 'train', 'frozen'"):
        segmenter.training_mode(batchnorm="sync")


@pytest.mark.parametrize(("trainable", "learning"), [("all", "bdh"), ("decoder", "dh"), ("head", "h")])
def test_what_is_fixed_has_no_gradient_and_no_moving_statistics(trainable: str, learning: str) -> None:
    segmenter = tiny("tiny_bn", trainable=trainable)
    segmenter.training_mode()
    parts = {"b": segmenter.body.encoder, "d": segmenter.body.decoder, "h": segmenter.head}
    assert [part.training for part in parts.values()] == [k in learning for k in parts]
    before = {k: statistics(part) for k, part in parts.items()}
    segmenter.body.train()  # whoever comes later and means well
    segmenter(torch.stack([image(16, 16), image(16, 16, 1)])).square().sum().backward()
    for k, part in parts.items():
        learns = k in learning
        assert all((p.grad is not None) == p.requires_grad == learns for p in part.parameters()), k
        still = all(map(torch.equal, before[k], statistics(part)))
        assert still == (not learns or k == "h"), k
    assert {id(p) for p in segmenter.trainable_parameters()} == {id(p) for k in learning for p in parts[k].parameters()}
    segmenter.trainable = "all"
    assert all(p.requires_grad for p in segmenter.parameters())
    assert segmenter.body.encoder.training
    with pytest.raises(ValueError, match="trainable='body' is none of"):
        segmenter.trainable = "body"


def test_a_batch_of_one_pixel_row_can_be_learned() -> None:
    segmenter = tiny("tiny_bn")
    segmenter.training_mode()
    logits = segmenter(image(4, 4)[None])
    assert logits.shape == (1, 3, 1, 1)
    logits.sum().backward()
    assert segmenter.head.weight.grad is not None


def test_frozen_is_an_immutable_copy() -> None:
    segmenter = tiny("tiny_bn")
    segmenter.training_mode()
    picture = image(12, 12)
    teacher = segmenter.frozen()
    before, shown = bits(teacher), teacher.predict([picture])
    optimiser = torch.optim.SGD(segmenter.trainable_parameters(), lr=0.5)
    segmenter(torch.stack([picture, picture])).square().sum().backward()
    optimiser.step()
    segmenter.add_classes(["sofa"], generator=seeded())
    assert teacher.classes.names == ("road", "sky")
    assert same(bits(teacher), before)
    teacher.train()
    teacher(torch.stack([picture, picture]))
    assert not any(m.training for m in teacher.modules())
    assert same(bits(teacher), before)
    assert torch.equal(teacher.predict([picture]).confidence[0], shown.confidence[0])
    assert not any(p.requires_grad for p in teacher.parameters())
    for change in (
        lambda: teacher.add_classes(["dog"], generator=seeded()),
        lambda: teacher.retire_classes(["road"]),
        lambda: teacher.rename_class("road", "street"),
        lambda: teacher.set_color("road", (1, 2, 3)),
        teacher.training_mode,
    ):
        with pytest.raises(RuntimeError, match="frozen copy"):
            change()


# ---- making, saving, loading


def test_the_seed_decides_the_bits_and_nothing_else_moves() -> None:
    rng = torch.random.get_rng_state()
    first = bits(tiny(seed=4))
    torch.rand(3)
    assert same(first, bits(tiny(seed=4)))
    assert not same(first, bits(tiny(seed=5)))
    torch.random.set_rng_state(rng)
    tiny(seed=4)
    assert torch.equal(torch.random.get_rng_state(), rng)


def changed() -> Segmenter:
    segmenter = tiny("tiny_bn", head="linear", trainable="decoder")
    segmenter.add_classes([f"class {i}" for i in range(66)], generator=seeded(3))
    segmenter.retire_classes(["class 5"])
    segmenter.rename_class("sky", "heaven")
    segmenter.set_color("road", (10, 20, 30))
    segmenter.training_mode()
    segmenter(torch.stack([image(8, 8), image(8, 8, 1)]))
    return segmenter


def test_save_and_load_are_exact(tmp_path: Path) -> None:
    segmenter, pictures = changed(), [image(11, 9), image(40, 3)]
    rng = torch.random.get_rng_state()
    segmenter.save(tmp_path / "model")
    again = Segmenter.load(tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert again.classes == segmenter.classes
    assert again.spec == segmenter.spec
    assert again.trainable == "decoder"
    assert same(bits(again), bits(segmenter))
    assert again.head.weight.shape == (128, 16)
    a, b = segmenter.predict(pictures), again.predict(pictures)
    assert all(map(torch.equal, a.confidence, b.confidence))
    assert all(map(torch.equal, a.masks, b.masks))
    document = json.loads((tmp_path / "model" / "segstream.json").read_text())["segmenter"]
    assert document["classes"]["names"][:2] == ["road", "heaven"]
    assert document["network"] == "tiny_bn"


def test_normalisation_is_part_of_the_state() -> None:
    segmenter = tiny()
    document, tensors = segmenter.to_state()
    document = json.loads(json.dumps(document | {"mean": [1.0, 2.0, 3.5]}))
    again = Segmenter.from_state(document, tensors)
    assert again.mean.flatten().tolist() == [1.0, 2.0, 3.5]
    assert again.to_state()[0] == document


def test_a_method_folder_holds_a_segmenter(tmp_path: Path) -> None:
    document, tensors = tiny().to_state()
    files = {"weights.safetensors": safetensors.torch.save(tensors)}
    storage.save_folder(tmp_path, kind="method", document={"segmenter": document, "method": "em"}, files=files)
    assert same(bits(Segmenter.load(tmp_path)), tensors)
    storage.save_folder(tmp_path, kind="note", document={}, files={})
    with pytest.raises(ValueError, match="holds a saved note, not a segmenter"):
        Segmenter.load(tmp_path)


def test_altered_and_wrong_states_are_refused(tmp_path: Path) -> None:
    segmenter = tiny()
    segmenter.save(tmp_path)
    (path,) = tmp_path.glob("weights-*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=path.name):
        Segmenter.load(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=path.name):
        Segmenter.load(tmp_path)
    document, tensors = segmenter.to_state()
    lacking = {k: v for k, v in tensors.items() if k != "head.weight"}
    with pytest.raises(ValueError, match=r"lacks tensors: head\.weight"):
        Segmenter.from_state(document, lacking)
    with pytest.raises(ValueError, match="has tensors that the network has not: more"):
        Segmenter.from_state(document, tensors | {"more": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"'head.weight' of tiny .* has the shape \[64, 8\]; expected \[64, 16\]"):
        Segmenter.from_state(document, tensors | {"head.weight": torch.zeros(64, 8)})
    tensors["head.weight"][1, 1] = math.nan
    with pytest.raises(ValueError, match=r"'head.weight' in the saved segmenter holds NaN"):
        Segmenter.from_state(document, tensors)
    with pytest.raises(ValueError, match="document lacks classes"):
        Segmenter.from_state({k: v for k, v in document.items() if k != "classes"}, tensors)


# ---- weights of one's own


def test_own_weights_are_reported_tensor_by_tensor(tmp_path: Path) -> None:
    donor = tiny(seed=9)
    file = {k.removeprefix("body."): v for k, v in bits(donor).items()}  # head rows are in it, and are nobody's
    del file["encoder.0.weight"]
    file["decoder.0.weight"] = torch.zeros(7)
    path = tmp_path / "mine.safetensors"
    safetensors.torch.save_file(file, path)
    segmenter = Segmenter.create("tiny", weights=str(path), classes=["a"], decoder_channels=16)
    report = segmenter.weights_report
    assert report is not None
    assert report.missing == ("encoder.0.weight",)
    assert report.reshaped == ("decoder.0.weight",)
    assert report.unexpected == ("head.weight",)
    assert len(report.matched) == 7
    mine, theirs, fresh = bits(segmenter), bits(donor), bits(tiny(classes=("a",)))
    for name in mine:
        source = theirs if name.removeprefix("body.") in report.matched else fresh
        assert torch.equal(mine[name], source[name]), name
    assert "1 missing (encoder.0.weight)" in report.summary()


@pytest.mark.parametrize("prefix", ["", "body.encoder.", "module.encoder.", "encoder."])
def test_own_weights_are_found_under_other_prefixes(prefix: str, tmp_path: Path) -> None:
    donor, segmenter = tiny(seed=9), tiny()
    encoder = {prefix + k: v.half().contiguous() for k, v in donor.body.encoder.state_dict().items()}
    path = tmp_path / "encoder.safetensors"
    safetensors.torch.save_file(encoder, path)
    report = load_weights(segmenter.body, path)
    assert len(report.matched) == len(encoder)
    assert not report.unexpected
    assert torch.allclose(segmenter.body.encoder[0].weight, donor.body.encoder[0].weight, atol=1e-3)  # type: ignore[index]


def test_own_weights_that_cannot_be_used(tmp_path: Path) -> None:
    def save(tensors: dict[str, Tensor]) -> str:
        path = tmp_path / "w.safetensors"
        safetensors.torch.save_file(tensors, path)
        return str(path)

    def create(weights: str) -> None:
        Segmenter.create("tiny", weights=weights, decoder_channels=16)

    with pytest.raises(ValueError, match=r"No tensor of .* fits"):
        create(save({"fc.weight": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"'encoder.0.weight' in .*w.safetensors holds NaN"):
        create(save({"encoder.0.weight": torch.full((16, 3, 3, 3), math.nan)}))
    (tmp_path / "w.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        create(str(tmp_path / "w.safetensors"))
    with pytest.raises(ValueError, match="There is no weights file"):
        create(str(tmp_path / "none.safetensors"))
    with pytest.raises(ValueError, match=r"mine.pth is no .safetensors file"):
        create("mine.pth")


# ---- feature cache


def test_a_hit_and_a_miss_give_the_same_bits() -> None:
    segmenter = tiny("tiny_bn", trainable="decoder")
    pictures = torch.stack([image(16, 16, s) for s in range(3)])
    segmenter.cache = FeatureCache()
    missed = segmenter(pictures)
    assert (segmenter.cache.hits, segmenter.cache.misses) == (0, 3)
    assert torch.equal(segmenter(pictures.flip(0)), missed.flip(0))
    assert (segmenter.cache.hits, segmenter.cache.misses) == (3, 3)
    segmenter.training_mode()  # the encoder is fixed: training sees the same maps
    segmenter(pictures).sum().backward()
    assert segmenter.cache.misses == 3
    assert segmenter.frozen().cache is segmenter.cache
    assert same(bits(segmenter), bits(Segmenter.from_state(*segmenter.to_state())))
    with torch.no_grad():
        segmenter.body.encoder[0].weight.mul_(1.5)  # type: ignore[index, operator, union-attr]
    segmenter(pictures)
    assert segmenter.cache.misses == 6
    segmenter.trainable = "all"
    segmenter(pictures)
    assert segmenter.cache.misses == 6


def test_the_cache_keeps_to_its_bytes() -> None:
    cache = FeatureCache(capacity_bytes=100)
    pictures = [image(2, 2, s) for s in range(3)]

    def fetch(i: int, n: int) -> Tensor:
        return cache.fetch(pictures[i], lambda: (torch.full((n,), i, dtype=torch.uint8),), encoder="e")[0]

    fetch(0, 40)
    fetch(1, 40)
    fetch(0, 40)  # the other is now the older one
    fetch(2, 40)
    assert (len(cache), cache.nbytes, cache.hits) == (2, 80, 1)
    fetch(0, 40)
    assert cache.hits == 2
    fetch(1, 101)  # larger than the whole: given, not kept
    assert (len(cache), cache.nbytes) == (2, 80)


@pytest.mark.parametrize(
    ("network", "options", "sentence"),
    [
        ("tini", {}, "There is no network 'tini'. Did you mean 'tiny'"),
        ("tiny", {"head": "cosin"}, "head='cosin' is none of 'cosine', 'linear'"),
        ("tiny", {"scale": 0}, "scale is 0; it must be above 0"),
        ("tiny", {"classes": ["a", "a"]}, "occurs twice"),
        ("deeplabv3plus", {"encoder": "tf_eficientnet_lite0"}, "Did you mean 'tf_efficientnet_lite0'"),
        ("deeplabv3plus", {"output_stride": 4}, "output stride 16 or 8, not 4"),
        ("deeplabv3plus", {"encoder": "resnet18", "weights": "imagnet"}, "no weights 'imagnet' for resnet18; known: i"),
        ("torchvision_deeplabv3", {"encoder": "resnet18"}, "resnet18.*Did you mean 'resnet1"),
        ("fpn", {"decoder_channels": 32}, "fpn needs decoder_channels of 64"),
        ("dpt", {"encoder": "resnet18", "weights": None}, "'resnet18' cannot be used in dpt"),
    ],
)
def test_mistakes_get_a_sentence(network: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Segmenter.create(network, **options)  # type: ignore[arg-type]
