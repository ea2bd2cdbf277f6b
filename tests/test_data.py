"""Sources, scenarios, streams and views, on pictures of a few pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from segstream.classes import UNLABELED, VOID, ClassTable
from segstream.data import (
    BaseSet,
    Cached,
    DataError,
    JointSet,
    PartlyLabelled,
    Repeated,
    Resized,
    Scenario,
    Source,
    Splits,
    Stream,
    Subset,
    TestSet,
    hold_back,
    wrap,
)
from segstream.types import Batch, NewClasses, Sample

NAMES = ("background", "road", "sky", "car", "sign", "pole")
quick = settings(deadline=None, max_examples=25, derandomize=True)


def source_of(*masks: list[int], unlabeled: int | None = 254) -> Source:
    """One row of pixels for each picture; the image is filled with the picture's number."""
    pairs = [(np.full((1, len(m), 3), i, np.uint8), np.array([m], np.uint8)) for i, m in enumerate(masks)]
    return wrap(pairs, NAMES, unlabeled=unlabeled)


rows = st.lists(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 254, 255]), min_size=3, max_size=3), min_size=1, max_size=12
)
# A picture for each class at the end, so that no stage is empty under either rule.
sources = rows.map(lambda masks: source_of(*masks, [1, 0, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 0]))
scenarios = st.builds(
    Scenario,
    st.just(("sky", "road")),
    st.sampled_from([(("car",), ("sign", "pole")), (("pole",), ("car",)), (("pole", "sign"),)]),
    st.sampled_from(["overlapped", "disjoint"]),
    st.sampled_from([0, 0, 2]),
)


def flat(mask: torch.Tensor) -> list[int]:
    return [int(v) for v in mask.flatten().tolist()]


def items_of(stream: Stream) -> list[Any]:
    """Items in a form that can be compared."""
    return [
        item.names if isinstance(item, NewClasses) else [(s.id, flat(s.mask), s.complete, s.known) for s in item]
        for item in stream
    ]


# -- sources ------------------------------------------------------------------------------------------------------


def test_subset_and_splits() -> None:
    source = source_of([1, 0], [2, 2], [3, 0])
    part = Subset(source, [2, 0])
    assert part.ids == ("2", "0")
    assert part.names == NAMES
    assert part.present(0) == {3}
    assert int(part.load(0)[0].max()) == 2
    assert isinstance(part, Source)
    assert Splits(source, part, part).part("val") is part
    with pytest.raises(DataError, match="'tset'"):
        Splits(source, part, part).part("tset")
    with pytest.raises(DataError, match="Picture 3"):
        Subset(source, [3])


def test_resized_tells_what_is_left_of_a_class() -> None:
    source = source_of([1, 1, 1, 1, 1, 2])
    small = Resized(source, (1, 2))
    image, mask = small.load(0)
    assert image.shape == (3, 1, 2)
    assert flat(mask) == [1, 1]  # centres lie at 1.5 and 4.5 of six
    assert source.present(0) == {1, 2}
    assert small.present(0) == {1}
    with pytest.raises(DataError, match="image_size"):
        Resized(source, (0, 2))


def test_cached_stays_within_its_bytes() -> None:
    source = source_of([1, 0], [2, 2], [3, 0])
    one = sum(t.nbytes for t in source.load(0))
    kept = Cached(source, max_bytes=2 * one)
    for i in (0, 1, 2, 2, 0):
        assert all(torch.equal(a, b) for a, b in zip(kept.load(i), source.load(i), strict=True))
    assert kept.nbytes == 2 * one
    assert kept.load(1)[0] is kept.load(1)[0]
    assert kept.load(2)[0] is not kept.load(2)[0]


@quick
@given(st.integers(1, 30), st.integers(0, 29), st.integers(0, 5))
def test_hold_back_parts_everything(n: int, count: int, seed: int) -> None:
    source = source_of(*[[1, 0]] * n)
    if count >= n:
        with pytest.raises(DataError, match="at least one must stay"):
            hold_back(source, count=count, seed=seed)
        return
    rest, held = hold_back(source, count=count, seed=seed)
    assert len(held) == count
    assert sorted([*rest.indices, *held.indices]) == list(range(n))
    assert held.indices == hold_back(source, count=count, seed=seed)[1].indices


def test_hold_back_depends_on_the_seed_and_wants_one_amount() -> None:
    source = source_of(*[[1, 0]] * 30)
    assert hold_back(source, fraction=0.3, seed=1)[1].indices != hold_back(source, fraction=0.3, seed=2)[1].indices
    for wrong in ({}, {"count": 1, "fraction": 0.1}, {"fraction": 1.0}, {"count": -1}):
        with pytest.raises(DataError):
            hold_back(source, **wrong)


