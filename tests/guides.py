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

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / f"{name}.md" for name in
         ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT")]  # fmt: skip
PAGES += sorted((ROOT / "docs").rglob("*.md"))
OF_PARTS = [
    ROOT / "docs" / f"{name}.md"
    for name in ("parts_of_a_client", "parts_of_a_server", "own_transport", "own_event")
]

_PACKAGE_FILE = re.compile(
    r"^`src/fedldp/([\w/]+)/(\w+\.(?:py|toml))`:\n\n```(?:python|toml)\n(.*?)^```", re.M | re.S
)
_OWN_FILE = re.compile(r'^```(?:python|toml) title="(\w+\.(?:py|toml))"\n(.*?)^```', re.M | re.S)


def files() -> dict[tuple[str, str], str]:
    """Return the files that the guides add to the package, by folder and file."""
    return {
        (package, file): source
        for page in PAGES
        for package, file, source in _PACKAGE_FILE.findall(page.read_text())
    }


def own_files(page: Path) -> dict[str, str]:
    """Return the files that a page puts into its reader's own folder."""
    return dict(_OWN_FILE.findall(page.read_text()))


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
        yield
    for parent, module in added:
        sys.modules.pop(f"{parent.__name__}.{module}", None)
        vars(parent).pop(module, None)
