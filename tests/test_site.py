"""The docs site: its navigation and, in the long form, the site itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.site.build import as_markdown, navigation

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]*)")


def test_lists_and_tables_begin_after_an_empty_line() -> None:
    text = "What:\n- one\n- two\n  and more\n\n```\nwhat:\n- as it is\n```\nThis:\n| a |\n|---|\n| b |\n"
    assert as_markdown(text) == text.replace("What:\n-", "What:\n\n-").replace("This:\n|", "This:\n\n|")


def test_the_navigation_has_every_page_once() -> None:
    def pages(nav: object) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in pages(each)]  # type: ignore[attr-defined]

    found = pages(navigation([]))
    assert len(set(found)) == len(found)
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "notes"}
    assert written - set(found) == set()


@pytest.mark.long  # a minute of processor time
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "deploy.site.build", site]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.html")}
    assert {name: found for name, text in pages.items() if (found := LOADED.findall(text))} == {}
    assert "Not well: events: Too many bad units" in pages["reference/sample-lake.html"]
    assert "reader dead-letters" in pages["reference/commands/reader/index.html"]
    assert "DriftPolicy" in pages["reference/model/index.html"]
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
