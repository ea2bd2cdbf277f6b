"""Recipes: what is written is what is meant, and what is wrong gets a sentence that names file, key and a way out."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segstream import plugins, schema
from segstream.config import Recipe, load_recipe, recipes
from segstream.schema import build
from segstream.sections import TrainingSettings

SMALL = """
[scenario]
base = ["road"]
stages = [["car"]]
"""


def recipe_file(folder: Path, text: str, name: str = "my.toml") -> Path:
    path = folder / name
    path.write_text(SMALL + text if "[scenario]" not in text and "extends" not in text else text, encoding="utf-8")
    return path


# ---- what is read


def test_defaults_are_those_that_the_paper_and_the_house_give(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file(tmp_path, ""))
    assert recipe.name == "my"
    assert (recipe.scenario.base, recipe.scenario.stages) == (("road",), (("car",),))
    assert dataclasses.astuple(recipe.base) == (60, 24, 0.01, 0.9, 0.9, 1e-4)
    assert recipe.joint == recipe.base
    assert recipe.to_dict()["network"] == {
        "name": "deeplabv3plus", "encoder": "tf_efficientnet_lite0", "weights": "imagenet", "output_stride": 16,
        "decoder_channels": 256, "head": "linear", "scale": 12.0,
    }  # fmt: skip
    assert (recipe.augment.crop, recipe.augment.scale, recipe.augment.flip, recipe.augment.border) == (
        512, (0.5, 2.0), True, "void",
    )  # fmt: skip
    assert (recipe.memory.capacity, recipe.memory.policy, recipe.scenario.batch) == (100, "", 4)
    assert (recipe.run.precision, recipe.run.threads, recipe.run.device) == ("32-true", 1, "auto")


def test_joint_takes_what_it_lacks_from_base(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, "[base]\nepochs = 7\nlr = 0.5\n[joint]\nlr = 0.25\n")
    recipe = load_recipe(path, ["base.batch=3"])
    assert recipe.base == TrainingSettings(epochs=7, lr=0.5, batch=3)
    assert recipe.joint == TrainingSettings(epochs=7, lr=0.25, batch=3)
    assert load_recipe(path, ["joint.epochs=9"]).joint.epochs == 9
    assert load_recipe(path, ["joint.epochs=9"]).base.epochs == 7


def test_the_camvid_recipe_says_what_the_study_did() -> None:
    recipe = load_recipe("camvid-6-1")
    assert recipe.scenario.base == ("sky", "building", "road", "pavement", "tree", "car")
    assert recipe.scenario.stages == (("fence",), ("sign",), ("pole",), ("pedestrian",), ("bicyclist",))
    assert (recipe.scenario.rule, recipe.scenario.max_images, recipe.scenario.batch) == ("overlapped", 240, 4)
    assert (recipe.memory.capacity, recipe.network.decoder_channels, recipe.network.output_stride) == (50, 128, 16)
    assert (recipe.base.epochs, recipe.base.batch, recipe.base.lr) == (60, 24, 0.05)
    assert (recipe.augment.crop, recipe.augment.scale, recipe.augment.border) == (320, (0.77, 1.67), "reflect")
    assert (recipe.run.precision, recipe.data.split) == ("bf16-mixed", "test")
    assert recipe.methods == {key: {"lr": 0.01} for key in ("em", "er", "finetune")}


def test_the_small_form_differs_in_what_it_names_only() -> None:
    large, small = load_recipe("camvid-6-1").to_dict(), load_recipe("camvid-6-1-small").to_dict()
    changed = {
        (section, key)
        for section in large
        for key in (large[section] if isinstance(large[section], dict) else [""])
        if (large[section][key] != small[section][key] if key else large[section] != small[section])
    }
    assert changed == {
        ("name", ""), ("title", ""), ("data", "image_size"), ("augment", "crop"), ("base", "epochs"),
        ("joint", "epochs"), ("run", "precision"), ("run", "threads"),
    }  # fmt: skip
    assert small["data"]["image_size"] == [180, 240]


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_of_the_package_is_whole(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.title
    assert recipe.scenario.base or recipe.scenario.split
    assert recipe.data.dataset in plugins.available("datasets")
    resolved = tmp_path / "config.toml"
    resolved.write_text(recipe.to_toml(), encoding="utf-8")
    assert load_recipe(resolved) == recipe


def test_a_recipe_extends_another(tmp_path: Path) -> None:
    recipe_file(
        tmp_path,
        'name = "named"\ntitle = "below"\n[base]\nepochs = 5\nlr = 0.5\n[methods.em]\nlr = 0.1\n' + SMALL,
        "a.toml",
    )
    middle = recipe_file(tmp_path, 'extends = "a.toml"\n[base]\nlr = 0.25\n', "b.toml")
    top = recipe_file(tmp_path, 'extends = "b.toml"\n[methods.em]\nthreshold = 0.5\n', "c.toml")
    assert load_recipe(middle).base == TrainingSettings(epochs=5, lr=0.25)
    recipe = load_recipe(top)
    assert (recipe.name, recipe.title, recipe.base.epochs) == ("c", "below", 5)
    assert recipe.methods == {"em": {"lr": 0.1, "threshold": 0.5}}
    assert load_recipe(recipe_file(tmp_path, 'extends = "demo"\n', "d.toml")).data.dataset == "scenes"
    recipe_file(tmp_path, 'extends = "f.toml"\n', "e.toml")
    loop = recipe_file(tmp_path, 'extends = "e.toml"\n', "f.toml")
    with pytest.raises(ValueError, match=r"f\.toml extends itself, by way of f\.toml, e\.toml"):
        load_recipe(loop)
    with pytest.raises(ValueError, match="There is no recipe 'nothing'"):
        load_recipe(recipe_file(tmp_path, 'extends = "nothing"\n', "g.toml"))
    with pytest.raises(ValueError, match=r"extends in .*h\.toml must be the name or the path of a recipe, not 3"):
        load_recipe(recipe_file(tmp_path, "extends = 3\n", "h.toml"))
    assert "extends" not in load_recipe(top).to_toml()


# ---- --set


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("base.epochs=3", "base", "epochs", 3),
        ("base.lr=1e-2", "base", "lr", 0.01),
        ("base.lr = 1", "base", "lr", 1.0),
        ("base.lr=.5", "base", "lr", 0.5),
        ("base.lr=5.", "base", "lr", 5.0),
        ("augment.flip=false", "augment", "flip", False),
        ("augment.flip=True", "augment", "flip", True),
        ("augment.crop=[160, 240]", "augment", "crop", (160, 240)),
        ("augment.crop=160,240", "augment", "crop", (160, 240)),
        ("augment.crop=160", "augment", "crop", 160),
        ("augment.scale=0.5,2", "augment", "scale", (0.5, 2.0)),
        ("data.image_size=", "data", "image_size", ()),
        ("data.image_size=180,240", "data", "image_size", (180, 240)),
        ("data.root=/my/own folder", "data", "root", "/my/own folder"),
        ("data.root=C:\\new", "data", "root", "C:\\new"),
        ("data.root=a=b", "data", "root", "a=b"),
        ("data.root=2024", "data", "root", "2024"),
        ("data.root=2024-01-01", "data", "root", "2024-01-01"),
        ("data.root=true", "data", "root", "true"),
        ('data.root="quoted"', "data", "root", "quoted"),
        ("data.root=", "data", "root", ""),
        ("scenario.base=sky,tree", "scenario", "base", ("sky", "tree")),
        ("scenario.base=sky", "scenario", "base", ("sky",)),
        ('scenario.base=["a,b", "c"]', "scenario", "base", ("a,b", "c")),
        ('scenario.stages=[["a", "b"], ["c"]]', "scenario", "stages", (("a", "b"), ("c",))),
        ("run.device=cuda:1", "run", "device", "cuda:1"),
        ("title=A new title", "title", "", "A new title"),
        ("methods.em.lr=1e-3", "methods", "em", {"lr": 0.001}),
        ("methods.em.threshold=.75", "methods", "em", {"lr": 0.01, "threshold": 0.75}),
        ("methods.er.view=ignore", "methods", "er", {"lr": 0.01, "view": "ignore"}),
        ("methods.er.flags=[1, 2]", "methods", "er", {"lr": 0.01, "flags": [1, 2]}),
        ("methods.em.augment.crop=32", "methods", "em", {"lr": 0.01, "augment": {"crop": 32}}),
    ],
)
def test_overrides(override: str, section: str, key: str, value: Any) -> None:
    recipe = load_recipe("camvid-6-1", [override])
    found = getattr(recipe, section)
    found = found[key] if section == "methods" else getattr(found, key) if key else found
    assert found == value
    assert type(found) is type(value)


def test_the_last_override_wins() -> None:
    assert load_recipe("demo", ["base.epochs=3", "base.epochs=4"]).base.epochs == 4


# ---- sentences


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[base]\nepoch = 3", r"Unknown key 'base\.epoch' in .*my\.toml\. Did you mean 'base\.epochs'\?"),
        ("[bsae]\nepochs = 3", r"Unknown key 'bsae' in .*my\.toml\. Did you mean 'base'\?"),
        ("[base]\nzzz = 3", r"Unknown key 'base\.zzz' in .*my\.toml\. Known: base\.batch, base\.epochs"),
        ("[base]\nepochs = 'many'", r"base\.epochs in .*my\.toml must be a whole number, not 'many'"),
        ("[base]\nepochs = 2.0", "must be a whole number, not 2.0"),
        ("[base]\nepochs = true", "must be a whole number, not True"),
        ("[base]\nlr = '0.1'", r"base\.lr in .* must be a number, not '0.1'"),
        ("[base]\nlr = nan", "must be a number, not nan"),
        ("[base]\nlr = inf", "must be a number, not inf"),
        ("[base]\nlr = 0", "must be more than 0, not 0"),
        ("[base]\nepochs = 0", "must be at least 1, not 0"),
        ("[data]\nroot = 3", "must be a text, not 3"),
        ("[data]\nimage_size = [180]", r"my\.toml: data\.image_size is height and width, not \[180\]"),
        ("[data]\nimage_size = [0, 10]", "must be at least 1, not 0"),
        ("[data]\nsplit = 'tests'", r"data\.split in .*must be one of 'train', 'val', 'test', 'holdout', not 'tests'"),
        ("[augment]\nflip = 1", "must be true or false, not 1"),
        ("[augment]\ncrop = 'big'", "must be a whole number or a list of 2 whole numbers, not 'big'"),
        ("[augment]\ncrop = [1, 2, 3]", "must be a whole number or a list of 2 whole numbers"),
        ("[augment]\nscale = [2.0, 0.5]", r"my\.toml: augment\.scale is the lowest and the highest"),
        ("[augment]\nscale = [0, 1]", "must be more than 0, not 0"),
        ("base = 3", "base in .*must be a section with keys of its own, not 3"),
        ("[scenario]\nbase = ['a']\nsplit = '2-1'", r"my\.toml has both: scenario\.base"),
        ("[scenario]\nrule = 'disjoint'", r"my\.toml lacks both: scenario\.base"),
        ("[scenario]\nsplit = '2-1'\nfiles = 'x'", "the rule 'overlapped' does not use scenario.files"),
        ("[data]\nholdout = 1.5", "a share of the training list, below 1"),
        ("[scenario]\nbase = 'a'\nstages = []", "must be a list of texts, not 'a'"),
        ("[scenario]\nbase = ['a']\nstages = ['b']", r"must be a list of lists of texts, not \['b'\]"),
        ("[scenario]\nbase = ['a', 'a']\nstages = []", r"my\.toml: The scenario names the class 'a' twice"),
        ("[scenario]\nbase = ['a']\nstages = [['a']]", "names the class 'a' twice"),
        ("[scenario]\nbase = ['a']\nstages = [[]]", "has a stage without classes"),
        ("[scenario]\nbase = ['background']\nstages = []", "names the background"),
        ("[scenario]\nbase = ['a']\nstages = []\nrule = 'x'", "must be one of 'overlapped', 'disjoint'"),
        ("[methods.emm]\nlr = 1", r"my\.toml sets something for a method 'emm'\. Did you mean 'em'\?"),
        ("[methods]\nem = 1", r"methods\.em in .*my\.toml must hold key = value lines"),
        ("methods = 1", r"methods in .*my\.toml must hold a section for each method"),
        ("[methods.em]\nday = 2024-01-01", r"methods\.em\.day in .*must be a number, a text, true or false"),
        ("[base\nepochs = 3", r"my\.toml is not valid TOML: .*line"),
        ("[base]\nepochs = 1\nepochs = 2", "is not valid TOML"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load_recipe(recipe_file(tmp_path, text if "[scenario]" in text else text + SMALL))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("base.epochs=many", r"base\.epochs in --set base\.epochs=many must be a whole number, not 'many'"),
        ("base.epochs=0", "must be at least 1"),
        ("base.epoch=1", r"Unknown key 'base\.epoch' in --set base\.epoch=1\. Did you mean 'base\.epochs'\?"),
        ("capacity=20", r"Unknown key 'capacity' in .* Did you mean 'memory\.capacity'\?"),
        ("epochs=20", r"Did you mean 'base\.epochs' or 'joint\.epochs'\?"),
        ("base.lr.x=1", r"Unknown key 'base\.lr\.x'"),
        ("zzz=1", r"Unknown key 'zzz' in .* Known: augment, base"),
        ("base=3", r"base is a section; set one of epochs, batch"),
        ("base.epochs", r"expected section\.key=value"),
        ("=3", r"expected section\.key=value"),
        ("base.=3", r"expected section\.key=value"),
        ("", r"expected section\.key=value"),
        ("methods.em=3", "name the method and its setting"),
        ("methods.emm.lr=3", r"a method 'emm'\. Did you mean 'em'\?"),
        ("methods.em.lr=nan", "must be a number, a text"),
        ("data.image_size=1,2,3", r"data\.image_size is height and width"),
        ("scenario.base=fence", r"camvid-6-1\.toml with --set scenario\.base=fence: .* 'fence' twice"),
        ("scenario.stages=fence", "must be a list of lists of texts, not 'fence'"),
        ("base.epochs=1\nlr = 3", "must be a whole number"),
    ],
)
def test_mistakes_in_an_override(override: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load_recipe("camvid-6-1", [override])


def test_recipes_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no recipe 'camvid-61'\. Did you mean 'camvid-6-1'\?"):
        load_recipe("camvid-61")
    with pytest.raises(ValueError, match=r"There is no recipe file .*none\.toml"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(ValueError, match=r"There is no recipe file .*"):
        load_recipe(tmp_path)
    (tmp_path / "latin.toml").write_bytes("title = 'ä'".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.toml is not valid TOML: .*utf-8"):
        load_recipe(tmp_path / "latin.toml")


def test_a_name_means_the_package_and_a_path_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    recipe_file(tmp_path, "title = 'mine'" + SMALL, "mine")
    assert load_recipe("demo").data.dataset == "scenes"
    assert load_recipe("mine").title == "mine"


# ---- there and back

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
class_name = texts.filter(lambda n: n.strip() and n != "background")
finite = st.floats(allow_nan=False, allow_infinity=False)
keys = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=5)
free = st.recursive(
    st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=5,
)
factor = st.floats(0.001, 1e18)


@st.composite
def plain_recipes(draw: st.DrawFn) -> dict[str, Any]:
    classes = draw(st.lists(class_name, unique=True, min_size=1, max_size=6))
    cut = draw(st.integers(0, len(classes)))
    training = {"epochs": draw(st.integers(1, 10**20)), "lr": draw(factor)}
    size = st.integers(1, 9999)
    return {
        "name": draw(texts),
        "title": draw(texts),
        "data": {"root": draw(texts), "image_size": draw(st.just([]) | st.lists(size, min_size=2, max_size=2))},
        "scenario": {"base": classes[:cut], "stages": [[c] for c in classes[cut:]], "batch": draw(size)},
        "augment": {
            "crop": draw(size | st.lists(size, min_size=2, max_size=2)),
            "scale": sorted([draw(factor), draw(factor)]),
            "flip": draw(st.booleans()),
        },
        "base": training,
        "joint": {**training, "lr": draw(factor)},
        "methods": draw(
            st.dictionaries(st.sampled_from(["em", "er"]), st.dictionaries(keys, free, max_size=3), max_size=2)
        ),
    }


def _without_tables_in_lists(value: Any) -> Any:
    """The writer makes sections of tables; inside a list TOML would need inline ones, which no setting uses."""
    if isinstance(value, dict):
        return {k: _without_tables_in_lists(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_tables_in_lists(v) for v in value if not isinstance(v, dict)]
    return value


@settings(deadline=None, max_examples=60, derandomize=True)
@given(plain=plain_recipes())
def test_there_and_back(tmp_path_factory: pytest.TempPathFactory, plain: dict[str, Any]) -> None:
    recipe = build(Recipe, _without_tables_in_lists(plain), source="test")
    text = recipe.to_toml()
    assert tomllib.loads(text) == recipe.to_dict()
    path = tmp_path_factory.mktemp("r") / "config.toml"
    path.write_bytes(text.encode())
    assert load_recipe(path) == recipe
    assert load_recipe(path).to_toml() == text


def test_nothing_is_shared_with_the_reader() -> None:
    recipe = load_recipe("camvid-6-1")
    recipe.to_dict()["methods"]["em"]["lr"] = 7
    recipe.to_dict()["scenario"]["base"].append("x")
    assert recipe == load_recipe("camvid-6-1")


# ---- the schema by itself


@dataclasses.dataclass
class Settings:
    view: Literal["latent", "ignore"] = "latent"
    seed: int | None = None
    weights: tuple[float, ...] = ()
    names: tuple[tuple[str, int], ...] = ()


def test_types_that_methods_use() -> None:
    made = build(Settings, {"view": "ignore", "seed": None, "weights": [1], "names": [["a", 1]]}, source="s")
    assert made == Settings("ignore", None, (1.0,), (("a", 1),))
    for data, sentence in [
        ({"view": "x"}, "view in s must be 'latent' or 'ignore', not 'x'"),
        ({"seed": "x"}, "seed in s must be a whole number, not 'x'"),
        ({"weights": ["x"]}, r"weights in s must be a list of numbers, not \['x'\]"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            build(Settings, data, source="s")
    hints = get_type_hints(Settings)
    assert schema.parse("none", hints["seed"]) is None
    assert schema.parse("7", hints["seed"]) == 7
    assert schema.parse("ignore", hints["view"]) == "ignore"
    with pytest.raises(TypeError, match="is no type that a setting can have"):
        schema.convert(1, frozenset, key="a", source="s")


@settings(deadline=None, max_examples=200, derandomize=True)
@given(text=st.text(max_size=20), kind=st.sampled_from(sorted(get_type_hints(Settings).values(), key=str)))
def test_no_text_breaks_the_command_line(text: str, kind: Any) -> None:
    try:
        schema.convert(schema.parse(text, kind), kind, key="a", source="--set")
    except ValueError as error:
        assert str(error).startswith("a in --set must be")  # noqa: PT017


def test_reading_a_recipe_needs_no_torch() -> None:
    code = (
        "import sys; from segstream.config import load_recipe; load_recipe('demo'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
