"""Short runs of all systems: digests of every report, state and ledger.

A run is observed from outside: the bytes on the transport, the states that the server's loop
    records, and the folder. Configurations are written as users write them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from tables import table_of

from fedldp.accounting.events import to_record
from fedldp.accounting.releases import ReleaseHistory
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.deployment.agreeing import agree
from fedldp.deployment.documents import digest_of
from fedldp.protocol.server_loop import Loop
from fedldp.protocol.wire import Refusal, RoundRequest, pack_request, read_reply
from fedldp.simulation.engine import simulate
from fedldp.simulation.executors import InProcess
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping, resolve
from gate import golden
from gate.golden import FOLDER, as_read, one_core
from gate.statements import NO_DATA

REPORTS = FOLDER / "reports"

SHORT = "rounds=3"
LOCAL = f"{SHORT} standardise=true local_epochs=1 batch_size=10"
MANY = f"{LOCAL} num_clients=70"
"""More clients than train in one batch."""

FEW = f"{LOCAL} num_clients=6"


def own(*values: float, clients: int = 70) -> str:
    """Return a list of clients' own values, repeated as needed."""
    repeated = [values[client % len(values)] for client in range(clients)]
    return json.dumps(repeated, separators=(",", ":"))


def run(recipe: str, *settings: str) -> tuple[str, list[str]]:
    """Return a recipe and its assignments, split from texts at spaces."""
    return recipe, " ".join(settings).split()


RUNS: dict[str, tuple[str, list[str]]] = {
    "fedavg": run("fedavg-digits", MANY),
    "fedavg-drawn": run(
        "fedavg-digits", MANY, "clients_per_round=9 weighting=uniform momentum=0.5 seed=3"
    ),
    "composed": run("composed-digits", MANY),
    "composed-balanced": run(
        "composed-digits",
        MANY,
        "participation=balanced clients_per_round=9 channel=shuffle "
        "untrusted_clients=0 server_optimizer=adam server_rate=0.01 average=0.5",
    ),
    "composed-norm": run(
        "composed-digits",
        FEW,
        "mechanism=laplace bound=norm clip=2 channel=named untrusted_clients=0 epsilon=8 "
        "participation=all",
    ),
    "ldp_fl": run("ldp-fl-digits", MANY),
    "ldp_fl-adaptive": run("ldp-fl-digits", MANY, "ranges=adaptive range_margin=1.5"),
    "ldp_fl-update": run("ldp-fl-digits", MANY, "send=update channel=named momentum=0.9"),
    "ldp_fl-chunk": run("ldp-fl-digits", MANY, "chunk=8 clients_per_round=66"),
    "ldp_fl-reports": run("ldp-fl-digits", MANY, "chunk=650"),
    "ldp_fl-budget": run(
        "ldp-fl-digits", MANY, "clients_per_round=50 client_budget.limit=1300 channel=named"
    ),
    "ldp_fl-budget-own": run(
        "ldp-fl-digits", MANY, f"epsilon={own(1, 2)} client_budget.limit=1950"
    ),
    "ldp_fl-target": run(
        "ldp-fl-digits", MANY, "target.unit=client-run target.epsilon=300 mechanism=laplace"
    ),
    "ldp_fl-gaussian": run("ldp-fl-digits", MANY, "mechanism=gaussian epsilon=8 clip=3"),
    "ldp_fl-drawn-data": run("ldp-fl-digits", MANY, "partition=drawn:12 num_clients=150"),
    "cldp_fed": run("cldp-fed-digits", MANY, "clients_per_round=66"),
    "privunit_fl": run("privunit-fl-digits", MANY),
    "distributed_gaussian": run("distributed-gaussian-digits", MANY),
    "secure_aggregation-dropouts": run(
        "secure-aggregation-digits", LOCAL, "num_clients=9 dropout=0.2"
    ),
    "central_dp": run("central-dp-digits", MANY, "clients_per_round=66"),
    "central_dp-median": run("central-dp-digits-median", MANY, "clients_per_round=20"),
    "nbafl": run("nbafl-digits", MANY),
    "priority": run("priority-digits", FEW, "noisier=most"),
    "priority-sensitivity": run("priority-digits", FEW, "model=mlp importance=sensitivity"),
    "priority_public": run("priority-public-digits", MANY),
    "person_dp_sgd": run("person-dp-sgd-digits", SHORT, "server_optimizer=adam server_rate=0.1"),
    "person_dp_sgd-sum": run(
        "person-dp-sgd-digits", SHORT, "channel=sum untrusted_clients=1 model=mlp"
    ),
    "personalized": run("personalized-digits", SHORT, "local_epochs=2"),
    "personalized-weighted": run(
        "personalized-digits",
        FEW,
        f"epsilon={own(1, 5, clients=6)} aggregation=weighted perturbation=sign",
    ),
    "personalized-many": run(
        "personalized-digits", MANY, f"epsilon={own(1, 5, 10)} clip={own(50, 200)} aggregation=mean"
    ),
    "personalized_sound": run("personalized-sound-digits", MANY, f"epsilon={own(1, 5, 10)}"),
    "personalized_sound-signs": run(
        "personalized-sound-digits",
        MANY,
        f"epsilon={own(5, 10)} perturbation=sign",
        "weighting=deviation",
    ),
    "personalized_sound-clips": run(
        "personalized-sound-digits",
        LOCAL,
        f"num_clients=5 epsilon=8 clip={own(0.1, 0.4, clients=5)}",
        f"client_delta={own(1e-5, 1e-4, clients=5)}",
    ),
    "dp_sgd": run("dp-sgd-digits", SHORT, "num_clients=6"),
    "ldpfl": run(
        "ldpfl-digits", SHORT, "encoder_epochs=1 local_epochs=1 encoder_channels=[4] num_clients=3"
    ),
    "ldpfl-labels": run(
        "ldpfl-digits",
        SHORT,
        "encoder_epochs=1 encoder_channels=[4] local_epochs=1",
        "label_epsilon=2 randomisation=symmetric clients_per_round=1 optimizer=adam",
    ),
    "ldpfl-public": run(
        "ldpfl-digits-public", SHORT, "encoder_epochs=1 encoder_channels=[4] local_epochs=1"
    ),
    "ldpfl_sound": run("ldpfl-sound-digits", SHORT, "num_clients=70 num_examples=280"),
}
"""The recipe and settings of each run, by its name, which begins with that of the system."""


