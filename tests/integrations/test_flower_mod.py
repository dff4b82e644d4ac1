"""The mod for Flower apps: replies, ledgers, refusals, and a simulation."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guides import ROOT, own_files
from node_settings import SETTINGS
from torch import nn

from fedldp.accounting.statement import Statement
from fedldp.integrations.loop import composition, planned
from fedldp.models import layout_of_trained
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.wire import Layout

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp

from fedldp.integrations.flower import Budget, PrivateMod

PAGE = ROOT / "docs" / "flower_mod.md"
WEIGHT = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
START = {"weight": WEIGHT, "bias": np.zeros(2, np.float32)}
Returned = Callable[[Message], RecordDict]


def settings(**changes: Any) -> dict[str, Any]:
    return {**SETTINGS, **changes}


def record(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(each)) for name, each in arrays.items()})


def asked(
    round: int = 1,
    arrays: Mapping[str, np.ndarray] = START,
    *,
    run: int = 7,
    kind: str = "train",
    more: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Message:
    told = {"server-round": round} if config is None else dict(config)
    content = RecordDict({"arrays": record(arrays), "config": ConfigRecord(told), **(more or {})})
    return Message(
        content=content,
        metadata=Metadata(
            run_id=run, message_id="one", src_node_id=0, dst_node_id=3, reply_to_message_id="",
            group_id="", created_at=time.time() - 5, ttl=1e4, message_type=kind,
        ),
    )  # fmt: skip


def context(partition: int | None = 0) -> Context:
    config = {} if partition is None else {"partition-id": partition, "num-partitions": 4}
    return Context(run_id=7, node_id=3, node_config=config, state=RecordDict(), run_config={})


class App:
    """A ClientApp with the mod, whose train function returns given arrays."""

    def __init__(self, mod: PrivateMod, returned: Returned) -> None:
        self.calls = 0
        self.app = ClientApp(mods=[mod])

        @self.app.train()
        @self.app.evaluate()
        @self.app.query()
        def train(message: Message, context: Context) -> Message:
            self.calls += 1
            return Message(returned(message), reply_to=message)

    def __call__(self, message: Message, partition: int | None = 0) -> Message:
        return self.app(message, context(partition))


def mod(folder: Path, limit: float = 1e6, **changes: Any) -> PrivateMod:
    return PrivateMod(
        nn.Linear(3, 2), folder=folder, budget=Budget("pure", limit), **settings(**changes)
    )


def changed(message: Message) -> RecordDict:
    arrays = {name: array.numpy() + 0.25 for name, array in message.content["arrays"].items()}
    metrics = MetricRecord({"train_loss": 0.123456, "num-examples": 17})
    return RecordDict({"arrays": record(arrays), "metrics": metrics})


def nothing_changed(message: Message) -> RecordDict:
    return RecordDict({"arrays": message.content["arrays"]})


def arrays_of(reply: Message) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in reply.content["arrays"].items()}


def test_a_reply_contains_the_report_and_a_constant(tmp_path: Path) -> None:
    began: list[float] = []

    def timed(message: Message) -> RecordDict:
        began.append(time.time())
        return changed(message)

    reply = App(mod(tmp_path), timed)(asked())
    assert reply.metadata.created_at <= began[0]  # not when training ended
    assert dict(reply.content["metrics"]) == {"num-examples": 1}
    assert sorted(reply.content) == ["arrays", "metrics"]
    found = arrays_of(reply)
    assert {n: (a.shape, a.dtype) for n, a in found.items()} == {
        n: (a.shape, a.dtype) for n, a in START.items()
    }
    sent = np.concatenate([found[n].ravel() - START[n].ravel() for n in START])
    assert len({round(abs(float(each)), 4) for each in sent}) == 1  # a bit for each weight


@pytest.mark.parametrize("mechanism", ["two_point", "k_closest"])
def test_the_mean_that_strategies_compute_is_unbiased(tmp_path: Path, mechanism: str) -> None:
    """A mean over many coordinates, or over nodes, equals that of the app's own arrays."""
    size, nodes = (4000, 1) if mechanism == "two_point" else (40, 30)
    bound = {} if mechanism == "two_point" else {"bound": "norm", "range_radius": None, "clip": 4.0}
    private = PrivateMod(
        Layout(("0",), ((size,),)), folder=tmp_path, budget=Budget("pure", 1e9),
        **settings(mechanism=mechanism, epsilon=8.0, **bound),
    )  # fmt: skip
    start = {"0": np.ones(size, np.float32)}
    app = App(private, changed)
    found = [arrays_of(app(asked(arrays=start), node))["0"] for node in range(nodes)]
    sent = np.ravel(found) - 1
    spread = np.std(sent) / np.sqrt(len(sent))
    assert abs(sent.mean() - 0.25) < 5 * spread
    assert spread < 0.05


