"""The memory: its policies against literal oracles, its draws against chance, its bounds against everything."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from types import FrameType
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy import stats

from segstream.classes import UNLABELED, VOID
from segstream.memory import Drawn, Memory, Policy
from segstream.memory.policies.class_balanced import ClassBalanced
from segstream.memory.policies.reservoir import Reservoir
from segstream.memory.policy import Offer, Shelf, Victim, below, words
from segstream.types import Sample

ACTIVE = (1, 2, 3, 4, 5, 6)
POLICIES = ("reservoir", "class_balanced")


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(id: str, labels: Iterable[int], *, size: tuple[int, int] = (1, 4), fill: int = 7, **facts: Any) -> Sample:
    """A picture whose first pixels carry the labels, the rest being unlabelled."""
    mask = torch.full(size, UNLABELED, dtype=torch.int16)
    chosen = sorted(labels)
    mask.view(-1)[: len(chosen)] = torch.tensor(chosen, dtype=torch.int16)
    return Sample(torch.full((3, *size), fill, dtype=torch.uint8), mask, id, **facts)


def same(a: Sample, b: Sample) -> bool:
    facts = a.id == b.id and a.complete == b.complete and a.known == b.known
    return facts and torch.equal(a.image, b.image) and torch.equal(a.mask, b.mask)


def all_same(a: Iterable[Sample], b: Iterable[Sample]) -> bool:
    return all(same(x, y) for x, y in zip(a, b, strict=True))


def filled(rows: Sequence[Sequence[int]], policy: str = "reservoir", **bounds: Any) -> Memory:
    memory = Memory(policy=policy, **(bounds or {"capacity": 100}))
    for i, labels in enumerate(rows):
        memory.offer(sample(f"{i}", labels, fill=i % 256), active=ACTIVE, generator=dice())
    return memory


# The policies, word by word


class Literal:
    """Plain lists and dictionaries; every question walks through all of them. Sizes are in bytes, or all 1."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.order: list[str] = []
        self.labels: dict[str, list[int]] = {}
        self.sizes: dict[str, int] = {}
        self.of_class: dict[int, list[str]] = {c: [] for c in ACTIVE}
        self.seen: Counter[int] = Counter()
        self.branches: Counter[str] = Counter()

    def full_for(self, size: int) -> bool:
        return sum(self.sizes.values()) + size > self.capacity

    def remove(self, id: str) -> None:
        for ids in [self.order, *self.of_class.values()]:
            if id in ids:
                ids[ids.index(id)] = ids[-1]
                ids.pop()
        del self.labels[id], self.sizes[id]

    def add(self, id: str, labels: list[int], size: int) -> None:
        self.order.append(id)
        self.labels[id], self.sizes[id] = labels, size
        for c in labels:
            self.of_class[c].append(id)

    def random_of(self, ids: list[str], generator: torch.Generator) -> str:
        return ids[below(len(ids), words(1, generator=generator)[0])]

    def c_max(self, active: Sequence[int]) -> int:
        return max(sorted(active), key=lambda c: sum(c in labels for labels in self.labels.values()))

    def class_balanced(self, id: str, labels: list[int], active: Sequence[int], size: int, g: torch.Generator) -> None:
        """The paper's Algorithm 2."""
        m = {c: sum(c in stored for stored in self.labels.values()) for c in active}
        self.seen.update(labels)
        c_min = min(labels, key=lambda c: (m[c], c))
        budget = len(self.order) if self.full_for(size) else float("inf")
        if m[c_min] < budget / len(active) or not self.full_for(size):
            self.branches["rare" if self.full_for(size) else "room"] += 1
            while self.full_for(size):
                self.remove(self.random_of(self.of_class[self.c_max(active)], g))
            self.add(id, labels, size)
            return
        for c, word in zip(labels, words(len(labels), generator=g), strict=True):
            if word / 2**53 < m[c] / self.seen[c]:
                self.branches["replaced"] += 1
                while self.full_for(size):
                    ids = self.of_class[c] or self.of_class[self.c_max(active)]
                    self.remove(self.random_of(ids, g))
                self.add(id, labels, size)
                return
        self.branches["refused"] += 1

    def reservoir(self, id: str, labels: list[int], size: int, g: torch.Generator) -> None:
        n, self.seen[0] = self.seen[0], self.seen[0] + 1
        if not self.full_for(size):
            self.branches["room"] += 1
            self.add(id, labels, size)
            return
        j = below(n + 1, words(1, generator=g)[0])
        if j >= len(self.order):
            self.branches["refused"] += 1
            return
        self.branches["replaced"] += 1
        self.remove(self.order[j])
        while self.full_for(size):
            self.remove(self.random_of(self.order, g))
        self.add(id, labels, size)