EXACT = {
    "question",
    "answers",
    "each",
    "digests",
    "digest",
    "agreement",
    "metrics",
    "loss",
}
"""Keys compared only with the same arithmetic: a change in a last digit changes all of them."""

TOLERANCES = {"norms": 0.01, "accuracy": 0.25, "arrivals": 1e-6, "radii": 0.1}
"""Relative tolerances with other arithmetic; the others are those of a statement."""


def by_system() -> dict[str, list[str]]:
    """Return the names of all runs by their system, both sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(RUNS):
        found.setdefault(name.partition("-")[0], []).append(name)
    return found


def nearly(document: Any) -> Any:
    """Return a document without parts that depend on the last digit of a number."""
    if isinstance(document, dict):
        return {key: nearly(each) for key, each in document.items() if key not in EXACT}
    return [nearly(each) for each in document] if isinstance(document, list) else document


def changes(recorded: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """Yield the changes of the recorded runs of a system; see ``golden.changes``."""
    return golden.changes(recorded, found, nearly=nearly, tolerances=TOLERANCES | golden.TOLERANCES)


def configuration(name: str) -> RunConfig:
    """Return the configuration of a run."""
    recipe, settings = RUNS[name]
    return resolve(recipe, settings)


def path_of(system: str) -> Path:
    """Return the file with the runs of a system."""
    return REPORTS / f"{system}.json"


def of_run(name: str) -> dict[str, Any]:
    """Return what a run states, sends and keeps.

    run, config, statement: as in ``statements.of_recipe``, but from the run.
    planned, released: by event, the clients of each round, before the run and from its ledgers.
    exchanges: for each phase in order the clients, digests of the request and of all answers, the
        first 8 digits of each answer's digest, lengths of reports, and reasons of refusals.
    rounds: the server's record of each round, and its state after it.
    kept: for each file, which clients keep one, and the digest of all of them.
    agreement: by channel, the digests of the statement and of the rest of an agreement of three
        sites.
    """
    config = configuration(name)
    with one_core(), tempfile.TemporaryDirectory() as temporary, watched() as (exchanges, states):
        planned = plan(config, problem_of(config, NO_DATA))
        folder = Path(temporary) / "run"
        result = simulate(config, recipe=name, data_dir=NO_DATA, out=folder)
        files = kept(folder / "clients")
        document = json.loads((folder / "config.json").read_text())
        agreements = {channel: _agreement(config, channel) for channel in ("named", "sum")}
    return as_read(
        {
            "run": result.run,
            "config": from_mapping(document["config"]).identity(),
            "statement": result.privacy.to_json(),
            "planned": table(planned.releases),
            "released": table(result.ledger.releases(result.run)),
            "exchanges": exchanges,
            "rounds": states,
            "kept": files,
            "agreement": agreements,
        }
    )


def kept(folder: Path) -> dict[str, Any]:
    """Return, for each file, which clients keep one, and the digest of all of them."""
    found: dict[str, dict[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client, *rest = path.relative_to(folder).parts
            index = int(client.removeprefix("client-"))
            found.setdefault("/".join(rest), {})[index] = path.read_bytes()
    return {
        name: {
            "clients": _ranges(sorted(each)),
            "digest": digest(b"".join(content for _, content in sorted(each.items()))),
        }
        for name, each in found.items()
    }


@contextmanager
def watched() -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Yield lists to which phases and states of the server are added as they happen."""
    exchanges: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    made, gone = InProcess.__init__, Loop.go

    def watch(self: InProcess, answers: Callable[..., Any]) -> None:
        def told(request: RoundRequest, clients: Sequence[int]) -> Iterator[Any]:
            found: dict[int, bytes] = {}
            for some, packed in answers(request, clients):
                rows = [bytes(each) for each in packed]
                found.update(zip(map(int, some), rows, strict=True))
                yield some, packed
            asked = [request.to(client) for client in clients] if request.own else [request]
            exchanges.append(_exchange(b"".join(map(pack_request, asked)), found))

        made(self, told)

    def go(self: Loop, state: Any, record: Callable[..., None]) -> Any:
        def keep(state: Any, round: Any) -> None:
            states.append(_state(state, round))
            record(state, round)

        return gone(self, state, keep)

    with (
        mock.patch.object(InProcess, "__init__", watch),
        mock.patch.object(Loop, "go", go),
        mock.patch.object(os, "fsync", return_value=None),
    ):
        yield exchanges, states


