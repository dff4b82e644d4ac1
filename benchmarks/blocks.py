"""Pages whose tables are made of results: what is between their markers is written anew."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_BLOCK = re.compile(r"(<!-- made (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_blocks(page: Path, made: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- made NAME -->`` and ``<!-- end -->`` in a page.

    Raises:
        KeyError: a marker of the page names nothing.
    """
    text = page.read_text(encoding="utf-8")
    found = _BLOCK.sub(lambda match: f"{match[1]}{made[match[2]]}{match[3]}", text)
    page.write_text(found, encoding="utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
