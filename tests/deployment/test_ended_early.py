"""A deployed run that ends early leaves its model, its report, and a true statement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Body, Environment, Killed, asks, bits, make_environment

from fedldp.accounting.accountants import releases_nothing
from fedldp.accounting.statement import Statement
from fedldp.core.errors import EndedForGood
from fedldp.core.kinds import ENDED, NOT_FINISHED
from fedldp.deployment.initial import digest_of_file
from fedldp.deployment.status import status_of_server, status_of_site
from fedldp.protocol.wire import read_arrays
from fedldp.simulation.recorded import load_trained, read_run, weights_of

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
    return sum(entry.cost > 0 and entry.run == own for entry in env.ledger(site).verify())


def assert_usable(env: Environment, rounds: int, fedldp_command: Any) -> None:
    """Check that the commands read the folder, and that the model is the checkpoint's."""
    folder, after = env.folder / "server", f"after {rounds} of {ROUNDS} rounds"
    saved = dict(read_arrays((folder / "checkpoint").read_bytes()))["weights"]
    found = weights_of(folder)
    assert np.concatenate([each.ravel() for each in found.values()]).tobytes() == saved.tobytes()
    so_far = load_trained(folder).so_far
    assert so_far is not None
    assert so_far.values == {"done": rounds, "of": ROUNDS}
    digest_of_file(folder, env.agreement.layout)  # --initial takes the folder
    test = env.folder / "test.npz"
    examples = env.inputs.dataset.test
    np.savez(test, features=examples.features, labels=examples.labels)
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
        env.server().serve(env.pipe(), lambda record: None, None)
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


def test_the_statement_has_the_round_in_which_only_some_could_pay(tmp_path: Path) -> None:
    """The server has seen the last report of the sites that could."""
    env = environment(tmp_path, paid=2, richer=[0])
    with pytest.raises(EndedForGood):
        env.serve()
    assert [paid_rounds(env, site) for site in range(3)] == [3, 2, 2]
    whole = client_runs(env.agreement.planned)
    assert max(left(env)) == pytest.approx(whole[0] * 3 / ROUNDS)


def test_without_a_complete_round_there_is_no_model(tmp_path: Path) -> None:
    env = environment(tmp_path, paid=0)
    with pytest.raises(EndedForGood) as found:
        env.serve()
    assert "the model" not in str(found.value)
    assert "there is no model" in status_of_server(env.folder / "server")["next"]