# -- wrap ---------------------------------------------------------------------------------------------------------


def pixels(kind: str) -> Any:
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    return {
        "array": array,
        "tensor": tensor,
        "float": tensor / 255,
        "double": array / 255,
        "pil": Image.fromarray(array),
    }[kind]


@pytest.mark.parametrize("image", ["array", "tensor", "float", "double", "pil"])
@pytest.mark.parametrize("mask", [np.uint8, np.int64, np.int32, "pil", "tensor", "1HW"])
def test_wrap_takes_every_usual_form(image: str, mask: Any) -> None:
    values = np.array([[0, 1, 2, 3], [255, 254, 5, 4]])
    given_mask: Any = values.astype(np.uint8) if isinstance(mask, str) else values.astype(mask)
    if mask == "pil":
        given_mask = Image.fromarray(given_mask)
    elif mask != "pil" and isinstance(mask, str):
        given_mask = torch.from_numpy(values)[None] if mask == "1HW" else torch.from_numpy(values)
    source = wrap([(pixels(image), given_mask)], NAMES, unlabeled=254)
    got, found = source.load(0)
    assert got.dtype == torch.uint8
    assert torch.equal(got, pixels("tensor"))
    assert found.dtype == torch.int16
    assert found.tolist() == [[0, 1, 2, 3], [VOID, UNLABELED, 5, 4]]
    assert source.present(0) == {1, 2, 3, 4, 5}
    assert source.ids == ("0",)


def test_wrap_copies_and_accepts_gray_and_negative_void() -> None:
    image = torch.zeros(1, 2, 2, dtype=torch.uint8)
    mask = torch.tensor([[1, -100], [0, 1]])
    source = wrap([(image, mask)], ["background", "car"], void=-100)
    got, found = source.load(0)
    got += 1
    found += 1
    assert int(image.max()) == 0
    assert mask.tolist() == [[1, -100], [0, 1]]
    assert source.load(0)[1].tolist() == [[1, VOID], [0, 1]]


@pytest.mark.parametrize(
    ("image", "mask", "text"),
    [
        (pixels("array"), np.zeros((2, 4)), "whole numbers"),
        (pixels("array"), torch.zeros(2, 4), "whole numbers"),
        (pixels("array"), np.zeros((2, 3), int), r"\[2, 4\] but its mask is \[2, 3\]"),
        (pixels("array"), np.full((2, 4), 6), "value 6.*6 classes, numbered 0 to 5"),
        (pixels("array"), np.full((2, 4), -7), "value -7"),
        (pixels("array"), Image.new("RGB", (4, 2)), "colours"),
        (pixels("array"), np.zeros((2, 4, 3), int), r"\[2, 4, 3\]"),
        (pixels("float") * 3 - 1, np.zeros((2, 4), int), "normalisation"),
        (pixels("float") * float("nan"), np.zeros((2, 4), int), "normalisation"),
        (pixels("tensor").long(), np.zeros((2, 4), int), "int64"),
        (torch.zeros(2, 4, 3), np.zeros((2, 4), int), r"expected \[3, H, W\]"),
        ("a.png", np.zeros((2, 4), int), "is a str"),
    ],
)
def test_wrap_refuses_in_a_sentence(image: Any, mask: Any, text: str) -> None:
    with pytest.raises(DataError, match=text) as caught:
        wrap([(image, mask)], NAMES).load(0)
    assert "item 0" in str(caught.value)


def test_wrap_refuses_wrong_datasets_and_lists() -> None:
    with pytest.raises(DataError, match="pair"):
        wrap([np.zeros((2, 2))], NAMES).load(0)
    with pytest.raises(DataError, match="map-style"):
        wrap(iter([1]), NAMES)  # type: ignore[arg-type]
    for classes in ([], ["car"], "background", ["background", "car", "car"]):
        with pytest.raises(DataError, match="classes"):
            wrap([], classes)
    with pytest.raises(DataError, match="'sky'"):
        wrap([], NAMES, unlabeled=2)
    nothing_said = wrap([(pixels("array"), np.full((2, 4), 255))], NAMES, unlabeled=255).load(0)[1]
    assert int(nothing_said.max()) == UNLABELED


# -- scenario -----------------------------------------------------------------------------------------------------

HAND = ([1, 2], [1, 3], [3, 0], [4, 3], [0, 255], [4, 1], [5, 1], [254, 2])


