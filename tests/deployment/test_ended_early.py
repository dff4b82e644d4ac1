"""A deployed run that ends early leaves its model, its report, and a true statement."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    Body,
    Environment,
    FakePipe,
    Killed,
    asks,
    bits,
    make_environment,
    serve_until_killed,
)
from test_people_of_sites import STAGED, environment_of, person_line

from fedldp.accounting.accountants import releases_nothing
from fedldp.accounting.statement import Statement
from fedldp.core.errors import ConfigError, Diverged, EndedForGood
from fedldp.core.kinds import (
    COUNT_NOISE,
    COVERS_ALL_ROUNDS,
    ENDED,
    ENDED_EARLY,
    NOT_FINISHED,
    STAGE,
)
from fedldp.deployment.initial import digest_of_file
from fedldp.deployment.runs import ask_to_finish
from fedldp.deployment.status import status_of_server, status_of_site
from fedldp.ledgers.budget import Budget
from fedldp.reporting.record import RunFolder
from fedldp.reporting.runs import read_statement
from fedldp.simulation.evaluating import load_trained
from fedldp.simulation.result import is_finished, read_run, weights_of

ROUNDS = 5


def environment(
    folder: Path, paid: float = 1e9, richer: Sequence[int] = (), **given: Any
) -> Environment:
    """Return an environment whose sites can pay for some rounds only, as after a restore.

    Those in ``richer`` can pay for one more.
    """
    env = make_environment(folder, f"rounds={ROUNDS}", **given)
    if paid >= ROUNDS:
        return env
    cost = env.policies[0].costs(env.agreement)[0]
    env = make_environment(
        folder / "world", f"rounds={ROUNDS}",
        policy={"budget": {"kind": "zcdp", "limit": (ROUNDS + 0.5) * cost}}, **given,
    )  # fmt: skip
    (event,) = (each for each in env.agreement.events_of(0) if not releases_nothing(each))
    for site in range(len(env.policies)):
        for round in range(ROUNDS - int(paid) - (site in richer)):
            env.ledger(site).charge_lost("lost", round, 0, event)
    return env


def run_until(env: Environment, rounds: int) -> None:
    """Kill the server when it has asked for the round after some rounds."""

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if asks(asked, round=rounds + 1):
            stated = read_run(env.folder / "server").privacy
            assert stated == env.agreement.planned.warning(COVERS_ALL_ROUNDS)
            raise Killed
        return [answer]

    with pytest.raises(Killed):
        env.serve(env.pipe(tamper=tamper))


def client_runs(stated: Statement) -> list[Any]:
    return [line.epsilon for line in stated.guarantees if line.unit == "client-run"]


def left(env: Environment) -> list[Any]:
    """Return what the server's folder states of a client's whole run."""
    return client_runs(read_run(env.folder / "server").privacy)


def paid_rounds(env: Environment, site: int) -> int:
    own = env.agreement.run
    return sum(entry.costs[0] > 0 and entry.run == own for entry in env.ledger(site).verify())


def assert_usable(env: Environment, rounds: int, fedldp_command: Any) -> None:
    """Check that the commands read the folder, and that the model is the checkpoint's."""
    folder, after = env.folder / "server", f"after {rounds} of {ROUNDS} rounds"
    saved, found = RunFolder(folder).read_checkpoint(), weights_of(folder)
    assert saved is not None
    vector = np.concatenate([each.ravel() for each in found.values()])
    assert vector.tobytes() == saved[0].weights.tobytes()
    so_far = load_trained(folder).so_far
    assert so_far.values == {"done": rounds, "of": ROUNDS}
    digest_of_file(folder, env.agreement.layout)  # --initial takes the folder
    test = env.write_test()
    for command in (("evaluate", folder, "--data", test), ("predict", folder, "--data", test)):
        outcome = fedldp_command(*command)
        assert outcome.status == 0, outcome.err
        assert after in outcome.out + outcome.err
    page = env.folder / "page.html"
    for command in (("card", folder), ("report", folder, "--out", page)):
        assert fedldp_command(*command).status == 0
    assert after in page.read_text()
    run = read_run(folder)
    assert [record["round"] for record in run.summary["rounds"]] == list(range(1, rounds + 1))
    assert run.privacy.warnings[-1] == NOT_FINISHED(done=rounds, of=ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "channel"), [(1, "named"), (3, "sum")])
