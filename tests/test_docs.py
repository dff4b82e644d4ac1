"""The documentation's links resolve, its commands exist, and its examples and guides run."""

from __future__ import annotations

import ast
import doctest
import functools
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import guides
import pytest
import typer
from guides import PAGES, ROOT

from benchmarks import site
from fedldp.accounting.accountants import ACCOUNTANTS
from fedldp.algorithms.recipes import recipes
from fedldp.cli import Later, app
from fedldp.core.errors import FedldpError
from fedldp.mechanisms import mechanisms
from fedldp.protocol.wire import Reason
from fedldp.simulation.settings import resolve
from fedldp.testing.mechanisms import check_mechanism
from fedldp.testing.systems import check_system

TUTORIALS = ROOT / "docs" / "tutorials"  # tests/test_tutorials.py runs them
DOCTESTED = [page for page in PAGES if ">>> " in page.read_text() and TUTORIALS not in page.parents]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
REPOSITORY_PATH = re.compile(r"`((?:src|tests|docs|benchmarks|\.ci)/[\w./-]+)`")
OWN = re.compile(r"[A-Z]+=[A-Z]+|mechanism=\w+:\w+")
MACHINE_PATH = re.compile(r"(?<![\w./:~-])/(?:home|root|tmp|work|Users|mnt|opt|var|usr|srv|data)\b")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module", autouse=True)
def guides_followed() -> Iterator[None]:
    with guides.followed():
        yield


def test_hand_written_pages_can_be_read_in_one_sitting() -> None:
    assert not [page_id(page) for page in PAGES if len(page.read_text().splitlines()) >= 250]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("https://", "http://")):
            path, _, anchor = target.partition("#")
            linked = page.parent / path if path else page
            if linked.resolve().parent == ROOT / "docs" / "results":
                assert linked.name in result_pages(), f"{page.name} links to {target}"
                continue
            assert linked.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"


@functools.cache
def result_pages() -> set[str]:
    return site.names()


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_page_of_errors_quotes_lines_that_the_package_prints() -> None:
    package = ROOT / "src" / "fedldp"
    words = package / "reporting" / "words.toml"
    sources = (path.read_text() for path in [words, *package.rglob("*.py")])
    printed = re.sub(r'"\s*\n\s*f?"', "", "".join(sources)) + " ".join(Reason)
    page = (ROOT / "docs" / "errors.md").read_text()
    rows = re.findall(r"^\| (`.+?) \|", page, re.M)
    quoted = [words for row in rows for words in re.findall(r"`([^`]+)`", row)]
    settings = {"channel = sum", "fedldp data fetch"}
    assert len(quoted) > 25
    assert not [words for words in quoted if words not in printed and words not in settings]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_that_are_named_exist(page: Path) -> None:
    made = {f"src/fedldp/{package}/{file}" for package, file in guides.files()} | {"docs/results"}
    for name in REPOSITORY_PATH.findall(page.read_text()):
        assert name in made or (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CITATION.cff"], ids=page_id)
def test_no_page_names_a_path_of_a_machine(page: Path) -> None:
    text = page.read_text()
    assert not MACHINE_PATH.findall(text)
    assert not re.findall(r"\b[A-Za-z]:\\", text)


def commands(page: Path) -> list[list[str]]:
    """Return the words after ``fedldp`` of every command line in a page's code."""
    text = page.read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", prose)]
    found = []
    for line in lines:
        for part in line.split("&&"):
            if re.match(r"\s*(?:\S*/)?fedldp(?:\s|$)", part):
                words = shlex.split(part, comments=True)[1:]
                ends = [place for place, word in enumerate(words) if word in (">", "|")]
                found.append(words[: ends[0]] if ends else words)
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_exist(page: Path) -> None:
    for words in commands(page):
        if words:
            check_command(words, f"{page.name}: fedldp {' '.join(words)}")


@functools.cache
def built_commands() -> Any:
    return typer.main.get_command(app)


def check_command(words: list[str], where: str) -> None:
    """Check that a command takes its words; what they stand for may be a placeholder."""
    command, rest = built_commands(), list(words)
    while rest and hasattr(command, "commands"):
        assert rest[0] in command.commands, where
        command = command.commands[rest.pop(0)]
        command = command.load() if isinstance(command, Later) else command
    try:
        given, left, _ = command.make_parser(command.context_class(command)).parse_args(rest)
    except Exception as error:  # its class depends on typer's version
        pytest.fail(f"{where}: {error}")
    assert not left, where
    if words[0] == "run" and not given.get("resume"):
        check_run(given.get("recipe"), given.get("set_") or [], where)


def check_run(recipe: str | None, assignments: list[str], where: str) -> None:
    """Check the recipe and its settings, but for files, KEY=VALUE and own module:Class."""
    recipe = recipe or "quickstart"
    if recipe.isupper() or recipe.endswith((".toml", "config.json")):
        return
    try:
        resolve(recipe, [text for text in assignments if not OWN.fullmatch(text)])
    except FedldpError as error:
        pytest.fail(f"{where}: {error}")


class FencedParser(doctest.DocTestParser):
    """Reads examples in Markdown: the fence that ends an example is not part of its output."""

    def parse(self, string: str, name: str = "<string>") -> list[str | doctest.Example]:
        return super().parse(re.sub(r"^```.*$", "", string, flags=re.M), name)


@pytest.mark.slow
@pytest.mark.parametrize("page", DOCTESTED, ids=page_id)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples run in a folder that holds the page's own files."""
    own = guides.own_files(page)
    for file, source in own.items():
        (tmp_path / file).write_text(source)
        monkeypatch.delitem(sys.modules, Path(file).stem, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with mock.patch.dict(ACCOUNTANTS):  # a guide adds an entry
            run_examples(page)
    finally:  # fedldp's own modules stay: imported again, they would declare all kinds twice
        for file in own:
            sys.modules.pop(Path(file).stem, None)


def run_examples(page: Path) -> None:
    result = doctest.testfile(
        str(page), module_relative=False, encoding="utf-8", parser=FencedParser()
    )
    assert result.attempted > 0
    assert result.failed == 0


def test_the_guides_code_keeps_to_the_line_length() -> None:
    own = [found for page in guides.OF_PARTS for found in guides.own_files(page).items()]
    for file, source in [*((file, text) for (_, file), text in guides.files().items()), *own]:
        ast.parse(source) if file.endswith(".py") else tomllib.loads(source)
        assert max(map(len, source.splitlines())) <= 100


@pytest.mark.slow
def test_the_guides_mechanism_and_system_keep_their_contracts() -> None:
    found = check_mechanism(mechanisms()["one_byte"])
    found += check_system(recipes()["ldp-update-digits"].config)
    assert [each for each in found if each.verdict == "fails"] == []