def test_the_same_request_has_the_same_bytes_and_another_is_refused(tmp_path: Path) -> None:
    app = App(mod(tmp_path), changed)
    first = app(asked())
    again = App(mod(tmp_path), changed)  # the process was restarted
    assert [a.data for a in again(asked()).content["arrays"].values()] == [
        a.data for a in first.content["arrays"].values()
    ]
    assert again.calls == 0
    others = [
        asked(arrays={**START, "bias": np.ones(2, np.float32)}),
        asked(config={"server-round": 1, "lr": 0.5}),
        asked(more={"hint": MetricRecord({"x": 1.0})}),
    ]
    for other in others:
        reply = again(other)
        assert reply.has_error()
        assert "a different request was answered" in reply.error.reason
    assert again.calls == 0
    assert len(mod(tmp_path).ledgers()["partition-0"].releases()) == 1


def test_a_refusal_after_training_does_not_reveal_when_that_ended(tmp_path: Path) -> None:
    """Meanwhile, another process of the node answers another request."""
    began: list[float] = []

    def overtaken(message: Message) -> RecordDict:
        began.append(time.time())
        other = asked(arrays={**START, "bias": np.ones(2, np.float32)})
        assert not App(mod(tmp_path), changed)(other).has_error()
        return changed(message)

    reply = App(mod(tmp_path), overtaken)(asked())
    assert "a different request was answered" in reply.error.reason
    assert reply.metadata.created_at <= began[0]
    assert len(mod(tmp_path).ledgers()["partition-0"].releases()) == 1


@pytest.mark.parametrize("kind", ["evaluate", "query", "train.other"])
def test_other_messages_do_not_reach_the_app(tmp_path: Path, kind: str) -> None:
    app = App(mod(tmp_path), changed)
    if kind.startswith("train"):
        app.app.train("other")(lambda message, context: Message(changed(message), reply_to=message))
        assert not app(asked(kind=kind)).has_error()
        assert app(asked()).has_error()  # the round is answered
    else:
        assert "a release that nothing here charges" in app(asked(kind=kind)).error.reason
    assert app.calls == 0


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (asked(config={}), "no round"),
        (asked(more={"other": ConfigRecord({"server-round": 2})}), "no round"),
        (asked(5), "no such round"),
        (asked(arrays={"weight": WEIGHT}), "bias is missing"),
        (asked(arrays={**START, "more": WEIGHT}), "'more' is not one of them"),
        (asked(arrays={**START, "bias": np.zeros(3, np.float32)}), "bias is float32 of shape"),
        (asked(arrays={**START, "bias": np.full(2, np.nan, np.float32)}), "NaN"),
        (asked(arrays={**START, "bias": np.full(2, 3e38, np.float32)}), "beyond"),
        (asked(more={"arrays2": record(START)}), "2 array records"),
    ],
)
def test_a_request_is_refused_before_training(tmp_path: Path, message: Message, why: str) -> None:
    app = App(mod(tmp_path), changed)
    reply = app(message)
    assert why in reply.error.reason
    assert "\n" not in reply.error.reason
    assert app.calls == 0
    assert not [e for one in mod(tmp_path).ledgers().values() for e in one.releases()]


def raises(message: Message) -> RecordDict:
    raise ValueError("patient Smith has 17 rows")


def ends(message: Message) -> RecordDict:
    sys.exit("patient Smith")


def biased(bias: Any) -> RecordDict:
    return RecordDict({"arrays": record({**START, "bias": bias})})


