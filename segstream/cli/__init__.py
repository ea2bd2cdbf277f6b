"""The command line. `main` is all that others need."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (by default this process's) and return its exit code.

    >>> main(["--version"])
    segstream 0.1.0
    0
    """
    import typer

    from segstream.cli.app import build
    from segstream.cli.shell import ARGUMENTS

    given = tuple(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's code page lacks is no reason to stop
        sys.stdout.reconfigure(errors="replace")
    token = ARGUMENTS.set(given)
    try:
        typer.main.get_command(build()).main(args=list(given), prog_name="segstream")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    else:
        code = 0
    finally:
        ARGUMENTS.reset(token)
    return _flushed(code)


def _flushed(code: int) -> int:
    """Whoever read the output may have gone (`| head`): then the interpreter must not complain at its end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or 1
    return code
