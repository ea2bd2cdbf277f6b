"""The command line as a person or a program meets it: what it says, where it says it, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file, save_file

from segstream import cli
from segstream.classes import ClassTable
from segstream.cli.app import COMMANDS
from segstream.cli.progress import Meter
from segstream.config import load_recipe
from segstream.data.datasets.folder import open_folder
from segstream.experiment import run as run_recipe
from segstream.memory import Memory
from segstream.method import load
from segstream.methods.em import EM
from segstream.models import Segmenter
from segstream.photos import AtMost, overlay_png
from segstream.types import Batch, Prediction, Sample

COLORS = {1: (210, 40, 40), 2: (40, 60, 210)}
ANSI = re.compile(r"\x1b\[")
TINY = ("--network", "tiny", "--weights", "none", "--decoder-channels", "16", "--threads", "1")


def picture(seed: int, *, height: int = 32, width: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Grey noise with a red (1) and a blue (2) square."""
    dice = np.random.default_rng(seed)
    image = dice.integers(90, 160, (height, width, 3)).astype(np.uint8)
    mask = np.zeros((height, width), np.uint8)
    for value, color in COLORS.items():
        top, left = dice.integers(0, height - 12), dice.integers(0, width // 2 - 12) + (value - 1) * width // 2
        image[top : top + 12, left : left + 12] = color
        mask[top : top + 12, left : left + 12] = value
    return image, mask


def make_folder(
    root: Path, *, count: int = 6, names: Sequence[str] = ("background", "red", "blue"), **lists: str
) -> Path:
    (root / "images").mkdir(parents=True)
    (root / "masks").mkdir()
    for k in range(count):
        image, mask = picture(k)
        Image.fromarray(image).save(root / "images" / f"p{k}.png")
        Image.fromarray(mask).save(root / "masks" / f"p{k}.png")
    (root / "classes.txt").write_text("\n".join(names) + "\n")
    for part, ids in lists.items():
        (root / f"{part}.txt").write_text(ids.replace(" ", "\n") + "\n")
    return root


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved segmenter and a saved method; both know red and blue, and neither has learned anything."""
    folder = tmp_path_factory.mktemp("models")
    Segmenter.create("tiny", weights=None, classes=["red", "blue"], decoder_channels=16).save(folder / "plain")
    segmenter = Segmenter.create("tiny", weights=None, classes=["red", "blue"], decoder_channels=16)
    method = EM(segmenter, memory=Memory(capacity=4), seed=0)
    image, mask = (torch.from_numpy(x) for x in picture(1))
    sample = Sample(
        image.permute(2, 0, 1).contiguous(), mask.to(torch.int16), id="a", complete=frozenset({1, 2}), known=3
    )
    method.remember(Batch((sample,)))
    method.save(folder / "taught", extra={"note": "kept"})
    return folder


@dataclass
class Said:
    code: int
    out: str
    err: str

    def json(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def ss(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Said]]:
    """Run a command line in this process."""
    threads = torch.get_num_threads()

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = cli.main([str(a) for a in arguments])
        told = capsys.readouterr()
        assert not ANSI.search(told.out + told.err)  # nothing here is a terminal
        return Said(code, told.out, told.err)

    yield call
    torch.set_num_threads(threads)


def refused(said: Said, *words: str) -> None:
    """Exit code 2 and one sentence on stderr, with these words in it."""
    assert said.code == 2, said
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1, "one sentence, no traceback"
    for word in words:
        assert word in said.err


# ---- help


@pytest.mark.parametrize("name", [entry[0] for entry in COMMANDS])
def test_every_command_has_help_and_examples_that_use_options_it_has(name: str, ss: Callable[..., Said]) -> None:
    said = ss(name, "--help")
    text, _, examples = said.out.partition("Examples:")
    assert said.code == 0
    assert "│" not in text, "frames are for terminals"
    lines = [line.strip() for line in examples.strip().splitlines()]
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "segstream"
        options = {w for w in words if w.startswith("--")}
        missing = {o for o in options if o not in ss(words[1], "--help").out}
        assert not missing


def test_completion_for_a_shell() -> None:
    environment = os.environ | {
        "_SEGSTREAM_COMPLETE": "complete_bash",
        "COMP_WORDS": "segstream pre",
        "COMP_CWORD": "1",
    }
    code = "import sys; from segstream.cli import main; sys.exit(main([]))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert told.stdout.split() == ["predict"]


def test_wrong_usage_is_code_2(ss: Callable[..., Said]) -> None:
    assert ss("frobnicate").code == 2
    assert ss("fit").code == 2
    assert "--data" in ss("fit").err
    assert ss("list", "things").code == 2


def test_a_closed_pipe_is_no_traceback() -> None:
    code = "import sys; from segstream.cli import main; sys.exit(main(['list', 'recipes']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in (0, 1)


# ---- check


def test_check_counts_and_json_agrees(photos: Path, ss: Callable[..., Said]) -> None:
    said = ss("check", photos)
    assert said.code == 0
    assert re.search(r"1\s+red\s+11\.25 %\s+6", said.out)  # 12 x 12 of 32 x 40
    assert ss("check", photos, "--json").json()["ok"] is True


def test_check_names_every_problem(photos: Path, ss: Callable[..., Said]) -> None:
    (photos / "masks" / "p0.png").unlink()
    (photos / "images" / "p1.png").write_bytes(b"nothing")
    said = ss("check", photos)
    assert said.code == 2
    assert "p0" in said.out
    assert "p1" in said.out
    assert "2 problems" in said.out


# ---- fit


def fit(ss: Callable[..., Said], photos: Path, out: Path, *more: object) -> Said:
    return ss("fit", "--data", photos, "--out", out, "--epochs", 2, "--crop", 32, *TINY, *more)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in Segmenter.load(folder).state_dict().items()}


def same(a: Path, b: Path) -> bool:
    one, other = weights(a), weights(b)
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_fit_makes_a_model_and_scores_it(photos: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    out = tmp_path / "models" / "home"
    said = fit(ss, photos, out)
    assert said.code == 0, said
    assert "5 pictures are learned; 1 are held back" in said.err
    assert "mIoU" in said.out
    assert f"predict --model {out}" in said.out
    assert Segmenter.load(out).classes.names == ("red", "blue")
    assert not (out / "training").exists()
    before = weights(out)
    refused(fit(ss, photos, out), str(out), "--overwrite")
    assert fit(ss, photos, out, "--resume").code == 0  # there is nothing left to do
    assert all(torch.equal(before[k], v) for k, v in weights(out).items())
    again = fit(ss, photos, out, "--overwrite", "--classes", "blue", "--json", "-q")
    assert again.json()["scores"]["names"] == ["background", "blue"]
    assert again.err == ""
    assert Segmenter.load(out).classes.names == ("blue",)


def test_fit_scores_the_pictures_of_val_txt(tmp_path: Path, ss: Callable[..., Said]) -> None:
    photos = make_folder(tmp_path / "photos", train="p0 p1 p2 p3", val="p4 p5")
    said = fit(ss, photos, tmp_path / "out")
    assert "those of val.txt (2)" in said.err


class Stop:
    """Lets the person press Ctrl-C after some progress."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, *progress: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interrupted_fit_goes_on_as_if_nothing_had_been(
    photos: Path, tmp_path: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(ss, photos, tmp_path / "whole").code == 0
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Meter, "__call__", Stop(1))
        said = fit(ss, photos, out)
    assert said.code == 130
    assert "Interrupted: " in said.err
    assert shlex.split(said.err.rpartition("go on with: ")[2])[-1] == "--resume"
    refused(fit(ss, photos, out), "unfinished training", "--resume")
    with monkeypatch.context() as patch:
        patch.setattr(Meter, "__call__", Stop(1))
        again = fit(ss, photos, out, "--overwrite")
    assert "--overwrite" not in again.err, "going on is the opposite of starting anew"
    assert fit(ss, photos, out, "--resume").code == 0
    assert same(tmp_path / "whole", out)