def test_a_killed_run_can_be_used_and_states_at_least_what_was_released(
    tmp_path: Path, rounds: int, channel: str, fedldp_command: Any
) -> None:
    env = environment(tmp_path, channel=channel)
    run_until(env, rounds)
    assert_usable(env, rounds, fedldp_command)
    # A site may have answered the round that was under way.
    released = max(paid_rounds(env, site) for site in range(3))
    stated, whole = left(env), client_runs(env.agreement.planned)
    assert rounds <= released <= rounds + 1
    assert whole[0] * released / ROUNDS <= stated[0] * (1 + 1e-9)
    served = env.serve()  # it can still be continued
    assert read_run(env.folder / "server").finished
    assert bits(served).keys() == weights_of(env.folder / "server").keys()


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "channel"), [(1, "sum"), (4, "named")])
def test_a_run_that_the_budgets_end_leaves_all_that_was_paid_for(
    tmp_path: Path, rounds: int, channel: str, fedldp_command: Any
) -> None:
    env = environment(tmp_path, paid=rounds, channel=channel)
    after = f"after {rounds} of {ROUNDS} rounds"
    with pytest.raises(EndedForGood, match=f"used up.*the model {after} is in"):
        env.server().serve(env.pipe(), lambda record: None)
    folder = env.folder / "server"
    assert after in (folder / "report.html").read_text()
    assert_usable(env, rounds, fedldp_command)
    # All sites refused, so nothing was released in the last round.
    stated, whole = left(env), client_runs(env.agreement.planned)
    assert stated[0] == pytest.approx(whole[0] * rounds / ROUNDS)
    assert paid_rounds(env, 0) == rounds
    found = status_of_server(folder)
    assert after in found["next"]
    assert "evaluate" in found["next"]
    assert "again" not in found["next"]
    (ended,) = (each for each in found["warnings"] if each["kind"] == ENDED.name)
    assert "budgets of some sites are used up" in ended["values"]["why"]
    assert status_of_site(env.policies[0])["runs"][0]["rounds"] == {"done": rounds, "of": ROUNDS}


@pytest.mark.slow
def test_the_statement_has_the_round_in_which_only_some_could_pay(tmp_path: Path) -> None:
    """The server has seen the last report of the sites that could."""
    env = environment(tmp_path, paid=2, richer=[0])
    with pytest.raises(EndedForGood):
        env.serve()
    assert [paid_rounds(env, site) for site in range(3)] == [3, 2, 2]
    whole = client_runs(env.agreement.planned)
    assert max(left(env)) == pytest.approx(whole[0] * 3 / ROUNDS)


@pytest.mark.slow
def test_without_a_complete_round_there_is_no_model(tmp_path: Path) -> None:
    env = environment(tmp_path, paid=0)
    with pytest.raises(EndedForGood) as found:
        env.serve()
    assert "the model" not in str(found.value)
    assert "there is no model" in status_of_server(env.folder / "server")["next"]


# A run that its operator ends


def finish_after(env: Environment, rounds: int, *, now: bool = False) -> Any:
    """Return a function for ``serve`` that asks for the end after some rounds."""

    def after(record: Any) -> None:
        if record.round == rounds:
            ask_to_finish(env.folder / "server", now=now)

    return after


@pytest.mark.parametrize("channel", ["named", pytest.param("sum", marks=pytest.mark.slow)])
def test_a_run_that_its_operator_ends_states_what_was_released_and_tells_the_sites(
    tmp_path: Path, channel: str
) -> None:
    env = environment(tmp_path, channel=channel)
    pipe = env.pipe()
    served = env.serve(pipe, finish_after(env, 2))
    assert [record.round for record in served.rounds] == [1, 2]
    assert pipe.ended == 2
    assert [paid_rounds(env, site) for site in range(3)] == [2, 2, 2]
    shorter = make_environment(tmp_path / "shorter", "rounds=2", channel=channel).agreement
    assert client_runs(served.privacy) == pytest.approx(client_runs(shorter.planned))
    assert served.privacy.warnings[-1] == ENDED_EARLY(done=2, of=ROUNDS)
    page = (env.folder / "server" / "report.html").read_text()
    assert f"ended the run after 2 of {ROUNDS} rounds" in page
    assert "not finished" not in page
    run = read_run(env.folder / "server")
    assert run.privacy == served.privacy
    saved, found = RunFolder(env.folder / "server").read_checkpoint(), weights_of(run.path)
    expected = env.agreement.layout.split(saved[0].weights)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    # Started again, it asks nobody.
    again = env.serve(FakePipe({}))
    assert bits(again) == bits(served)
    assert again.privacy == served.privacy
    with pytest.raises(ConfigError, match="its run has ended already"):
        ask_to_finish(env.folder / "server", now=True)


