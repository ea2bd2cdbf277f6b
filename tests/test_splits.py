"""Which pictures belong to which stage: the rules, lists from files, our own draw, and the command that writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from trees import Labels, Tree, ade_tree, label_sets, voc_tree

from segstream import cli
from segstream.checks import check_stream
from segstream.classes import ClassTable
from segstream.config import load_recipe, recipes
from segstream.data import Cached, Resized, Scenario, Stream, hold_back, wrap
from segstream.data.datasets.ade20k import NAMES as ADE_NAMES
from segstream.data.datasets.voc import NAMES, open_voc
from segstream.data.source import DataError, Source
from segstream.data.stages import generate_stages, read_stages, write_stages
from segstream.opening import make_scenario, open_splits
from segstream.sections import DataSettings, ScenarioSettings


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGSTREAM_CACHE", str(tmp_path / "cache"))


def source(*sets: set[int], classes: int = 6) -> Source:
    """Pictures "0", "1", ... with these classes."""
    names = ["background", *(f"c{k}" for k in range(1, classes + 1))]
    pixels = np.zeros((1, classes + 1, 3), np.uint8)
    masks = [np.array([sorted(s) + [0] * (classes + 1 - len(s))]) for s in sets]
    return wrap([(pixels, mask) for mask in masks], names)


SIX = [f"c{k}" for k in range(1, 7)]
PICTURES = source({1}, {1, 5}, {2, 6}, {5}, {5, 6}, {6, 1}, {3}, set())


# ---- lists from files


@pytest.fixture
def lists(tmp_path: Path) -> Callable[..., Path]:
    def make(**content: str | list[int] | np.ndarray) -> Path:
        folder = tmp_path / "lists"
        folder.mkdir(exist_ok=True)
        for name, values in content.items():
            stem = name.replace("__", "-")
            if isinstance(values, str):
                (folder / f"{stem}.txt").write_text(values.replace(" ", "\n"))
            else:
                np.save(folder / f"{stem}.npy", np.asarray(values))
        return folder

    return make


def test_positions_count_in_the_sorted_list(lists: Callable[..., Path]) -> None:
    ids = ["b", "d", "a", "c"]
    assert read_stages(lists(train__0=[0, 3], train__1=[2]), ids, 2) == [[1, 2], [3]]


def test_names_with_and_without_suffix(lists: Callable[..., Path]) -> None:
    folder = lists(step__0="d.jpg a  ", step__1="b.png")
    (folder / "README.txt").write_text("without a number it is no list")
    (folder / "7.json").write_text("{}")
    assert read_stages(folder, ["a", "b", "c", "d"], 2) == [[0, 3], [1]]


def test_numbers_give_the_order(lists: Callable[..., Path]) -> None:
    names = {f"voc15__{n}": f"p{n}" for n in (10, 9, 2, 1)}
    assert read_stages(lists(**names), ["p1", "p2", "p9", "p10"], 4) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"s0": "a"}, r"lists has 1 lists \(s0\.txt\), but the scenario has 2 stages, the base included"),
        ({"s0": "a", "s1": "b", "s2": "c"}, "has 3 lists"),
        ({}, r"has 0 lists \(none\)"),
        ({"a1": "a", "b1": "b"}, r"a1\.txt and b1\.txt in .*lists have the same number"),
        ({"s1": "a", "s0": [1]}, r""),
        ({"s0": "a", "s1": "b a"}, r"s1\.txt names the picture a, which is in s0\.txt too; each comes in one stage"),
        ({"s0": "a a", "s1": "b"}, r"s0\.txt names the picture a, which is twice in it"),
        ({"s0": [0], "s1": [1, 1]}, r"s1\.npy names the picture b, which is twice in it"),
        ({"s0": "a", "s1": "pict8"}, r"s1\.txt names 'pict8' in line 1, .* no such picture\. Did you mean 'pict9'\?"),
        ({"s0": "a", "s1": "zzz"}, r"names 'zzz' in line 1, but the training list has no such picture\.$"),
        ({"s0": [0], "s1": [4]}, r"s1\.npy holds the position 4, but the training list has 4 pictures, counted from 0"),
        ({"s0": [0], "s1": [-1]}, r"holds the position -1"),
        ({"s0": [0], "s1": [1.0]}, r"does not hold one row of whole numbers"),
        ({"s0": [0], "s1": [[1]]}, r"does not hold one row of whole numbers"),
        ({"s0": [0], "s1": 1}, r"does not hold one row of whole numbers"),
        ({"s0": [0], "s1": []}, r"s1\.npy names no picture"),
        ({"s0": "a", "s1": " "}, r"s1\.txt names no picture"),
    ],
)
def test_lists_that_are_wrong(content: dict, words: str, lists: Callable[..., Path]) -> None:
    folder, ids = lists(**content), ["a", "b", "c", "pict9"]
    if not words:
        assert read_stages(folder, ids, 2) == [[1], [0]]
        return
    with pytest.raises(DataError, match=words):
        read_stages(folder, ids, 2)


def test_files_that_are_wrong(lists: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"no folder nowhere with the stages' lists \(one list a stage"):
        read_stages("nowhere", ["a"], 1)
    folder = lists(s0=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"s0\.npy cannot be read as an array"):  # and nothing was unpickled
        read_stages(folder, ["a"], 1)
    (folder / "s0.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"s0\.npy cannot be read as an array"):
        read_stages(folder, ["a"], 1)
    (folder / "s0.npy").rename(folder / "s0.txt")
    with pytest.raises(DataError, match=r"s0\.txt is not UTF-8"):
        read_stages(folder, ["a"], 1)


def test_the_rule_files(lists: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    folder = str(lists(s0="0 6", s1=[2, 3]))
    assert Scenario.split(SIX, "4-2", "files", files=folder).select(PICTURES) == [[0, 6], [2, 3]]
    assert not caplog.text
    assert Scenario.split(SIX, "4-2", "files", 1, files=folder).select(PICTURES)[1] in ([2], [3])
    folder = str(lists(s0="0 6", s1=[2, 7]))
    assert Scenario.split(SIX, "4-2", "files", files=folder).select(PICTURES)[1] == [2, 7]
    assert "1 of the 2 pictures of stage 1 show none of its classes" in caplog.text
    with pytest.raises(DataError, match=r"None of the 2 pictures .* stage 0 shows a class of it .*another scenario\?"):
        Scenario.split(SIX, "1-5", "files", files=str(lists(s0="3 6"))).select(PICTURES)


def test_of_a_part_each_stage_has_what_is_in_it(lists: Callable[..., Path]) -> None:
    """Positions and names are those of the whole training list, whatever is held back of it or done to it."""
    for more in ({"rule": "files", "files": str(lists(s0="0 1 6", s1=[2, 3, 4, 5]))}, {"rule": "generated"}):
        scenario = Scenario.split(SIX, "4-2", **more)
        whole = scenario.select(PICTURES)
        rest, held = hold_back(PICTURES, fraction=0.4, seed=3)
        for part in (rest, held, Cached(rest)):
            chosen = [{part.ids[i] for i in stage} for stage in scenario.select(part)]
            assert chosen == [{str(i) for i in stage} & set(part.ids) for stage in whole]
        assert scenario.select(Resized(PICTURES, (1, 7))) == whole


def test_a_scenario_that_is_wrong() -> None:
    for more, words in (
        ({"rule": "files"}, r"The rule 'files' needs a folder with one list a stage: `files`"),
        ({"files": "x"}, r"The rule 'overlapped' takes no lists"),
        ({"rule": "generated", "seed": -1}, "seed of a scenario is -1"),
        ({"rule": "random"}, "no rule 'random'; the rules are overlapped, disjoint, files, generated"),
    ):
        with pytest.raises(DataError, match=words):
            Scenario.split(SIX, "4-2", **more)


def test_written_lists_are_read_again(tmp_path: Path) -> None:
    ids = [f"p{k}" for k in range(30)]
    stages = [[2, 5, 9], [0], *[[k] for k in range(10, 20)]]
    write_stages(tmp_path / "s", [[ids[i] for i in stage] for stage in stages], about={})
    assert read_stages(tmp_path / "s", ids, 12) == stages
    assert (tmp_path / "s" / "step-0.txt").read_text() == "p2\np5\np9\n"
    write_stages(tmp_path / "s", [["p1"], ["p2"]], about={})
    assert read_stages(tmp_path / "s", ids, 2) == [[1], [2]], "longer lists of an earlier time are gone"


# ---- our own draw


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    classes = draw(st.integers(2, 8))
    cuts = sorted(draw(st.sets(st.integers(1, classes - 1), max_size=3)))
    groups = [frozenset(range(a + 1, b + 1)) for a, b in zip([0, *cuts], [*cuts, classes], strict=True)]
    pictures = st.frozensets(st.integers(1, classes + 1), max_size=4)  # the last one is of no stage
    return draw(st.lists(pictures, max_size=40)), groups


@settings(deadline=None, max_examples=50, derandomize=True)
@given(world=worlds(), seed=st.integers(0, 5))
def test_each_picture_is_in_exactly_one_stage(
    world: tuple[list[frozenset[int]], list[frozenset[int]]], seed: int
) -> None:
    present, groups = world
    stages = generate_stages(present, groups, seed=seed)
    taught = frozenset().union(*groups)
    assert sorted(i for stage in stages for i in stage) == [i for i, p in enumerate(present) if p & taught]
    for stage, group in zip(stages, groups, strict=True):
        assert stage == sorted(stage)
        assert all(present[i] & group for i in stage), "a picture shows a class of its stage"
    assert stages == generate_stages(present, groups, seed=seed)


def test_rare_classes_and_stages_that_lack_pictures_come_first() -> None:
    """Class 1 is in every picture, class 2 in few: a draw by chance would give half of these away."""
    present = [frozenset({1, 2}) if k < 40 else frozenset({1}) for k in range(400)]
    base, late = generate_stages(present, [frozenset({1}), frozenset({2})], seed=0)
    assert len(late) == 40
    assert len(base) == 360
    # Where both are as frequent, neither gets all.
    present = [frozenset({1, 2})] * 100
    assert [len(stage) for stage in generate_stages(present, [frozenset({1}), frozenset({2})], seed=0)] == [50, 50]


def test_the_seed_decides(tmp_path: Path) -> None:
    present = list(label_sets([str(k) for k in range(200)], 20, extra=4).values())
    groups = [frozenset(range(1, 16)), frozenset(range(16, 21))]
    draws = [generate_stages(present, groups, seed=seed) for seed in (0, 1)]
    assert draws[0] != draws[1]
    assert all(len(stage) > 20 for draw in draws for stage in draw)


# ---- the rules on VOC, by a reading of METHODS' words that shares no code with the library


def by_hand(labels: Labels, groups: list[set[int]], rule: str) -> list[list[str]]:
    stages = []
    for t, group in enumerate(groups):
        seen = set().union(*groups[: t + 1])
        ids = [name for name, classes in labels.items() if any(c in group for c in classes)]
        if rule == "disjoint":
            ids = [name for name in ids if all(c in seen for c in labels[name])]
        stages.append(ids)
    return stages


def groups_of(notation: str, classes: int) -> list[set[int]]:
    first, step = map(int, notation.split("-"))
    return [
        set(range(1, first + 1)),
        *(set(range(k, min(k + step, classes + 1))) for k in range(first + 1, classes + 1, step)),
    ]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Label sets of any kind, masks only; one picture in five shows many classes."""
    dice = np.random.default_rng(0)
    labels = {
        f"2008_{k:06d}": frozenset(
            dice.choice(np.arange(1, 21), size=1 + k % 2 + 3 * (k % 5 == 0), replace=False).tolist()
        )
        for k in range(300)
    }
    test = {f"2007_{k:06d}": frozenset({1 + k % 20, 1 + k % 7}) for k in range(60)}
    return voc_tree(tmp_path_factory.mktemp("big") / "data", train=labels, test=test, images=False, size=(8, 24))