def random_labels(generator: torch.Generator, active: Sequence[int]) -> list[int]:
    """Low slots often, high ones seldom; sometimes none."""
    return [c for c in active if torch.rand((), generator=generator) < 0.8 / c]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("bounds", "seed"), [({"capacity": 8}, 0), ({"capacity": 21}, 1), ({"capacity_bytes": 300}, 2)]
)
def test_policies_decide_as_the_literal_algorithms(policy: str, bounds: dict[str, int], seed: int) -> None:
    in_bytes = "capacity_bytes" in bounds
    memory = Memory(**{"capacity": None, **bounds}, policy=policy)
    oracle = Literal(next(iter(bounds.values())))
    ours, theirs, chance = dice(seed), dice(seed), dice(seed + 100)
    for i in range(700):
        active = ACTIVE[: 2 + i // 150]  # classes come while the memory is in use
        labels = random_labels(chance, active)
        size = (1, 6 + int(torch.randint(8, (), generator=chance))) if in_bytes else (1, 6)
        taken = memory.offer(sample(f"{i}", labels, size=size), active=active, generator=ours)
        if labels:
            cost = 5 * size[1] if in_bytes else 1
            if policy == "class_balanced":
                oracle.class_balanced(f"{i}", labels, active, cost, theirs)
            else:
                oracle.reservoir(f"{i}", labels, cost, theirs)
        assert memory.ids() == tuple(oracle.order), f"after image {i}"
        assert taken == (f"{i}" in oracle.labels)
        assert memory.counts() == {c: len(ids) for c, ids in oracle.of_class.items() if ids}
        assert not (in_bytes and memory.nbytes > 300)
    hit = {"room", "replaced", "refused"} | ({"rare"} if policy == "class_balanced" else set())
    assert set(oracle.branches) == hit
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_reservoir_is_uniform() -> None:
    runs, images, places = 1500, 24, 6
    g, stored = dice(3), Counter[str]()
    rows = [sample(f"{i}", [1], size=(1, 1)) for i in range(images)]
    for _ in range(runs):
        memory = Memory(capacity=places, policy=Reservoir())
        for row in rows:
            memory.offer(row, active=(1,), generator=g)
        stored.update(memory.ids())
    expected = runs * places / images
    # Each run stores without replacement, which makes the counts vary less by (images - places) / (images - 1).
    chi = sum((stored[f"{i}"] - expected) ** 2 / expected for i in range(images)) * (images - 1) / (images - places)
    assert stats.chi2.sf(chi, images - 1) > 0.005
    assert sum(stored.values()) == runs * places


def test_class_balanced_keeps_every_image_of_a_class_alike() -> None:
    """One class only: the second branch alone decides, and with m_c / n_c it must be as fair as a reservoir."""
    runs, images, places = 1200, 20, 5
    g, stored = dice(4), Counter[str]()
    rows = [sample(f"{i}", [1], size=(1, 1)) for i in range(images)]
    for _ in range(runs):
        memory = Memory(capacity=places, policy=ClassBalanced())
        for row in rows:
            memory.offer(row, active=(1,), generator=g)
        stored.update(memory.ids())
    expected = runs * places / images
    chi = sum((stored[f"{i}"] - expected) ** 2 / expected for i in range(images)) * (images - 1) / (images - places)
    assert stats.chi2.sf(chi, images - 1) > 0.005


def test_class_balanced_serves_the_rare_class() -> None:
    memory, g = Memory(capacity=10, policy="class_balanced"), dice()
    for i in range(60):
        memory.offer(sample(f"common{i}", [1]), active=(1, 2), generator=g)
    for i in range(5):
        assert memory.offer(sample(f"rare{i}", [2]), active=(1, 2), generator=g)
    assert memory.counts() == {1: 5, 2: 5}


@pytest.mark.parametrize("policy", POLICIES)
def test_unlabelled_images_are_nothing_to_a_memory(policy: str) -> None:
    memory, g = filled([[1], [2]], policy), dice()
    before, luck = memory.state(), g.get_state()
    for id, value in (("new", 0), ("new", UNLABELED), ("new", VOID), ("0", UNLABELED)):
        assert not memory.offer(
            Sample(torch.zeros(3, 2, 2, dtype=torch.uint8), torch.full((2, 2), value, dtype=torch.int16), id),
            active=ACTIVE,
            generator=g,
        )
    assert_same_state(memory.state(), before)
    assert torch.equal(g.get_state(), luck)


# Ids


@pytest.mark.parametrize("policy", POLICIES)
def test_an_id_is_replaced_where_it_lies(policy: str) -> None:
    memory = filled([[1, 2], [1], [1, 3]], policy, capacity=3)
    counters = memory.policy.state()
    again = sample("0", [2, 4], size=(3, 5), fill=99, complete=frozenset({2}), known=6)
    assert memory.offer(again, active=ACTIVE, generator=dice())
    assert memory.ids() == ("0", "1", "2")
    assert memory.counts() == {1: 2, 2: 1, 3: 1, 4: 1}
    assert memory.policy.state() == counters
    assert same(next(iter(memory)), again)
    assert memory.nbytes == sum(s.nbytes for s in memory)


def test_a_replacement_that_outgrows_the_room_drops_others_or_goes() -> None:
    memory = filled([[1], [1], [2]], "class_balanced", capacity=None, capacity_bytes=60)
    assert memory.nbytes == 60
    counters = memory.policy.state()
    assert memory.offer(sample("2", [2], size=(1, 8)), active=ACTIVE, generator=dice())
    assert memory.has("2")
    assert memory.counts() == {1: 1, 2: 1}
    assert memory.nbytes == 60
    assert not memory.offer(sample("2", [2], size=(1, 13)), active=ACTIVE, generator=dice())
    assert memory.counts() == {1: 1}
    assert memory.policy.state() == counters


@pytest.mark.parametrize("policy", POLICIES)
def test_an_image_larger_than_the_whole_is_refused(policy: str) -> None:
    memory = filled([[1], [1]], policy, capacity=None, capacity_bytes=59)
    before = memory.state()
    assert not memory.offer(sample("huge", [2], size=(3, 4)), active=ACTIVE, generator=dice())
    assert_same_state(memory.state(), before)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_memory_without_room_stays_empty(policy: str) -> None:
    assert len(filled([[1], [2]], policy, capacity=0)) == 0


# Nothing is shared


def test_the_memory_shares_nothing_with_input_or_output() -> None:
    given = sample("a", [1, 2], fill=9)
    original = sample("a", [1, 2], fill=9)
    memory = Memory(capacity=4)
    memory.offer(given, active=ACTIVE, generator=dice())
    given.image.zero_()
    given.mask.fill_(3)
    assert same(next(iter(memory)), original)
    twice = memory.draw(2, generator=dice(), class_weights={1: 1.0})
    for drawn in (*memory.draw(1, generator=dice()).samples, twice.samples[0], next(iter(memory))):
        drawn.image.fill_(1)
        drawn.mask.fill_(VOID)
    assert same(next(iter(memory)), original)
    assert same(twice.samples[1], original)  # two copies of one exemplar are two


def test_views_are_stored_by_their_values() -> None:
    picture = torch.arange(48, dtype=torch.uint8).view(4, 4, 3).permute(2, 0, 1)  # not contiguous
    mask = torch.arange(16, dtype=torch.int16).view(4, 4).t() % 3
    memory = Memory(capacity=1)
    memory.offer(Sample(picture, mask, "a"), active=ACTIVE, generator=dice())
    assert same(next(iter(memory)), Sample(picture, mask, "a"))


def test_large_images_are_scaled_down_once() -> None:
    image = torch.full((3, 40, 100), 200, dtype=torch.uint8)
    mask = torch.ones(40, 100, dtype=torch.int16)
    mask[:, 50:] = 2
    memory = Memory(capacity=2, max_side=25)
    memory.offer(Sample(image, mask, "a", frozenset({1}), 3), active=ACTIVE, generator=dice())
    (kept,) = memory
    assert kept.image.shape == (3, 10, 25)
    assert set(kept.image.unique().tolist()) == {200}
    assert (kept.mask[:, :12] == 1).all()
    assert (kept.mask[:, 13:] == 2).all()
    assert (kept.complete, kept.known) == (frozenset({1}), 3)
    assert memory.nbytes == 5 * 250
    lost = Sample(torch.zeros(3, 1, 100, dtype=torch.uint8), sample("x", [1], size=(1, 100)).mask, "thin")
    assert not memory.offer(lost, active=ACTIVE, generator=dice())  # its one labelled pixel did not survive


# Draws


def test_uniform_draws_are_uniform_in_order_too() -> None:
    memory, g, runs = filled([[1]] * 4), dice(5), 2400
    met = Counter(tuple(s.id for s in memory.draw(2, generator=g).samples) for _ in range(runs))
    assert set(met) == set(permutations("0123", 2))
    assert stats.chisquare([met[pair] for pair in permutations("0123", 2)]).pvalue > 0.005


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 50])
def test_uniform_draws_never_repeat_and_take_all_of_a_smaller_memory(n: int) -> None:
    memory = filled([[1]] * 4)
    drawn = memory.draw(n, generator=dice(n))
    assert len(drawn) == len({s.id for s in drawn.samples}) == min(n, 4)
    assert drawn.classes == ()


