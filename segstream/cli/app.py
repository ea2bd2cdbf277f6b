"""All commands together. Nothing here imports PyTorch: each command does when it runs."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from segstream import __version__
from segstream.cli import check, classes, compare, demo, fit, info, listing, predict, report, run, score, splits, teach
from segstream.cli.shell import LOUDNESS, Loudness, Quiet, Verbose

__all__ = ["build"]

LEARN, USE, COMPARE, LOOK_UP = "Learn", "Use", "Compare methods", "Look up"

COMMANDS: tuple[tuple[str, Any, str, str], ...] = (
    ("demo", demo.demo, demo.EXAMPLES, LEARN),
    ("fit", fit.fit, fit.EXAMPLES, LEARN),
    ("teach", teach.teach, teach.EXAMPLES, LEARN),
    ("predict", predict.predict, predict.EXAMPLES, USE),
    ("score", score.score, score.EXAMPLES, USE),
    ("classes", classes.classes, classes.EXAMPLES, USE),
    ("run", run.run, run.EXAMPLES, COMPARE),
    ("compare", compare.compare, compare.EXAMPLES, COMPARE),
    ("report", report.report, report.EXAMPLES, COMPARE),
    ("splits", splits.splits, splits.EXAMPLES, COMPARE),
    ("check", check.check, check.EXAMPLES, LOOK_UP),
    ("list", listing.listing, listing.EXAMPLES, LOOK_UP),
    ("info", info.info, info.EXAMPLES, LOOK_UP),
)

EXAMPLES = """
segstream demo
segstream fit --data photos --out models/home
segstream teach --model models/home --data more --classes sofa --out models/more
segstream predict --model models/more holiday/ --out found
"""


class _Command(TyperCommand):
    """A command whose help ends with examples, line by line as they were written."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        examples, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = examples
        _write_examples(examples, formatter, plain=self.rich_markup_mode is None)


class _Group(TyperGroup):
    """The same for the whole; its commands come in the order of the table above."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        examples, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = examples
        _write_examples(examples, formatter, plain=self.rich_markup_mode is None)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


def _write_examples(examples: str | None, formatter: Any, *, plain: bool) -> None:
    lines = (examples or "").strip().splitlines()
    if not lines:
        return
    if plain:
        with formatter.section("Examples"):
            formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in lines))
        return
    console = Console(highlight=False)
    console.print(Text(" Examples", style="bold"))
    for line in lines:
        console.print(Text(f"   {line}", style="cyan"), soft_wrap=True)
    console.print()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"segstream {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True, show_default=False)
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Teach a segmentation model new classes while it runs, without forgetting the old ones."""
    LOUDNESS.set(Loudness(quiet=quiet, verbose=verbose))


def build() -> typer.Typer:
    """The command line. Frames and colours are for terminals: whatever reads the help from a pipe gets plain text."""
    style: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        name="segstream",
        cls=_Group,
        rich_markup_mode=style,
        no_args_is_help=True,
        context_settings=settings,
        epilog=EXAMPLES,
    )
    app.callback(epilog=EXAMPLES)(_top)
    for name, function, examples, panel in COMMANDS:
        app.command(name, cls=_Command, epilog=examples, rich_help_panel=panel, context_settings=settings)(function)
    return app
