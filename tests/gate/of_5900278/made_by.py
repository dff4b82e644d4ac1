"""How these files were made, with fedldp as of commit 5900278; they are never made anew.

python tests/gate/of_5900278/made_by.py FOLDER

runs/       folders of runs of tests/gate/reports.py: cut short after the second round, and one that
            ended
north       a site's folder: policy, key, data, two accepted agreements, a ledger with releases of
            both, what it keeps. The key protects nothing: it is known to all.
asked       what the server asked it, in order, and what it answered; the last ones of each run are
            still to be asked, and were answered by a copy of the site
known.json  what the ledger said then
events.json records of all kinds of events, written by hand, and their prices
*.agreement the two agreements

Folders are packed: NAME.zip.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import tomli_w

from fedldp.accounting.events import to_record
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.identity import make_identity, read_public
from fedldp.deployment.messages import NO_RECEIPT, Answered, Ask, pack, read_by_server
from fedldp.deployment.policy import read_policy, write_accepted
from fedldp.deployment.site import Agent
from fedldp.parts.tensors import one_thread
from fedldp.randomness import Stream
from fedldp.settings import resolve
from fedldp.simulation.engine import simulate
from fedldp.simulation.inputs import Inputs
from fedldp.wire import Question, pack_question, read_answer

OUT = Path(sys.argv[1])
CUT = [
    "central_dp-median",
    "ldp_fl-budget",
    "ldp_fl-own",
    "ldpfl",
    "ldpfl_sound-mechanism",
    "personalized_sound-selected",
    "priority_public",
    "secure_aggregation-dropouts",
]


class Cut(Exception):
    pass


def cut(record) -> None:
    if record.round == 2:
        raise Cut


def make_runs() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from gate.reports import RUNS

    for name in CUT:
        try:
            simulate(resolve(*RUNS[name]), recipe=name, out=OUT / "runs" / name, after_round=cut)
        except Cut:
            continue
        raise AssertionError(name)
    name = "fedavg-drawn"
    simulate(resolve(*RUNS[name]), recipe=name, out=OUT / "runs" / name)
    (OUT / "runs" / name / "report.html").unlink()
    for path in (OUT / "runs").glob("*/environment.json"):
        found = json.loads(path.read_text())
        path.write_text(json.dumps({**found, "platform": "Linux"}, indent=2) + "\n")


def questions(agreement: Agreement) -> list[bytes]:
    """Return what a server asks in three rounds, in which its model moves a little."""
    server = agreement.config.server(agreement.problem)
    state = server.initial(lambda purpose: Stream(bytes(32), simulated=True))
    found = []
    for _ in range(3):
        question = Question(run=agreement.run, exchange=0, broadcast=server.publish(state))
        found.append(pack_question(question))
        move = np.sin(np.arange(state.weights.size)) / 64
        state = state.next(state.weights + move)
    return found


def make_site() -> None:
    place = OUT / "north"
    keys = {}
    for name in ("north", "south", "west"):
        folder = OUT / name
        make_identity(folder / "site.key", folder / "site.pub")
        keys[name] = read_public(folder / "site.pub")
        if folder != place:
            shutil.rmtree(folder)
    first = resolve("ldp-fl-digits", ["num_examples=60", "num_clients=3", "rounds=3",
                                      "local_epochs=1", "shuffle=false"])  # fmt: skip
    second = resolve("ldpfl-sound-digits", ["num_examples=60", "num_clients=3", "rounds=3",
                                            "mechanism=laplace"])  # fmt: skip
    raw = Inputs.of(second, None, None)
    rows = raw.members[0]
    train = raw.dataset.train
    np.savez_compressed(
        place / "data.npz", features=train.features[rows], labels=train.labels[rows]
    )
    terms = {
        "data": "data.npz",
        "key": "site.key",
        "ledger": "ledger.sqlite",
        "state": "state",
        "socket": "run/site.sock",
        "budget": {"kind": "pure", "limit": 3000.0},
        "largest": {"release": 700.0, "run": 2000.0},
    }
    (place / "site.toml").write_text(tomli_w.dumps(terms))
    policy = read_policy(place / "site.toml")
    agreements = []
    for config in (first, second):
        found = agree(config, replace(raw.problem, num_examples=60), keys, channel="named")
        (OUT / f"{config.system}.agreement").write_bytes(found.to_bytes())
        policy.check(found)
        write_accepted(policy, found)
        agreements.append(found)
    agent = Agent(policy)
    asked = OUT / "asked"
    asked.mkdir()
    known = {"entries": []}
    for agreement, rounds in zip(agreements, (2, 1), strict=True):
        receipt, name = NO_RECEIPT, agreement.config.system
        known[name] = {"digest": agreement.digest.hex(), "costs": policy.costs(agreement)}
        for round, question in enumerate(questions(agreement), 1):
            body = pack(Ask(agreement.digest, receipt, question))
            if round <= rounds + 1:
                (asked / f"{name}-{round}").write_bytes(body)
            if round <= rounds:
                with one_thread():
                    answered = read_by_server(agent.answer(body))
                assert isinstance(answered, Answered)
                receipt = answered.receipt
                (asked / f"{name}-{round}-answer").write_bytes(answered.answer)
                print(name, round, len(answered.answer), read_answer(answered.answer)[2].round)
    ledger = agent._ledger
    known["entries"] = [
        {"run": e.run, "round": e.round, "exchange": e.exchange, "event": to_record(e.event),
         "cost": e.cost, "hash": e.hash}
        for e in ledger.verify()
    ]  # fmt: skip
    known["budget"] = {"kind": ledger.budget.kind, "limit": ledger.budget.limit}
    known["spent"], known["remaining"] = ledger.spent(), ledger.remaining()
    # What it would answer next: once, on a copy.
    copy = OUT / "copy"
    shutil.copytree(place, copy)
    with one_thread():
        again = Agent(read_policy(copy / "site.toml"))
        for name in ("ldp_fl", "ldpfl_sound"):
            body = sorted(p for p in asked.glob(f"{name}-?"))[-1]
            answered = read_by_server(again.answer(body.read_bytes()))
            assert isinstance(answered, Answered)
            (asked / f"{body.name}-answer").write_bytes(answered.answer)
    shutil.rmtree(copy)
    (OUT / "known.json").write_text(json.dumps(known, indent=1) + "\n")


def pack_folder(folder: Path) -> None:
    with zipfile.ZipFile(f"{folder}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                name = zipfile.ZipInfo(path.relative_to(folder).as_posix())
                name.external_attr = 0o600 << 16
                packed.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    shutil.rmtree(folder)


os.fsync = lambda handle: None
make_runs()
make_site()
for each in [*(OUT / "runs").iterdir(), OUT / "north", OUT / "asked"]:
    pack_folder(each)
