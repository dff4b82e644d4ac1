"""Pages with tables made from results: rewrites the text between their markers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_BLOCK = re.compile(r"(<!-- made (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TEMPLATES = Path(__file__).parent / "pages"


def write_blocks(page: Path, made: Mapping[str, str]) -> None:
    """Replace the text between ``<!-- made NAME -->`` and ``<!-- end -->`` in a page.

    Raises:
        KeyError: a marker of the page has an unknown name.
    """
    page.write_text(with_blocks(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def with_blocks(text: str, made: Mapping[str, str]) -> str:
    """Return a page's text with the text between its markers replaced; see ``write_blocks``.

    Raises:
        KeyError: a marker has an unknown name.
    """
    return _BLOCK.sub(lambda match: f"{match[1]}{made[match[2]]}{match[3]}", text)


def from_template(name: str, made: Mapping[str, str]) -> str:
    """Return a page whose text is in benchmarks/pages, with the text between its markers.

    Raises:
        KeyError: a marker of the page has an unknown name.
    """
    return with_blocks((_TEMPLATES / f"{name}.md").read_text(encoding="utf-8"), made)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
