"""segstream splits: which pictures belong to which stage of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from segstream.cli.options import Json, Overwrite, comma_list, lazily
from segstream.cli.places import check_out
from segstream.cli.shell import Shell, command
from segstream.cli.tables import plain_table

if TYPE_CHECKING:
    from segstream.data import Scenario, Source
    from segstream.sections import ScenarioSettings

EXAMPLES = """
segstream splits voc --root data --scenario 15-1 --rule disjoint --out splits/voc-15-1-disjoint
segstream splits ade20k --root data --scenario 100-50 --rule files --files lists/100-50 --out splits/ade-100-50
segstream splits folder --root photos --base road,sky --stage car --stage sign,pole --out splits/photos
"""
NAMED = 6  # classes of a stage that are shown by name
OWN_DRAW = "These lists are a draw of segstream's own: not those of any paper."


def _datasets() -> list[str]:
    from segstream.plugins import available

    return available("datasets")


@command
def splits(
    shell: Shell,
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="One of `segstream list datasets`.", autocompletion=lazily(_datasets)),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the lists go.")],
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the dataset is.", show_default="none")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="N-M", help="N base classes, then M in each stage, in the dataset's order.", show_default="none"
        ),
    ] = None,
    base: Annotated[
        str | None, typer.Option(metavar="A,B", help="Or name them: the classes of the base.", show_default="none")
    ] = None,
    stage: Annotated[
        list[str] | None, typer.Option(metavar="C,D", help="The classes of a stage; once for each stage.")
    ] = None,
    rule: Annotated[str, typer.Option(metavar="NAME", help="overlapped, disjoint, files or generated.")] = "overlapped",
    files: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For --rule files: one list a stage, .npy or .txt.", show_default="none"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="For --rule generated.")] = 0,
    max_images: Annotated[
        int, typer.Option(min=0, metavar="N", help="At most so many pictures in a stage after the base; 0: all.")
    ] = 0,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the dataset into --root if it is missing.", show_default=False)
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write down which training pictures belong to which stage.

    One file a stage, step-0.txt being the base, with one picture's id a line, and the counts. Masks and lists are
    enough: the pictures themselves may be missing. Which classes a mask holds is looked up in an index that is made
    once and kept in the cache.
    """
    wanted = _wanted(scenario, base, stage, rule=rule, files=files, seed=seed, max_images=max_images)
    check_out(out, kinds=("splits",), overwrite=overwrite)
    shell.busy("looking for the dataset")
    from segstream.data.stages import write_stages
    from segstream.opening import make_scenario, open_splits
    from segstream.sections import DataSettings

    with shell.meter() as meter:
        section = DataSettings(dataset=dataset, root=str(root or ""), download=download)
        parts = open_splits(section, images=False, told=meter)
        chosen = make_scenario(wanted, parts.train.names)
        ids = parts.train.ids
        lists = [[ids[i] for i in found] for found in chosen.select(parts.train)]
        counts = [len(names) for names in lists]
        scored = _scored(chosen, parts.test) if len(parts.test) else None
    for number in (n for n, names in enumerate(lists) if not names):
        shell.warn(f"No picture belongs to stage {number} ({', '.join(chosen.groups[number]) or 'no classes'}).")
    facts = {"dataset": dataset, "rule": rule, "seed": seed, "groups": [list(group) for group in chosen.groups]}
    facts |= {"pictures": counts, "test_pictures": scored}
    write_stages(out, lists, about=facts)
    if json:
        shell.show_json({"out": str(out), **facts})
    else:
        _show(shell, facts, out)


def _wanted(
    scenario: str | None, base: str | None, stage: list[str] | None, *, files: Path | None, **more: Any
) -> ScenarioSettings:
    from segstream.sections import ScenarioSettings

    if (scenario is None) == (stage is None):
        raise ValueError(
            "Give either --scenario, such as 15-1, or the classes: --base road,sky --stage car --stage sign."
        )
    if scenario is not None and base is not None:
        raise ValueError("--scenario takes the base from the dataset's order of classes; leave --base out.")
    return ScenarioSettings(
        base=comma_list(base, option="--base") or (),
        stages=tuple(comma_list(text, option="--stage") or () for text in stage or ()),
        split=scenario or "",
        files=str(files or ""),
        **more,
    )


def _scored(scenario: Scenario, test: Source) -> list[int]:
    """How many pictures are scored after each stage: those with a class seen so far."""
    values = scenario.values(test)
    seen = [frozenset(values[name] for name in scenario.seen(stage)) for stage in range(len(scenario.groups))]
    return [sum(not test.present(i).isdisjoint(classes) for i in range(len(test))) for classes in seen]


def _show(shell: Shell, facts: dict[str, Any], out: Path) -> None:
    columns = ["stage", "classes", "training pictures", *(["scored test pictures"] if facts["test_pictures"] else [])]
    table = plain_table(*columns, right=(0, 2, 3))
    for number, (names, count) in enumerate(zip(facts["groups"], facts["pictures"], strict=True)):
        some = ", ".join(names[:NAMED]) + (f", ... ({len(names)} classes)" if len(names) > NAMED else "")
        table.add_row(str(number), some, str(count), *([str(facts["test_pictures"][number])] if columns[3:] else []))
    shell.show(table, "")
    shell.show(f"The lists are in {out}: step-0.txt to step-{len(facts['pictures']) - 1}.txt.")
    if facts["rule"] == "generated":
        shell.show(OWN_DRAW)
