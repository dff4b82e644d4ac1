"""Every block of a tutorial runs in order, as for a reader, and gives the results it shows.

A block with a title is written to a file. An sh block is run; a text block right after it shows its
output, with "..." for what is left out or differs from run to run. Python examples are doctests of
one session. A block that begins with TERMINAL keeps running while later blocks run, and the test
waits for the text after it; a block that begins with EVERY_TERMINAL also runs before all later
ones. A block that begins with ONCE is skipped: the person who runs the tests has done it. Where
TOLD stands, the test types the ten words that were printed last.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from guides import PAPER, install, own_files, paper_files

from fedldp import cli

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
TUTORIALS = sorted(FOLDER.glob("*.md"))
GUIDE = FOLDER.parent / "deployment.md"
"""The guide to real sites."""

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
PLAIN = re.compile(r"fedldp [^|&;<>$]+")
LOOP = re.compile(r"for (\w+) in ([\w ]+); do (fedldp [^|&;<>]+); done")
TERMINAL = "# a terminal of its own"
EVERY_TERMINAL = "# in every terminal"
ONCE = "# once, at each party"
TOLD = "TEN WORDS"
WORDS = re.compile(r"^words +(.+)$", re.M)
PATIENCE = 240


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the name of its file, and the text before it."""

    language: str
    title: str
    text: str
    before: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page; a malformed fence fails."""
    found = list(FENCE.finditer(page))
    assert page.count("```") == 2 * len(found)
    begins = [0, *(match.end() for match in found)]
    return [
        Block(match[1], match[2] or "", match[3], page[begin : match.start()].strip())
        for begin, match in zip(begins, found, strict=False)
    ]


def shows(wanted: str, printed: str) -> bool:
    """Return whether ``printed`` holds the words that a block shows, in their order."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in wanted.split("..."))
    return re.search(pattern, " ".join(printed.split())) is not None


def unrolled(line: str) -> list[str]:
    """Return the commands of a line: of a loop, those that it stands for."""
    found = LOOP.fullmatch(line)
    if found is None:
        return [line]
    return [found[3].replace(f"${found[1]}", each) for each in found[2].split()]


@dataclass
class Reader:
    """Follows a tutorial in a new folder."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    terminals: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)
    first: str = ""
    words: str = ""
    printed: str | None = None

    def follow(self, page: Path) -> None:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.title:
                self.write(block)
            elif block.language == "sh":
                self.printed = self.run(block.text.replace(TOLD, self.words))
                self.words = [self.words, *WORDS.findall(self.printed)][-1]
            elif block.language == "python":
                self.talk(block.text)
            else:
                self.compare(block)

    def write(self, block: Block) -> None:
        paragraph = block.before.rpartition("\n\n")[2]
        assert f"`{block.title}`" in paragraph, f"say that {block.title} is to be written"
        (self.folder / block.title).write_text(block.text, encoding="utf-8")

    def talk(self, text: str) -> None:
        name = f"session{len(self.names)}"  # functions of earlier blocks keep their own source
        test = doctest.DocTestParser().get_doctest(text, self.names, name, None, 0)
        assert test.examples, f"a python block needs a title, or examples:\n{text}"
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(self.folder)  # as if the user started Python there
            runner.run(test, out=said.append, clear_globs=False)
        self.names = test.globs
        assert runner.failures == 0, "".join(said)

    def compare(self, block: Block) -> None:
        assert block.language == "text", f"nobody runs this:\n{block.text}"
        assert not block.before, "an output follows its command"
        assert self.printed is not None
        printed, self.printed = self.printed, None
        if self.terminals and printed == "":
            printed = self.await_terminal(block.text)
        assert shows(block.text, printed), f"shown:\n{block.text}\nprinted:\n{printed}"

    def run(self, text: str) -> str:
        lines = [line for given in text.splitlines() for line in unrolled(given)]
        if text.startswith(EVERY_TERMINAL):
            self.first = text
            return ""
        if text.startswith(ONCE):
            return ""
        if text.startswith(TERMINAL):
            self.open_terminal(text)
            return ""
        if all(PLAIN.fullmatch(line) for line in lines):
            return "".join(self.call(shlex.split(line, comments=True)) for line in lines)
        done = subprocess.run(
            ["bash", "-ec", self.first + text],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        return done.stdout

    def call(self, words: list[str]) -> str:
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words)
            patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)  # no workers
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                pytest.raises(SystemExit) as end,
            ):
                cli.main()
        assert not end.value.code, f"{words}\n{printed.getvalue()}"
        return printed.getvalue()

    def open_terminal(self, text: str) -> None:
        log = self.folder / f"terminal-{len(self.terminals)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-ec", self.first + text],
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.terminals.append((process, log))

    def await_terminal(self, wanted: str) -> str:
        process, log = self.terminals[-1]
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not shows(wanted, log.read_text(errors="replace")):
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.2)
        return log.read_text(errors="replace")

    def close(self) -> None:
        for process, _ in reversed(self.terminals):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process, _ in self.terminals:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def reader(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(short_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "80")
    known = set(sys.modules)
    reader = Reader(short_path)
    yield reader
    reader.close()
    for name in set(sys.modules) - known:
        place = getattr(sys.modules[name], "__file__", None)
        if place and Path(place).is_relative_to(short_path):
            del sys.modules[name]


LONG = {"choosing_a_system.md", "first_run.md", "own_data.md", "own_mechanism.md"}
"""The tutorials that train for a long time."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in TUTORIALS
    ],
)
def test_a_tutorial_works_as_it_says(page: Path, reader: Reader) -> None:
    reader.follow(page)