@pytest.mark.parametrize("notation", ["19-1", "15-5", "15-1", "10-1"])
@pytest.mark.parametrize("rule", ["overlapped", "disjoint"])
def test_the_splits_of_voc(notation: str, rule: str, big: Tree, tmp_path: Path, ss: Callable[..., Said]) -> None:
    out = tmp_path / "out"
    said = ss("splits", "voc", "--root", big.root, "--scenario", notation, "--rule", rule, "--out", out)
    assert said.code == 0, said.err
    groups = groups_of(notation, 20)
    expected = by_hand(big.train, groups, rule)
    assert [(out / f"step-{t}.txt").read_text().split() for t in range(len(groups))] == expected
    assert len(list(out.glob("step-*"))) == len(groups)
    scored = [sum(bool(s & set().union(*groups[: t + 1])) for s in big.test.values()) for t in range(len(groups))]
    table = [line.split() for line in said.out.splitlines() if line[:1].isdigit() or line.lstrip()[:1].isdigit()]
    assert [(int(row[0]), int(row[-2]), int(row[-1])) for row in table] == [
        (t, len(expected[t]), scored[t]) for t in range(len(groups))
    ]


# ---- the command


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def ss(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Said]]:
    threads = torch.get_num_threads()

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = cli.main([str(a) for a in arguments])
        told = capsys.readouterr()
        return Said(code, told.out, told.err)

    yield call
    torch.set_num_threads(threads)


