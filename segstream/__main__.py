"""`python -m segstream` is the command `segstream`."""

from __future__ import annotations

import sys

from segstream.cli import main

__all__: tuple[str, ...] = ()

if __name__ == "__main__":
    sys.exit(main())