@pytest.mark.slow
def test_a_run_without_a_quorum_is_ended_at_once(tmp_path: Path) -> None:
    env = environment(tmp_path)
    pipe = env.pipe()

    def after(record: Any) -> None:
        if record.round == 2:
            pipe.agents[1] = None
            threading.Timer(1.0, lambda: ask_to_finish(env.folder / "server", now=False)).start()

    served = env.serve(pipe, after)
    assert len(served.rounds) == 2
    # Two sites may have answered the round that was begun, whose question was sent.
    whole = client_runs(env.agreement.planned)[0]
    rounds = 2 + bool(paid_rounds(env, 0) > 2)
    assert client_runs(served.privacy)[0] >= whole * rounds / ROUNDS * (1 - 1e-9)


def test_a_run_that_ends_before_its_first_round_has_no_model(tmp_path: Path) -> None:
    env = environment(tmp_path)
    server = env.server()
    ask_to_finish(env.folder / "server", now=True)
    pipe = env.pipe()
    with pytest.raises(EndedForGood, match="before its first round"):
        server.serve(pipe, lambda record: None)
    assert pipe.ended == 0
    assert [env.releases(site) for site in range(3)] == [[]] * 3
    with pytest.raises(ConfigError, match="not the folder of a server's run"):
        ask_to_finish(tmp_path, now=False)


def test_a_run_that_ends_in_its_first_round_states_what_sites_may_have_paid_for(
    tmp_path: Path, fedldp_command: Any
) -> None:
    env = environment(tmp_path)
    folder = env.folder / "server"

    def finish(node: int, asked: bytes, answer: Body) -> list[Body]:
        ask_to_finish(folder, now=True)
        return [] if node == 1 else [answer]

    with pytest.raises(EndedForGood, match="before its first round"):
        env.server().serve(env.pipe(tamper=finish), lambda record: None)
    assert max(paid_rounds(env, site) for site in range(3)) == 1
    stated, whole = client_runs(read_statement(folder)), client_runs(env.agreement.planned)
    assert stated[0] == pytest.approx(whole[0] / ROUNDS)
    line = fedldp_command("report", folder).assert_refused()
    assert "because its operator ended it" in line
    assert "continue" not in line
    assert "its operator ended it" in status_of_server(folder)["next"]


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_a_run_whose_weights_become_useless_is_ended_by_its_operator(
    tmp_path: Path, before: bool
) -> None:
    """The end is asked for before or after the round; its reports count, and its weights do not."""
    env, diverges = environment(tmp_path), 3

    def aggregate(state: Any, reports: Any, draw: Any, own: Any) -> Any:
        found = own(state, reports, draw)
        if state.round == diverges:
            if before:
                ask_to_finish(env.folder / "server", now=False)
            raise Diverged("the weights are useless")
        return found

    def serve(pipe: FakePipe) -> Any:
        server = env.server()
        own = server._role.aggregate
        server._role = replace(server._role, aggregate=partial(aggregate, own=own))
        server.serve(pipe, lambda record: None)
        return server

    pipe = env.pipe()
    if not before:
        with pytest.raises(EndedForGood, match="useless; the model after 2 of 5 rounds"):
            serve(pipe)
        assert pipe.ended is None  # its operator may still mend the cause
        ask_to_finish(env.folder / "server", now=False)
    served = serve(pipe)
    assert [record.round for record in served.rounds] == [1, 2]
    assert pipe.ended == 2
    assert [paid_rounds(env, site) for site in range(3)] == [3, 3, 3]
    assert left(env)[0] == pytest.approx(3 / ROUNDS * client_runs(env.agreement.planned)[0])
    assert weights_of(env.folder / "server").keys() == served.weights.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("channel", "now"), [("named", True), ("sum", False)])
