"""Each example runs, with fewer rounds, and is accurate enough; and each cell of the notebook."""

from __future__ import annotations

import ast
import functools
import json
import re
import runpy
from pathlib import Path
from typing import Any

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


# The notebook, cell by cell in order

NOTEBOOK = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"


def code_cells() -> list[dict[str, Any]]:
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


@pytest.mark.slow
def test_every_cell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    names: dict[str, Any] = {}
    values = []
    for cell in code_cells():
        value = shown("".join(cell["source"]), names)
        values.append(value)
        assert value is None or repr(value)
    printed = capsys.readouterr().out
    assert "round 6: " in printed
    assert "with privacy per weight" in printed
    assert names["plain"].accuracy > names["private"].accuracy > 0.5
    assert {"weights"} <= set(dir(names["again"]))
    *_, shapes = (value for value in values if isinstance(value, dict))
    assert len(shapes) == 2  # of the reloaded model


def test_it_names_no_machine_and_keeps_no_error() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not any(place in text for place in ("/home/", "/root/", "/tmp/", "/Users/"))
    for cell in code_cells():
        assert all(output["output_type"] != "error" for output in cell["outputs"])
