"""Options that several commands have, with one wording for each, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "DataFolder",
    "Device",
    "Json",
    "MaxSide",
    "ModelFolder",
    "Overwrite",
    "Resume",
    "Seed",
    "Threads",
    "Unlabeled",
    "comma_list",
    "pairs",
    "use_threads",
]

TRAINING = "Training"
NETWORK = "Network"

DataFolder = Annotated[
    Path,
    typer.Option(
        "--data", metavar="FOLDER", help="images/, masks/ and classes.txt; `segstream check` says if it is right."
    ),
]
ModelFolder = Annotated[
    Path,
    typer.Option("--model", metavar="DIR", help="What fit, teach or run saved: a model, or a method with its model."),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1 or mps.", show_default="auto"),
]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="CPU threads.", show_default="as many as cores")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same result on a CPU.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where the same command was interrupted.", show_default=False)
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what this command wrote there earlier.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", show_default=False)]
Unlabeled = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=255,
        metavar="VALUE",
        help="Mask value that means: nothing was said about this pixel.",
        show_default="none",
    ),
]
MaxSide = Annotated[
    int,
    typer.Option(
        min=32,
        metavar="PIXELS",
        help="Larger pictures are scaled down to this longer side for the network; answers keep the picture's size.",
    ),
]


def comma_list(text: str | None, *, option: str) -> tuple[str, ...] | None:
    """Names separated by commas.

    >>> comma_list("car, traffic light", option="--classes")
    ('car', 'traffic light')
    """
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"{option} {text!r} has an empty name in it; write names separated by single commas.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{option} names {twice[0]!r} twice.")
    return names


def pairs(texts: list[str] | None, *, option: str) -> list[tuple[str, str]]:
    """Changes written as old=new.

    >>> pairs(["car=vehicle"], option="--rename")
    [('car', 'vehicle')]
    """
    found = []
    for text in texts or []:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (old and equals and new):
            raise ValueError(f"{option} {text!r} must be written old=new.")
        found.append((old, new))
    return found


def use_threads(threads: int | None) -> None:
    """As many CPU threads as asked for; left out, PyTorch decides."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


def lazily(names: Callable[[], Any]) -> Callable[[str], list[str]]:
    """Shell completion from names that are looked up when a person presses the key."""

    def complete(incomplete: str) -> list[str]:  # Typer knows the parameter by this name
        return [name for name in names() if name.startswith(incomplete)]

    return complete
