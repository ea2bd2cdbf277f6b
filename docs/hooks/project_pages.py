"""Pages that are written elsewhere in the project: the dated results, CONTRIBUTING and CHANGELOG."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
INTRODUCTION = """# Results

Measurements of ours, newest first. Each names recipe, seeds, hardware, versions and date, and the command that made it;
every number lies in JSON files beside it in `results/`. Nothing here is copied from the paper, whose own
tables have not been reproduced yet. Files are never edited later: a new measurement is a new file.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    parts = [INTRODUCTION]
    for path in sorted((ROOT / "results").glob("*.md"), reverse=True):
        lines = path.read_text(encoding="utf-8").splitlines()
        parts.append("\n".join(f"#{line}" if line.startswith("#") else line for line in lines))
    files.append(File.generated(config, "results.md", content="\n\n".join(parts)))
    for name in ("CONTRIBUTING", "CHANGELOG"):
        content = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        files.append(File.generated(config, f"{name.lower()}.md", content=content))
    return files