def test_json(big: Tree, tmp_path: Path, ss: Callable[..., Said]) -> None:
    said = ss("splits", "voc", "--root", big.root, "--scenario", "15-5", "--out", tmp_path / "o", "--json")
    found = json.loads(said.out)
    assert found["groups"] == [list(NAMES[1:16]), list(NAMES[16:])]
    assert found["pictures"] == [len(ids) for ids in by_hand(big.train, groups_of("15-5", 20), "overlapped")]
    assert found["dataset"] == "voc"


def test_lists_as_they_were_written_come_back(big: Tree, tmp_path: Path, ss: Callable[..., Said]) -> None:
    common = ("splits", "voc", "--root", big.root, "--scenario", "15-1")
    assert ss(*common, "--rule", "generated", "--seed", "3", "--out", tmp_path / "a").code == 0
    said = ss(*common, "--rule", "files", "--files", tmp_path / "a", "--out", tmp_path / "b")
    assert said.code == 0, said.err
    texts = [{p.name: p.read_text() for p in (tmp_path / f).glob("*.txt")} for f in "ab"]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 6
    assert "not those of any paper" in ss(*common, "--rule", "generated", "--out", tmp_path / "c").out
    assert {p.name: p.read_text() for p in (tmp_path / "c").glob("*.txt")} != texts[0]