def test_an_empty_memory_gives_nothing_and_rolls_no_dice() -> None:
    memory, g = Memory(capacity=3), dice()
    luck = g.get_state()
    for drawn in (memory.draw(3, generator=g), memory.draw(3, generator=g, class_weights={1: 1.0})):
        assert isinstance(drawn, Drawn)
        assert drawn.samples == drawn.classes == ()
    assert torch.equal(g.get_state(), luck)


def test_weighted_draws_follow_the_renormalised_weights() -> None:
    memory = filled([[1], [1, 2], [2], [2, 3]])
    weights = {5: 0.4, 3: 0.12, 1: 0.3, 2: 0.18, 4: 0.0}  # nothing is stored of 5 and 4
    runs = 6000
    drawn = memory.draw(runs, generator=dice(6), class_weights=weights)
    assert len(drawn) == runs
    assert all(c in s.labels for c, s in zip(drawn.classes, drawn.samples, strict=True))
    met = Counter(drawn.classes)
    assert set(met) == {1, 2, 3}
    expected = [runs * weights[c] / 0.6 for c in (1, 2, 3)]
    assert stats.chisquare([met[c] for c in (1, 2, 3)], expected).pvalue > 0.005
    of_two = Counter(s.id for c, s in zip(drawn.classes, drawn.samples, strict=True) if c == 2)
    assert set(of_two) == {"1", "2", "3"}
    assert stats.chisquare(list(of_two.values())).pvalue > 0.005