def test_rules_by_hand() -> None:
    source = source_of(*HAND)
    stages = (("car",), ("sign",))
    assert Scenario(("road", "sky"), stages).select(source) == [[0, 1, 5, 6, 7], [1, 2, 3], [3, 5]]
    # Pole is in no stage: it counts as background, so picture 6 stays.
    assert Scenario(("road", "sky"), stages, "disjoint").select(source) == [[0, 6, 7], [1, 2], [3, 5]]


@quick
@given(sources, scenarios)
def test_rules_against_their_words(source: Source, scenario: Scenario) -> None:
    unlimited = Scenario(scenario.base, scenario.stages, scenario.rule)
    for t, chosen in enumerate(unlimited.select(source)):
        for i in range(len(source)):
            classes = {NAMES[v] for v in flat(source.load(i)[1]) if v >= 1} & set(scenario.names)
            wanted = bool(classes & set(scenario.groups[t]))
            if scenario.rule == "disjoint":
                wanted = wanted and classes <= set(scenario.seen(t))
            assert (i in chosen) == wanted
    limited = scenario.select(source)
    assert limited[0] == unlimited.select(source)[0]
    for few, all_ in zip(limited[1:], unlimited.select(source)[1:], strict=True):
        assert set(few) <= set(all_)
        assert few == sorted(few)
        assert len(few) == min(len(all_), scenario.max_images or len(all_))


def test_usual_notations() -> None:
    voc = [f"c{i}" for i in range(1, 21)]
    shape = {n: [len(g) for g in Scenario.split(voc, n).groups] for n in ("19-1", "15-5", "15-1", "10-1")}
    assert shape == {"19-1": [19, 1], "15-5": [15, 5], "15-1": [15, 1, 1, 1, 1, 1], "10-1": [10] + [1] * 10}
    assert Scenario.split(voc, "15-1", "disjoint").rule == "disjoint"
    assert Scenario.split(["background", *voc], "15-1").base == tuple(voc[:15])
    for wrong in ("20-1", "15", "15-0", "a-b", "15-1-1"):
        with pytest.raises(DataError, match=wrong):
            Scenario.split(voc, wrong)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((("road",), (("road",),)), "'road' twice"),
        ((("road", "road"), ()), "'road' twice"),
        ((("road",), ((),)), "Stage 1 has no classes"),
        ((("road",), (("car",),), "dijsoint"), "'dijsoint'"),
        ((("road",), (("car",),), "disjoint", -1), "max_images"),
        ((("background",), ()), "background"),
        (("road", ()), "list"),
        ((("road",), ("car",)), "list of lists"),
    ],
)
def test_scenario_refuses(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(DataError, match=text):
        Scenario(*arguments)


def test_scenario_takes_lists_and_names_unknown_classes() -> None:
    assert Scenario(["road"], [["car"]]) == Scenario(("road",), (("car",),))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"'rood'.*Did you mean 'road'"):
        Scenario(("rood",)).select(source_of([1, 2]))
    with pytest.raises(DataError, match="no stage 2"):
        Scenario(("road",), (("car",),)).seen(2)


# -- stream -------------------------------------------------------------------------------------------------------

BASE = ClassTable(("road", "sky"))


@quick
@given(sources, scenarios, st.integers(1, 5), st.integers(0, 3))
def test_stream_contract(source: Source, scenario: Scenario, batch: int, seed: int) -> None:
    stream = Stream(source, scenario, classes=BASE, batch=batch, seed=seed)
    chosen = scenario.select(source)
    table, stage, sizes = BASE, 0, [0]
    seen: dict[int, list[str]] = {}
    for number, item in enumerate(stream, start=1):
        assert stream.position == number
        if isinstance(item, NewClasses):
            stage += 1
            table = table.extend(item.names)
            assert item.names == scenario.stages[stage - 1]
            assert stream.classes == table
            sizes = []
            continue
        assert all(size == batch for size in sizes), "only the last batch of a stage may be smaller"
        sizes.append(len(item))
        for sample in item:
            seen.setdefault(stage, []).append(sample.id)
            assert sample.complete == frozenset(table.slots(scenario.stages[stage - 1]))
            assert sample.known == len(table)
            image, values = source.load(int(sample.id.split("/")[1]))
            assert torch.equal(image, sample.image)
            for value, slot in zip(flat(values), flat(sample.mask), strict=True):
                if value == VOID:
                    assert slot == VOID
                elif value >= 1 and NAMES[value] in scenario.stages[stage - 1]:
                    assert slot == table.slot(NAMES[value])
                else:
                    assert slot == UNLABELED
    assert stage == len(scenario.stages)
    assert stream.position == len(stream)
    for t in range(1, stage + 1):
        assert sorted(seen[t]) == sorted(f"{t}/{i}" for i in chosen[t])
    assert list(stream) == [], "a stream passes once"