def test_what_is_paid_and_due_after_training_is_run_unless_it_ends_now(
    tmp_path: Path, channel: str, now: bool
) -> None:
    """Rounds: 1 measures, 2 to 5 train, 6 to 8 train the intercept, 9 and 10 evaluate."""
    shares = (*STAGED, "evaluation_share=0.05", "rounds=10")
    env = environment_of(tmp_path, *shares, channel=channel)
    served = env.serve(env.pipe(), finish_after(env, 3, now=now))
    made = [1, 2, 3] if now else [1, 2, 3, 6, 7, 8, 9, 10]
    assert [record.round for record in served.rounds] == made
    assert {round for round, _ in env.releases(0)} == set(made)
    assert served.watch.document()["rounds"] == {"done": len(made), "of": 10}
    said = [each.values["sums"] for each in served.privacy.warnings if each.kind == STAGE.name]
    assert said == ["measure", "train", *([] if now else ["intercept", "look", "question"])]
    assert (COUNT_NOISE.name in {each.kind for each in served.privacy.warnings}) != now
    spent = env.ledger(0).spent()
    _, whole = env.policies[0].costs(env.agreement)
    assert spent < whole
    line = person_line(env, served.privacy)
    assert line.epsilon is not None
    budget = Budget("zcdp", math.inf, "person")
    prices = [budget.price(env.agreement.events_of(0, round)[0]) for round in made]
    assert spent == pytest.approx(sum(prices))
    assert line.epsilon < 1.9
    again = env.serve(FakePipe({}))
    assert bits(again) == bits(served)


@pytest.mark.slow
def test_what_is_due_and_not_paid_is_left_out_and_the_sites_are_told(tmp_path: Path) -> None:
    """Rounds as above; the budgets pay seven, so that one of the intercept's is refused."""
    shares, budget = (
        (*STAGED, "evaluation_share=0.05", "rounds=10"),
        Budget("zcdp", math.inf, "person"),
    )
    for name in ("free", "world"):
        (tmp_path / name).mkdir()
    free = environment_of(tmp_path / "free", *shares).agreement
    prices = [budget.price(free.events_of(0, round)[0]) for round in range(1, 11)]
    limit = sum(prices[:7]) + 0.5 * prices[7]
    terms = {"budget": None, "person_budget": {"kind": "zcdp", "limit": limit, "unit": "person"}}
    env = environment_of(tmp_path / "world", *shares, policy=terms, enough=7)
    with pytest.raises(EndedForGood, match="used up"):
        env.server().serve(env.pipe(), lambda record: None)
    ask_to_finish(env.folder / "server", now=False)
    pipe = env.pipe()
    served = env.serve(pipe, lambda record: None)
    assert [record.round for record in served.rounds] == list(range(1, 8))
    assert pipe.ended == 7
    assert env.ledger(0).spent() == pytest.approx(sum(prices[:7]))
    assert read_run(env.folder / "server").privacy == served.privacy
    assert status_of_server(env.folder / "server")["rounds"] == {"done": 7, "of": 10}
    again = env.serve(FakePipe({}))  # the sites that were told are gone, and none is asked
    assert again.privacy == served.privacy


@pytest.mark.slow
def test_only_budgets_leave_out_what_is_due(tmp_path: Path) -> None:
    """A folder from an older copy misses rounds that sites released; its end states too little."""
    env = environment_of(tmp_path, *STAGED)
    folder, copy = env.folder / "server", env.folder / "copy"

    def after(record: Any) -> None:
        if record.round == 3:
            shutil.copytree(folder, copy)
        if record.round == 5:
            raise Killed

    with pytest.raises(Killed):
        env.server().serve(env.pipe(), after)
    shutil.rmtree(folder)
    copy.rename(folder)
    ask_to_finish(folder, now=False)
    with pytest.raises(EndedForGood, match="keep refusing"):
        env.server().serve(env.pipe(), lambda record: None)
    assert not is_finished(folder)


@pytest.mark.slow
def test_a_server_that_dies_while_it_ends_goes_on_with_what_is_due(tmp_path: Path) -> None:
    env = environment_of(tmp_path, *STAGED)
    serve_until_killed(env, 4, after=finish_after(env, 2))
    served = env.serve()
    assert [record.round for record in served.rounds] == [1, 2, 4, 5, 6]
    assert [round for round, _ in env.releases(1)] == [1, 2, 4, 5, 6]
