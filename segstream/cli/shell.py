"""What all commands share: where words go, how errors end, what Ctrl-C leaves.

Results go to stdout; progress, notes, warnings and errors to stderr. Exit codes: 0, 1 (failure), 2 (bad input or
usage), 130 (interrupted).
"""

from __future__ import annotations

import errno
import inspect
import json
import logging
import shlex
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, Self, get_type_hints

import typer
from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text

from segstream.cli.progress import Meter

__all__ = ["ARGUMENTS", "BAD_INPUT", "FAILURE", "INTERRUPTED", "LOUDNESS", "Loudness", "Shell", "command"]

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130
PLAIN_WIDTH = 400  # where no terminal sets one, a line ends where it ends

Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="No progress and no notes: only results, warnings and errors.", show_default=False
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say more, and show where an error came from.", show_default=False)
]


@dataclass(frozen=True)
class Loudness:
    """How much a person wants to hear."""

    quiet: bool = False
    verbose: bool = False


ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())
LOUDNESS: ContextVar[Loudness | None] = ContextVar("LOUDNESS", default=None)


class Shell:
    """The person's terminal during one command; as a context it turns what goes wrong into a sentence and a code.

    stopped  says what is kept when the command is interrupted now
    """

    def __init__(self, loudness: Loudness) -> None:
        self.quiet = loudness.quiet
        self.verbose = loudness.verbose
        self.out = _console(sys.stdout)
        self.err = _console(sys.stderr)
        self.stopped: Callable[[], str] = lambda: "Nothing was written."
        self._spinner: Status | None = None

    # ---- words

    def show(self, *what: RenderableType) -> None:
        """Results."""
        self._ready()
        for thing in what:
            self.out.print(thing, soft_wrap=isinstance(thing, str) and not self.out.is_terminal)

    def show_json(self, value: Any) -> None:
        """Results for a program: this and nothing else goes to stdout."""
        self._ready()
        self.out.print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False), soft_wrap=True)

    def note(self, text: str) -> None:
        """Something worth knowing."""
        if not self.quiet:
            self._tell("", text)

    def warn(self, text: str) -> None:
        """Something that the person should look at."""
        self._tell("Warning", text, "bold yellow")

    def fail(self, text: str) -> None:
        """Why it did not work."""
        self._tell("Error", text, "bold red")

    def _tell(self, kind: str, text: str, style: str = "") -> None:
        line = Text.assemble((f"{kind}: ", style), text) if kind else Text(text)
        self.err.print(line, soft_wrap=not self.err.is_terminal)

    @property
    def _live(self) -> bool:
        return self.err.is_terminal and not self.err.is_dumb_terminal and not self.quiet

    def busy(self, text: str) -> None:
        """Something that takes seconds and cannot be measured; ends with the next progress or result."""
        self._ready()
        if self._live:
            self._spinner = self.err.status(Text(text, style="dim"))
            self._spinner.start()

    def _ready(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def meter(self) -> Meter:
        """Progress, in the form that suits whoever is listening."""
        self._ready()
        return Meter(self.err, mode="off" if self.quiet else "bars" if self._live else "lines")

    def again(self, *more: str) -> str:
        """This command line, with something added, and without what would start anew."""
        given = [a for a in ARGUMENTS.get() if a not in (*more, "--overwrite")]
        return shlex.join(["segstream", *given, *more])

    # ---- how it ends

    def __enter__(self) -> Self:
        self._handler = _ToShell(self)
        logging.getLogger().addHandler(self._handler)
        self._level = logging.getLogger("segstream").level
        logging.getLogger("segstream").setLevel(logging.INFO if self.verbose else logging.WARNING)
        logging.captureWarnings(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ready()
        logging.captureWarnings(False)
        logging.getLogger("segstream").setLevel(self._level)
        logging.getLogger().removeHandler(self._handler)
        code = self._explain(error)
        if code is not None:
            raise typer.Exit(code) from error

    def _explain(self, error: BaseException | None) -> int | None:
        """Say what went wrong. None: not ours to explain (no error, an exit, a wrong option, a closed pipe)."""
        if isinstance(error, KeyboardInterrupt):
            self._tell("Interrupted", self.stopped(), "bold yellow")
            return INTERRUPTED
        if not isinstance(error, Exception) or isinstance(error, _TYPERS_OWN) or _is_closed_pipe(error):
            return None
        if self.verbose:
            self.err.print("".join(traceback.format_exception(error)), style="dim", soft_wrap=True)
        if isinstance(error, (ValueError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)):
            self.fail(_sentence(error))
            return BAD_INPUT
        if isinstance(error, PermissionError):
            self.fail(f"Access to {error.filename or 'a file'} is refused; choose another place or change its rights.")
            return BAD_INPUT
        if isinstance(error, OSError):
            self.fail(f"The system says: {_sentence(error)}" if error.strerror else _sentence(error))
        elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            self.fail(f"There is not enough memory. Try smaller pictures, crops or batches. ({_first_line(error)})")
        else:
            hint = "" if self.verbose else " Run it again with -v to see where, and please report it."
            self.fail(f"Something unexpected happened ({type(error).__name__}: {_first_line(error)}).{hint}")
        return FAILURE


# Where this class lives differs between versions of Typer, but it is always an ancestor of BadParameter.
_WRONG_USAGE = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
_TYPERS_OWN: tuple[type[BaseException], ...] = (typer.Exit, typer.Abort, _WRONG_USAGE)


def _is_closed_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error).strip() or type(error).__name__
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def _console(file: Any) -> Console:
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


class _ToShell(logging.Handler):
    """The library's log and other people's warnings, as notes and warnings of the shell."""

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell

    def emit(self, record: logging.LogRecord) -> None:
        ours = record.name.split(".")[0] == "segstream"
        if not ours and not self.shell.verbose:
            return  # what other libraries mutter is for those who ask
        text = record.getMessage().strip()
        if record.levelno >= logging.WARNING:
            self.shell.warn(text if ours else f"{record.name}: {text}")
        elif ours:
            self.shell.note(text)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command line's command: `function` gets a Shell first, and -q and -v come for free."""
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [p.replace(annotation=hints[p.name]) for p in own]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("quiet", Quiet), ("verbose", Verbose))
    ]

    def run(**values: Any) -> None:
        outer = LOUDNESS.get() or Loudness()
        loudness = Loudness(values.pop("quiet") or outer.quiet, values.pop("verbose") or outer.verbose)
        with Shell(loudness) as shell:
            function(shell, **values)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
