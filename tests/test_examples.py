"""The example programs: each runs as it stands, and its model is worth something."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedldp.ReleaseWarning")
@pytest.mark.parametrize(("name", "least"), [("hospitals", 0.85), ("loaders", 0.75)])
def test_an_example_runs(name: str, least: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]() > least
    assert "against" in capsys.readouterr().out


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"hospitals", "loaders"}
