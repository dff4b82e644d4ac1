"""The package as people use it from Python."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import document
from torch import nn

import fedldp
import fedldp.data
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.kinds import MODEL_SO_FAR, NOT_FINISHED, SIMULATED
from fedldp.models import _given
from fedldp.protocol.server_loop import Round
from fedldp.reporting import words
from fedldp.simulation.settings import to_toml
from fedldp.testing.toys import ToyBits

SMALL: dict[str, Any] = {"num_clients": 5, "rounds": 2, "local_epochs": 1}


pytestmark = pytest.mark.usefixtures("folder_of_its_own")


@pytest.fixture(scope="module")
def result() -> fedldp.Result:
    return fedldp.run("quickstart", epsilon=2, **SMALL)


@pytest.fixture(scope="module")
def own_data() -> tuple[Any, Any]:
    features = np.random.default_rng(0).normal(size=(60, 3))
    return features, (features[:, 0] > 0).astype(int)


def refusal(mistake: Any) -> str:
    with pytest.raises(FedldpError) as found:
        mistake()
    (line,) = str(found.value).splitlines()
    return line


def same(one: fedldp.Result, other: fedldp.Result) -> None:
    assert one.config == other.config
    assert one.privacy == other.privacy
    assert one.weights.keys() == other.weights.keys()
    for name, weights in one.weights.items():
        np.testing.assert_array_equal(other.weights[name], weights)


# What is run


def test_a_recipe_can_be_given_in_any_form(result: fedldp.Result) -> None:
    config = fedldp.recipe("quickstart", epsilon=2, **SMALL)
    Path("mine.toml").write_text(to_toml(config), encoding="utf-8")
    assert result.config == config
    assert result.recipe == "quickstart"
    for named in (config, "mine.toml", Path("mine.toml")):
        same(fedldp.run(named), result)
    same(fedldp.run(fedldp.recipe("quickstart", **SMALL), epsilon=2.0), result)
    assert fedldp.recipe(Path("mine.toml"), rounds=7) == config.changed(rounds=7)
    by_name = config.model_dump()
    assert fedldp.recipe(by_name) == config
    assert fedldp.recipe(by_name, rounds=7, target=None) == config.changed(rounds=7)
    assert fedldp.account(by_name) == fedldp.account(config)


def test_numpy_numbers_and_tuples_are_settings() -> None:
    config = fedldp.recipe("quickstart", epsilon=np.float32(2), rounds=np.int64(3), seed=np.int8(1))
    assert config == fedldp.recipe("quickstart", epsilon=2.0, rounds=3, seed=1)
    for each in ((1.0, 2.0), np.array([1.0, 2.0])):
        assert fedldp.recipe("quickstart", num_clients=2, epsilon=each).epsilon == [1.0, 2.0]  # type: ignore[attr-defined]


def test_a_folder_in_use_is_refused_with_how_to_resume_in_python(tmp_path: Path) -> None:
    fedldp.run("quickstart", out="my run", **SMALL)
    line = refusal(lambda: fedldp.run("quickstart", out="my run", **SMALL))
    assert line == (
        "out = my run: it exists already; choose another folder, or continue the run in it: "
        "fedldp run --resume 'my run' (Python: fedldp.resume('my run'))"
    )
    for name in ("summary.json", "checkpoint"):
        Path("my run", name).unlink()
    assert "(Python: fedldp.resume('my run'))" in refusal(lambda: fedldp.load("my run"))
    assert "after_round = 3" in refusal(lambda: fedldp.resume("my run", after_round=3))  # type: ignore[arg-type]
    Path("notes").mkdir()
    Path("notes", "today").touch()
    line = refusal(lambda: fedldp.run("quickstart", out="notes", **SMALL))
    assert line == "out = notes: it exists already; choose another folder"


def test_a_users_arrays_are_data(own_data: tuple[Any, Any]) -> None:
    by_pair = fedldp.run("quickstart", dataset=own_data, **SMALL)
    same(fedldp.run("quickstart", dataset=fedldp.Dataset.from_arrays(*own_data), **SMALL), by_pair)
    assert by_pair.config.dataset == "custom"
    assert by_pair.title == "quickstart on custom"
    named = fedldp.Dataset.from_arrays(*own_data, name="patients")
    # A recipe that standardises its images does not standardise the user's own numbers.
    assert find_recipe("fedavg-mnist").config.standardise
    config = fedldp.run("fedavg-mnist", dataset=named, model="logistic", **SMALL).config
    assert (config.dataset, config.standardise) == ("patients", False)
    assert "standardise = true" in refusal(
        lambda: fedldp.run("quickstart", dataset=own_data, standardise=True)
    )


# Results


def test_a_result_shows_itself(result: fedldp.Result) -> None:
    accuracy = f"accuracy {100 * result.accuracy:.2f} %"
    assert repr(result) == f"<fedldp.Result quickstart on digits: {accuracy} after 2 rounds>"
    page = result._repr_html_()
    assert "client-run" in page
    assert page.count("<tr>") == 2 + 2 + len(result.privacy.guarantees)


def test_a_users_text_is_not_shown_as_markup(own_data: tuple[Any, Any]) -> None:
    data = fedldp.Dataset.from_arrays(*own_data, name="<script>x")
    page = fedldp.run("quickstart", dataset=data, **SMALL)._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;x" in page


# The model of a result


def test_a_model_predicts_as_its_result_does(result: fedldp.Result) -> None:
    raw = fedldp.data.load_dataset("digits").test
    module = result.model()
    assert not module.training
    with torch.no_grad():
        logits = module(torch.from_numpy(raw.features))
    shares = result.predict_proba(raw.features)
    np.testing.assert_array_equal(torch.softmax(logits.double(), 1).numpy(), shares)
    predicted = result.predict(raw.features.tolist())
    np.testing.assert_array_equal(predicted, shares.argmax(1))
    # The quickstart standardises its images; without that, the same weights are less accurate.
    assert np.mean(predicted == raw.labels) == result.accuracy
    torch.save(module, io.BytesIO())
    with torch.no_grad():
        for weights in module.parameters():
            weights.zero_()
    np.testing.assert_array_equal(result.predict_proba(raw.features), shares)


def test_classes_have_their_names() -> None:
    Path("mine.csv").write_text("a,label\n" + "0.1,well\n0.9,ill\n" * 10, encoding="utf-8")
    made = fedldp.run("quickstart", dataset="mine.csv", num_clients=2, rounds=1)
    assert set(made.predict([[0.1], [0.9]])) <= {"ill", "well"}
    assert "an example has the shape (2,), but the model takes (1,)" in refusal(
        lambda: made.predict([[0.1, 0.2]])
    )
    assert "row 0 are NaN" in refusal(lambda: made.predict_proba([[np.nan]]))
    assert "features are ragged" in refusal(lambda: made.predict([[1.0], [1.0, 2.0]]))
    assert made.predict(np.zeros((0, 1))).shape == (0,)


def test_an_evaluation_is_the_document_of_the_command_line(
    finished: Path, fedldp_command: Any
) -> None:
    whole = fedldp.load(finished)
    printed = document(fedldp_command("evaluate", str(finished), "--json").out)
    assert fedldp.evaluate(whole) == fedldp.evaluate(str(finished)) == printed
    raw = fedldp.data.load_dataset("digits")
    np.savez("test.npz", features=raw.test.features, labels=raw.test.labels)
    by_file = document(
        fedldp_command("evaluate", str(finished), "--data", "test.npz", "--json").out
    )
    assert fedldp.evaluate(whole, "test.npz") == by_file
    for data, name in ((raw, "digits"), ((raw.test.features, raw.test.labels), "custom")):
        assert fedldp.evaluate(whole, data) == {**by_file, "data": name}


# What a run protects


def test_an_account_is_the_document_of_the_command_line(fedldp_command: Any) -> None:
    statement = fedldp.account("ldp-fl-mnist", epsilon=2)
    printed = fedldp_command("account", "ldp-fl-mnist", "--set", "epsilon=2", "--json")
    assert words.document(statement) == document(printed.out)
    assert fedldp.Statement.from_json(document(printed.out)) == statement
    text = repr(statement)
    assert "claim      epsilon 2 per weight" in text
    assert "│ client-run" in text
    assert f"warning    {words.line(SIMULATED)}" in text
    assert "<table>" in statement._repr_html_()


def test_a_notebook_shows_a_statement_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Jupyter, rich shows text printed to any console at once, and leaves its file empty."""
    statement = fedldp.account("quickstart")
    text = repr(statement)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(statement) == text != ""