def test_interrupted_before_anything_was_kept(
    photos: Path, tmp_path: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Meter, "__call__", Stop(0))
    said = fit(ss, photos, tmp_path / "out")
    assert said.code == 130
    assert "Nothing was written" in said.err
    assert not (tmp_path / "out").exists()


def test_own_weights_are_reported(photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    tensors = load_file(next((models / "plain").glob("weights-*.safetensors")))
    names = [name for name in tensors if name.startswith("body.")]
    file = tmp_path / "mine.safetensors"
    save_file({**{n: tensors[n] for n in names[1:]}, "stranger": torch.zeros(3)}, file)
    said = fit(ss, photos, tmp_path / "out", "--weights", file)
    assert said.code == 0, said
    assert f"{len(names) - 1} tensors matched, 1 missing ({names[0].removeprefix('body.')})" in said.err
    assert "stranger" in said.err


# ---- teach


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Pictures in which red is called sofa."""
    return make_folder(tmp_path / "strange", names=("background", "sofa", "blue"))


def teach(ss: Callable[..., Said], data: Path, out: Path, *more: object) -> Said:
    return ss("teach", "--data", data, "--out", out, "--passes", 1, "--threads", 1, *more)


def test_teach_adds_a_class_and_tells_how_well(
    strange: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]
) -> None:
    out = tmp_path / "more"
    said = teach(ss, strange, out, "--model", models / "taught", "--classes", "sofa")
    assert said.code == 0, said
    assert re.search(r"sofa +new +[-\d.]+ +\d", said.out)
    assert re.search(r"blue +old ", said.out)
    assert load(out).segmenter.classes.names == ("red", "blue", "sofa")
    refused(teach(ss, strange, out, "--model", models / "taught", "--classes", "sofa"), str(out), "--overwrite")
    again = teach(ss, strange, out, "--model", models / "plain", "--classes", "sofa", "--overwrite", "--json")
    assert again.json()["new"] == ["sofa"]
    assert "Warning" in again.err, "nothing of the old classes is stored, so nothing is rehearsed"


def test_an_interrupted_lesson_goes_on(
    strange: Path, models: Path, tmp_path: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--model", models / "taught", "--classes", "sofa")
    out = tmp_path / "more"
    with monkeypatch.context() as patch:
        patch.setattr(Meter, "__call__", Stop(1))
        assert teach(ss, strange, out, *more).code == 130
    assert teach(ss, strange, out, *more, "--resume").code == 0
    assert "had come to its end" in teach(ss, strange, out, *more, "--resume").err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--classes", "blue"), ("blue", "already")),
        (("--classes", "sofas"), ("sofas", "Did you mean 'sofa'")),
        (("--classes", "sofa", "--complete", "blue"), ("blue",)),
        (("--classes", "sofa", "--trainable", "feet"), ("feet", "decoder")),
        (("--classes", "sofa", "--base-data", "nowhere"), ("nowhere",)),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_bad_options_of_teach(
    more: tuple[str, ...], words: tuple[str, ...], strange: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]
) -> None:
    refused(teach(ss, strange, tmp_path / "out", "--model", models / "taught", *more), *words)
    assert not (tmp_path / "out").exists()


# ---- predict


def test_predict_writes_a_folder_that_can_be_learned_from(
    models: Path, tmp_path: Path, ss: Callable[..., Said]
) -> None:
    place = tmp_path / "holiday"
    (place / "deep").mkdir(parents=True)
    wide, _ = picture(0, height=32, width=56)
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera lay on its side: 32 high as stored, 56 high upright
    Image.fromarray(wide).save(place / "turned.jpg", exif=turned)
    Image.fromarray(picture(1, height=150, width=200)[0]).save(place / "deep" / "large.png")
    out = tmp_path / "found"
    said = ss("predict", "--model", models / "plain", place, "--out", out, "--max-side", 64)
    assert said.code == 0, said
    train = open_folder(root=out).train
    assert train.names == ("background", "red", "blue")
    sizes = {name: tuple(train.load(i)[1].shape) for i, name in enumerate(train.ids)}
    assert sizes == {"turned": (56, 32), "deep/large": (150, 200)}
    with Image.open(out / "masks" / "turned.png") as mask:
        assert mask.mode == "P"
        assert tuple(mask.getpalette()[3:6]) == ClassTable(("red",)).color(1)
    with Image.open(out / "overlays" / "deep" / "large.png") as overlay:
        assert overlay.width == 200
        assert overlay.height > 150, "a legend below"


def test_predict_goes_on_and_does_not_replace_by_itself(
    photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "found"
    call = ("predict", "--model", models / "taught", photos, "--out", out)
    with monkeypatch.context() as patch:
        patch.setattr(Meter, "__call__", Stop(2))
        assert ss(*call).code == 130
    assert len(list((out / "masks").iterdir())) == 2
    refused(ss(*call), str(out), "--resume", "--overwrite")
    (out / "masks" / "p0.png").write_bytes(b"repaired by hand")
    assert ss(*call, "--resume", "--json").json()["pictures"] == 6
    assert (out / "masks" / "p0.png").read_bytes() == b"repaired by hand"
    assert ss(*call, "--overwrite").code == 0
    assert len(open_folder(root=out).train) == 6


def test_retired_classes_leave_no_gap_in_the_files(
    photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]
) -> None:
    segmenter = Segmenter.load(models / "plain")
    segmenter.retire_classes(["red"])
    segmenter.save(tmp_path / "model")
    assert ss("predict", "--model", tmp_path / "model", photos, "--out", tmp_path / "found").code == 0
    train = open_folder(root=tmp_path / "found").train
    assert train.names == ("background", "blue")
    with Image.open(tmp_path / "found" / "masks" / "p0.png") as mask:
        assert tuple(mask.getpalette()[3:6]) == segmenter.classes.color(2), "a class keeps its colour"


def test_one_damaged_picture_costs_only_itself(
    photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head and tail are right, so that nobody sees it coming."""
    good = (photos / "images" / "p0.png").read_bytes()
    (photos / "images" / "p0.png").write_bytes(good[:200] + bytes(40) + good[240:])
    said = ss("predict", "--model", models / "plain", photos, "--out", tmp_path / "found")
    assert said.code == 1
    assert "p0.png" in said.err
    assert len(open_folder(root=tmp_path / "found").train) == 5


# ---- photos


def test_predictions_of_large_photos_are_smooth_and_of_their_size() -> None:
    class Halves:
        def predict(self, images: Sequence[torch.Tensor], /) -> Prediction:
            assert all(max(i.shape) <= 20 for i in images)
            masks = [torch.zeros(i.shape[1:], dtype=torch.int16) for i in images]
            for mask in masks:
                mask[:, mask.shape[1] // 2 :] = 3
            return Prediction(tuple(masks), tuple(torch.ones(m.shape) for m in masks))

    found = AtMost(Halves(), max_side=20).predict([torch.zeros(3, 90, 200, dtype=torch.uint8)])
    assert found.masks[0].unique().tolist() == [0, 3]
    assert torch.equal(found.masks[0][:, :95], torch.zeros(90, 95, dtype=torch.int16))
    assert torch.equal(found.masks[0][:, 105:], torch.full((90, 95), 3, dtype=torch.int16))


def test_an_overlay_tints_what_was_found_and_nothing_else() -> None:
    image = torch.full((3, 40, 60), 100, dtype=torch.uint8)
    mask = torch.zeros(40, 60, dtype=torch.int16)
    mask[:, 30:] = 1
    shown = np.asarray(Image.open(BytesIO(overlay_png(image, mask, ClassTable(("car",))))))
    assert (shown[:40, :29] == 100).all()
    assert (shown[:40, 32:] == (114, 50, 50)).all()  # halfway to (128, 0, 0)
    assert (shown[:40, 30] == (128, 0, 0)).all()  # the outline


# ---- score


def test_score_matches_classes_by_name(photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    plain = ss("score", "--model", models / "plain", "--data", photos, "--json").json()
    assert plain["images"] == 6
    assert len(plain["confusion"]) == 3
    for path in (photos / "masks").iterdir():  # the same masks under other numbers
        values = np.asarray(Image.open(path))
        Image.fromarray(np.array([0, 2, 1], np.uint8)[values]).save(path)
    (photos / "classes.txt").write_text("background\nblue\nred\n")
    assert ss("score", "--model", models / "plain", "--data", photos, "--json").json() == plain


def test_score_says_what_does_not_match(photos: Path, models: Path, ss: Callable[..., Said]) -> None:
    (photos / "classes.txt").write_text("background\nred\ngreen\n")
    said = ss("score", "--model", models / "taught", "--data", photos)
    assert said.code == 0
    assert "does not know green" in said.err
    assert "do not name blue" in said.err
    assert re.search(r"blue +- ", said.out), "no ground truth, no IoU"
    (photos / "classes.txt").write_text("background\ncat\ngreen\n")
    refused(ss("score", "--model", models / "plain", "--data", photos), "no class in common", "cat", "red")


def test_score_takes_the_part_that_is_asked_for(tmp_path: Path, models: Path, ss: Callable[..., Said]) -> None:
    photos = make_folder(tmp_path / "photos", train="p0 p1 p2", test="p3 p4")
    call = ("score", "--model", models / "plain", "--data", photos, "--json")
    assert ss(*call).json()["split"] == "test"
    assert ss(*call, "--split", "train").json()["images"] == 3
    refused(ss(*call, "--split", "val"), "val.txt")
    refused(ss(*call, "--split", "tset"), "tset", "train, val and test")


# ---- classes


@pytest.mark.parametrize("kind", ["plain", "taught"])
def test_classes_are_renamed_and_retired(kind: str, models: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    model = tmp_path / "model"
    shutil.copytree(models / kind, model)
    assert re.search(r"2 +blue", ss("classes", model).out)
    said = ss("classes", model, "--rename", "red=dark red", "--retire", "blue", "--json")
    assert [(c["name"], c["retired"]) for c in said.json()["classes"]] == [
        ("background", False),
        ("dark red", False),
        ("blue", True),
    ]
    assert Segmenter.load(model).classes == ClassTable(("dark red", "blue"), frozenset({2}))
    if kind == "taught":
        learned = load(model)
        assert learned.memory is not None
        assert 2 not in learned.memory.counts(), "its pixels in memory are unlabelled now"
        assert json.loads((model / "segstream.json").read_text())["extra"] == {"note": "kept"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--rename", "red=blue"), "blue"),
        (("--rename", "rad=x"), "Did you mean 'red'"),
        (("--rename", "red"), "old=new"),
        (("--retire", "green"), "green"),
        (("--rename", "red=x", "--retire", "background"), "background"),
    ],
)
def test_a_wrong_change_changes_nothing(
    change: tuple[str, ...], words: str, models: Path, ss: Callable[..., Said]
) -> None:
    before = (models / "plain" / "segstream.json").read_bytes()
    refused(ss("classes", models / "plain", *change), words)
    assert (models / "plain" / "segstream.json").read_bytes() == before


# ---- bad input: a sentence and code 2, before anything is written


def no_mask(root: Path) -> None:
    (root / "masks" / "p3.png").unlink()


def other_size(root: Path) -> None:
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(root / "masks" / "p3.png")


def beyond(root: Path) -> None:
    Image.fromarray(np.full((32, 40), 7, np.uint8)).save(root / "masks" / "p3.png")


def twice(root: Path) -> None:
    (root / "classes.txt").write_text("background\nred\nred\n")


def no_classes(root: Path) -> None:
    (root / "classes.txt").unlink()


def truncated(root: Path) -> None:
    path = root / "images" / "p3.png"
    path.write_bytes(path.read_bytes()[:300])


def no_picture(root: Path) -> None:
    (root / "images" / "p3.png").write_text("hello")


def float_mask(root: Path) -> None:
    Image.fromarray(np.zeros((32, 40), np.float32)).save(root / "masks" / "p3.tif")
    (root / "masks" / "p3.tif").rename(root / "masks" / "p3.png")


def colour_mask(root: Path) -> None:
    Image.fromarray(np.zeros((32, 40, 3), np.uint8)).save(root / "masks" / "p3.png")


def nothing_there(root: Path) -> None:
    for path in root.rglob("p*.png"):
        path.unlink()


def nothing_labelled(root: Path) -> None:
    for path in (root / "masks").iterdir():
        Image.fromarray(np.zeros((32, 40), np.uint8)).save(path)


BAD_DATA = [
    (no_mask, ("p3.png", "no mask")),
    (other_size, ("p3.png", "9x9", "40x32")),
    (beyond, ("p3.png", "7")),
    (twice, ("classes.txt", "red", "twice")),
    (no_classes, ("classes.txt",)),
    (truncated, ("p3.png",)),
    (no_picture, ("p3.png",)),
    (float_mask, ("p3.png",)),
    (colour_mask, ("p3.png", "colours")),
    (nothing_there, ("holds no pictures",)),
]


@pytest.mark.parametrize(("spoil", "words"), BAD_DATA, ids=[s.__name__ for s, _ in BAD_DATA])
def test_bad_data(
    spoil: Callable[[Path], None],
    words: tuple[str, ...],
    photos: Path,
    models: Path,
    tmp_path: Path,
    ss: Callable[..., Said],
) -> None:
    spoil(photos)
    out = tmp_path / "out"
    refused(fit(ss, photos, out), *words)
    refused(ss("score", "--model", models / "plain", "--data", photos, "--threads", 1), *words)
    if spoil is not no_classes:  # teach does without
        refused(teach(ss, photos, out, "--classes", "red"), *words)
    assert not out.exists()


def test_nothing_to_learn(photos: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    nothing_labelled(photos)
    refused(fit(ss, photos, tmp_path / "out"), "nothing to learn")
    (photos / "classes.txt").write_text("background\n")
    refused(fit(ss, photos, tmp_path / "out"), "no class to learn")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--classes", "red,grun"), ("grun",)),
        (("--classes", "red,,blue"), ("empty name",)),
        (("--network", "tny"), ("tny", "tiny")),
        (("--head", "round"), ("round", "cosine")),
        (("--weights", "mine.pth"), ("mine.pth", "safetensors")),
        (("--weights", "mine.safetensors"), ("mine.safetensors",)),
        (("--device", "tpu"), ("tpu", "cuda")),
        (("--precision", "8"), ("8", "bf16-mixed")),
        (("--lr", "-1"), ("lr",)),
        (("--resume", "--overwrite"), ("--resume", "--overwrite")),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_bad_options_of_fit(
    more: tuple[str, ...], words: tuple[str, ...], photos: Path, tmp_path: Path, ss: Callable[..., Said]
) -> None:
    refused(fit(ss, photos, tmp_path / "out", *more), *words)
    assert not (tmp_path / "out").exists()


def test_places_that_do_not_exist(photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    gone = tmp_path / "gone"
    model = ("--model", models / "plain")
    refused(fit(ss, gone, tmp_path / "out"), "gone")
    refused(teach(ss, gone, tmp_path / "out", "--classes", "red"), "gone")
    refused(ss("check", gone), "gone")
    refused(ss("score", *model, "--data", gone), "gone")
    refused(ss("score", "--model", gone, "--data", photos), "gone")
    refused(ss("predict", *model, gone, "--out", tmp_path / "out"), "gone")
    refused(ss("predict", "--model", gone, photos, "--out", tmp_path / "out"), "gone")
    refused(ss("classes", gone), "gone")
    refused(ss("report", gone), "gone")
    refused(ss("run", "gone", "--method", "em"), "gone")
    assert not (tmp_path / "out").exists()


def test_folders_that_are_not_ours_are_left_alone(
    photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "diary.txt").write_text("dear me")
    predict = ("predict", "--model", models / "plain", photos)
    for more in ((), ("--overwrite",), ("--resume",)):
        refused(fit(ss, photos, theirs, *more), "theirs", "not empty")
        refused(ss(*predict, "--out", theirs, *more), "theirs", "not empty")
    refused(ss("demo", "--out", theirs), "theirs", "not empty")
    refused(fit(ss, photos, theirs / "diary.txt"), "is a file")
    refused(fit(ss, photos, theirs / "diary.txt" / "deeper"), "is a file")
    refused(ss(*predict, "--out", models / "plain", "--overwrite"), "holds a segmenter")
    refused(fit(ss, photos, models / "taught", "--overwrite"), "holds a method")
    assert [p.name for p in theirs.iterdir()] == ["diary.txt"]
    (theirs / "diary.txt").rename(theirs / ".DS_Store")  # a person sees an empty folder
    assert ss(*predict, "--out", theirs).code == 0


def test_damaged_models(photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    def score(model: Path) -> Said:
        return ss("score", "--model", model, "--data", photos)

    def copied(name: str) -> Path:
        return shutil.copytree(models / "plain", tmp_path / name)

    altered = copied("altered")
    file = next(altered.glob("weights-*"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    refused(score(altered), file.name, "altered")
    missing = copied("missing")
    next(missing.glob("weights-*")).unlink()
    refused(score(missing), file.name, "missing")
    broken = copied("broken")
    (broken / "segstream.json").write_text("{")
    refused(score(broken), "segstream.json")
    segmenter = Segmenter.load(models / "plain")
    with torch.no_grad():
        segmenter.head.weight[0, 0] = float("nan")
    segmenter.save(tmp_path / "nan")
    refused(score(tmp_path / "nan"), "NaN")
    save_file({"body.encoder.0.weight": torch.full((8, 3, 3, 3), float("nan"))}, tmp_path / "nan.safetensors")
    refused(fit(ss, photos, tmp_path / "out", "--weights", tmp_path / "nan.safetensors"), "NaN")


def test_pictures_that_cannot_be_predicted(photos: Path, models: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    def predict(*images: Path) -> Said:
        return ss("predict", "--model", models / "plain", *images, "--out", tmp_path / "out")

    truncated(photos)
    refused(predict(photos), "p3.png")
    refused(predict(photos / "classes.txt"), "classes.txt", ".jpg")
    refused(predict(photos / "images" / "p0.png", photos / "masks" / "p0.png"), "both be called 'p0'")
    (tmp_path / "empty").mkdir()
    refused(predict(tmp_path / "empty"), "holds no pictures")
    assert not (tmp_path / "out").exists()


# ---- run, report, list, info


RECIPE = """
[data]
root = "{root}"
split = "{split}"

[scenario]
base = ["red"]
stages = [["blue"]]
batch = 2

[network]
name = "tiny"
weights = ""
decoder_channels = 16

[augment]
crop = 32

[base]
epochs = 1
batch = 4

[memory]
capacity = 4
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEGSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    root = make_folder(tmp_path / "photos", train="p0 p1 p2 p3", test="p4 p5")
    path = tmp_path / "squares.toml"
    path.write_text(RECIPE.format(root=root.as_posix(), split="test"))
    return path


def test_a_run_and_its_report(recipe: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    said = ss("run", recipe, "--method", "em", "--set", "methods.em.lr=0.01")
    assert said.code == 0, said
    assert re.search(r"em +\d+\.\d +\d+\.\d", said.out)
    out = Path("runs", "squares-em")
    assert str(out) in said.out
    refused(ss("run", recipe, "--method", "em"), str(out), "--resume")
    assert ss("run", recipe, "--method", "em", "--set", "methods.em.lr=0.01", "--resume", "--json").json()["miou"]
    assert ss("run", recipe, "--method", "er", "--out", "runs/second").code == 0
    page = ss("report", "runs").out.strip()
    assert Path(page).resolve() == tmp_path / "runs" / "report.html"
    assert "er" in Path(page).read_text()
    assert ss("report", out).out.strip() == str(out / "report.html")
    found = ss("score", "--model", out, "--data", tmp_path / "photos", "--json").json()
    assert found["names"] == ["background", "red", "blue"], "a run's model can be used like any other"


def test_demo_ends_with_a_table_and_a_line_to_try(
    recipe: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo itself has its own test; here some tiny runs stand in for its own."""
    folders = {"finetune": "finetune-ignore", "er": "er-background", "em": "em"}
    views = {"finetune": "ignore", "er": "background", "em": "latent"}

    def small(*, out: Path, seed: int, progress: object) -> dict[str, object]:
        for method, folder in folders.items():
            run_recipe(load_recipe(str(recipe)), method=method, out=out / folder)
        methods = {m: {"miou": [1.0, 2.0], "imiou": 2.0, "final": 2.0, "view": view} for m, view in views.items()}
        return {"unit": "percent", "methods": methods, "runs": folders, "joint": 77.7}

    monkeypatch.setattr("segstream.demo.run_demo", small)
    said = ss("demo", "--out", "runs/demo")
    assert said.code == 0, said
    for method in folders:
        assert re.search(rf"^{method} .*\d+\.\d", said.out, re.MULTILINE)
    assert re.search(r"joint.*77\.7", said.out)
    assert str(Path("runs/demo/report.html")) in said.out
    tried = shlex.split(said.out.rpartition("ended with: ")[2])
    assert tried[:4] == ["segstream", "predict", "--model", str(Path("runs/demo/model"))]
    assert Path(tried[4]).is_dir(), "the pictures to try it on are there"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--method", "emm"), ("emm", "Did you mean 'em'")),
        (("--method", "em", "--set", "base.epoch=1"), ("base.epoch", "base.epochs")),
        (("--method", "em", "--set", "methods.em.treshold=1"), ("treshold", "threshold")),
        (("--method", "em", "--set", "methods.em.threshold=2"), ("threshold=2",)),
        (("--method", "em", "--set", "scenario.batch=many"), ("scenario.batch", "many")),
        (("--method", "em", "--set", 'scenario.stages=[["green"]]'), ("green",)),
        (("--method", "em", "--set", "data.root=elsewhere"), ("elsewhere",)),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_bad_recipes(more: tuple[str, ...], words: tuple[str, ...], recipe: Path, ss: Callable[..., Said]) -> None:
    refused(ss("run", recipe, *more), *words)
    assert not Path("runs").exists()
    assert not Path("cache").exists()


def test_an_empty_stream(recipe: Path, tmp_path: Path, ss: Callable[..., Said]) -> None:
    for path in (tmp_path / "photos" / "masks").iterdir():
        Image.fromarray(np.minimum(np.asarray(Image.open(path)), 1)).save(path)  # no blue is left
    refused(ss("run", recipe, "--method", "em"), "blue")
    assert not Path("runs").exists()


@pytest.mark.parametrize("kind", ["methods", "datasets", "networks", "recipes", "policies"])
def test_lists_say_what_each_is(kind: str, ss: Callable[..., Said]) -> None:
    said = ss("list", kind)
    found = ss("list", kind, "--json").json()[kind]
    assert found
    for entry in found:
        assert entry["name"] in said.out
        assert len(entry["about"]) > 10
        assert entry["about"] in said.out


def test_list_methods_shows_settings_with_their_defaults(ss: Callable[..., Said]) -> None:
    methods = {entry["name"]: entry["settings"] for entry in ss("list", "methods", "--json").json()["methods"]}
    assert methods["em"]["threshold"] == 0.8
    assert "threshold=0.8" in ss("list", "methods").out


def test_info(ss: Callable[..., Said]) -> None:
    told = ss("info", "--json").json()
    assert told["versions"]["torch"] == torch.__version__
    assert told["versions"]["torch"] in ss("info").out


# ---- how it ends, how it looks


def test_what_nobody_expected_is_code_1_and_traces_on_request(
    photos: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*ignored: object, **too: object) -> None:
        raise TypeError("three is no colour")

    monkeypatch.setattr("segstream.data.inspect.inspect_folder", broken)
    said = ss("check", photos)
    assert (said.code, said.out) == (1, "")
    assert "TypeError: three is no colour" in said.err
    assert "Traceback" not in said.err
    for arguments in (("check", photos, "-v"), ("-v", "check", photos)):
        assert "Traceback" in ss(*arguments).err


def test_a_full_disk_is_a_failure_with_a_sentence(
    photos: Path, ss: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*ignored: object, **too: object) -> None:
        raise OSError(28, "No space left on device", "models/home")

    monkeypatch.setattr("segstream.data.inspect.inspect_folder", full)
    said = ss("check", photos)
    assert said.code == 1
    assert "models/home: No space left on device." in said.err


def told(mode: str, *steps: tuple[float, str, int, int], terminal: bool = False) -> str:
    """What a meter writes when these (time, phase, done, total) are said."""
    file = StringIO()
    times = iter([0.0, *(step[0] for step in steps)])
    console = Console(file=file, width=100, force_terminal=terminal)
    with Meter(console, mode=mode, clock=lambda: next(times)) as meter:  # type: ignore[arg-type]
        for _, phase, done, total in steps:
            meter(phase, done, total)
    return file.getvalue()


def test_progress_in_lines() -> None:
    steps = [(1.0, "base", 1, 100), (25.0, "base", 25, 100), (30.0, "base", 30, 100), (99.0, "base", 100, 100)]
    assert told("lines", *steps).splitlines() == [
        "base: 25 of 100 (25%), about 1 min 15 s left",
        "base: 100 of 100 in 1 min 39 s",
    ]
    assert told("lines", (0.1, "score", 1, 2), (0.3, "score", 2, 2)) == "", "what was short leaves no line"
    assert told("off", *steps) == ""


def test_remaining_time_after_going_on_counts_this_time_only() -> None:
    steps = [(1.0, "base", 91, 100), (30.0, "base", 95, 100)]
    assert "about 30 s left" in told("lines", *steps)  # 5 in 30 s, and 5 more


def test_progress_in_bars_is_gone_at_the_end() -> None:
    text = told("bars", (1.0, "base", 1, 4), (5.0, "base", 4, 4), (6.0, "score", 1, 3), terminal=True)
    assert "base: 4 of 4 in 5.0 s" in text
    assert "\x1b[" in text
