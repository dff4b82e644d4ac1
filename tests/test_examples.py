"""Each example program runs unchanged but for fewer rounds, and its model is accurate enough."""

from __future__ import annotations

import functools
import re
import runpy
from pathlib import Path

import pytest

import fedldp

EXAMPLES = Path(__file__).parents[1] / "examples"


SHOWN: dict[str, tuple[int | None, float, str]] = {
    "hospitals": (None, 85, "against"),
    "loaders": (6, 70, "against"),
    "frozen_encoder": (5, 60, "head: 1,536 bytes"),
    "lora_transformer": (5, 80, "322 of 5986 weights are trained"),
    "lora_peft": (None, 60, "of which 4 are LoRA's"),
}
"""Of each example: how many rounds are enough, the least accuracy, and what it says."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedldp.ReleaseWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")  # from peft and transformers
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "lora_peft":
        pytest.importorskip("peft")
        pytest.importorskip("transformers")
    rounds, least, says = SHOWN[name]
    if rounds is not None:
        monkeypatch.setattr(fedldp, "run", functools.partial(fedldp.run, rounds=rounds))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert says in shown
    found = re.findall(r"accuracy ([\d.]+)( ?%)?", shown)
    assert min(float(each) * (1 if percent else 100) for each, percent in found) > least


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWN)