@quick
@given(sources, scenarios, st.integers(1, 4), st.data())
def test_resume_equals_the_tail(source: Source, scenario: Scenario, batch: int, data: st.DataObject) -> None:
    whole = Stream(source, scenario, classes=BASE, batch=batch, seed=7)
    k = data.draw(st.integers(0, len(whole)))
    for _ in range(k):
        next(whole)
    now = whole.classes
    tail = items_of(whole)
    for table in (BASE, now):
        again = Stream(source, scenario, classes=table, batch=batch, seed=7, start=k)
        assert (again.position, again.classes, len(again)) == (k, now, len(whole))
        assert items_of(again) == tail
        assert again.classes == whole.classes


def test_order_follows_the_seed() -> None:
    source = source_of(*[[3, 0]] * 20)
    scenario = Scenario(("road",), (("car",),))

    def order(seed: int) -> list[Any]:
        return items_of(Stream(source, scenario, classes=ClassTable(("road",)), seed=seed))

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(s[0] for b in order(1)[1:] for s in b) == sorted(s[0] for b in order(2)[1:] for s in b)


def test_stages_have_orders_of_their_own() -> None:
    source = source_of(*[[3, 4]] * 20)
    items = items_of(Stream(source, Scenario((), (("car",), ("sign",))), classes=ClassTable(), batch=20))
    first, second = ([s[0].split("/")[1] for s in batch] for batch in (items[1], items[3]))
    assert first != second


def test_stream_refuses() -> None:
    source = source_of([1, 2], [3, 0])
    scenario = Scenario(("road",), (("car",),))
    with pytest.raises(DataError, match=r"stage 1 \(pole\)"):
        Stream(source, Scenario(("road",), (("pole",),)), classes=BASE)
    with pytest.raises(DataError, match="would be empty"):
        Stream(source, Scenario(("road",)), classes=BASE)
    with pytest.raises(DataError, match="No picture belongs to stage 1"):
        Stream(Subset(source, []), scenario, classes=BASE)
    with pytest.raises(ValueError, match="'car' exists already"):
        Stream(source, scenario, classes=ClassTable(("road", "car")))
    for wrong in ({"batch": 0}, {"seed": -1}, {"start": 3}, {"start": -1}):
        with pytest.raises(DataError, match=next(iter(wrong))):
            Stream(source, scenario, classes=BASE, **wrong)  # type: ignore[arg-type]


def test_stream_takes_a_selection_made_before() -> None:
    source = source_of([3, 0], [3, 0], [3, 0])
    stream = Stream(source, Scenario((), (("car",),)), classes=ClassTable(), batch=8, indices=[[], [2, 1]])
    assert sorted(s[0] for s in items_of(stream)[1]) == ["1/1", "1/2"]


