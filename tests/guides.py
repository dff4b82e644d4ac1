"""The files that the guides tell their readers to write, in the package and in their own
folders."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedldp.mechanisms import mechanisms

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / f"{name}.md" for name in
         ("README", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT")]  # fmt: skip
PAGES += sorted(  # those of docs/results are made with the site, and are not committed
    page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "results"
)
OF_PARTS = [
    ROOT / "docs" / f"{name}.md" for name in ("parts_of_a_client", "parts_of_a_server", "own_event")
]

PAPER = ROOT / "docs" / "paper_folder.md"
"""The guide to a package with a paper."""

_PAPER_FILE = re.compile(r'^```\w+ title="toy/toypaper/([^"]+)"\n(.*?)^```$', re.M | re.S)
_PACKAGE_FILE = re.compile(
    r"^`src/fedldp/([\w/]+)/(\w+\.(?:py|toml))`:\n\n```(?:python|toml)\n(.*?)^```", re.M | re.S
)
_OWN_FILE = re.compile(r'^```(?:python|toml) title="(\w+\.(?:py|toml))"\n(.*?)^```', re.M | re.S)


def files() -> dict[tuple[str, str], str]:
    """Return the files that the guides add to the package, by folder and file.

    The guide to mechanisms adds the file of the tutorial.
    """
    mechanism = own_files(ROOT / "docs" / "tutorials" / "own_mechanism.md")["coarse.py"]
    return {("mechanisms", "one_byte.py"): mechanism} | {
        (package, file): source
        for page in PAGES
        for package, file, source in _PACKAGE_FILE.findall(page.read_text())
    }


def own_files(page: Path) -> dict[str, str]:
    """Return the files that a page puts into its reader's own folder."""
    return dict(_OWN_FILE.findall(page.read_text()))


def paper_files() -> dict[str, str]:
    """Return the files of the package that the guide to papers makes, by their paths in it."""
    return dict(_PAPER_FILE.findall(PAPER.read_text(encoding="utf-8")))


def install(site: Path, package: str, files: dict[str, str], value: str | None = None) -> None:
    """Put a package, and an entry point for a paper, into a folder of installed packages.

    Args:
        site: the folder.
        package: the package's name.
        files: its files, by their paths in it.
        value: what the entry point names; None for the package.
    """
    for name, text in files.items():
        path = site.joinpath(*package.split("."), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    about = site / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    point = f"[fedldp.papers]\n{package} = {value or package}\n"
    (about / "entry_points.txt").write_text(point)
    importlib.invalidate_caches()


@contextmanager
def followed() -> Iterator[None]:
    """Put the guides' files where the package looks for them, as a reader does; remove them
    afterwards."""
    added = []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as temporary:
        for (package, file), source in files().items():
            parent = importlib.import_module(f"fedldp.{package.replace('/', '.')}")
            if any((Path(place) / file).exists() for place in parent.__path__):
                continue  # the person who runs this has followed the guide
            folder = Path(temporary) / package
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(source)
            if str(folder) not in parent.__path__:
                patch.setattr(parent, "__path__", [*parent.__path__, str(folder)])
            added.append((parent, file.removesuffix(".py")))
        install(Path(temporary) / "site", "toypaper", paper_files())
        patch.syspath_prepend(str(Path(temporary) / "site"))
        mechanisms.cache_clear()  # a reader's next process looks again
        yield
    mechanisms.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toypaper"]:
        del sys.modules[name]
    for parent, module in added:
        sys.modules.pop(f"{parent.__name__}.{module}", None)
        vars(parent).pop(module, None)
