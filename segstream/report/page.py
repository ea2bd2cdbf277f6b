"""One page from many runs: `write_report` gathers tables, plots and pictures and fills the template with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from segstream import __version__
from segstream.report import plots
from segstream.report.course import course
from segstream.report.export import scores_csv
from segstream.report.facts import costs, differences, machine
from segstream.report.headline import headline
from segstream.report.pictures import gallery
from segstream.report.record import Record, labelled, read, same_classes
from segstream.report.tables import class_means, class_rows, forgotten, score_table, text
from segstream.report.theme import method_colors, svg
from segstream.storage import write_text

__all__ = ["write_report"]


def write_report(
    runs: Sequence[Path], out: Path, *, title: str, bound: Mapping[str, Any] | None = None, notes: Sequence[str] = ()
) -> Path:
    """Write `report.html`, which needs no other file, and `scores.csv` into the folder `out`; returns the page's path.

    runs   run folders, in the order in which they shall be listed; unfinished ones are welcome
    bound  the scores of joint training: {"label": "joint", "miou": percent, "iou": [percent or None per slot]}
    notes  sentences that the reader must know, such as what all runs share

    >>> import tempfile
    >>> write_report([], Path(tempfile.mkdtemp()), title="Nothing")
    Traceback (most recent call last):
    ...
    ValueError: A report needs at least one run folder.
    """
    if not runs:
        raise ValueError("A report needs at least one run folder.")
    if out.exists() and not out.is_dir():
        raise ValueError(f"The report goes into a folder, but {str(out)!r} is a file.")
    records = labelled([read(run) for run in runs])
    folders = [_near(r.folder, out) for r in records]
    page = _page(records, title=title, bound=bound, notes=notes, folders=folders)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "scores.csv", scores_csv(records, bound))
    write_text(out / "report.html", page)
    return out / "report.html"


def _near(folder: Path, out: Path) -> str:
    """The folder as a reader of the page finds it: from the page where it lies below, else as it was given."""
    inside = folder.resolve().is_relative_to(out.resolve())
    return (folder.resolve().relative_to(out.resolve()) if inside else folder).as_posix()


def _page(
    records: Sequence[Record],
    *,
    title: str,
    bound: Mapping[str, Any] | None,
    notes: Sequence[str],
    folders: Sequence[str],
) -> str:
    environment = Environment(
        loader=PackageLoader("segstream.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": text, "seconds": _seconds}
    style = environment.loader.get_source(environment, "style.css")[0] if environment.loader else ""
    alike, _ = same_classes(records)
    context: dict[str, Any] = {
        "title": title,
        "style": Markup(style),  # ours, no user's text in it
        "notes": list(notes),
        "bound": bound,
        "version": __version__,
        "date": f"{datetime.now():%d %B %Y, %H:%M}".lstrip("0"),
        "folders": folders,
        "colors": method_colors([r.method for r in records], [r.label for r in records]),
        "all_labels": [r.label for r in records],
        "labels": [r.label for r in alike],  # those whose classes and pictures can stand side by side
    }
    context |= _scores(records, alike, bound, context["colors"]) | course(alike) | _costs(records) | _facts(records)
    context["gallery"] = gallery(alike)
    context["sections"] = [(id, name) for id, name, there in _sections(context) if there]
    return environment.get_template("report.html.j2").render(context)


def _sections(context: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    return [
        ("scores", "Scores", True),
        ("classes", "Class by class", bool(context["classes"])),
        ("pictures", "Pictures", bool(context["gallery"].pictures)),
        ("memory", "Memory", bool(context["memories"])),
        ("learning", "While it learned", bool(context["histories"])),
        ("cost", "Cost", bool(context["costs"])),
        ("settings", "Settings", bool(context["facts"])),
    ]


def _scores(
    records: Sequence[Record], alike: Sequence[Record], bound: Mapping[str, Any] | None, colors: Mapping[str, int]
) -> dict[str, Any]:
    """Headline, table, plots and classes."""
    table = score_table(records, bound)
    scored = [r for r in alike if r.scores]
    ranked = [r for r in alike if r.label in {row.label for row in table.rows if row.ranked}]
    rows = class_rows(ranked, bound)
    curves = plots.curves(scored, colors, bound) if any(r.last > 0 for r in scored) else None
    lost = plots.forgetting({r.label: forgotten(r) for r in ranked}, colors)
    width = len(table.columns) - 4
    groups = max((r.groups for r in alike), key=len, default=())
    lines = "; ".join(" ".join(row.texts()) for row in table.rows)
    return {
        "sentences": [s.replace(" %", "\N{NO-BREAK SPACE}%") for s in headline(records, bound)],
        "table": table,
        "ranked": [r.label for r in ranked],
        "stages": [_stage(groups[t] if t < len(groups) else ()) for t in range(width)],
        "last": table.stages - 1,
        "classes": rows,
        "means": class_means(rows),
        "with_bound": any(row.bound is not None for row in rows),
        "plots": {
            "curves": curves and Markup(svg(curves, description=f"mIoU by stage. {', '.join(table.columns)}: {lines}")),
            "forgetting": lost and Markup(svg(lost, description=f"Points lost by each old class. {_lost(ranked)}")),
        },
    }


def _lost(records: Sequence[Record]) -> str:
    told = {r.label: forgotten(r) for r in records}
    return "; ".join(
        f"{label}: {', '.join(f'{name} {text(value)}' for name, value in list(lost.items())[:20])}"
        for label, lost in told.items()
        if lost
    )


def _stage(group: Sequence[str]) -> dict[str, str]:
    """A stage's classes for a column head: one or two by name, more by number."""
    named = ", ".join(group)
    short = named if len(group) <= 2 and len(named) <= 22 else group[0] if len(group) == 1 else f"{len(group)} classes"
    return {"short": short if group else "", "long": named}


def _costs(records: Sequence[Record]) -> dict[str, Any]:
    lines = costs(records)
    machines = sorted({machine(r.about) for r in records} - {""})
    return {
        "costs": lines,
        "fastest": min((c.median for c in lines), default=1.0),
        "slowest": max((c.median for c in lines), default=1.0),
        "machines": f"Measured on {'; '.join(machines)}." if machines else "",
    }


def _facts(records: Sequence[Record]) -> dict[str, Any]:
    """Settings and surroundings, first what differs, then what is shared."""
    plain = [{k: v for k, v in r.config.items() if k != "methods"} | {"method": r.settings} for r in records]
    around = [{k: v for k, v in r.about.items() if k not in {"settings", "method"}} for r in records]
    facts = []
    for title, what, told in (("Settings", "setting", plain), ("Versions and devices", "what", around)):
        varied, shared = differences(told)
        if varied or shared:
            facts.append({"title": title, "what": what, "varied": varied, "shared": shared})
    return {"facts": facts, "configs": [(r.label, r.config_text) for r in records]}


def _seconds(value: float | None) -> str:
    """
    >>> _seconds(0.4219), _seconds(75.2), _seconds(None)
    ('0.42', '75', '–')
    """
    if value is None:
        return "–"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"