def test_weights_that_no_exemplar_answers_draw_nothing() -> None:
    memory = filled([[1]])
    assert len(memory.draw(3, generator=dice(), class_weights={})) == 0
    assert len(memory.draw(3, generator=dice(), class_weights={2: 1.0})) == 0
    assert len(memory.draw(3, generator=dice(), class_weights={1: 0.0, 2: 1.0})) == 0


def test_the_order_of_the_weights_does_not_matter() -> None:
    memory = filled([[1], [2], [3]])
    one = memory.draw(20, generator=dice(), class_weights={1: 0.2, 2: 0.3, 3: 0.5})
    other = memory.draw(20, generator=dice(), class_weights={3: 0.5, 1: 0.2, 2: 0.3})
    assert one.classes == other.classes
    assert all_same(one.samples, other.samples)


# Out again


def test_forget_takes_all_or_none() -> None:
    memory = filled([[1], [1, 2], [2], [3]])
    with pytest.raises(ValueError, match="4 exemplars holds none with the id 'nobody'"):
        memory.forget(["0", "nobody"])
    assert len(memory) == 4
    with pytest.raises(ValueError, match="single text"):
        memory.forget("0")
    assert memory.forget(["2", "0", "2"]) == ("2", "0")
    assert sorted(memory.ids()) == ["1", "3"]
    assert memory.counts() == {1: 1, 2: 1, 3: 1}
    assert memory.nbytes == 40


