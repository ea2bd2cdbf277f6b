"""segstream predict: masks and overlays for pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segstream.cli.options import Device, Json, MaxSide, ModelFolder, Overwrite, Resume, Threads, use_threads
from segstream.cli.places import check_in, check_out
from segstream.cli.shell import FAILURE, Shell, command

if TYPE_CHECKING:
    from segstream.cli.models import Model

KIND = "predictions"
EXAMPLES = """
segstream predict --model models/home holiday/ --out found
segstream predict --model models/home a.jpg b.png --out found --max-side 1600
segstream teach --model models/home --data found --classes sofa --out models/more   (after repairing its masks)
"""


@command
def predict(
    shell: Shell,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Pictures, or folders of pictures.")],
    model: ModelFolder,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the answers go.")],
    max_side: MaxSide = 1024,
    device: Device = None,
    threads: Threads = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Find the classes in pictures.

    Writes indexed masks and overlays with a legend. The folder is itself a data folder (images/, masks/,
    classes.txt): look at overlays/, repair masks in a drawing program, and train or teach from it.
    """
    check_in(model, *images)
    there = check_out(out, kinds=(KIND,), resume=resume, overwrite=overwrite)
    shell.busy("loading the model")
    use_threads(threads)
    from segstream.cli.models import open_model
    from segstream.data.images import check_image
    from segstream.photos import find_photos
    from segstream.runs import claim

    photos = find_photos(images, leave_out=out)
    for path in photos.values():
        check_image(path)
    found = open_model(model, device=device)
    written = _Written(out, found)
    if not (there and resume):
        claim(out, kind=KIND, replace=overwrite)
    todo = {name: path for name, path in photos.items() if not written.has(name)}
    shell.stopped = lambda: f"What was done is kept in {out}; go on with: {shell.again('--resume')}"
    failed = _all(shell, written, todo, max_side)
    done = len(photos) - len(failed)
    if json:
        shell.show_json({"out": str(out), "pictures": done, "failed": failed, "classes": list(written.names)})
    else:
        shell.show(f"{done} pictures: masks in {out / 'masks'}, to look at in {out / 'overlays'}.")
    if failed:
        raise typer.Exit(FAILURE)


def _all(shell: Shell, written: _Written, todo: dict[str, Path], max_side: int) -> list[str]:
    """Pictures that turn out to be damaged are passed over, so that one does not cost a night's work."""
    from segstream.data.images import read_image
    from segstream.data.source import DataError
    from segstream.photos import AtMost

    failed = []
    predictor = AtMost(written.model.predictor, max_side)
    with shell.meter() as meter:
        for done, (name, path) in enumerate(todo.items()):
            meter("predict", done, len(todo), name)
            try:
                image = read_image(path)
            except DataError as error:
                shell.warn(str(error))
                failed.append(str(path))
                continue
            written.put(name, path, image, predictor.predict([image]).masks[0])
        meter("predict", len(todo), len(todo))
    return failed


class _Written:
    """The folder of answers. A mask comes last: where it is, the picture is done."""

    def __init__(self, out: Path, model: Model) -> None:
        from segstream.classes import ClassTable

        self.out = out
        self.model = model
        slots = (0, *model.classes.active)
        colors = {value: model.classes.color(slot) for value, slot in enumerate(slots) if slot}
        # Retired classes are never predicted: the files number the others without a gap.
        self.classes = ClassTable(tuple(model.classes.name(s) for s in slots[1:]), own_colors=colors)
        self.names = ("background", *self.classes.names)
        self._values = {slot: value for value, slot in enumerate(slots)}
        if len(slots) > 255:
            raise ValueError(f"{len(slots)} classes do not fit the 8-bit masks that predict writes; 255 do.")

    def _mask(self, name: str) -> Path:
        return self.out / "masks" / f"{name}.png"

    def has(self, name: str) -> bool:
        return self._mask(name).exists()

    def put(self, name: str, path: Path, image: Any, found: Any) -> None:
        import torch

        from segstream.photos import overlay_png
        from segstream.pictures import mask_png
        from segstream.storage import write_bytes, write_text

        lookup = torch.zeros(len(self.model.classes), dtype=torch.int16)
        for slot, value in self._values.items():
            lookup[slot] = value
        mask = lookup[found.to(torch.int64)]
        if not (self.out / "classes.txt").exists():
            write_text(self.out / "classes.txt", "".join(f"{n}\n" for n in self.names))
        write_bytes(self.out / "images" / f"{name}{path.suffix}", path.read_bytes())
        write_bytes(self.out / "overlays" / f"{name}.png", overlay_png(image, mask, self.classes))
        write_bytes(self._mask(name), mask_png(mask, self.classes))
