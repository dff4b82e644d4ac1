"""A user's own models: trained if they can be federated, otherwise refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from documents import SHORT, check_run, document, run_folders

pytestmark = pytest.mark.usefixtures("folder_of_its_own")


GOOD_MODELS = ["dense", "good", "dropout", "tied"]
BAD_MODELS = {
    "batch_norm": "buffer", "HiddenBuffer": "buffer seen",
    "zero_d": "of shape ()", "nan_start": "NaN",
    "double": "float64",
    "frozen": "extra", "Unused": "extra", "Detached": "", "lazy": "",
    "too_many_classes": "(2, 11)", "Pair": "",
    "other_shape": "(1, 8, 8)", "raising": "first line",
    "RaisingForward": "first line", "RaisingInTraining": "first line",
    "PairInTesting": "tuple in eval mode",
    "RaisingOnTests": "testing it failed: first line",
    "RaisingOnLargeBatches": "first line", "batch_of_one": "",
    "no_parameters": "no parameters",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name"), [*(("quickstart", n) for n in GOOD_MODELS), ("fedavg-quickstart", "tied")]
)
def test_a_users_model_is_trained(fedldp_command: Any, name: str, recipe: str) -> None:
    outcome = fedldp_command(
        "run", recipe, *SHORT, "--set", f"model=own_models:{name}",
        "--set", "learning_rate=0.05", "--json",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    check_run(document(outcome.out), 1)


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.filterwarnings("ignore:Initializing zero-element:UserWarning")
@pytest.mark.parametrize(("name", "named"), BAD_MODELS.items(), ids=BAD_MODELS.keys())
def test_a_model_that_cannot_be_federated_is_refused_in_one_line(
    fedldp_command: Any, tmp_path: Path, name: str, named: str
) -> None:
    outcome = fedldp_command(
        "run", *SHORT, "--set", f"model=own_models:{name}", "--set", "batch_size=286"
    )  # 1437 examples among 5 clients: the last batch has one or two
    assert outcome.status == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    last = outcome.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert named in last
    assert "second line" not in outcome.err
    assert run_folders(tmp_path) == []


def test_a_model_in_a_broken_module_is_refused_in_one_line(
    fedldp_command: Any,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "broken_models.py").write_text("def build(:\n")
    (folder / "failing_models.py").write_text("raise RuntimeError('at import')\n")
    monkeypatch.syspath_prepend(folder)
    for module in ("broken_models", "failing_models"):
        fedldp_command("run", *SHORT, "--set", f"model={module}:build").assert_refused()
