"""The page as headless Chromium shows it, if Chromium is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)  # fmt: skip
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: pages are not rendered"),
    pytest.mark.usefixtures("charts_are_drawn"),
]


def seen(page: Path, folder: Path, *options: str) -> np.ndarray:
    """Return the pixels of a page, shape (height, width, 3)."""
    image = pytest.importorskip("PIL.Image")
    picture = folder / "seen.png"
    browse(page, folder, f"--screenshot={picture}", *options)
    with image.open(picture) as opened:
        return np.asarray(opened.convert("RGB"), int)


def browse(page: Path, folder: Path, *options: str) -> str:
    """Return what headless Chromium prints about a page."""
    assert CHROMIUM is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [CHROMIUM, "--headless", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={folder / 'profile'}", *sandbox, *options, page.resolve().as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_the_page_is_shown_in_light_and_dark_and_on_a_phone(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    page = runs["quickstart"] / "report.html"
    light = seen(page, tmp_path, "--window-size=1000,2000")
    assert light[0, 0].min() > 240
    assert light.std() > 10  # the page is not empty
    dark = seen(page, tmp_path, "--window-size=1000,2000", "--force-dark-mode")
    assert dark[0, 0].max() < 60
    assert (dark.max(axis=2) > 200).mean() > 0.01  # light text
    phone = seen(page, tmp_path, "--window-size=500,2000")
    assert (phone[:, -4:] > 200).all()  # nothing overflows the right edge


def test_the_page_can_be_printed(runs: dict[str, Path], tmp_path: Path) -> None:
    paper = tmp_path / "page.pdf"
    browse(runs["quickstart"] / "report.html", tmp_path, f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 10_000