BROKEN: dict[str, Returned] = {
    "an exception": raises,
    "an exit": ends,
    "NaN": lambda m: biased(np.full(2, np.nan, "f4")),
    "no arrays": lambda m: RecordDict({"metrics": MetricRecord({"loss": 1.0})}),
    "a second record": lambda m: RecordDict({"arrays": record(START), "more": record(START)}),
    "another array": lambda m: RecordDict({"arrays": record({**START, "rows": WEIGHT})}),
    "another shape": lambda m: biased(np.ones(17, "f4")),
    "a scalar": lambda m: biased(np.float32(1)),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_training_that_fails_is_sent_as_no_change(
    tmp_path: Path, broken: Returned, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """With the same randomness, it gives the bytes of training that changed nothing."""
    entropy = lambda size: bytes(range(size))  # noqa: E731
    monkeypatch.setattr(SecretKeys.__init__, "__defaults__", (entropy,))
    replies = []
    for place, returned in (("one", broken), ("other", nothing_changed)):
        private = mod(tmp_path / place)
        reply = App(private, returned)(asked())
        replies.append(reply)
        assert private.ledgers()["partition-0"].spent() == pytest.approx(8)
    one, other = replies
    assert {n: a.data for n, a in one.content["arrays"].items()} == {
        n: a.data for n, a in other.content["arrays"].items()
    }
    assert dict(one.content["metrics"]) == dict(other.content["metrics"])
    assert one.metadata.message_type == other.metadata.message_type
    (line,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "answered as if training had changed nothing" in line.getMessage()
    assert "Smith" not in line.getMessage()


def test_a_nodes_identity_does_not_depend_on_the_server(tmp_path: Path) -> None:
    private = mod(tmp_path)
    app = App(private, changed)
    for number, partition in ((3, None), (4, None)):
        there = context(partition)
        there.node_id = number
        app.app(asked(number - 2), there)
    assert list(private.ledgers()) == ["node"]
    assert len(private.ledgers()["node"].releases()) == 2
    assert "must give an integer" in app.app(
        asked(), Context(7, 3, {"partition-id": "../x"}, RecordDict(), {})
    ).error.reason  # fmt: skip


def test_the_mod_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    private = PrivateMod(
        Layout(("0", "1"), ((2, 3), (2,))), folder=tmp_path, budget=Budget("pure", 99), **SETTINGS
    )
    app = App(pickle.loads(pickle.dumps(private)), changed)
    found = arrays_of(app(asked(arrays={"0": WEIGHT, "1": START["bias"]})))
    assert list(found) == ["0", "1"]
    assert len(private.ledgers()["partition-0"].releases()) == 1


def test_replies_are_delayed_if_so_configured(tmp_path: Path) -> None:
    private = PrivateMod(
        nn.Linear(3, 2), folder=tmp_path, budget=Budget("pure", 1e3),
        answer_after_seconds=0.3, **SETTINGS,
    )  # fmt: skip
    app = App(private, changed)
    for message in (asked(1), asked(99)):
        start = time.monotonic()
        app(message)
        assert time.monotonic() - start >= 0.3


def guarantees(of: Statement) -> list[tuple[Any, ...]]:
    numbers = attrgetter("unit", "adversary", "epsilon", "delta", "neighbours", "kind")
    return list(map(numbers, of.guarantees))


@pytest.mark.slow
def test_the_pages_app_in_flowers_simulation(tmp_path: Path) -> None:
    """Ten nodes, three rounds: every ledger and its statement agree with ``account``."""
    if find_spec("ray") is None:
        pytest.skip("the ray extra is not installed")
    for name, text in own_files(PAGE).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "read.py").write_text(
        "import json, client_app\n"
        "nodes = client_app.private.ledgers()\n"
        "print(json.dumps({n: [one.spent(), client_app.private.statement(n).to_json()]"
        " for n, one in nodes.items()}))\n"
    )
    flags = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": "flwr"}
    flags["RAY_ADDRESS"] = "local"  # no other cluster that happens to run on this machine
    for script in ("simulate.py", "read.py"):
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env={**os.environ, **flags},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    size = layout_of_trained(nn.Linear(64, 10)).size
    ours = planned(composition(tmp_path / "private.toml", {}), Layout(("0",), ((size,),)))
    assert sorted(found) == [f"partition-{n}" for n in range(10)]
    for spent, statement in found.values():
        assert spent == pytest.approx(3 * 0.42774828198162146)  # rho of epsilon 4 at delta 1e-5
        assert guarantees(Statement.from_json(statement)) == guarantees(ours)
