"""The documentation site builds without warnings, is complete, and loads nothing from elsewhere."""

from __future__ import annotations

import html.parser
import itertools
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

import fedldp
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
        timeout=1200,
        check=False,
    )


def copy(folder: Path) -> Path:
    shutil.copy(CONFIG, folder)
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("results"))
    for read in ("src", "benchmarks"):  # the API reference needs them
        (folder / read).symlink_to(ROOT / read)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_line_of_a_formula_begins_like_an_item_of_a_list(page: Path) -> None:
    """GitHub ends the paragraph and the formula there."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    formulas = re.findall(r"(?<![\\$])\$(?!\$)[^$]+\$", text)
    assert not [each for each in formulas if re.search(r"\n\s*([-+*>]|\d+[.)]) ", each)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy(tmp_path_factory.mktemp("site"))
    write_pages(folder / "docs" / "results")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_navigation_has_every_page_once() -> None:
    nav = pages_of(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"])
    written = {str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents}
    assert sorted(nav) == sorted(page for page in written if not page.startswith("reference/"))
    assert len(nav) <= 60


def test_the_pages_can_be_read() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES if DOCS in page.parents}
    assert sum(len(text.split()) for text in texts.values()) <= 80_000
    assert not [
        (page.name, line)
        for page, text in texts.items()
        for line, before in itertools.pairwise(text.splitlines())
        if line == before and len(line) > 40
    ]


def test_the_interface_lists_every_public_name_and_room() -> None:
    text = (DOCS / "interface.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", text, re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(fedldp.__all__)
    documented = " ".join(re.findall(r"members: \[(.*)\]", text)).replace(",", "").split()
    assert sorted([*documented, "__version__"]) == sorted(fedldp.__all__)
    assert set(re.findall(r"\((reference/\w+\.md)\)", text)) == {
        str(page.relative_to(DOCS)) for page in (DOCS / "reference").glob("*.md")
    }


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


FIRST = tomllib.loads((ROOT / "tests" / "searches.toml").read_text(encoding="utf-8"))
"""What people type, and the page that the site's search must show first."""

SEARCH = """
const fs = require("fs"), [index, worker, ...queries] = process.argv.slice(1);
const read = name => fs.readFileSync(name, "utf8"), told = [];
const self = {postMessage: message => told.push(message)};
new Function("self", "postMessage", read(worker))(self, self.postMessage);
const tell = async message => {
  self.onmessage({data: message});
  await new Promise(setImmediate);
  return told.at(-1).data;
};
(async () => {
  const {items} = JSON.parse(read(index)), found = [];
  await tell({type: 0, data: JSON.parse(read(index))});
  for (const input of queries) {
    const filter = {input: "", type: "operator", data: {operator: "and", operands: []}};
    const told = await tell({type: 2, data: {input, filter}});
    found.push(told.items.slice(0, 3).map(item => items[item.id].location));
  }
  console.log(JSON.stringify(found));
})();
"""
"""Asks the site's own script, as a browser does; prints the addresses that it shows first."""


@pytest.mark.slow
def test_a_search_shows_first_what_people_look_for(site: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("the site's search is JavaScript, and there is no node here")
    [worker] = (site / "assets/javascripts/workers").glob("search.*.min.js")
    told = subprocess.run(
        [node, "-e", SEARCH, str(site / "search.json"), str(worker), *FIRST],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = dict(zip(FIRST, json.loads(told.stdout), strict=True))
    wrong = {
        query: places
        for query, places in found.items()
        if not places or places[0].partition(".html")[0] != FIRST[query]
    }
    assert not wrong


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
