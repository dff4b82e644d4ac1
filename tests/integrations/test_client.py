"""The client side around training of one's own, without any framework."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import document
from guides import ROOT, own_files
from node_settings import SETTINGS
from torch import nn

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.kinds import FROZEN_WEIGHTS_PUBLIC
from fedldp.integrations.client import PrivateClient
from fedldp.integrations.loop import composition, planned
from fedldp.ledgers.budget import Budget
from fedldp.protocol.wire import Layout, Vector
from fedldp.reporting import words

SIZE = 40
PLENTY = Budget("pure", 1e6)
START = {"weight": np.zeros(SIZE, np.float32)}


class Node:
    """A client of one node, which counts how often it has trained."""

    def __init__(self, folder: Path, limit: float = PLENTY.limit) -> None:
        layout = Layout(("weight",), ((SIZE,),))
        self.client = PrivateClient(layout, folder=folder, budget=Budget("pure", limit), **SETTINGS)
        self.trained = 0

    def __call__(self, round: int = 1, run: str = "run") -> Vector:
        """Return what the node sends in a round."""

        def train() -> dict[str, Vector]:
            self.trained += 1
            return {"weight": START["weight"] + np.float32(0.25)}

        found = self.client.answer(
            node="one", run=run, round=round, asked=bytes(32), weights=START, train=train,
            failed=pytest.fail,
        )  # fmt: skip
        assert isinstance(found, dict), found
        return found["weight"]


def test_a_node_keeps_everything_in_its_ledgers_file(tmp_path: Path) -> None:
    """Its folder also has the mark that the ledger was begun, and nothing else."""
    first, again = Node(tmp_path), Node(tmp_path)
    sent = [first(1), again(1), again(2)]
    assert (sent[0] == sent[1]).all()
    assert (sent[1] != sent[2]).any()
    assert (first.trained, again.trained) == (1, 1)
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"ledger.sqlite", "begun"}


@pytest.mark.parametrize("damage", ["lost", "without its secret"])
def test_a_damaged_ledger_is_refused_in_words_that_name_no_path(
    tmp_path: Path, damage: str
) -> None:
    Node(tmp_path)()
    ledger = tmp_path / "one" / "ledger.sqlite"
    if damage == "lost":
        ledger.unlink()
    else:
        with closing(sqlite3.connect(ledger)) as db, db:
            db.execute("DELETE FROM site WHERE key = 'secret'")
    again = Node(tmp_path)
    for run in ("run", "another"):
        with pytest.raises(PrivacyError) as refusal:
            again(2, run)
        assert str(refusal.value) == "round 2: the ledger cannot be used; nothing was released"
    assert again.trained == 0
    assert ledger.exists() == (damage != "lost")


NORM = {"bound": "norm", "clip": 2.0, "range_radius": None}
SIMULATED = {"dataset": "digits", "model": "logistic", "learning_rate": 0.1, "participation": "all"}


def written(settings: dict[str, Any]) -> str:
    """Return settings as TOML."""
    return "".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items() if v is not None)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mechanism": "gaussian", **NORM},
        {"mechanism": "gaussian", **NORM, "bound": "layers", "trainable": "head", "delta": 1e-6},
        {"mechanism": "k_closest", **NORM, "bound": "direction"},
        {"system": "cldp_fed", "alpha": 1.0, "clip": 1.0, "epsilon": None, "mechanism": None,
         "range_radius": None},
    ],
)  # fmt: skip
def test_account_says_before_the_first_message_what_a_node_states(
    tmp_path: Path, changes: dict[str, Any], fedldp_command: Any
) -> None:
    """Whatever the shapes of the weights; and the guarantees are those of a simulated run."""
    settings = {**SETTINGS, **changes}
    file = tmp_path / "private.toml"
    file.write_text(written({name: v for name, v in settings.items() if name != "rounds"}))
    printed = fedldp_command("account", file, "--size", 650, "--set", "rounds=4", "--json")
    told = document(printed.out)
    (tmp_path / "whole.toml").write_text(written({"system": "composed", **SIMULATED, **settings}))
    of_run = fedldp.account(tmp_path / "whole.toml")
    client = PrivateClient(
        nn.Linear(64, 10), file, folder=tmp_path / "ledgers", budget=Budget("zcdp", 1e9), rounds=4
    )
    assert told == json.loads(json.dumps(words.document(client.statement())))
    assert client.statement().guarantees == of_run.guarantees


@pytest.mark.parametrize(
    "name",
    sorted(
        {*RunConfig.model_fields, "local_update", "momentum", "features", "participation"}
        - {"system", "num_clients", "rounds", "delta", "trainable"}
    ),
)
def test_settings_of_data_model_and_training_are_refused_by_name(
    tmp_path: Path, name: str, fedldp_command: Any
) -> None:
    file = tmp_path / "private.toml"
    file.write_text(written({**SETTINGS, name: 1}))
    with pytest.raises(ConfigError, match=f"^{name}: .*; leave it out$"):
        PrivateClient(Layout(("0",), ((3,),)), file, folder=tmp_path, budget=PLENTY)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"channel": "sum"}, "set channel = named"),
    ({"channel": "shuffle"}, "set channel = named"),
    ({"weighting": "examples"}, "set weighting = uniform"),
    ({"epsilon_growth": 2}, "leave epsilon_growth out"),
    ({"dataset": "digits"}, "dataset: your own loop"),
    ({"target": {"epsilon": 1}}, "target: .*give epsilon"),
    ({"mechanism": "privunit", "bound": "norm", "range_radius": None}, "real numbers only"),
    ({"mechanism": "none", "epsilon": None, "range_radius": None}, "a mechanism that rand"),
    ({"epsilon": [1.0] * 5 + [2.0] * 5}, "one value for all"),
    ({"local_update": "solution", "bound": "norm", "mechanism": "k_closest",
      "range_radius": None}, "local_update: your own loop decides"),
    ({"system": "dp_sgd", "noise_multiplier": 1.0, "mechanism": None, "epsilon": None,
      "range_radius": None}, "your own code trains"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), REFUSED)
def test_a_composition_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        PrivateClient(nn.Linear(3, 2), folder=tmp_path, budget=PLENTY, **{**SETTINGS, **changes})


def test_account_needs_a_size_and_refuses_what_a_node_refuses(
    tmp_path: Path, fedldp_command: Any
) -> None:
    file = tmp_path / "private.toml"
    file.write_text(written({**SETTINGS, "channel": "sum"}))
    assert f"fedldp account {file} --size" in fedldp_command("account", file).assert_refused()
    said = fedldp_command("account", file, "--size", 650).assert_refused()
    assert "set channel = named" in said


class Frozen(nn.Module):
    """A frozen encoder with a buffer, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).requires_grad_(False)
        self.head = nn.Linear(3, 2)


