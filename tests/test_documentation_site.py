"""The documentation site builds without warnings, is complete, and loads nothing from elsewhere."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from guides import PAGES

from benchmarks.site import write_pages

pytest.importorskip("zensical")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "zensical.toml"
DOCS = ROOT / "docs"


def pages_of(nav: list[Any]) -> list[str]:
    """Return the pages that a navigation lists, in order."""
    found = []
    for entry in nav:
        (target,) = entry.values()
        found += pages_of(target) if isinstance(target, list) else [target]
    return found


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = "import sys; from zensical.main import cli; sys.exit(cli())"
    return subprocess.run(
        [sys.executable, "-c", command, "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def copy(folder: Path) -> Path:
    shutil.copy(CONFIG, folder)
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("results"))
    for read in ("src", "benchmarks"):  # the API reference needs them
        (folder / read).symlink_to(ROOT / read)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy(tmp_path_factory.mktemp("site"))
    write_pages(folder / "docs" / "results")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_navigation_has_every_page_once() -> None:
    nav = pages_of(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"])
    written = (str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents)
    assert sorted(nav) == sorted(written)


@pytest.mark.slow
def test_every_page_is_built_and_those_of_results_are_linked(site: Path) -> None:
    docs = (site.parent / "docs").resolve()
    pages, linked = [*docs.rglob("*.md")], set()
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            linked.add(to)
            if anchor and "results" in {page.parent.name, to.parent.name}:
                built = site / to.relative_to(docs).with_suffix(".html")
                assert f'id="{anchor}"' in built.read_text(encoding="utf-8"), target
    for page in pages:
        assert (site / page.relative_to(docs).with_suffix(".html")).exists()
        assert page.parent.name != "results" or page in linked


@pytest.mark.slow
def test_a_search_finds_guides_only(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    found = {item["location"].partition("/")[0] for item in index["items"]}
    assert "own_data.html" in {place.partition("#")[0] for place in found}
    assert not found & {"results", "reference"}


class Loaded(html.parser.HTMLParser):
    """Collects what a page loads by itself, and the files that it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        key = {"script": "src", "img": "src", "iframe": "src", "link": "href"}.get(tag)
        if key and values.get(key) and values.get("rel") not in {"canonical", "prev", "next"}:
            self.found.append(values[key] or "")


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its addresses begin at the server's root
            continue
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.found
        for address in loaded.found:
            assert "//" not in address, f"{page.name} loads {address}"
            assert (page.parent / address.split("?")[0]).exists(), f"{page.name} loads {address}"