def test_ade20k_and_any_folder(tmp_path: Path, ss: Callable[..., Said]) -> None:
    tree = ade_tree(tmp_path / "ade", images=False, size=(8, 16))
    for rule in ("overlapped", "disjoint", "generated"):
        said = ss(
            "splits", "ade20k", "--root", tree.root, "--scenario", "100-10", "--rule", rule, "--out", tmp_path / rule
        )
        assert said.code == 0, said.err
        assert "(100 classes)" in said.out
        assert len(list((tmp_path / rule).glob("step-*.txt"))) == 6
    photos = tmp_path / "photos"
    for folder in ("images", "masks"):
        (photos / folder).mkdir(parents=True)
    (photos / "classes.txt").write_text("background\nroad\ncar\ndog\n")
    for name, value in {"a": 1, "b": 2, "c": 3}.items():
        Image.new("RGB", (4, 4)).save(photos / "images" / f"{name}.png")
        Image.new("L", (4, 4), value).save(photos / "masks" / f"{name}.png")
    said = ss("splits", "folder", "--root", photos, "--base", "car", "--stage", "road,dog", "--out", tmp_path / "p")
    assert said.code == 0, said.err
    assert [(tmp_path / "p" / f"step-{k}.txt").read_text().split() for k in (0, 1)] == [["b"], ["a", "c"]]
    assert ss("splits", "folder", "--root", photos, "--scenario", "1-1", "--out", tmp_path / "q").code == 0
    assert (tmp_path / "q" / "step-2.txt").read_text() == "c\n"


