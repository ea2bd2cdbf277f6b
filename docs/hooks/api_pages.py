"""A page for each public module, so that a new file in the package is documented without another being edited."""

from __future__ import annotations

import ast
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]


INTERNAL = ("segstream.cli", "segstream.data.scenery")  # described by their help, and by the pictures that they draw


def exports(path: Path) -> list[str]:
    """The names in a module's `__all__`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return []


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def public_modules() -> dict[str, list[str]]:
    """Modules that export something. A package's `__init__` just repeats names of its modules."""
    found = {}
    for path in sorted((ROOT / "segstream").rglob("*.py")):
        name = module_name(path)
        hidden = name.startswith(INTERNAL) or any(part.startswith("_") for part in name.split("."))
        if not hidden and path.name != "__init__.py" and (names := exports(path)):
            found[name] = names
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    groups: dict[str, list[dict[str, str]]] = {}
    for name, names in public_modules().items():
        uri = f"api/{name.removeprefix('segstream.')}.md"
        members = "".join(f"        - {member}\n" for member in names)
        text = f"# {name}\n\n::: {name}\n    options:\n      members:\n{members}"
        files.append(File.generated(config, uri, content=text))
        parts = name.split(".")[1:]
        groups.setdefault(parts[0] if len(parts) > 1 else "", []).append({".".join(parts): uri})
    entry = next(item for item in config.nav or [] if "API" in item)
    entry["API"] = [*groups.pop("", []), *({group: pages} for group, pages in sorted(groups.items()))]
    return files