def test_an_account_is_that_of_the_run_with_the_same_settings(result: fedldp.Result) -> None:
    assert fedldp.account("quickstart", epsilon=2, **SMALL) == result.privacy
    assert isinstance(result.privacy, fedldp.Statement)
    changed = fedldp.run("quickstart", delta=1e-7, **SMALL)
    assert fedldp.account("quickstart", delta=1e-7, **SMALL) == changed.privacy
    at = fedldp.account("quickstart", at_delta=1e-7, **SMALL)
    assert {line.delta for line in at.guarantees} == {0, 1e-7}


def test_an_account_counts_the_examples_and_the_clients_of_own_data(own_data: Any) -> None:
    settings = {"num_clients": 4, "batch_size": 5}
    stated = fedldp.account("dp-sgd-digits", dataset=own_data, **settings)
    assert stated != fedldp.account("dp-sgd-digits", **settings)
    data = fedldp.Dataset.from_clients([own_data, own_data])
    ran = fedldp.run("quickstart", dataset=data, rounds=1)
    assert ran.config.num_clients == 2
    # The recipe's crowd of 100 would hide a client better than the single other client does.
    assert fedldp.account("quickstart", dataset=data, rounds=1) == ran.privacy


# Finished runs


def test_a_finished_run_is_loaded_as_it_was() -> None:
    whole = fedldp.run("quickstart", out="here", **SMALL)
    for place in ("here", Path("here")):
        loaded = fedldp.load(place)
        same(loaded, whole)
        assert loaded.summary() == whole.summary()
        assert loaded.rounds == whole.rounds
        assert repr(loaded) == repr(whole)
        assert loaded.ledger.releases(loaded.run) == whole.ledger.releases(whole.run)


