"""A site joins a second study: it adds to its policy, and never begins a second budget unseen."""

from __future__ import annotations

import io
import json
import shutil
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from test_joining import RECIPE, write_table

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.deployment import running, words
from fedldp.deployment.acceptance import Acceptances, policy_for
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.data_ledgers import DataLedgers, check_only, note_ledger
from fedldp.deployment.policy import read_policy
from fedldp.deployment.running import OverHttps, pipe_of
from fedldp.deployment.site import Agent
from fedldp.ledgers.database import Database

FIRST = RECIPE.replace("server/", "one/").replace("num_clients = 2", "num_clients = 1")
SECOND = """
system = "personalized_sound"
num_clients = 1
dataset = "two/patients.csv"
label_column = "relapse"
classes = ["no", "yes"]
ignore_columns = ["patient", "outcome"]
scale_columns = {age = [0, 120]}
rounds = 2
clip = 1.0
epsilon = 4.0
weighting = "uniform"
"""
SITE = "north"
POLICY = Path(SITE, "site.toml")


@pytest.fixture
def deploy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedldp_command: Any
) -> Callable[..., Any]:
    """Return the command, in a folder with one site in one study, and an invite to a second."""
    monkeypatch.chdir(tmp_path)

    def run(*given: str) -> Any:
        return fedldp_command("deploy", *given)

    for place in ("one", "two", SITE):
        write_table(place)
    for place, recipe, port in (("one", FIRST, 8443), ("two", SECOND, 8444)):
        Path(f"{place}.toml").write_text(recipe)
        people = ("--people", "15") if place == "one" else ()
        invite = ("invite", f"{place}.toml", "-o", f"{place}/run.invite", "--channel", "named")
        ok(run(*invite, "--examples", "30", *people, "--url", f"https://localhost:{port}"))
    join = ("join", "one/run.invite", "--site", SITE, "--data", f"{SITE}/patients.csv")
    ok(run(*join, "--budget", "100"))
    text = POLICY.read_text()
    POLICY.write_text(f"# Mine.\n{text}".replace("\nmodels = [", "\nmodels = [  # few\n"))
    return run


def ok(outcome: Any) -> Any:
    """Return the outcome of a command that must succeed."""
    assert outcome.status == 0, outcome.err
    return outcome


def admit(deploy: Callable[..., Any], place: str, *others: str) -> Agreement:
    files = [f"{site}/{site}.join" for site in (SITE, *others)]
    ok(deploy("admit", f"{place}/run.invite", *files, "--yes"))
    return Agreement.read(Path(place, "run.agreement"))


def accept(deploy: Callable[..., Any], *said: str) -> Any:
    return deploy("accept", *said, "--policy", str(POLICY), "--yes")


