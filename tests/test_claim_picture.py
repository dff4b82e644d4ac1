"""The picture of claim and truth, and its text, come from the package's own statements."""

from __future__ import annotations

import pytest

from benchmarks import claim_picture


@pytest.mark.parametrize("name", claim_picture.PICTURES)
def test_the_picture_is_made_from_the_statements(name: str) -> None:
    drawn = claim_picture.picture(claim_picture.PICTURES[name])
    assert (claim_picture.ROOT / "docs" / name).read_text(encoding="utf-8") == drawn


@pytest.mark.parametrize("page", claim_picture.PAGES)
def test_the_page_has_the_picture_and_its_text(page: str) -> None:
    text = (claim_picture.ROOT / page).read_text(encoding="utf-8")
    assert text == claim_picture.updated(page)
    assert claim_picture.block(claim_picture.PAGES[page]) in text


def test_a_figure_is_never_rounded_down() -> None:
    assert claim_picture.rounded(102_689.0001) == "102,690"
    assert [layout.across(0.1) for layout in claim_picture.PICTURES.values()] == [262, 18]
