"""The documentation builds without a warning, has a page for every public module, and asks nothing from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_site(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        check=False, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for page in ("storage", "config", "methods.em", "functional.scores", "models.segmenter"):
        assert "<h2" in (tmp_path / "api" / f"{page}.html").read_text(encoding="utf-8"), page
    fetched = re.compile(r"<(?:script|link|img|iframe|source)[^>]+(?:src|href)=[\"']?(?:https?:)?//")
    outside = [str(page) for page in tmp_path.rglob("*.html") if fetched.search(page.read_text(encoding="utf-8"))]
    assert not outside, outside


def test_links_between_the_project_s_own_files_lead_somewhere() -> None:
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (ROOT / target).exists(), f"{page.name} links to {target}"