@pytest.mark.slow
def test_the_guide_to_sites_works_as_it_says(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All except installation; the server and the agents are processes of their own."""
    pytest.importorskip("starlette")
    monkeypatch.setenv("HOME", str(reader.folder))
    reader.follow(GUIDE)
    summary = reader.call(
        ["fedldp", "evaluate", "server/run", "--data", "server/patients.csv", "--json"]
    )
    assert json.loads(summary)["accuracy"] > 0.8  # always predicting the same class gives 0.65


@pytest.mark.slow
def test_the_guide_to_comparing_works_as_it_says(reader: Reader) -> None:
    """With one epsilon, one seed, and few made-up vectors, which takes a third of the time."""
    coarse = own_files(FOLDER / "own_mechanism.md")["coarse.py"]
    (reader.folder / "coarse.py").write_text(coarse, encoding="utf-8")
    text = (FOLDER.parent / "compare.md").read_text(encoding="utf-8")
    for whole, part in (
        ("epsilon = [16, 64]", "epsilon = 16"),
        ("--seeds 0-2", "--seeds 0"),
        ("--mean d=100,n=1000", "--mean d=10,n=100"),
        ("--frequencies k=100,n=2000", "--frequencies k=10,n=200"),
    ):
        assert whole in text
        text = text.replace(whole, part)
    (reader.folder / "page.md").write_text(text, encoding="utf-8")
    reader.follow(reader.folder / "page.md")


@pytest.mark.slow
def test_the_guide_to_a_paper_works_as_it_says(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Follow the guide, with the package's files put in place instead of pip."""

    def installs(command: str) -> str:
        if not command.startswith("pip install"):
            return run(command)
        pip, _, more = command.partition("\n")
        assert pip == "pip install -e ./toy"
        made = tomllib.loads((reader.folder / "toy" / "pyproject.toml").read_text("utf-8"))
        assert made["project"]["entry-points"] == {"fedldp.papers": {"toypaper": "toypaper"}}
        written = reader.folder / "toy" / "toypaper"
        for name, text in paper_files().items():
            assert (written / name).read_text("utf-8") == text
        install(reader.folder / "site", "toypaper", paper_files())
        monkeypatch.syspath_prepend(str(reader.folder / "site"))
        return run(more)

    run = reader.run
    monkeypatch.setattr(reader, "run", installs)
    reader.follow(PAPER)


class TestTheReader:
    """The reader itself: it accepts a right tutorial and detects a wrong one."""

    def follow(self, reader: Reader, text: str) -> None:
        page = reader.folder / "page.md"
        page.write_text(text)
        reader.follow(page)

    def test_a_right_tutorial_passes(self, reader: Reader) -> None:
        self.follow(
            reader,
            'Save as `a.txt`:\n\n```text title="a.txt"\none\ntwo\nthree\n```\n\n'
            "```sh\ncat a.txt\n```\n\n```text\none\n...\nthree\n```\n\n"
            "```python\n>>> from pathlib import Path\n>>> Path('a.txt').read_text()[:4]\n"
            "'one\\n'\n>>> x = 3\n```\n\n"
            "and then\n\n```python\n>>> x\n3\n```\n\n```sh\nfedldp --version\n```\n",
        )

    @pytest.mark.parametrize(
        "text",
        [
            "```sh\necho 84.2\n```\n\n```text\n84.3\n```\n",
            "```sh\nprintf '1\\n2\\n'\n```\n\n```text\n2\n...\n1\n```\n",
            "```sh\nfedldp --version\n```\n\n```text\n0.0.0\n```\n",
            "```sh\nfedldp account no-such-recipe\n```\n",
            "```sh\nfalse\ntrue\n```\n",
            "```python\n>>> 1 + 1\n3\n```\n",
            "```python\nx = 1\n```\n",
            "Nothing:\n\n```toml\na = 1\n```\n",
            'Not named:\n\n```toml title="a.toml"\na = 1\n```\n',
            "```sh\necho a\n```\n\nIt prints:\n\n```text\na\n```\n",
        ],
    )
    def test_a_wrong_tutorial_fails(self, reader: Reader, text: str) -> None:
        with pytest.raises(AssertionError):
            self.follow(reader, text)
