"""Whole runs of a server and its sites in one process: their results, folders and logs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    CHANNELS,
    Environment,
    FakePipe,
    ask,
    bits,
    content,
    forget,
    gone_from,
    make_environment,
    request_of,
    summing,
)
from safetensors.numpy import save_file

from fedldp.accounting.statement import Statement, spent_by_unit
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.kinds import GIVEN_MODEL, HONEST_SUMMANDS, SIMULATED
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.checks import check_server
from fedldp.deployment.initial import digest_of_file, write_initial
from fedldp.deployment.messages import Answered, pack, read_message
from fedldp.deployment.server import Server
from fedldp.protocol.wire import (
    Layout,
    Reason,
    Refusal,
    Report,
    Vector,
    pack_reply,
    read_reply,
    read_request,
)
from fedldp.reporting.runs import read_statement
from fedldp.simulation.engine import simulate

PHASES = {"named": [0], "sum": [0, 1, 2, 3]}


@pytest.fixture(scope="module", params=["named", "sum"])
def seeded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Environment, Server]:
    env = make_environment(tmp_path_factory.mktemp(request.param), channel=request.param)
    return env, env.serve()


# tests/contracts/test_clients.py compares the clients of every system.
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("fedavg-quickstart", []),
        ("central-dp-digits-median", []),
        ("quickstart", ["mechanism=piecewise", "send=update"]),
        ("quickstart", ["clients_per_round=2"]),
        ("quickstart", ["features=oriented-gradients", "model=logistic"]),
    ],
)
def test_a_run_equals_its_simulation(tmp_path: Path, recipe: str, settings: list[str]) -> None:
    env = make_environment(
        tmp_path,
        "rounds=1",
        "clients_per_round=3",
        *settings,
        recipe=recipe,
        quorum=2,
        deadline=2.0,
        policy={"allow_in_clear": True, "budget": {"kind": "zcdp", "limit": float("inf")}},
    )
    served, expected = env.serve().weights, simulate(env.config).weights
    assert served.keys() == expected.keys()
    # A simulation trains clients in a batch, which differs by rounding.
    for name, weights in served.items():
        np.testing.assert_allclose(weights, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_with_keys_from_the_seed_a_run_equals_its_simulation_bit_for_bit(
    seeded: tuple[Environment, Server], expected: dict[str, bytes]
) -> None:
    assert bits(seeded[1]) == expected


@pytest.mark.slow
@CHANNELS
def test_a_server_steps_and_averages_as_a_simulation_does(tmp_path: Path, channel: str) -> None:
    """The settings are in the agreement; the stored model is the average."""
    settings = ["server_optimizer=adam", "server_rate=0.05", "average=1.0"]
    env = make_environment(tmp_path, *settings, channel=channel)
    assert env.agreement.config.model_dump()["server_optimizer"] == "adam"
    served = env.serve()
    assert bits(served) == bits(simulate(env.config))
    last = env.server()._state.weights
    mean = np.concatenate([weights.ravel() for weights in served.weights.values()])
    assert not np.array_equal(last, mean)
    plain = make_environment(tmp_path / "plain", channel=channel).agreement
    assert plain.statement == env.agreement.statement
    assert plain.document["config"]["server_optimizer"] == "none"


@pytest.mark.slow
def test_ledgers_hold_exactly_the_rounds_taken_part_in(seeded: tuple[Environment, Server]) -> None:
    env, _served = seeded
    for index in range(3):
        phases = PHASES[env.agreement.channel]
        assert env.releases(index) == [(r, e) for r in (1, 2) for e in phases]
        (event,) = env.agreement.events_of(0)
        paid = [e for e in env.ledger(index).releases() if e.costs[0]]
        assert [e.event for e in paid] == [event, event]
        assert env.ledger(index).spent() <= env.policies[index].costs(env.agreement)[1]


def test_a_seeded_run_says_that_it_protects_nothing(
    seeded: tuple[Environment, Server],
) -> None:
    env, served = seeded
    assert SIMULATED in served.privacy.warnings
    assert bool(summing(served.privacy)) == (env.agreement.channel == "sum")


def test_the_folder_holds_the_run_but_no_report_of_a_complete_round(
    seeded: tuple[Environment, Server],
) -> None:
    folder = seeded[1].folder.path
    assert len((folder / "journal").read_bytes()) < 20
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    kept = json.loads((folder / "privacy.json").read_text())
    assert json.loads((folder / "summary.json").read_text())["privacy"] == kept
    assert Statement.from_json(kept) == seeded[1].privacy


def test_each_round_records_what_was_spent_by_then(seeded: tuple[Environment, Server]) -> None:
    lines = (seeded[1].folder.path / "metrics.jsonl").read_text().splitlines()
    rounds = [json.loads(line)["spent"] for line in lines]
    released, planned = seeded[1].privacy, seeded[0].agreement.planned
    assert rounds[-1] == spent_by_unit(released.guarantees, planned.guarantees)
    assert rounds[-1]
    first, last = ({(x["unit"], x["adversary"]): x["epsilon"] for x in each} for each in rounds)
    assert first.keys() == last.keys()
    assert all(0 < first[key] < last[key] for key in last)
    # The claim for a round does not hide the figures agreed for all rounds.
    assert all(x["epsilon"] <= x["of"] for each in rounds for x in each)


@pytest.mark.slow
@CHANNELS
def test_no_round_waits_for_a_whole_statement(
    tmp_path: Path, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path, "rounds=3", channel=channel, quorum=2)
    whole: list[None] = []

    stated = Server._stated

    def counted(server: Server, ledger: Any, in_sum: Any, searched: Any = None) -> Statement:
        whole.extend([None] * (searched is None))
        return stated(server, ledger, in_sum, searched)

    monkeypatch.setattr(Server, "_stated", counted)
    env.serve()
    assert len(whole) == 1  # of the run that is over


@pytest.mark.slow
@CHANNELS
def test_whoever_asks_in_a_round_is_told_what_all_who_are_asked_may_release(
    tmp_path: Path, channel: str
) -> None:
    env = make_environment(tmp_path, "rounds=2", channel=channel, quorum=2)
    server = env.server()
    told: list[tuple[Statement | None, Statement]] = []

    def tamper(node: int, asked: bytes, answer: bytes | None) -> list[bytes | None]:
        if read_request(read_message(asked).request).phase == 0:
            told.append((server.released, server._of_round_under_way(range(3))))
        return [answer]

    assert server.released is None
    server.serve(env.pipe(tamper=tamper), lambda record: None)
    assert len(told) == 2 * 3
    assert all(shown == expected for shown, expected in told)
    assert told[0][0] != told[-1][0]
    assert server.released == server.privacy == read_statement(server.folder.path)


@pytest.mark.slow
@CHANNELS
def test_with_real_keys_two_runs_differ_and_nothing_is_called_simulated(
    tmp_path: Path, channel: str, expected: dict[str, bytes]
) -> None:
    runs = []
    for name in ("one", "other"):
        env = make_environment(tmp_path / name, "rounds=1", channel=channel, seeded=False)
        runs.append(env.serve())
        assert env.agreement.run not in {r.agreement.run for r in runs[:-1]}
    assert bits(runs[0]) != bits(runs[1])
    assert expected not in (bits(runs[0]), bits(runs[1]))
    for served in runs:
        assert SIMULATED not in served.privacy.warnings
        assert served.privacy.guarantees
        assert not any(line.is_idealised for line in served.privacy.guarantees)


@pytest.mark.parametrize(
    ("phase", "in_sum"),
    [(0, 2), *(pytest.param(*p, marks=pytest.mark.slow) for p in [(1, 2), (2, 2), (3, 3)])],
)
def test_a_sum_is_stated_to_hold_the_sites_that_are_in_it(
    tmp_path: Path, phase: int, in_sum: int
) -> None:
    env = make_environment(tmp_path, "rounds=1", channel="sum", quorum=2, deadline=1.0)
    served = env.serve(env.pipe(tamper=gone_from(phase, 2)))
    honest = HONEST_SUMMANDS(clients=in_sum, among="round")
    lines = summing(served.privacy)
    assert lines
    assert all(honest in line.assumptions for line in lines)
    # It is the same when made again from what is on disk.
    assert env.server().privacy == served.privacy
    agreed = {line.unit: line.epsilon for line in summing(env.agreement.planned)}
    assert all(line.epsilon <= agreed[line.unit] for line in lines)


@pytest.mark.slow
def test_a_site_that_sent_a_masked_report_is_counted_as_having_sent_one(tmp_path: Path) -> None:
    # The server's lines are against a server that does not follow the protocol.
    env = make_environment(tmp_path, "rounds=1", channel="sum", quorum=2, deadline=1.0)
    server = env.server()
    server.serve(env.pipe(tamper=gone_from(3, 2)), lambda record: None)
    counted = server._ledger.releases(env.agreement.run)
    (event,) = env.agreement.events_of(0)
    assert set(counted.crowds()[event].values()) == {3}


def test_a_finished_run_is_shown_again_and_asks_no_site(seeded: tuple[Environment, Server]) -> None:
    env, served = seeded
    again = env.serve(FakePipe({}))
    assert bits(again) == bits(served)
    assert again.privacy == served.privacy


def test_a_folder_of_another_agreement_is_refused(
    seeded: tuple[Environment, Server], tmp_path: Path
) -> None:
    env, _served = seeded
    other = make_environment(tmp_path / "other")
    with pytest.raises(RunError, match="it belongs to another agreement"):
        Server(env.folder / "server", other.agreement.to_bytes(), None)


def test_a_statement_below_the_truth_by_a_rounding_is_not_shown(tmp_path: Path) -> None:
    env = make_environment(tmp_path)
    document = json.loads(env.agreement.to_bytes())
    for line in document["statement"]["guarantees"]:
        line["epsilon"] = line["epsilon"] and line["epsilon"] * (1 - 5e-7)
    server = Server(tmp_path / "server", json.dumps(document).encode(), None)
    assert server.privacy == env.agreement.planned
    assert read_statement(tmp_path / "server") == env.agreement.planned


def test_a_false_statement_is_refused_by_every_party(tmp_path: Path) -> None:
    """A statement that promises too much would be shown to everybody whom it protects."""
    env = make_environment(tmp_path)
    document = json.loads(env.agreement.to_bytes())
    for line in document["statement"]["guarantees"]:
        line["epsilon"] = line["epsilon"] and 0.5 * line["epsilon"]
    content, file, folder = json.dumps(document).encode(), tmp_path / "false", tmp_path / "server"
    file.write_bytes(content)
    false, policy = Agreement.parse(content), env.policies[0]
    forget(policy, env.agreement)
    accept(policy, false)  # past the command, which asks the policy
    for refuses in (lambda: Server(folder, content, None), lambda: policy.check(false)):
        with pytest.raises(ConfigError, match="its statement differs"):
            refuses()
    assert not folder.exists()
    assert env.agent(0).served() == {}
    assert any("its statement differs" in f.what for f in check_server(folder, file, file, file))


@pytest.mark.slow
def test_one_lying_site_moves_a_weight_by_at_most_2rk_over_n(tmp_path: Path) -> None:
    """Replace all of one site's bits: the two decoded values are 2 r K apart, in a mean over n
    sites."""
    ends = []
    for name, turned in (("ones", 0xFF), ("zeros", 0x00)):
        env = make_environment(tmp_path / name, "rounds=1")

        def tamper(
            node: int, asked: bytes, answer: bytes | None, turned: int = turned
        ) -> list[bytes | None]:
            content = read_message(answer or b"")
            if node != 0 or not isinstance(content, Answered):
                return [answer]
            run, phase, report = read_reply(content.answer)
            size = len(report.payload)
            last = 0xFF << (8 * size - report.size) & 0xFF  # spare bits stay zero
            payload = bytes([turned] * (size - 1) + [turned & last])
            lie = Report(**{**vars(report), "payload": payload})
            return [pack(Answered(content.receipt, pack_reply(lie, run=run, phase=phase)))]

        served = env.serve(env.pipe(tamper=tamper))
        ends.append(np.concatenate([w.ravel() for w in served.weights.values()]))
    config = env.agreement.config.model_dump()
    factor = 1 / np.tanh(config["epsilon"] / 2)  # K = (e^eps + 1) / (e^eps - 1)
    bound = 2 * config["range_radius"] * factor / 3
    moved = np.abs(ends[0].astype(np.float64) - ends[1])
    assert moved.max() <= bound * (1 + 1e-6)
    assert moved.min() >= bound * (1 - 1e-3)  # the bound is attained, so it is exact


@CHANNELS
def test_no_log_contains_reports_or_examples(
    tmp_path: Path, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    env = make_environment(tmp_path, "rounds=1", channel=channel, seeded=False)
    pipe = env.pipe()
    served = env.serve(pipe)
    logged = "\n".join(f"{r.getMessage()} {r.args!r}" for r in caplog.records)
    assert "released one report" in logged
    secrets = [
        env.policies[0].key.read_bytes(),
        env.ledger(0).secret,
    ]
    for _node, asked, answer in pipe.seen:
        secrets += [each[-24:] for each in (asked, answer) if each]
    for weights in served.weights.values():
        secrets.append(weights.tobytes()[:16])
        assert all(f"{float(w):.4f}" not in logged for w in weights.ravel() if abs(w) > 1e-3)
    for secret in secrets:
        assert secret.hex() not in logged
        assert repr(secret)[2:-1] not in logged
        assert repr(list(secret))[1:-1] not in logged
    examples = np.load(env.policies[0].data)
    for row in examples["features"][:20].reshape(20, -1):
        assert str(row[10:14].tolist())[1:-1] not in logged


# A run that begins with the weights of another: agreed by digest


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return make_environment(tmp_path_factory.mktemp("layout")).agreement.layout


def saved(file: Path, layout: Layout, weights: Vector) -> Path:
    save_file({name: each.copy() for name, each in layout.split(weights).items()}, file)
    return file


def begun_with(folder: Path, file: Path, layout: Layout, channel: str = "named") -> Environment:
    """Return an environment whose run begins with the weights in a file."""
    digest = digest_of_file(file, layout)
    env = make_environment(folder / "world", channel=channel, initial=digest)
    write_initial(file, env.folder / "run.agreement")
    return env


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_run_begins_with_the_weights_of_another(
    tmp_path: Path, layout: Layout, channel: str
) -> None:
    one = make_environment(tmp_path / "one", channel=channel)
    ended = one.serve()
    following = begun_with(tmp_path, one.folder / "server" / "model.safetensors", layout, channel)
    pipe = following.pipe()
    served = following.serve(pipe)
    told = []
    for _, asked, _ in pipe.seen:
        broadcast = read_request(read_message(asked).request).broadcast
        told += [broadcast.weights] if broadcast.round == 1 and broadcast.weights.size else []
    assert len(told) >= 3
    for vector in told:
        weights = layout.split(vector)
        assert {name: each.tobytes() for name, each in weights.items()} == bits(ended)
    assert bits(served) != bits(ended)
    given = GIVEN_MODEL(of=str(following.agreement.initial)[:16])
    for line in following.agreement.planned.guarantees:
        assert (given in line.assumptions) == (line.epsilon is not None)
        assert given not in one.agreement.planned.guarantees[0].assumptions


def test_a_site_refuses_other_first_weights_and_pays_nothing(
    tmp_path: Path, layout: Layout
) -> None:
    env = begun_with(
        tmp_path, saved(tmp_path / "w", layout, np.full(layout.size, 0.25, np.float32)), layout
    )
    agent, right = env.agent(0), np.full(env.agreement.layout.size, 0.25, np.float32)
    wrong = np.nextafter(right, np.float32(1))
    said = content(ask(agent, env, request_of(env, weights=wrong, ranges=None)))
    assert said == Refusal(1, Reason.OTHER_WEIGHTS)
    assert env.releases(0) == []
    assert not isinstance(content(ask(agent, env, request_of(env, weights=right))), Refusal)
    later = request_of(
        env, round=2, weights=wrong
    )  # weights of later rounds are the server's choice
    assert not isinstance(content(ask(agent, env, later)), Refusal)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda w: {**w, "more": np.zeros(2, np.float32)}, "but None in the run's model"),
        (lambda w: dict(list(w.items())[1:]), "is None, but float32"),
        (lambda w: {n: a.reshape(-1, 1) for n, a in w.items()}, "in the run's model"),
        (lambda w: {n: a.astype(np.float64) for n, a in w.items()}, "is float64 of shape"),
        (lambda w: {n: np.full_like(a, np.nan) for n, a in w.items()}, "is not a number"),
    ],
)
def test_weights_of_another_model_are_refused_in_a_line(
    tmp_path: Path, layout: Layout, change: Any, part: str
) -> None:
    weights = {n: w.copy() for n, w in layout.split(np.zeros(layout.size, np.float32)).items()}
    file = tmp_path / "model.safetensors"
    save_file(change(weights), file)
    with pytest.raises(ConfigError, match=part) as found:
        digest_of_file(file, layout)
    assert "\n" not in str(found.value)
    file.write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"not the model\.safetensors"):
        digest_of_file(file, layout)