def test_a_second_study_adds_what_the_policy_lacks_when_that_is_confirmed(
    deploy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = admit(deploy, "one")
    assert accept(deploy, "one/run.agreement").status == 0
    before, files = POLICY.read_text(), sorted(Path(SITE).iterdir())
    again = ("join", "two/run.invite", "--site", SITE)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    outcome = deploy(*again)
    assert outcome.status == 1
    for line in (
        "systems: personalized_sound",
        "study: for this run, {'label_column': 'relapse'}",
        "server: https://localhost:8444, by the authorities of the invite",
    ):
        assert f"adds       {line}" in outcome.out
    assert POLICY.read_text() == before
    assert sorted(Path(SITE).iterdir()) == files
    ok(deploy(*again, "--yes"))
    text, policy = POLICY.read_text(), read_policy(POLICY)
    assert text.startswith("# Mine.\n")
    assert "models = [  # few\n" in text
    was = tomllib.loads(before)
    assert tomllib.loads(text) == {
        **was,
        "systems": ["person_dp_sgd", "personalized_sound"],
        "server": [
            *was["server"],
            {"url": "https://localhost:8444", "ca": policy.server[1].ca.name},
        ],
        "study": [{"invite": policy.study[0].invite, "label_column": "relapse"}],
    }
    assert POLICY.stat().st_mode & 0o777 == 0o600
    # The run has its own column and its own server, which follows from the authorities.
    second = admit(deploy, "two")
    assert second.invite == policy.study[0].invite
    outcome = ok(accept(deploy, "two/run.agreement"))
    assert "https://localhost:8444; labels are in column relapse" in outcome.out
    assert f"run {first.run[:8]} may still spend rho" in outcome.out
    one, two = Acceptances(policy).current()
    assert (one.server, two.server) == ("https://localhost:8443", "https://localhost:8444")
    assert one.allowed(policy)[1].label_column == "outcome"
    assert two.allowed(policy)[1].label_column == "relapse"
    assert one.data != two.data
    agent = Agent(policy)
    assert [(digest, server.url) for digest, server in agent.served().items()] == [
        (first.digest, one.server),
        (second.digest, two.server),
    ]
    members: Any = [agent._runs[each.digest].runtime.members for each in (one, two)]
    labels = [each.examples.labels.tolist() for each in members]
    assert labels[0] == [int(i % 3 > 0) for i in range(30)]
    assert labels[1] == [i % 2 for i in range(30)]


def test_a_running_agent_starts_anew_when_its_policy_changes(
    deploy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command that started it, and not while the policy cannot be read."""
    admit(deploy, "one")
    begun = list[list[str]]()
    monkeypatch.setattr("os.execv", lambda program, arguments: begun.append(arguments))
    started = ["python", "-P", "/bin/fedldp", "deploy", "site", str(POLICY)]
    monkeypatch.setattr("sys.orig_argv", started)
    before, text = read_policy(POLICY), POLICY.read_text()
    running._follow(POLICY, before)
    POLICY.write_text("channels = [")
    running._follow(POLICY, before)
    assert begun == []
    POLICY.write_text(f"{text}\n[[server]]\nurl = 'https://localhost:8444'\nca = 'ca.pem'\n")
    running._follow(POLICY, before)
    assert [each[1:] for each in begun] == [started[1:]]


def test_each_study_has_the_epsilon_that_the_site_chose_for_it(deploy: Callable[..., Any]) -> None:
    """The first study has one that the invite sets for all sites."""
    first = admit(deploy, "one")
    assert accept(deploy, "one/run.agreement").status == 0
    own = SECOND.replace("rounds", 'channel = "sum"\nlargest_epsilon = 8.0\nrounds')
    own = own.replace("num_clients = 1", "num_clients = 2")
    Path("two.toml").write_text(own)
    for number, epsilon in enumerate((2.0, 3.0)):
        Path("two/run.invite").unlink()
        Path("two/run.agreement").unlink(missing_ok=True)
        outcome = deploy(
            *("invite", "two.toml", "-o", "two/run.invite", "--channel", "sum"),
            *("--examples", "60", "--url", "https://localhost:8444"),
        )
        assert outcome.status == 0, outcome.err
        west = ("join", "two/run.invite", "--site", "west", "--epsilon", "4", "--yes")
        data = () if number else ("--data", "two/patients.csv", "--budget", "100")
        ok(deploy(*west, *data))
        again = ("join", "two/run.invite", "--site", SITE, "--yes")
        outcome = ok(deploy(*again, "--epsilon", str(epsilon)))
        assert f"own        epsilon {epsilon:g} per client-run" in outcome.out
        assert ("channels: sum" in outcome.out) == (number == 0)
        assert deploy(*again, "--epsilon", str(epsilon)).status == 0  # it adds nothing twice
        admit(deploy, "two", "west")
        ok(accept(deploy, "two/run.agreement"))
    policy = read_policy(POLICY)
    assert policy.own is None
    assert len(policy.study) == len(policy.server) == 2
    accepted = Acceptances(policy).current()
    owns = [each.allowed(policy)[1].own for each in accepted]
    assert [own and own.epsilon for own in owns] == [None, 2.0, 3.0]
    assert accepted[1].promised[0] < accepted[2].promised[0]
    assert len(Agent(policy).served()) == 3
    # The operator takes the tables of studies away: without its own epsilon, no run goes on.
    for each in accepted[1:]:
        with pytest.raises(PrivacyError, match=r"own.epsilon = None: .* was accepted with [23].0"):
            each.allowed(policy.changed(study=()))
    assert accepted[0].agreement(policy).digest == first.digest


def test_the_last_answer_to_an_invite_counts_however_the_policy_ends(
    deploy: Callable[..., Any],
) -> None:
    """An editor may leave the last line open, and it may be a comment."""
    for end, epsilon in (("", "2"), ("\n# Checked.", "3"), ("", "2"), ("", "2")):
        POLICY.write_text(POLICY.read_text().rstrip() + end)
        again = ("join", "two/run.invite", "--site", SITE, "--yes", "--epsilon", epsilon)
        ok(deploy(*again))
        policy = read_policy(POLICY)
        assert policy.study[-1].own.epsilon == float(epsilon)
    assert len(policy.study) == 3  # the last one added nothing
    assert len(policy.server) == 2


def test_a_budget_counts_one_kind_of_people_whatever_an_invite_calls_a_person(
    deploy: Callable[..., Any],
) -> None:
    """Otherwise, a patient with many visits would be charged once for what each visit protects."""
    recipe = FIRST.replace("one/", "two/").replace('"patient"', '"relapse"')
    recipe = recipe.replace('ignore_columns = ["relapse"]', 'ignore_columns = ["patient"]')
    Path("visits.toml").write_text(recipe)
    outcome = deploy(
        *("invite", "visits.toml", "-o", "two/visits.invite", "--channel", "named"),
        *("--examples", "30", "--people", "15", "--url", "https://localhost:8444"),
    )
    assert outcome.status == 0, outcome.err
    assert 'person_column = "patient"\n' in POLICY.read_text()
    text = POLICY.read_text()
    POLICY.write_text(text.replace('person_column = "patient"\n', ""))
    with pytest.raises(ConfigError, match="person_column is not set: one budget counts one kind"):
        read_policy(POLICY)
    POLICY.write_text(text)
    admit(deploy, "one")
    outcome = accept(deploy, "one/run.agreement")
    assert "labels are in column outcome, people in column patient\n" in outcome.out
    assert deploy("join", "two/visits.invite", "--site", SITE, "--yes").status == 0
    assert deploy("admit", "two/visits.invite", f"{SITE}/{SITE}.join", "--yes").status == 0
    outcome = accept(deploy, "two/visits.agreement")
    agent = Agent(read_policy(POLICY))
    assert "labels are in column outcome, people in column patient\n" in outcome.out
    assert len(agent.served()) == 2
    for run in agent.runs:
        members: Any = run.runtime.members
        assert len(set(members.examples.people.tolist())) == 15


def later(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "setting_of_a_later_version": 1}).encode()


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(lambda content: content[:-40], id="truncated", marks=pytest.mark.slow),
        pytest.param(later, id="later setting"),
    ],
)
def test_an_agreement_that_cannot_be_read_any_more_is_named_and_accepted_again(
    deploy: Callable[..., Any], damaged: Callable[[bytes], bytes]
) -> None:
    first = admit(deploy, "one")
    assert accept(deploy, "one/run.agreement").status == 0
    policy = read_policy(POLICY)
    with Database(policy.ledger).writing() as db:
        change = (damaged(first.to_bytes()), first.digest.hex())
        db.execute("UPDATE agreements SET content = ? WHERE digest = ?", change)
    (found,) = Acceptances(policy).current()
    with pytest.raises(ConfigError, match=f"{first.digest.hex()[:16]}, which was accepted here"):
        found.agreement(policy)
    assert accept(deploy, "one/run.agreement").status == 0
    assert len(Agent(read_policy(POLICY)).served()) == 1


def test_a_second_study_cannot_take_what_the_budget_lacks(deploy: Callable[..., Any]) -> None:
    POLICY.write_text(POLICY.read_text().replace("limit = 100.0", "limit = 0.5"))
    admit(deploy, "one")
    assert accept(deploy, "one/run.agreement").status == 0
    assert deploy("join", "two/run.invite", "--site", SITE, "--yes").status == 0
    admit(deploy, "two")
    line = accept(deploy, "two/run.agreement").assert_refused()
    assert "what is left of this site's budgets (run " in line
    assert "covers only" in line


def test_a_server_of_neither_study_runs_none_of_them(deploy: Callable[..., Any]) -> None:
    assert deploy("join", "two/run.invite", "--site", SITE, "--yes").status == 0
    agreement, policy = admit(deploy, "two"), read_policy(POLICY)
    one, two = policy.server
    assert policy_for(policy, agreement).server == (two,)
    assert policy_for(policy, agreement, one.url).server == (one,)
    with pytest.raises(PrivacyError, match="an authority that the agreement does not name"):
        policy_for(policy, agreement, one.url).check(agreement)
    line = accept(deploy, "two/run.agreement", "--server", "https://else").assert_refused()
    assert "none of this site's servers" in line
    shutil.copy(one.ca, two.ca)
    line = accept(deploy, "two/run.agreement").assert_refused()
    assert "none of this site's servers" in line


@pytest.mark.slow
def test_each_server_is_asked_for_the_agreement_with_the_words(
    deploy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    first = admit(deploy, "one")
    assert deploy("join", "two/run.invite", "--site", SITE, "--yes").status == 0
    second = admit(deploy, "two")
    reached = [
        OverHttps("127.0.0.1:0", Path(place, "server.pem"), Path(place, "server.key"))
        for place in ("one", "two")
    ]
    ends = [each.listener(Path(place)) for place, each in zip(("one", "two"), reached, strict=True)]
    with ExitStack() as stack:
        for end, agreement in zip(ends, (first, second), strict=True):
            stack.enter_context(end.opened())
            stack.enter_context(end.serving(pipe_of(agreement, end.known_keys)))
        for port, end in zip((8443, 8444), ends, strict=True):
            text = POLICY.read_text().replace(f":{port}", f":{end.address[1]}")
            POLICY.write_text(text)
        for agreement, end in ((second, ends[1]), (first, ends[0])):
            ok(accept(deploy, *words.words_of(agreement.digest).split()))
            found = Acceptances(read_policy(POLICY)).of(agreement.digest)
            assert found.server == f"https://localhost:{end.address[1]}"


def test_a_second_ledger_for_a_table_is_declared_and_an_act_in_both(
    deploy: Callable[..., Any],
) -> None:
    table = Path(SITE, "patients.csv")
    (own,) = DataLedgers.of(table).ledgers
    assert own.key == Path(SITE, f"{SITE}.pub").read_text().strip()
    admit(deploy, "one")
    assert accept(deploy, "one/run.agreement").status == 0
    link = Path("link.csv")
    link.symlink_to(table)
    for data in (link, table):
        other = ("join", "two/run.invite", "--site", "other", "--data", str(data), "--budget", "9")
        line = deploy(*other).assert_refused()
        assert f"the ledger of another site's folder (key {own.key[:16]})" in line
    assert not Path("other").exists()
    assert deploy(*other, "--second-ledger").status == 0
    assert [each.second for each in DataLedgers.of(table).ledgers] == [False, True]
    # The first folder goes on, and so does the second: each is told of the other.
    assert deploy("join", "two/run.invite", "--site", SITE, "--yes").status == 0
    assert len(DataLedgers.of(table).ledgers) == 2
    assert deploy("admit", "two/run.invite", "other/other.join", "--yes").status == 0
    outcome = deploy("accept", "two/run.agreement", "--policy", "other/site.toml", "--yes")
    assert f"another ledger counts these data too: key {own.key[:16]}" in outcome.out
    Agent(read_policy(POLICY))
    Agent(read_policy(POLICY))
    keys = [each.key for each in DataLedgers.of(table).ledgers]
    for folder, key in ((SITE, keys[1]), ("other", keys[0])):
        acts = Database(Path(folder, "state", "site.db")).history()
        said = [act["words"] for act in acts if act["what"] == "second ledger"]
        assert [each.split(",")[0] for each in said] == [f"key {key[:16]}"]
    damaged = table.with_name("patients.csv.ledger")
    damaged.write_text(damaged.read_text().replace(keys[0], keys[1], 1))
    line = deploy("join", "two/run.invite", "--site", SITE, "--yes").assert_refused()
    assert "it was changed after the site signed it" in line
    Agent(read_policy(POLICY))  # whoever writes there cannot stop the agent


def test_of_two_sites_that_join_at_once_with_one_table_one_is_refused(tmp_path: Path) -> None:
    """Both saw no other ledger; whoever notes its own second has not declared a second one."""
    table = tmp_path / "patients.csv"
    table.write_text("a,b\n1,2\n")
    first, later = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    for _ in (first, later):
        check_only(table, (), second=False)
    assert note_ledger(table, [first], second=False)
    with pytest.raises(ConfigError, match="would spend a second budget on the same people"):
        note_ledger(table, [later], second=False)
    assert [each.second for each in DataLedgers.of(table).ledgers] == [False]
    assert note_ledger(table, [later], second=True)
    assert [each.second for each in DataLedgers.of(table).ledgers] == [False, True]
