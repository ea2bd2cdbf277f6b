"""segstream info: versions and devices."""

from __future__ import annotations

from segstream.cli.options import Json
from segstream.cli.shell import Shell, command
from segstream.cli.tables import plain_table

EXAMPLES = """
segstream info
segstream info --json
"""


@command
def info(shell: Shell, json: Json = False) -> None:
    """Show versions and devices.

    This is what a run stores about itself, and what belongs into a bug report.
    """
    shell.busy("looking around")
    from segstream.about import about, describe

    found = about()
    if json:
        shell.show_json(found)
        return
    table = plain_table("what", "here")
    for label, text in describe(found):
        table.add_row(label, text)
    shell.show(table)