def test_a_failed_load_moves_no_position() -> None:
    class Broken(Subset):
        def load(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
            raise IndexError(i)

    source = Broken(source_of([3, 0]), [0])
    stream = Stream(source, Scenario((), (("car",),)), classes=ClassTable())
    next(stream)
    with pytest.raises(IndexError):
        next(stream)
    assert stream.position == 1
    with pytest.raises(IndexError):
        list(BaseSet(source, Scenario(("car",)), ClassTable(("car",))))


def test_repeated_passes() -> None:
    samples = [
        Sample(torch.zeros(3, 1, 1, dtype=torch.uint8), torch.ones(1, 1, dtype=torch.int16), id=str(i), known=2)
        for i in range(9)
    ]
    items = list(Repeated(samples, names=["car"], batch=4, passes=2, seed=3))
    assert items[0] == NewClasses(("car",))
    batches = [item.ids for item in items[1:] if isinstance(item, Batch)]
    assert [len(b) for b in batches] == [4, 4, 1, 4, 4, 1]
    passes = [sum(batches[:3], ()), sum(batches[3:], ())]
    assert sorted(passes[0]) == sorted(passes[1]) == [str(i) for i in range(9)]
    assert passes[0] != passes[1]
    rest = Repeated(samples, names=["car"], batch=4, passes=2, seed=3, start=3)
    assert [item.ids for item in rest if isinstance(item, Batch)] == batches[2:]
    assert isinstance(next(iter(Repeated(samples))), Batch)
    with pytest.raises(DataError, match="no picture"):
        Repeated([])
    with pytest.raises(DataError, match="passes"):
        Repeated(samples, passes=0)


# -- views --------------------------------------------------------------------------------------------------------

ORDERED = Scenario(("sky", "road"), (("car",), ("sign",)))
TABLE = ClassTable(("sky", "road"))
FULL = ClassTable(("sky", "road", "car", "sign"))


def test_base_set_shows_base_classes_and_calls_the_rest_background() -> None:
    source = source_of([0, 1, 2, 3, 4, 5, 254, 255], [3] * 8)
    for table in (TABLE, FULL):
        base = BaseSet(source, ORDERED, table)
        assert base.ids == ("0/0",)
        assert [s.id for s in base] == ["0/0"]
        assert flat(base[0].mask) == [0, 2, 1, 0, 0, 0, UNLABELED, VOID]
        assert base[0].complete == {1, 2}
        assert base[0].known == 3
    assert len(BaseSet(source, ORDERED, TABLE, [0, 1])) == 2


def test_joint_set_shows_all() -> None:
    source = source_of([0, 1, 2, 3, 4, 5, 254, 255], [5] * 8, [3] * 8)
    joint = JointSet(source, ORDERED, FULL)
    assert joint.ids == ("joint/0", "joint/2")
    assert flat(joint[0].mask) == [0, 2, 1, 3, 4, 0, UNLABELED, VOID]
    assert sorted(joint[0].complete) == [1, 2, 3, 4]
    assert joint[0].known == 5


def test_test_set_follows_the_stage() -> None:
    source = source_of([0, 1, 2, 3, 4, 5, 254, 255], [3] * 8, [4] * 8, [5] * 8, [0] * 8)
    assert [TestSet(source, ORDERED, t, FULL).indices for t in range(3)] == [(0,), (0, 1), (0, 1, 2)]
    assert flat(TestSet(source, ORDERED, 0, TABLE)[0].mask) == [0, 2, 1, 0, 0, 0, VOID, VOID]
    assert flat(TestSet(source, ORDERED, 1, FULL)[0].mask) == [0, 2, 1, 3, 0, 0, VOID, VOID]
    assert len(TestSet(source, ORDERED, 0, TABLE, every=True)) == 5
    with pytest.raises(ValueError, match="'car'"):
        TestSet(source, ORDERED, 1, TABLE)


def test_partly_labelled_without_further_classes_labels_the_background() -> None:
    source = source_of([0, 1, 2, 3, 254, 255])
    taught = PartlyLabelled(source, ["car"], ClassTable(("car",)))
    assert flat(taught[0].mask) == [0, UNLABELED, UNLABELED, 1, UNLABELED, VOID]
    assert taught[0].complete == {1}
    assert (taught[0].known, taught[0].id) == (2, "0")


def test_partly_labelled_keeps_old_labels_and_leaves_further_classes_possible() -> None:
    source = source_of([0, 1, 2, 3, 254, 255])
    table = ClassTable(("road", "tree", "car"))

    def mask(**options: Any) -> list[int]:
        return flat(PartlyLabelled(source, ["car"], table, **options)[0].mask)

    assert mask() == [UNLABELED, 1, UNLABELED, 3, UNLABELED, VOID]
    assert mask(background="label") == [0, 1, UNLABELED, 3, UNLABELED, VOID]
    # Of strokes, a background stroke is all that says "not car".
    assert mask(complete=()) == [0, 1, UNLABELED, 3, UNLABELED, VOID]
    assert mask(complete=(), background="open")[0] == UNLABELED
    assert PartlyLabelled(source, ["car"], table, complete=())[0].complete == frozenset()
    retired = table.retire(["tree", "road"])
    assert flat(PartlyLabelled(source, ["car"], retired)[0].mask) == [0, UNLABELED, UNLABELED, 3, UNLABELED, VOID]


def test_partly_labelled_refuses() -> None:
    source, table = source_of([0, 3]), ClassTable(("road", "car"))
    with pytest.raises(DataError, match="'kar'"):
        PartlyLabelled(source, ["kar"], table)
    with pytest.raises(DataError, match="`complete` names 'road'"):
        PartlyLabelled(source, ["car"], table, complete=["road"])
    with pytest.raises(DataError, match="`background`"):
        PartlyLabelled(source, ["car"], table, background="yes")
    with pytest.raises(DataError, match="retired"):
        PartlyLabelled(source, ["car"], table.retire(["car"]))
    with pytest.raises(ValueError, match="'car'"):
        PartlyLabelled(source, ["car"], ClassTable(("road",)))
