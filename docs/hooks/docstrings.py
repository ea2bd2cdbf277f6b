"""Our docstrings are written to be read in the source; on the site their columns and examples become code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

COLUMNS = re.compile(r"^\s*\S.*\S? {2,}\S")


def escaped(paragraph: str) -> str:
    """A paragraph whose brackets stay brackets: `[B, H][i]` is a shape, not a link. Code spans are left alone."""
    parts = paragraph.split("`")
    return "`".join(part if i % 2 else part.replace("[", "\\[") for i, part in enumerate(parts))


def fenced(text: str) -> str:
    """Puts fences around examples and around paragraphs that are set in columns."""
    done: list[str] = []
    example = False
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        starts = paragraph.lstrip().startswith(">>>")
        if starts:
            done.append(f"```pycon\n{paragraph}\n```")
        elif any(COLUMNS.match(line) for line in paragraph.splitlines()) and not example:
            done.append(f"```text\n{paragraph}\n```")
        else:
            done.append(escaped(paragraph))
        example = starts
    return "\n\n".join(done)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
