"""The privacy document and the model card: valid, complete, and based on the run alone."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.core.errors import RunError
from fedldp.core.facts import NoGuarantee, Unprotected
from fedldp.core.kinds import (
    HELD_OUT,
    OTHER_SENT,
    OWN_HEADS,
    SCORES,
    SENT_IN_CLEAR,
    WEIGHTS,
)
from fedldp.reporting import words
from fedldp.reporting.card import (
    CONFIDENTIAL,
    COUNTS,
    DOUBTFUL,
    TO_FILL,
    escaped,
    model_card,
    privacy_document,
    schema,
    write_card,
)
from fedldp.reporting.html import page
from fedldp.reporting.lines import headline_first
from fedldp.simulation.engine import simulate
from fedldp.simulation.evaluating import load_trained, predict
from fedldp.simulation.result import read_run

ROOT = Path(__file__).parents[2]


def problems(document: Any) -> list[str]:
    """Return the errors of a JSON Schema validator, by position."""
    checker = jsonschema.Draft202012Validator(schema())
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(document)]


def at(document: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        document = document[part]
    return document


@pytest.fixture(scope="module")
def documents(runs: dict[str, Path], visits: Path) -> dict[str, dict[str, Any]]:
    """Return privacy documents with and without a claim, a guarantee, and visible scores."""
    return {
        "claimed": privacy_document(read_run(runs["quickstart"])),
        "nothing": privacy_document(read_run(runs["fedavg-quickstart"])),
        "person": privacy_document(read_run(visits)),
        "scored": privacy_document(read_run(visits), scores=True),
    }


def test_there_is_one_schema_and_every_document_is_valid(
    documents: dict[str, dict[str, Any]],
) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    for name, document in documents.items():
        assert problems(document) == [], name
        assert json.loads(json.dumps(document, allow_nan=False)) == document


def having(value: Any, *path: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *front, last = path
        for part in front:
            document = document[part]
        document[last] = value

    return change


@pytest.mark.parametrize(
    "spoilt",
    [
        having("a claim", "claim"),
        having(1, "surprise"),
        having(-1.0, "claim", "epsilon"),
        having("patient", "asked"),
        having(2.0, "registry", "privacy_loss", "privacy_parameters", "delta"),
        having(None, "hazards", "floating_point", "finding"),
        having("no pointer", "to_be_filled", "fields"),
        having("x" * 64, "run", "config_sha256"),
        *(having(None, each) for each in ("run", "guarantees", "warnings", "publisher")),
        having({}, "hazards", "access_control"),
        lambda document: document["guarantees"][0].update(kind="none"),
    ],
)
def test_an_invalid_document_is_found(
    documents: dict[str, dict[str, Any]], spoilt: Callable[[Any], None]
) -> None:
    document = copy.deepcopy(documents["claimed"])
    spoilt(document)
    assert problems(document)


def test_the_table_of_the_page_agrees_with_the_schema() -> None:
    text = (ROOT / "docs" / "card.md").read_text(encoding="utf-8")
    table = text.split("## The fields")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(schema()["properties"])
    kept = json.loads((ROOT / "docs" / "reference" / "privacy.schema.json").read_text())
    assert kept == schema()


def test_claim_and_proof_are_next_to_each_other(
    runs: dict[str, Path], documents: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    statement = read_run(runs["quickstart"]).privacy
    document = documents["claimed"]
    assert Statement.from_json(document) == headline_first(statement, None)
    assert statement.claim is not None
    first, registry = document["guarantees"][0], document["registry"]["privacy_loss"]
    assert (first["unit"], first["adversary"]) == ("client-run", "server")
    assert registry["privacy_parameters"]["epsilon"] == first["epsilon"]
    place, written = write_card(read_run(runs["quickstart"]), tmp_path / "card")
    assert json.loads((place / "privacy.json").read_text()) == written == document
    text = (place / "README.md").read_text()
    assert "| weight | server | 1 | 0 | 0.9999 | 1 |" in text
    assert f"As published: epsilon 1 per weight ({statement.claim.source})" in text
    nothing = documents["nothing"]
    assert nothing["registry"]["privacy_loss"]["privacy_parameters"]["epsilon"] is None
    assert nothing["registry"]["deployment_model"]["model_name"] is None


def test_the_requested_guarantee_comes_first_in_a_card(
    documents: dict[str, dict[str, Any]],
) -> None:
    document = documents["person"]
    assert document["asked"] == {
        "unit": "person", "adversary": "server", "epsilon": 2.0, "delta": 1e-05}  # fmt: skip
    first = document["guarantees"][0]
    assert (first["unit"], first["adversary"]) == ("person", "server")
    found = document["registry"]["privacy_loss"]
    assert found["privacy_parameters"] == {"epsilon": first["epsilon"], "delta": 1e-05}
    assert found["privacy_unit"] == "all rows of one person at one site"
    assert document["registry"]["deployment_model"]["model_name"] == "Federated"


def test_scores_on_private_rows_are_left_out_unless_asked_for(visits: Path, tmp_path: Path) -> None:
    final = read_run(visits).summary["final"]
    told = [f"{final[name]:.4f}" for name in ("auc", "average_precision", "brier")]
    told += [f"{100 * final[name]:.2f}" for name in ("accuracy", "balanced_accuracy")]
    texts = {}
    for scores in (False, True):
        place, document = write_card(read_run(visits), tmp_path / f"card-{scores}", scores=scores)
        texts[scores] = "".join(each.read_text() for each in sorted(place.iterdir()))
        assert HELD_OUT in Statement.from_json(document).warnings
        assert (document["scores"] is None) == (document["doubts"] is None) == (not scores)
        assert (escaped(DOUBTFUL) in texts[scores]) != scores
        assert COUNTS in document["registry"]["dp_variant"]["unprotected_quantities"]
    for figure in told:
        assert figure not in texts[False]
        assert figure in texts[True]
    assert CONFIDENTIAL in texts[False]
    assert "model-index" not in texts[False]


def test_a_model_of_numbers_counts_as_tested_though_it_has_no_accuracy(visits: Path) -> None:
    run = read_run(visits)
    final = {**run.summary["final"], "accuracy": None}
    numbers = replace(run, summary={**run.summary, "final": final})
    for scores, told in ((False, CONFIDENTIAL), (True, f"AUC {final['auc']:.4f}")):
        finding = privacy_document(numbers, scores=scores)["hazards"]["utility_and_bias"]["finding"]
        assert told in finding
        assert "recall" not in finding


def test_if_scores_are_left_out_nothing_depends_on_them(visits: Path) -> None:
    """Warnings about scores are left out too, because their absence would reveal something about
    the same rows."""
    run = read_run(visits)
    good = dict.fromkeys(("accuracy", "auc", "balanced_accuracy"), 1.0)
    summary = {**run.summary, "doubts": [], "final": {**run.summary["final"], **good}}
    assert run.summary["doubts"]
    assert privacy_document(replace(run, summary=summary)) == privacy_document(run)


@pytest.mark.parametrize(
    "reason",
    [
        SENT_IN_CLEAR(what=(SCORES(on="own", encoder="public"),)),
        SENT_IN_CLEAR(what=(WEIGHTS, OTHER_SENT(text="the scores of each site"))),
        SENT_IN_CLEAR(what=(Unprotected("of-a-newer-version"),)),
        NoGuarantee("of-a-newer-version", (("what", "metrics"),)),
    ],
)
def test_scores_that_clients_send_in_clear_are_left_out_too(
    runs: dict[str, Path], reason: NoGuarantee
) -> None:
    run = read_run(runs["fedavg-quickstart"])
    assert privacy_document(run)["scores"] is not None
    lines = tuple(replace(line, reason=reason) for line in run.privacy.guarantees)
    privacy = replace(run.privacy, guarantees=lines).to_json()
    other = replace(run, summary=run.summary | {"privacy": privacy})
    document = privacy_document(other)
    assert document["scores"] is None
    assert CONFIDENTIAL in model_card(other, document).replace("The scores", "the scores")
    assert privacy_document(other, scores=True)["scores"] is not None


def test_scores_of_own_heads_are_left_out_and_named(tmp_path: Path) -> None:
    """No client sends them, but they depend on private rows, on whatever test set they are."""
    changes = {"rounds": 1, "num_clients": 3}
    simulate(fedldp.recipe("composed-digits-own-head", **changes), out=tmp_path)
    run = read_run(tmp_path)
    assert OWN_HEADS in run.privacy.warnings
    assert HELD_OUT not in run.privacy.warnings
    document = privacy_document(run)
    assert document["scores"] is None
    assert document["hazards"]["tuning_and_scores"]["finding"].startswith(words.line(OWN_HEADS))
    assert words.line(HELD_OUT) not in json.dumps(document)
    told = (tmp_path / "report.html").read_text()
    assert "These scores are exact functions of private rows" in told
    assert "No client sent these scores" not in told


def test_every_null_is_listed_or_says_that_nothing_is_known(
    runs: dict[str, Path], documents: dict[str, dict[str, Any]]
) -> None:
    for document in documents.values():
        filled = document["to_be_filled"]
        assert filled["note"] == TO_FILL
        assert all(at(document, pointer) is None for pointer in filled["fields"])
        publisher = {f"/publisher/{key}" for key in document["publisher"]}
        assert publisher <= set(filled["fields"])
        assert set(document["publisher"].values()) == {None}
    run = documents["claimed"]["run"]
    config = (runs["quickstart"] / "config.json").read_bytes()
    assert run["config_sha256"] == hashlib.sha256(config).hexdigest()
    assert run["rounds"] == 3
    assert run["clients"] == 6
    assert run["simulated"] is True


def test_the_card_begins_with_metadata_that_can_be_read(visits: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    place, document = write_card(read_run(visits), tmp_path / "card", scores=True)
    front = yaml.safe_load((place / "README.md").read_text().split("---\n")[1])
    (index,) = front["model-index"]
    (result,) = index["results"]
    assert result["task"] == {"type": front["pipeline_tag"]} == {"type": "tabular-classification"}
    values = {each["type"]: each["value"] for each in result["metrics"]}
    assert values["roc_auc"] == document["scores"]["auc"]
    assert list(values) == front["metrics"]


def test_the_model_works_from_the_published_files(visits: Path, tmp_path: Path) -> None:
    for name in ("config.json", "schema.json", "model.safetensors"):
        shutil.copy(visits / name, tmp_path / name)
    new = tmp_path / "new.csv"
    new.write_text("hospital,patient,age,pressure\nh9,p,50,140\nh9,q,60,\n")
    assert len(predict(load_trained(tmp_path), new)) == 2


@pytest.mark.slow
@given(text=st.text(max_size=40))
def test_text_from_a_folder_is_only_text_in_the_card(text: str) -> None:
    found = escaped(text)
    assert "\n" not in found
    assert not re.search(r"[`*_{}\[\]<>#|~$&]", re.sub(r"\\.", "", found))
    assert re.sub(r"\\(.)", r"\1", found) == " ".join(text.split())


def test_a_card_can_be_made_again_and_replaces_no_foreign_file(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = runs["quickstart"]
    place, _ = write_card(read_run(run), tmp_path / "card")
    before = {each.name: each.read_bytes() for each in place.iterdir()}
    assert write_card(read_run(run), place)[0] == place
    assert {each.name: each.read_bytes() for each in place.iterdir()} == before
    for name in ("README.md", "privacy.json"):
        other = tmp_path / f"other-{name}"
        other.mkdir()
        (other / name).write_text("---\nlicense: mit\n---\n{}")
        with pytest.raises(RunError, match="it exists and is another kind of file"):
            write_card(read_run(run), other)
        assert [each.name for each in other.iterdir()] == [name]
        assert (other / name).read_text() == "---\nlicense: mit\n---\n{}"
    with pytest.raises(RunError, match="it exists and is another kind of file"):
        write_card(read_run(run), run)  # its privacy.json is the statement, not a privacy document


def test_the_command_says_where_the_card_is_and_which_fields_are_missing(
    fedldp_command: Any, visits: Path, tmp_path: Path
) -> None:
    done = fedldp_command("card", visits, "--out", tmp_path / "card")
    assert done.status == 0
    assert done.out.splitlines() == [
        f"card       {tmp_path / 'card' / name}" for name in ("README.md", "privacy.json")
    ]
    assert "the publisher must fill in" in done.err
    assert "--scores includes them" in done.err
    printed = fedldp_command("card", visits, "--out", tmp_path / "card", "--json")
    assert problems(json.loads(printed.out)) == []
    assert json.loads(fedldp_command("card", "--schema").out) == schema()


TARGET = {"unit": "person", "adversary": "server", "epsilon": 2.0, "delta": 1e-05}


@pytest.mark.parametrize(
    "target",
    [{}, [], "person", *({**TARGET, "epsilon": bad} for bad in (None, "2", True, -1, 1e400)),
     {**TARGET, "delta": "none"}, {**TARGET, "unit": "patient"},
     {key: TARGET[key] for key in ("unit", "adversary")}],
)  # fmt: skip
def test_a_target_from_another_persons_folder_is_read_completely_or_not_at_all(
    visits: Path, target: Any
) -> None:
    run = read_run(visits)
    config = run.summary["config"] | {"target": target}
    other = replace(run, summary=run.summary | {"config": config})
    assert other.asked is None
    document = privacy_document(other)
    assert document["asked"] is None
    assert problems(document) == []
    assert "Asked for" not in page([other]) + model_card(other, document)