def test_retire_unlabels_and_drops_what_is_left_without_labels() -> None:
    memory, g = Memory(capacity=9), dice()
    rows = [("a", [1, 2], {1, 2}), ("b", [2], {2}), ("c", [3], {2, 3}), ("d", [2, 3, 4], set())]
    for id, labels, complete in rows:
        memory.offer(sample(id, labels, complete=frozenset(complete), known=5), active=ACTIVE, generator=g)
    assert memory.retire([2]) == ("b",)
    kept = {s.id: s for s in memory}
    assert set(kept) == {"a", "c", "d"}
    assert kept["a"].mask.tolist() == [[1, UNLABELED, UNLABELED, UNLABELED]]
    assert kept["d"].mask.tolist() == [[UNLABELED, 3, 4, UNLABELED]]
    assert [kept[id].complete for id in "acd"] == [{1}, {3}, set()]
    assert {s.known for s in kept.values()} == {5}
    assert memory.counts() == {1: 1, 3: 2, 4: 1}
    assert {s.id for s in memory.draw(30, generator=g, class_weights={3: 1.0, 2: 9.0}).samples} == {"c", "d"}
    assert memory.retire([6]) == ()
    with pytest.raises(ValueError, match="Slot 0 cannot be retired"):
        memory.retire([0])


@pytest.mark.parametrize("policy", POLICIES)
def test_room_that_became_free_is_filled(policy: str) -> None:
    memory = filled([[1]] * 50, policy, capacity=5)
    memory.forget(memory.ids()[1:3])
    assert memory.offer(sample("next", [1]), active=ACTIVE, generator=dice())
    assert len(memory) == 4


# State


