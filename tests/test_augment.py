"""Crops: their size, their values, their randomness."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segstream.augment import MEAN_COLOR, Augment
from segstream.classes import UNLABELED, VOID
from segstream.functional.resize import nearest_index, resize_image, resize_mask
from segstream.types import Sample

quick = settings(deadline=None, max_examples=40, derandomize=True)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def picture(height: int, width: int, seed: int = 0) -> Sample:
    random = generator(seed)
    image = torch.randint(0, 256, (3, height, width), generator=random, dtype=torch.uint8)
    mask = torch.randint(VOID, 3, (height, width), generator=random, dtype=torch.int16)
    return Sample(image, mask, id="a", complete=frozenset({2}), known=3)


def coordinates(height: int, width: int) -> Sample:
    """Colours that tell the place: red the row, green the column; the mask is 1 left of the middle, else 2."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    image = torch.stack([rows, columns, torch.zeros_like(rows)]).to(torch.uint8)
    return Sample(image, 1 + (columns >= width // 2).to(torch.int16), id="a", known=3)


sizes = st.tuples(st.integers(1, 23), st.integers(1, 23))
augments = st.builds(
    Augment,
    crop=st.one_of(st.integers(1, 17), st.tuples(st.integers(1, 17), st.integers(1, 17))),
    scale=st.sampled_from([(0.5, 2.0), (0.05, 0.1), (1.0, 1.0), (3.0, 4.0)]),
    flip=st.booleans(),
    border=st.sampled_from(["void", "reflect"]),
)


@quick
@given(sizes, augments, st.integers(0, 5))
def test_every_crop(size: tuple[int, int], augment: Augment, seed: int) -> None:
    sample = picture(*size, seed)
    image, mask = sample.image.clone(), sample.mask.clone()
    crop = augment(sample, generator=generator(seed))
    assert torch.equal(sample.image, image), "the input stays as it is"
    assert torch.equal(sample.mask, mask)
    assert tuple(crop.mask.shape) == augment.size
    assert crop.image.shape[1:] == crop.mask.shape
    assert (crop.id, crop.complete, crop.known) == (sample.id, sample.complete, sample.known)
    found, given_ = set(crop.mask.flatten().tolist()), set(mask.flatten().tolist())
    assert found <= given_ | ({VOID} if augment.border == "void" else set())
    again = augment(sample, generator=generator(seed))
    assert torch.equal(crop.image, again.image)
    assert torch.equal(crop.mask, again.mask)
    assert crop.image.is_contiguous()
    assert crop.mask.is_contiguous()


@quick
@given(st.integers(2, 20), st.integers(2, 20), st.integers(0, 5))
def test_image_and_mask_move_together(height: int, width: int, seed: int) -> None:
    for border in ("void", "reflect"):
        crop = Augment(crop=(9, 11), scale=(1.0, 1.0), border=border)(
            coordinates(height, width), generator=generator(seed)
        )
        inside = crop.mask != VOID
        expected = 1 + (crop.image[1] >= width // 2).to(torch.int16)
        assert torch.equal(crop.mask[inside], expected[inside])
        if border == "void":
            assert int(inside.sum()) == min(height, 9) * min(width, 11)
            outside = crop.image[:, ~inside]
            assert torch.equal(outside, torch.tensor(MEAN_COLOR, dtype=torch.uint8)[:, None].expand_as(outside))
        else:
            assert bool(inside.all())


def test_reflection_by_hand() -> None:
    sample = coordinates(1, 3)
    columns = set()
    for seed in range(30):
        crop = Augment(crop=(1, 7), scale=(1.0, 1.0), flip=False, border="reflect")(sample, generator=generator(seed))
        columns.add(tuple(crop.image[1, 0].tolist()))
    wave = [0, 1, 2, 1] * 4
    assert columns <= {tuple(wave[s : s + 7]) for s in range(4)}
    assert len(columns) == 4


def test_the_factor_reaches_both_ends_and_the_place_all_positions() -> None:
    augment = Augment(crop=8, scale=(0.5, 2.0), flip=False)
    shown = [augment(coordinates(16, 16), generator=generator(seed)).image for seed in range(200)]
    widths = [int(image[1].max()) - int(image[1].min()) for image in shown]
    assert min(widths) <= 4  # factor 2: 4 of 16 columns
    assert max(widths) >= 13  # factor 0.5: all of them
    starts = {int(Augment(crop=8, scale=(1, 1), flip=False)(coordinates(10, 10), generator=generator(s)).image[0].min())
              for s in range(60)}  # fmt: skip
    assert starts == {0, 1, 2}


def test_half_are_flipped() -> None:
    augment = Augment(crop=0)
    random = generator()
    flipped = sum(int(augment(coordinates(2, 4), generator=random).image[1, 0, 0]) == 3 for _ in range(400))
    assert 160 < flipped < 240


def test_no_crop_is_the_picture_itself_or_its_mirror() -> None:
    sample = picture(5, 7)
    assert Augment(crop=0).size is None
    same = Augment(crop=0, flip=False)(sample, generator=generator())
    assert torch.equal(same.image, sample.image)
    assert torch.equal(same.mask, sample.mask)
    for seed in range(4):
        crop = Augment(crop=0)(sample, generator=generator(seed))
        assert torch.equal(crop.image, sample.image) or torch.equal(crop.image, sample.image.flip(2))


def test_a_crop_without_labels_is_drawn_again() -> None:
    mask = torch.full((20, 20), UNLABELED, dtype=torch.int16)
    mask[:, :10] = 0
    mask[:, 15:] = 1
    sample = Sample(torch.zeros(3, 20, 20, dtype=torch.uint8), mask, id="a", known=2)
    augment = Augment(crop=8, scale=(1.0, 1.0), flip=False)
    # A window shows a label from column 8 on: 5 of 13 places. One draw hits in 38%, six in 95%.
    hits = sum(1 in augment(sample, generator=generator(seed)).labels for seed in range(300))
    assert 270 < hits < 300


def test_draws_come_one_at_a_time_and_at_most_six() -> None:
    def draws(sample: Sample) -> int:
        random = generator()
        Augment(crop=2, scale=(1.0, 1.0))(sample, generator=random)
        probe = torch.rand(1, generator=random).item()
        replay, count = generator(), 0
        while torch.rand(1, generator=_copy(replay)).item() != probe:
            torch.rand(4, generator=replay, dtype=torch.float64)
            count += 1
        return count

    image = torch.zeros(3, 400, 400, dtype=torch.uint8)
    empty = torch.full((400, 400), UNLABELED, dtype=torch.int16)
    corner = empty.clone()
    corner[0, 0] = 1
    assert draws(Sample(image, empty, id="a")) == 1, "nothing to lose, nothing to draw again"
    assert draws(Sample(image, corner, id="a", known=2)) == 6
    assert draws(Sample(image, torch.ones_like(empty), id="a", known=2)) == 1


def _copy(random: torch.Generator) -> torch.Generator:
    copy = torch.Generator()
    copy.set_state(random.get_state())
    return copy


def test_lists_of_a_recipe_are_taken() -> None:
    augment = Augment(crop=[4, 6], scale=[0.5, 1])  # type: ignore[arg-type]
    assert augment == Augment(crop=(4, 6), scale=(0.5, 1))
    assert hash(augment) == hash(Augment(crop=(4, 6), scale=(0.5, 1)))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"crop": -1}, "`crop` is -1"),
        ({"crop": (0, 4)}, "`crop`"),
        ({"crop": (4, 4, 4)}, "`crop`"),
        ({"scale": (0, 1)}, "`scale`"),
        ({"scale": (2, 1)}, "`scale`"),
        ({"scale": (1, float("nan"))}, "`scale`"),
        ({"border": "mirror"}, "'mirror'.*void and reflect"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Augment(**wrong)


@quick
@given(st.integers(1, 40), st.integers(1, 40))
def test_nearest_is_the_pixel_under_the_centre(old: int, new: int) -> None:
    wanted = [int(((2 * i + 1) * old) // (2 * new)) for i in range(new)]
    assert nearest_index(old, new).tolist() == wanted
    mask = torch.arange(old, dtype=torch.int16)[None]
    exact = torch.nn.functional.interpolate(mask[None].double(), size=new, mode="nearest-exact")[0]
    if old % new == 0 or new % old == 0:  # elsewhere float rounding decides about centres on an edge
        assert torch.equal(resize_mask(mask, (1, new)), exact.to(torch.int16))


def test_resized_images_keep_their_brightness() -> None:
    image = torch.randint(0, 256, (3, 40, 60), generator=generator(), dtype=torch.uint8)
    small = resize_image(image, (20, 15))
    assert small.dtype == torch.uint8
    assert abs(float(small.float().mean()) - float(image.float().mean())) < 1.5
    assert float(small.float().std()) < 0.5 * float(image.float().std()), "antialiased"
    assert resize_image(image, (40, 60)) is image


@quick
@given(sizes, sizes, st.integers(0, 3))
def test_resizing_bytes_equals_resizing_fractions(old: tuple[int, int], new: tuple[int, int], seed: int) -> None:
    image = picture(*old, seed).image
    exact = torch.nn.functional.interpolate(image[None].double(), size=new, mode="bilinear", antialias=True)[0]
    assert float((resize_image(image, new).double() - exact).abs().max()) <= 1.01