def test_replacing(big: Tree, tmp_path: Path, ss: Callable[..., Said]) -> None:
    common, out = ("splits", "voc", "--root", big.root, "--out", tmp_path / "out"), tmp_path / "out"
    assert ss(*common, "--scenario", "15-1").code == 0
    said = ss(*common, "--scenario", "19-1")
    assert said.code == 2
    assert "holds lists of stages already; add --overwrite to replace it" in said.err
    assert ss(*common, "--scenario", "19-1", "--overwrite").code == 0
    assert sorted(p.name for p in out.iterdir()) == ["segstream.json", "step-0.txt", "step-1.txt"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "step-0.txt").write_text("precious")
    said = ss("splits", "voc", "--root", big.root, "--scenario", "15-1", "--out", tmp_path / "mine", "--overwrite")
    assert said.code == 2
    assert [p.read_text() for p in (tmp_path / "mine").iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("vocc", "--scenario", "15-1"), "There is no dataset 'vocc'. Did you mean 'voc'?"),
        (("voc",), "Give either --scenario"),
        (("voc", "--scenario", "15-1", "--stage", "cat"), "Give either --scenario"),
        (("voc", "--scenario", "15-1", "--base", "cat"), "leave --base out"),
        (("voc", "--scenario", "15"), "'15' does not suit 20 classes"),
        (("voc", "--scenario", "20-1"), "'20-1' does not suit 20 classes"),
        (("voc", "--base", "cat", "--stage", "lion"), "no class 'lion'"),
        (("voc", "--base", "cat", "--stage", "cat"), "names the class 'cat' twice"),
        (("voc", "--scenario", "15-1", "--rule", "joint"), "no rule 'joint'; the rules are"),
        (("voc", "--scenario", "15-1", "--rule", "files"), "needs a folder with one list a stage"),
        (("voc", "--scenario", "15-1", "--files", "lists"), "The rule 'overlapped' takes no lists"),
        (("voc", "--scenario", "15-1", "--rule", "files", "--files", "lists"), "no folder lists"),
        (("voc", "--scenario", "15-1", "--root", "elsewhere"), "There is no folder elsewhere"),
        (("folder", "--scenario", "1-1", "--download"), "'folder' cannot be downloaded"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    arguments: tuple[str, ...],
    words: str,
    big: Tree,
    tmp_path: Path,
    ss: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    root = () if "--root" in arguments else ("--root", big.root)
    said = ss("splits", *arguments, *root, "--out", tmp_path / "out")
    assert (said.code, said.out) == (2, "")
    errors = [line for line in said.err.splitlines() if not line.startswith("Warning: There are")]
    assert len(errors) == 1
    assert words in errors[0]
    assert not (tmp_path / "out").exists()


def test_nothing_under_the_root_and_an_index_for_the_next_time(
    big: Tree, tmp_path: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def times() -> Mapping[Path, int]:
        return {path: path.stat().st_mtime_ns for path in big.root.rglob("*")}

    before = times()
    common = ("splits", "voc", "--root", big.root, "--scenario", "15-1")
    assert ss(*common, "--out", tmp_path / "a").code == 0
    monkeypatch.setattr("segstream.data.listed.read_mask", None)  # would be needed without the index
    assert ss(*common, "--rule", "disjoint", "--out", tmp_path / "b").code == 0
    assert times() == before


def test_a_stage_without_pictures_is_said(tmp_path: Path, ss: Callable[..., Said]) -> None:
    tree = voc_tree(tmp_path / "d", train={"2008_000001": frozenset({1})}, test={"2007_000001": frozenset({1})})
    said = ss("splits", "voc", "--root", tree.root, "--scenario", "19-1", "--out", tmp_path / "out")
    assert said.code == 0
    assert "No picture belongs to stage 1 (tvmonitor)" in said.err
    assert (tmp_path / "out" / "step-1.txt").read_text() == ""


# ---- what the rest of the library makes of it


def test_a_stream_over_voc(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", size=(16, 20))
    train = open_voc(root=tree.root).train
    for rule in ("overlapped", "disjoint", "generated"):
        scenario = Scenario.split(train.names, "15-1", rule)
        table = ClassTable(scenario.base)
        check_stream(
            lambda seed, start, s=scenario, t=table: Stream(train, s, classes=t, batch=2, seed=seed, start=start)
        )


def test_opening_passes_on_what_a_dataset_knows(tmp_path: Path) -> None:
    tree = voc_tree(tmp_path / "data", images=False, size=(8, 16))
    section, told = DataSettings(dataset="voc", root=str(tree.root), holdout=0.25), []
    splits = open_splits(section, images=False, told=lambda *words: told.append(words))
    assert (len(splits.train), len(splits.part("holdout"))) == (30, 10)
    scenario = make_scenario(ScenarioSettings(split="15-1", rule="generated", seed=2), splits.train.names)
    assert sum(map(len, scenario.select(splits.train))) == 30
    assert told == [("masks", 40, 40)]
    with pytest.raises(DataError, match="JPEGImages"):
        open_splits(section)


BENCHMARKS = sorted(name for name in recipes() if name.startswith(("voc-", "ade-")))


def test_there_is_a_recipe_for_each_split() -> None:
    voc = {f"voc-{split}-{rule}" for split in ("19-1", "15-5", "15-1", "10-1") for rule in ("disjoint", "overlapped")}
    ade = {
        f"ade-{split}{rule}" for split in ("100-50", "100-10", "50-50") for rule in ("", "-overlapped", "-generated")
    }
    assert set(BENCHMARKS) == voc | ade
    assert "voc" not in recipes(), "what they share is no recipe"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_recipes_are_what_they_are_called(name: str) -> None:
    recipe = load_recipe(name)
    voc = name.startswith("voc")
    split, _, rule = (
        name[4:].replace("-disjoint", " disjoint").replace("-over", " over").replace("-gen", " gen").partition(" ")
    )
    assert (recipe.data.dataset, recipe.data.split) == ("voc" if voc else "ade20k", "test")
    assert (recipe.scenario.split, recipe.scenario.rule) == (split, rule or "files")
    assert split in recipe.title
    assert recipe.scenario.max_images == 0
    assert recipe.memory.capacity == (100 if voc else 750)
    em = recipe.methods["em"]
    assert (em["latent_weight"], em["sharpness"]) == ((0.5, 1.0) if voc else (0.1, 10.0))
    assert (recipe.network.name, recipe.network.encoder, recipe.network.output_stride) == (
        "torchvision_deeplabv3",
        "resnet101",
        16,
    )
    assert (recipe.base.epochs, recipe.base.batch, recipe.base.lr, recipe.base.weight_decay) == (60, 24, 0.01, 1e-4)
    assert (recipe.augment.crop, recipe.augment.scale, recipe.augment.border) == (512, (0.5, 2.0), "void")
    assert recipe.joint == recipe.base
    if split == "15-1":
        assert recipe.methods["mib"]["distillation"] == 100
    else:
        assert "mib" not in recipe.methods
    rules = {"rule": "overlapped"} if recipe.scenario.rule == "files" else {"rule": recipe.scenario.rule}
    assert len(Scenario.split(NAMES if voc else ADE_NAMES, split, **rules).names) == (20 if voc else 150)


def test_the_documented_commands_name_what_there_is() -> None:
    text = (Path(__file__).parents[1] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    commands = [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("$ segstream compare")]
    named = {word for line in commands for word in line.split() if word.startswith(("voc-", "ade-"))}
    tables = {name for name in BENCHMARKS if "10-1-" not in name and not name.endswith(("0-overlapped", "-generated"))}
    assert named == tables
    for name in ("memory.capacity=20", "scenario.files=lists"):
        load_recipe("ade-50-50", [name, "data.root=somewhere"])
