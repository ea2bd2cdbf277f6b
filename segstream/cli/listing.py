"""segstream list: what can be named on a command line or in a recipe."""

from __future__ import annotations

import dataclasses
import inspect
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from segstream.cli.options import Json
from segstream.cli.shell import Shell, command

EXAMPLES = """
segstream list methods
segstream list networks --json
"""


class Kind(StrEnum):
    """What can be listed."""

    methods = "methods"
    datasets = "datasets"
    networks = "networks"
    recipes = "recipes"
    policies = "policies"


@command
def listing(
    shell: Shell,
    kind: Annotated[Kind, typer.Argument(help="Of what kind.")],
    json: Json = False,
) -> None:
    """List methods, datasets, networks, recipes or policies.

    Methods are shown with their settings and these settings' defaults.
    """
    shell.busy("looking around")
    found = _recipes() if kind is Kind.recipes else _plugins(kind.value)
    if json:
        shell.show_json({kind.value: found})
        return
    for entry in found:
        shell.show(Text(str(entry["name"]), style="bold"), Padding(entry["about"], (0, 0, 0, 2)))
        for title, more in entry.items():
            if title not in ("name", "about"):
                shell.show(Padding(Text.assemble((f"{title}: ", "dim"), _text(more)), (0, 0, 0, 2)))


def _text(more: Any) -> str:
    if isinstance(more, dict):
        return ", ".join(f"{name}={_value(value)}" for name, value in more.items())
    return ", ".join(map(str, more)) if isinstance(more, list) else str(more)


def _value(value: Any) -> str:
    return (
        {None: "none", True: "true", False: "false"}.get(value, str(value))
        if not isinstance(value, int | float) or isinstance(value, bool)
        else f"{value:g}"
    )


def _recipes() -> list[dict[str, Any]]:
    from segstream.config import load_recipe, recipes

    found = []
    for name in recipes():
        recipe = load_recipe(name)
        named = (recipe.scenario.base, *recipe.scenario.stages)
        groups = recipe.scenario.split or "+".join(str(len(group)) for group in named)
        found.append({"name": name, "about": recipe.title, "classes": groups, "data": recipe.data.dataset})
    return found


def _plugins(kind: str) -> list[dict[str, Any]]:
    from segstream import plugins

    found = []
    for name in plugins.available(kind):
        plugin = plugins.load(kind, name)
        entry: dict[str, Any] = {"name": name, "about": (inspect.getdoc(plugin) or "").split("\n")[0]}
        if kind == "methods":
            entry["settings"] = _settings(plugin)
        if kind == "networks":
            entry["architectures"] = list(plugin().architectures())
        found.append(entry)
    return found


def _settings(method: Any) -> dict[str, Any]:
    """The fields that are settings, with their defaults."""
    names = method.setting_names()
    return {field.name: field.default for field in dataclasses.fields(method) if field.name in names}
