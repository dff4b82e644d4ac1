"""The papers' pages quote what the papers' texts say, wherever these texts are at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedldp.data import resolve_data_dir
from fedldp.experiments.reproduction.claims import claims_of
from fedldp.experiments.reproduction.targets import papers_with_targets, targets

ROOT = Path(__file__).parents[3]
PAGES, TEMPLATES = ROOT / "docs" / "papers", ROOT / "benchmarks" / "pages"
PAPERS = {
    "ldp_fl.md": ("ldp_fl", "ldp-fl.txt"),
    "ldpfl.md": ("ldpfl", "ldpfl.txt"),
    "personalised.md": ("personalized", "personalized.txt"),
    "priority.md": ("priority", "priority.txt"),
}
"""Each page's folder of the paper, and the paper's file in the folder ``papers`` of the data."""

OURS = {
    *("agrees", "does not", "explained", "differs", "without noise"),
    *("Shorter", "all low", "all middle", "all high"),
}
"""What the pages quote from our own tables."""


def plain(text: str) -> str:
    """Return the letters and digits of a text in lower case, with single spaces between words."""
    return " ".join(re.findall(r"\w+", text.lower()))


def quotations(page: str) -> list[str]:
    """Return what stands between quotation marks, outside of code."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)
    return re.findall(r'"([^"]+)"', prose)


def test_quotations_are_found_outside_of_code() -> None:
    page = 'It is "a small VGG", and `x = "deep"`.\n```\nsay "no"\n```\nOf "2\nlines".'
    assert quotations(page) == ["a small VGG", "2\nlines"]
    assert plain("A *small*\nVGG, 20 %") == "a small vgg 20"


@pytest.mark.parametrize("name", PAPERS)
def test_every_quotation_stands_in_the_papers_text(name: str) -> None:
    paper, text_file = PAPERS[name]
    file = resolve_data_dir(None) / "papers" / text_file
    if not file.is_file():
        pytest.skip(f"the text of the paper is not at hand: {file}")
    text = plain(file.read_text(encoding="utf-8"))
    pages = [PAGES / name, TEMPLATES / f"claims_{name}", TEMPLATES / f"elements_{name}"]
    quoted = [each for page in pages for each in quotations(page.read_text(encoding="utf-8"))]
    claims, papers = claims_of(paper), papers_with_targets()
    told = [text for each in claims for text in (each.says, each.ours, each.cause, each.cost)]
    told += [each.text for each in targets().values() if papers[each.paper].folder.name == paper]
    quoted += [each for text in told for each in quotations(text or "")]
    assert quoted
    wrong = [each for each in quoted if each not in OURS and plain(each) not in text]
    assert not wrong
