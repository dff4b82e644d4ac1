"""Each example program runs unchanged but for fewer rounds, and its model is accurate enough."""

from __future__ import annotations

import functools
import re
import runpy
from pathlib import Path

import pytest

import fedldp

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedldp.ReleaseWarning")
@pytest.mark.parametrize(
    ("name", "least", "shorter"), [("hospitals", 0.85, {}), ("loaders", 0.75, {"rounds": 12})]
)
def test_an_example_runs(
    name: str,
    least: float,
    shorter: dict[str, int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fedldp, "run", functools.partial(fedldp.run, **shorter))
    assert runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]() > least
    assert "against" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedldp.ReleaseWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")  # from peft and transformers
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "least", "says"),
    [
        ("frozen_encoder", 60, "head: 1,536 bytes"),
        ("lora_transformer", 80, "322 of 5986 weights are trained"),
        ("lora_peft", 60, "of which 4 are LoRA's"),
    ],
)
def test_an_example_trains_a_part_of_a_model(
    name: str, least: float, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "lora_peft":
        pytest.importorskip("peft")
        pytest.importorskip("transformers")
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert says in shown
    assert min(float(each) for each in re.findall(r"accuracy ([\d.]+) ?%", shown)) > least


def test_every_example_is_tested() -> None:
    tried = {"hospitals", "loaders", "frozen_encoder", "lora_transformer", "lora_peft"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tried