def _exchange(message: bytes, answers: dict[int, bytes]) -> dict[str, Any]:
    lengths: dict[str, list[int]] = {}
    refused: dict[str, list[int]] = {}
    for client, answer in answers.items():
        _, _, read = read_reply(answer)
        if isinstance(read, Refusal):
            refused.setdefault(read.reason.value, []).append(client)
        else:
            lengths.setdefault(str(len(answer)), []).append(client)
    return {
        "clients": _ranges(list(answers)),
        "bytes": {length: _ranges(clients) for length, clients in lengths.items()},
        "refused": {reason: _ranges(clients) for reason, clients in refused.items()},
        "question": digest(message),
        "answers": digest(b"".join(answers.values())),
        "each": " ".join(digest(answer)[:8] for answer in answers.values()),
    }


FOLLOWS = ("f1_macro", "client_accuracy", "worst_tenth_accuracy")
"""Scores of a round that follow from what the round's other scores were made of."""


def _state(state: Any, round: Any) -> dict[str, Any]:
    arrays = {"weights": state.weights, **state.arrays}
    return {
        "round": round.round,
        "clients": round.clients,
        "refused": round.refused,
        "uplink_bits_per_client": round.uplink_bits_per_client,
        "accuracy": round.accuracy,
        "loss": round.loss,
        "metrics": {name: round.metrics[name] for name in round.metrics if name not in FOLLOWS},
        "radii": round.radii,
        "arrivals": round.arrivals,
        "next": state.round,
        "shapes": {name: [str(a.dtype), *a.shape] for name, a in sorted(arrays.items())},
        "norms": {name: _norm(array) for name, array in sorted(arrays.items())},
        "digests": {name: digest(array.tobytes()) for name, array in sorted(arrays.items())},
    }


def _norm(array: Any) -> float:
    return float(np.sqrt(np.mean(np.square(array.astype(np.float64)))))


def table(releases: ReleaseHistory) -> list[dict[str, Any]]:
    """Return, for each event in the order of the records, who released it in which round."""
    found: dict[str, dict[str, list[int]]] = {}
    for round, by_client in table_of(releases).items():
        for client, event in by_client.items():
            rounds = found.setdefault(json.dumps(to_record(event)), {})
            rounds.setdefault(str(round), []).append(client)
    return [
        {
            "event": json.loads(event),
            "rounds": {round: _ranges(clients) for round, clients in rounds.items()},
        }
        for event, rounds in sorted(found.items())
    ]


def _agreement(config: RunConfig, channel: Any) -> dict[str, str] | None:
    """Return digests of an agreement of three sites; None if they cannot run it."""
    sites = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("north", "south", "west")}
    with mock.patch.object(os, "urandom", bytes):
        try:
            config = config.changed(num_clients=3, clients_per_round=None, untrusted_clients=0)
            problem = problem_of(config, NO_DATA)
            found = agree(config, problem, sites, channel=channel, test_seed=0)
        except ConfigError:
            return None
    rest = {**found.document, "statement": {}}
    del rest["version"]  # records must hold for all versions
    return {
        "statement": digest(json.dumps(found.statement).encode()),
        "rest": digest_of(rest).hex(),
    }


def _ranges(clients: Sequence[int]) -> str:
    """Return numbers in order, such as "0-2,7".

    >>> _ranges([0, 1, 2, 7])
    '0-2,7'
    """
    parts: list[list[int]] = []
    for client in clients:
        if parts and client == parts[-1][1] + 1:
            parts[-1][1] = client
        else:
            parts.append([client, client])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
