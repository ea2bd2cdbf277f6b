"""Makes the pictures of README and docs, from nothing but pictures that segstream draws itself.

python docs/images/make.py               scenes.png: pictures of the dataset `scenes` and their masks
python docs/images/make.py runs/demo     demo.png: what em found in some of them after each stage of `make demo`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from segstream.classes import ClassTable
from segstream.data.datasets.scenes import render
from segstream.data.scenery.compose import NAMES

HERE = Path(__file__).parent
GAP, LINE, SIDE = 6, 22, 128
INK, PAPER = (40, 40, 40), (255, 255, 255)
SHOWN = (0, 1, 4, 7, 10, 13)  # of the training pictures with seed 0
FONT = ImageFont.load_default(size=13)


def colored(mask: np.ndarray, table: ClassTable) -> Image.Image:
    """A mask in its classes' colours; what is void is white."""
    picture = Image.fromarray(np.where(mask < 0, 255, mask).astype(np.uint8))
    picture.putpalette(table.palette())
    return picture.convert("RGB")


def sheet(rows: Sequence[Sequence[Image.Image]], titles: Sequence[str], side: int = SIDE) -> Image.Image:
    """Rows of square pictures under titles, one for each column."""
    head = LINE if titles else 0
    size = len(rows[0]) * (side + GAP) - GAP, head + len(rows) * (side + GAP) - GAP
    page = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(page)
    for x, title in enumerate(titles):
        draw.text((x * (side + GAP) + side // 2, LINE // 2 - 1), title, fill=INK, font=FONT, anchor="mm")
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            place = x * (side + GAP), head + y * (side + GAP)
            page.paste(picture.resize((side, side), Image.Resampling.NEAREST), place)
    return page


def scenes() -> Image.Image:
    drawn = [render(0, index) for index in SHOWN]
    table = ClassTable(NAMES[1:])
    rows = [Image.fromarray(image) for image, _ in drawn], [colored(mask, table) for _, mask in drawn]
    return sheet(rows, [], side=rows[0][0].width)


def demo(folder: Path, pictures: int) -> Image.Image:
    """Some pictures of a finished demo: truth, em after each stage, and finetune at the end."""
    em = folder / "em" / "predictions"
    stages = sorted((p for p in em.glob("stage-*")), key=lambda p: int(p.name.removeprefix("stage-")))
    runs = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["runs"]
    other = folder / runs["finetune"] / "predictions" / stages[-1].name
    columns = [em / "images", em / "truth" / stages[-1].name, *stages, other]
    names = [path.name for path in sorted(stages[0].glob("*.png"))][:pictures]
    rows = [[Image.open(column / name).convert("RGB") for column in columns] for name in names]
    learned = [f"em, stage {k}" for k in range(len(stages))]
    return sheet(rows, ["picture", "truth", *learned, "finetune, end"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="what `make demo` wrote")
    parser.add_argument("--pictures", type=int, default=4)
    options = parser.parse_args()
    name, page = ("demo", demo(options.folder, options.pictures)) if options.folder else ("scenes", scenes())
    page.quantize(256, dither=Image.Dither.NONE).save(HERE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