def assert_same_state(one: tuple[dict[str, Any], dict[str, Any]], two: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert one[0] == two[0]
    assert one[1].keys() == two[1].keys()
    for name, tensor in one[1].items():
        assert torch.equal(tensor, two[1][name]), name


def through_files(memory: Memory, **choice: Any) -> Memory:
    document, tensors = memory.state()
    text, blob = json.dumps(document), safetensors.torch.save(tensors)
    return Memory.from_state(json.loads(text), safetensors.torch.load(blob), **choice)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("images", [0, 1, 120])
def test_a_restored_memory_goes_on_as_if_nothing_had_happened(policy: str, images: int) -> None:
    def use(memory: Memory, start: int, stop: int, seed: int) -> list[Any]:
        chance, g, seen = dice(seed), dice(seed + 1), []
        for i in range(start, stop):
            labels = random_labels(chance, ACTIVE)
            size = (1 + i % 3, 6)
            picture = sample(f"{i % 90}", labels, size=size, fill=i, complete=frozenset(labels[:1]), known=1 + i % 4)
            seen.append(memory.offer(picture, active=ACTIVE, generator=g))
            drawn = memory.draw(3, generator=g, class_weights={c: 1 / c for c in ACTIVE})
            seen.append((drawn.classes, [(s.id, s.image.tolist(), s.mask.tolist()) for s in drawn.samples]))
            seen.append([s.id for s in memory.draw(4, generator=g).samples])
        return seen

    memory = Memory(capacity=16, capacity_bytes=1000, policy=policy, max_side=64)
    use(memory, 0, images, 7)
    if images > 50:
        memory.retire([5])
        memory.forget(memory.ids()[2:4])
    copy = through_files(memory)
    assert copy.settings() == memory.settings()
    assert all_same(copy, memory)
    assert_same_state(copy.state(), memory.state())
    assert use(copy, images, images + 80, 8) == use(memory, images, images + 80, 8)
    assert_same_state(copy.state(), memory.state())


def test_a_state_is_a_snapshot() -> None:
    memory = filled([[1], [2]])
    document, tensors = memory.state()
    text = json.dumps(document)
    memory.offer(sample("0", [3], fill=200), active=ACTIVE, generator=dice())
    memory.forget(["1"])
    assert json.dumps(document) == text
    assert Memory.from_state(document, tensors).counts() == {1: 1, 2: 1}


def test_a_damaged_state_is_refused() -> None:
    document, tensors = filled([[1], [2]]).state()
    with pytest.raises(ValueError, match="damaged"):
        Memory.from_state({**document, "ids": ["0"]}, tensors)
    with pytest.raises(ValueError, match="damaged"):
        Memory.from_state({**document, "counts": {"1": 2}}, {**tensors, "members": tensors["members"][:1]})


# A policy of one's own


class OldestOut(Policy):
    """Whoever came first goes first."""

    def admit(self, offer: Offer, shelf: Shelf, *, generator: torch.Generator) -> Victim | None:
        return lambda: min(range(len(shelf)), key=shelf.arrival)


class Nosy(OldestOut):
    def __init__(self) -> None:
        self.met: list[tuple[int, ...]] = []

    def admit(self, offer: Offer, shelf: Shelf, *, generator: torch.Generator) -> Victim | None:
        self.met.append(tuple(shelf.labels(place)[0] for place in range(len(shelf))))
        return super().admit(offer, shelf, generator=generator)


def test_a_policy_of_ones_own_sees_ages_and_labels_and_survives_saving() -> None:
    policy = Nosy()
    memory, g = Memory(capacity=3, policy=policy), dice()
    for i, c in enumerate([1, 2, 3, 4, 5, 6]):
        memory.offer(sample(f"{i}", [c]), active=ACTIVE, generator=g)
        memory = through_files(memory, policy=policy)
    assert sorted(memory.ids()) == ["3", "4", "5"]
    assert [sorted(seen) for seen in policy.met] == [[], [1], [1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    with pytest.raises(ValueError, match=r"OldestOut|Nosy.*no plug-in"):
        through_files(memory)


def test_a_replaced_exemplar_keeps_its_age() -> None:
    memory = Memory(capacity=2, policy=OldestOut())
    for id in ("old", "young", "old", "new"):
        memory.offer(sample(id, [1]), active=ACTIVE, generator=dice())
    assert set(memory.ids()) == {"young", "new"}


# Words for bad input


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="Did you mean 'reservoir'"):
        Memory(policy="reservoire")
    with pytest.raises(ValueError, match="`capacity` is -1"):
        Memory(capacity=-1)
    with pytest.raises(ValueError, match="needs a bound"):
        Memory(capacity=None)
    with pytest.raises(ValueError, match="`max_side` is 0"):
        Memory(max_side=0)
    with pytest.raises(TypeError, match="is a segstream"):
        Memory(policy=3)  # type: ignore[arg-type]
    memory = filled([[1]])
    with pytest.raises(ValueError, match=r"holds slots \[6\]; the active classes are \[1, 2\]"):
        memory.offer(sample("x", [1, 6]), active=[1, 2], generator=dice())
    with pytest.raises(ValueError, match="slot 1 is nan"):
        memory.draw(1, generator=dice(), class_weights={1: float("nan")})
    with pytest.raises(ValueError, match="slot 1 is -1"):
        memory.draw(1, generator=dice(), class_weights={1: -1.0})
    with pytest.raises(ValueError, match="-2 exemplars"):
        memory.draw(-2, generator=dice())


# Bounds, whatever happens


class Life(RuleBasedStateMachine):
    """Any order of verbs, against a model that knows what each stored image must look like."""

    @initialize(
        policy=st.sampled_from(POLICIES),
        bounds=st.sampled_from([(5, None), (None, 150), (6, 150), (3, 400)]),
        seed=st.integers(0, 9),
    )
    def start(self, policy: str, bounds: tuple[int | None, int | None], seed: int) -> None:
        self.capacity, self.capacity_bytes = bounds
        self.memory = Memory(capacity=self.capacity, capacity_bytes=self.capacity_bytes, policy=policy)
        self.dice = dice(seed)
        self.active = list(ACTIVE)
        self.model: dict[str, Sample] = {}

    @rule(id=st.integers(0, 11), labels=st.sets(st.sampled_from(ACTIVE), max_size=4), width=st.integers(4, 40))
    def offer(self, id: int, labels: set[int], width: int) -> None:
        given = sample(f"{id}", labels.intersection(self.active), size=(1, width), complete=frozenset(labels), known=3)
        had = set(self.memory.ids())
        stored = self.memory.offer(given, active=self.active, generator=self.dice)
        now = set(self.memory.ids())
        assert now <= had | {given.id}
        if stored:
            self.model[given.id] = given
        elif given.labels:
            assert given.id not in now
        self.model = {name: s for name, s in self.model.items() if name in now}

    @precondition(lambda self: len(self.memory))
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.memory.ids()), max_size=3))
        for id in self.memory.forget(ids):
            del self.model[id]

    @precondition(lambda self: len(self.active) > 2)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.active))
        self.active.remove(slot)
        gone = set(self.memory.retire([slot]))
        for id, old in list(self.model.items()):
            mask = torch.where(old.mask == slot, torch.tensor(UNLABELED, dtype=torch.int16), old.mask)
            new = Sample(old.image, mask, id, old.complete - {slot}, old.known)
            assert (id in gone) == (not new.labels)
            self.model[id] = new
        self.model = {id: s for id, s in self.model.items() if id not in gone}

    @rule(n=st.integers(0, 8), weighted=st.booleans())
    def draw(self, n: int, weighted: bool) -> None:
        weights = dict.fromkeys(ACTIVE, 1.0) if weighted else None
        drawn = self.memory.draw(n, generator=self.dice, class_weights=weights)
        assert len(drawn) == (n if weighted and len(self.memory) else min(n, len(self.memory)))
        assert all(same(s, self.model[s.id]) for s in drawn.samples)
        assert all(c in s.labels for c, s in zip(drawn.classes, drawn.samples, strict=weighted))

    @rule()
    def restore(self) -> None:
        self.memory = through_files(self.memory)

    @invariant()
    def within_bounds_and_true(self) -> None:
        if not hasattr(self, "memory"):
            return
        stored = list(self.memory)
        assert len(stored) == len(self.memory) == len(set(self.memory.ids()))
        assert self.capacity is None or len(stored) <= self.capacity
        assert self.memory.nbytes == sum(s.nbytes for s in stored)
        assert self.capacity_bytes is None or self.memory.nbytes <= self.capacity_bytes
        assert set(self.memory.ids()) == set(self.model)
        assert all(same(s, self.model[s.id]) for s in stored)
        counts = Counter(c for s in stored for c in s.labels)
        assert self.memory.counts() == dict(sorted(counts.items()))