def test_a_model_with_frozen_weights_sends_the_others(tmp_path: Path) -> None:
    def made(model: nn.Module | Layout, **changes: Any) -> PrivateClient:
        return PrivateClient(model, folder=tmp_path, budget=PLENTY, **{**SETTINGS, **changes})

    with pytest.raises(ConfigError, match="freeze its layer with trainable"):
        made(Frozen())
    with pytest.raises(ConfigError, match="use group norm, no norm"):
        made(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    private = made(Frozen(), trainable="head")
    assert private.statement().warnings[-2] == FROZEN_WEIGHTS_PUBLIC
    assert private.layout == Layout(("head.weight", "head.bias"), ((2, 3), (2,)))
    assert private.event() == made(nn.Linear(3, 2)).event()  # with the same number of weights
    with pytest.raises(ConfigError, match="which has only trained parameters"):
        made(Layout(("0",), ((2, 3),)), trainable="head")


def test_a_budget_below_one_round_is_refused_at_the_beginning(tmp_path: Path) -> None:
    price = PLENTY.price(Node(tmp_path).client.event())
    Node(tmp_path, price)
    with pytest.raises(ConfigError, match="no round would be answered"):
        Node(tmp_path, price * 0.999)


def test_the_page_on_nvflare_has_the_epsilon_of_each_round(tmp_path: Path) -> None:
    page, place = ROOT / "docs" / "nvflare_filter.md", tmp_path / "private.toml"
    place.write_text(own_files(page)["private.toml"])
    told = []
    for rounds in (1, 2):
        config = composition(place, {"rounds": rounds})
        lines = planned(config, Layout(("0",), ((650,),))).guarantees
        (line,) = (each for each in lines if each.unit == "client-run")
        assert (line.adversary, line.delta) == ("server", 1e-5)
        told.append(f"{line.size:.3g}")
    expected = f"({told[0]}, then {told[1]} here)"
    assert expected in " ".join(page.read_text().split())