def test_an_unfinished_run_is_loaded_as_such() -> None:
    def stop(record: Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedldp.run("quickstart", out="here", after_round=stop, **SMALL)
    found = fedldp.load("here")
    assert not found.finished
    assert len(found.rounds) == 1
    assert found.privacy.warnings[-1] == NOT_FINISHED(done=1, of=2)
    assert fedldp.evaluate(found)["warnings"][0] == words.shown(MODEL_SO_FAR(done=1, of=2))
    fedldp.resume("here")
    assert fedldp.load("here").finished


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished") / "run"
    fedldp.run("quickstart", out=place, **SMALL)
    return place


# No unchecked configuration


def test_no_copy_and_no_part_goes_unchecked() -> None:
    config = fedldp.recipe("quickstart", target={"unit": "client-run", "epsilon": 8.0})
    assert config.model_copy(deep=True) == copy.deepcopy(config) == config
    assert config.model_copy(update={"delta": 1e-6}) == config.changed(delta=1e-6)
    for update in ({"delta": -1}, {"no_such": 1}, {"rounds": 0}):
        for copier in (config.model_copy, config.copy):
            with pytest.raises(ConfigError):
                copier(update=update)
    with pytest.raises(ConfigError, match="batch_size = -3"):
        fedldp.run(
            type(config).model_construct(
                **{**config.model_dump(), "target": None, "batch_size": -3}
            )
        )
    assert config.target is not None
    with pytest.raises(ValueError, match="epsilon"):
        config.target.model_copy(update={"epsilon": -1})
    target = type(config.target).model_construct(unit="client-run", epsilon=-1.0)
    with pytest.raises(ConfigError):
        config.changed(target=target)


# Workers


def script(
    text: str, *, program: str = "script.py", **how: Any
) -> subprocess.CompletedProcess[str]:
    Path("script.py").write_text(text)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment, **how
    )


RUN = 'fedldp.run("quickstart", rounds=1, num_clients=4, workers=2, out="out")'


@pytest.mark.slow
@pytest.mark.parametrize("given", ["a file", "stdin"])
def test_workers_do_not_run_the_script_again(given: str) -> None:
    text = f"import fedldp\nprint({RUN})\n"
    done = script(text) if given == "a file" else script("", input=text, program="-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("after 1 round") == 1


@pytest.mark.parametrize("name", ["features", "loss", "mechanism", "model"])
def test_what_the_script_defines_does_not_go_to_workers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "mine", ToyBits, raising=False)
    with pytest.raises(ConfigError, match=f"^workers = 2: the {name} was given .* by the script"):
        fedldp.run("quickstart", workers=2, **{name: "__main__:mine"})


def test_a_model_of_a_script_is_found_once_another_script_defines_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfScript(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Flatten(), nn.Linear(64, 10))

    def stop(record: Round) -> None:
        raise KeyboardInterrupt

    OfScript.__module__, OfScript.__qualname__ = "__main__", "OfScript"
    with monkeypatch.context() as script:
        script.setattr(sys.modules["__main__"], "OfScript", OfScript, raising=False)
        script.setattr(_given, "_GIVEN", {})  # what this process was given, another one was not
        whole = fedldp.run("fedavg-quickstart", model=OfScript, out="class", **SMALL)
        fedldp.run("fedavg-quickstart", model=OfScript(), out="object", **SMALL)
        with pytest.raises(KeyboardInterrupt):
            fedldp.run("fedavg-quickstart", model=OfScript, out="cut", after_round=stop, **SMALL)
    for name in ("object", "class"):
        with pytest.raises(FedldpError, match="define the script's class or function here"):
            fedldp.load(tmp_path / name).model()
    monkeypatch.setattr(sys.modules["__main__"], "OfScript", OfScript, raising=False)
    found = fedldp.load(tmp_path / "class")
    weights = dict(found.trained().model.named_parameters())
    np.testing.assert_array_equal(weights["1.bias"].detach(), found.weights["1.bias"])
    resumed = fedldp.resume(tmp_path / "cut")
    for label, each in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[label], each)