Life.TestCase.settings = settings(deadline=None, max_examples=25, stateful_step_count=30, derandomize=True)
test_life = Life.TestCase


# No term grows with the number of exemplars


def lines_run(act: Callable[[], object]) -> int:
    """How many lines of the memory's own code an act runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if "segstream/memory" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("policy", POLICIES)
def test_work_does_not_grow_with_the_memory(policy: str) -> None:
    def works(size: int) -> list[int]:
        memory, g = Memory(capacity=size, policy=policy), dice()
        for i in range(size):
            memory.offer(sample(f"{i}", [1 + i % 2], size=(1, 2)), active=ACTIVE, generator=g)
        id = memory.ids()[3]
        weights, rows = {1: 0.5, 2: 0.5}, [sample(f"new{i}", [1, 3], size=(1, 2)) for i in range(10)]
        return [
            lines_run(lambda: memory.draw(4, generator=dice())),
            lines_run(lambda: memory.draw(4, generator=dice(), class_weights=weights)),
            lines_run(lambda: memory.forget([id])),
            # The longest of some offers: a policy may refuse one in a few lines.
            max(lines_run(lambda row=row: memory.offer(row, active=ACTIVE, generator=g)) for row in rows),
        ]

    small, large = works(20), works(600)
    assert min(small) > 3  # something was counted at all
    assert all(b <= a + 3 for a, b in zip(small, large, strict=True)), (small, large)
