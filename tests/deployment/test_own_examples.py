"""What a site trains on, with features and frozen weights: it is as agreed, and stays hidden."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import partly_frozen
import pytest
from environments import (
    Environment,
    asks,
    at_once,
    bits,
    bits_of,
    changes_database,
    make_environment,
    write_policy,
)
from safetensors.numpy import save_file
from test_people_of_sites import environment_of

from fedldp import recipe
from fedldp.accounting.statement import Statement
from fedldp.algorithms.problem import Problem
from fedldp.cli.deploy import input_of
from fedldp.core.errors import ConfigError, DataError, LedgerUnusable, PrivacyError, RunError
from fedldp.core.kinds import SIMULATED
from fedldp.data import Columns
from fedldp.deployment import server
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.messages import (
    NO_RECEIPT,
    read_message,
)
from fedldp.deployment.site import Agent
from fedldp.deployment.source import open_source
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.wire import Report, read_reply, read_request
from fedldp.reporting.card import schema, write_card
from fedldp.simulation.engine import simulate
from fedldp.simulation.result import read_run

SOUND = ("mechanism=nearest_direction", "num_examples=90")


def sound_environment(folder: Path, **given: Any) -> Environment:
    return make_environment(folder, *SOUND, recipe="ldpfl-sound-digits", seeded=False, **given)


def data_of(env: Environment, index: int = 0) -> dict[str, np.ndarray]:
    with np.load(env.policies[index].data) as found:
        return dict(found)


def keep(env: Environment, features: np.ndarray, labels: np.ndarray) -> None:
    """Change a site's data, and accept the agreement with them."""
    np.savez(env.policies[0].data, features=features, labels=labels)
    accept(env.policies[0], env.agreement)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 60])
def test_a_report_does_not_reveal_how_many_examples_its_site_has(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path)
    own = data_of(env)
    keep(env, *(np.resize(own[name], (count, *own[name].shape[1:])) for name in own))
    pipe = env.pipe()
    env.serve(pipe)
    reports = 0
    for node, asked, answer in pipe.seen:
        if node != 0:
            continue
        message = read_message(answer or b"")
        report = read_reply(message.answer)[2]
        assert isinstance(report, Report)
        # Without an example in a round, the report would equal what the server sent.
        told = read_request(read_message(asked).request).broadcast.weights
        assert report.payload != told.tobytes()
        assert len(report.payload) == told.nbytes
        reports += 1
    assert reports == 2
    missing = 30 - count
    assert (f"{missing} examples of zeros are added" in caplog.text) == (missing > 0)
    assert ("(at most 30 per site)" in caplog.text) == (missing < 0)


@pytest.mark.slow
def test_data_that_change_during_a_run_are_refused_if_an_example_is_charged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path, quorum=2, deadline=2.0)
    own = data_of(env)
    backwards = (own["features"][::-1], own["labels"][::-1])
    pipe = env.pipe()

    def begun(agent: Agent) -> bool:
        return list(agent.served()) == [env.agreement.digest]

    assert begun(env.agent(0))
    keep(env, *backwards)
    assert begun(env.agent(0))  # nothing has been released yet
    keep(env, own["features"], own["labels"])
    pipe.agents[0] = env.agent(0).answer
    rounds: list[int] = []

    def after(record: Any) -> None:
        if record.round == 1:
            keep(env, *backwards)
            pipe.agents[0] = env.agent(0).answer
        rounds.append(record.round)

    env.server().serve(pipe, after)
    assert rounds[0] == 1
    assert env.releases(0) == [(1, 0)]
    assert "or their order changed since the run began" in caplog.text
    assert not begun(env.agent(0))
    keep(env, own["features"], own["labels"])
    assert begun(env.agent(0))


@pytest.mark.slow
def test_the_record_of_the_examples_may_not_be_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path)
    env.serve()
    changes_database(env.policies[0], "DELETE FROM kept WHERE name = 'examples'")
    assert env.agent(0).served() == {}
    assert "that the run began with is missing" in caplog.text


def test_files_kept_for_other_examples_are_all_deleted_or_the_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path)
    own = data_of(env)
    assert env.agent(0).served()
    keep(env, own["features"][::-1], own["labels"][::-1])

    def refuse(*_: Any) -> None:
        raise LedgerUnusable("Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteLedger, "forget", refuse)
        assert env.agent(0).served() == {}
    assert "cannot be used: Permission denied" in caplog.text
    assert env.agent(0).served()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "drawn"),
    [((), False), (("rows_per_person=8",), False), (("rows_per_person=2",), True),
     (("held_out_people=0.2",), True)],
)  # fmt: skip
def test_a_withdrawal_is_accepted_unless_something_was_drawn_by_the_rows_places(
    settings: tuple[str, ...], drawn: bool, tmp_path: Path, fedldp_command: Any
) -> None:
    """Another row is corrected as well; nobody has more than eight rows."""
    env = environment_of(tmp_path, *settings, seeded=False)
    policy = env.policies[0]
    own = {name: np.repeat(each, 2, axis=0) for name, each in data_of(env).items()}
    np.savez(policy.data, **own)  # type: ignore[arg-type]
    accept(policy, env.agreement)
    pipe = env.pipe()
    stays = own["groups"] != own["groups"][0]
    later = {name: each[stays] for name, each in own.items()}
    later["labels"][0] = 1 - later["labels"][0]
    (tmp_path / "run.agreement").write_bytes(env.agreement.to_bytes())
    place = policy.key.parent / "site.toml"

    def after(record: Any) -> None:
        if record.round > 1:
            return
        np.savez(policy.data, **later)  # type: ignore[arg-type]
        assert env.agent(0).served() == {}  # it is not the data of the acceptance
        accepted = fedldp_command(
            "deploy", "accept", tmp_path / "run.agreement", "--policy", place, "--yes"
        )
        if drawn:
            assert "take part in a new run" in accepted.assert_refused()
            np.savez(policy.data, **own)  # type: ignore[arg-type]
        else:
            assert "what was released before stays" in accepted.out
        pipe.agents[0] = env.agent(0).answer

    env.server().serve(pipe, after)
    assert env.releases(0) == [(1, 0), (2, 0)]


@pytest.mark.slow
def test_simultaneous_requests_do_not_reveal_how_long_each_took(tmp_path: Path) -> None:
    fixed = 0.4
    policy = {"answer_after_seconds": fixed}
    env = make_environment(tmp_path, "rounds=1", seeded=False, policy=policy)
    agent, pipe = env.agent(0), env.pipe()
    env.serve(pipe)
    body = next(asked for node, asked, _ in pipe.seen if node == 0 and asks(asked))
    start, left = time.monotonic(), list[float]()

    def ask() -> None:
        agent.answer(body)
        left.append(time.monotonic() - start)

    at_once(*[ask] * 4)
    # Answers leave one by one, each with its own delay; otherwise all but the first, which take no
    # time, would arrive together with it.
    assert all(when >= turn * fixed for turn, when in enumerate(sorted(left), 1))


@pytest.mark.slow
def test_a_hello_does_not_reveal_that_an_answer_waits_to_leave(tmp_path: Path) -> None:
    policy = {"answer_after_seconds": 2.0}
    env = make_environment(tmp_path, "rounds=1", seeded=False, policy=policy, deadline=20.0)
    pipe, agent = env.pipe(), env.agent(0)
    told: list[tuple[bytes, bool]] = []
    answered: list[bytes] = []

    def receipt() -> bytes:
        assert list(agent.served()) == [env.agreement.digest]
        return agent.receipt(env.agreement.digest)

    def observed_all_the_while(body: bytes) -> bytes:
        answering = threading.Thread(target=lambda: answered.append(agent.answer(body)))
        answering.start()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            charged = bool(env.releases(0))
            told.append((receipt(), charged))
            time.sleep(0.05)
        assert not answered
        answering.join()
        return answered[0]

    pipe.agents[0] = observed_all_the_while
    env.serve(pipe)
    assert {found for found, _ in told} == {NO_RECEIPT}
    assert any(charged for _, charged in told)
    message = read_message(answered[0])
    assert receipt() == message.receipt != NO_RECEIPT


FEATURED = ("features=oriented-gradients", "model=logistic", "rounds=2")


@pytest.mark.slow
def test_a_site_imports_a_function_only_if_its_policy_lists_it(tmp_path: Path) -> None:
    own = "own_features:rows"
    settings = (*FEATURED[1:], f"features={own}")
    env = make_environment(tmp_path, *settings, policy={"features": [own]})
    content = env.agreement.to_bytes()
    assert Agreement.parse(content, own=env.policies[0].own_code).digest == env.agreement.digest
    with pytest.raises(ConfigError, match="add it to features in the site's policy"):
        Agreement.parse(content)
    assert env.serve().weights.keys() == simulate(env.config, device="cpu").weights.keys()
    env.policies[0].check(env.agreement)
    other = write_policy(tmp_path / "site-0", features=["pose"])
    with pytest.raises(PrivacyError, match="features = pose: the agreement has own_features:rows"):
        other.check(env.agreement)


@pytest.mark.slow
def test_a_site_reads_a_file_only_if_its_policy_lists_it_and_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("axes.npy", np.eye(64)[:, :12])
    of_file = "public-axes:axes.npy"
    settings = (*FEATURED[1:], f"features={of_file}")
    env = make_environment(tmp_path, *settings, policy={"features": [of_file]})
    content, own = env.agreement.to_bytes(), env.policies[0].own_code
    assert Agreement.parse(content, own=own).digest == env.agreement.digest
    assert env.serve().weights.keys() == simulate(env.config, device="cpu").weights.keys()
    with pytest.raises(
        ConfigError, match="would read this file on your machine; to allow that, add it to feat"
    ):
        Agreement.parse(content)
    with pytest.raises(PrivacyError, match=f"the agreement has {of_file}, which"):
        write_policy(tmp_path / "site-0").check(env.agreement)
    np.save("axes.npy", 2 * np.eye(64)[:, :12])
    with pytest.raises(
        ConfigError,
        match=r"the digest of its features differs .* give each party the same file axes.npy",
    ):
        Agreement.parse(content, own=own)
    Path("axes.npy").unlink()
    with pytest.raises(ConfigError, match=r"there is no file axes\.npy in the current folder"):
        Agreement.parse(content, own=own)


AGREED = Columns(
    scaled={"age": (0.0, 100.0)}, categories={"sex": ("f", "m")}, classes=("no", "yes")
)


def test_a_sites_table_is_read_as_agreed(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("age,sex,ill\n50,f,yes\n,m,no\n100,m,maybe\n0,m,no\n")
    source = open_source(path, "ill")
    assert str(source) == "4 rows of 3 columns"
    examples = source.examples(AGREED)
    assert examples.features.tolist() == [[0.5, 1, 0], [0, 0, 1]]
    assert examples.labels.tolist() == [1, 0]
    # The site's own operator learns what nobody else may know.
    with pytest.raises(DataError, match="line 3: column 'age' holds ''"):
        source.examples(AGREED, leave_out=False)


def test_a_sites_columns_are_found_by_the_agreed_names(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("sex,ill,age\nf,yes,50\n")
    features = ("age", "sex=f", "sex=m")
    assert open_source(path, "ill").examples(AGREED, features).features.tolist() == [[0.5, 1, 0]]
    with pytest.raises(ConfigError, match="the model needs the column 'pressure'"):
        open_source(path, "ill").examples(AGREED, ("pressure", *features))


def test_names_of_features_are_agreed_on_and_kept_with_the_model(tmp_path: Path) -> None:
    assert input_of("age,sex=f, sex=m") == ((3,), ("age", "sex=f", "sex=m"))
    assert input_of("1x8x8") == ((1, 8, 8), None)
    config = recipe("fedavg-quickstart", model="logistic", standardise=False)
    names = tuple(f"pixel {i}" for i in range(64))
    made = agree(config, Problem((64,), 10, 99, features=names), {"a": "0" * 64}, channel="named")
    read = Agreement.parse(made.to_bytes())
    assert read.problem.features == names
    assert read.digest == made.digest
    assert server._schema(read).features == names
    with pytest.raises(ConfigError, match="give one name for each number of an example"):
        agree(config, Problem((64,), 10, 99, features=names[1:]), {"a": "0" * 64}, channel="named")


@pytest.mark.slow
def test_a_deployed_run_has_a_card_and_its_sites_have_none(tmp_path: Path) -> None:
    served = make_environment(tmp_path, seeded=False).serve()
    _, document = write_card(read_run(served.folder.path))
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
    assert document["run"]["simulated"] is False
    shown = Statement.from_json(document)
    assert SIMULATED not in shown.warnings
    first, *others = shown.guarantees  # all of the run, the widest unit first
    assert (first.unit, first.adversary) == ("client-run", "server")
    assert {first, *others} == set(served.privacy.guarantees)
    assert "/registry/deployment_model/data_source_type" in document["to_be_filled"]["fields"]
    assert "only reports leave" in document["hazards"]["data_collection_exposure"]["finding"]
    assert "A simulation" not in (served.folder.path / "card" / "README.md").read_text()
    with pytest.raises(RunError, match="not a run folder"):
        write_card(read_run(tmp_path / "site-0"))


NORMED = "partly_frozen:normed"
SETTINGS = (f"model={NORMED}", "trainable=head")


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_sites_do_what_a_simulation_does_bit_for_bit(tmp_path: Path, channel: str) -> None:
    env = make_environment(tmp_path, *SETTINGS, channel=channel, policy={"models": [NORMED]})
    pipe = env.pipe()
    served, simulated = env.serve(pipe), simulate(env.config)
    assert bits(served) == bits(simulated)
    frozen = simulated.config.algorithm(env.inputs.problem).frozen()
    assert set(served.weights) == {*frozen, "head.weight", "head.bias"}
    passed = b"".join(body or b"" for _, asked, answer in pipe.seen for body in (asked, answer))
    assert frozen["encoder.1.weight"].tobytes()[:32] not in passed
    assert bits_of(env.folder / "server" / "model.safetensors") == bits(served)
    noted = json.loads((env.folder / "server" / "config.json").read_text())
    assert noted["frozen"] == env.agreement.frozen


def test_a_site_with_another_encoder_does_not_take_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path, *SETTINGS, policy={"models": [NORMED]})
    document = env.agreement.document
    content = json.dumps(document).encode()
    assert Agreement.parse(content, own=[NORMED]).digest == env.agreement.digest
    env.policies[0].check(env.agreement)
    monkeypatch.setattr(partly_frozen, "normed", partly_frozen.another_encoder)
    with pytest.raises(ConfigError, match=r"^trainable = head: the frozen parameters of model"):
        env.policies[0].check(env.agreement)
    assert env.agent(0)._run(env.agreement.digest) is None
    with pytest.raises(ConfigError, match="was agreed on; give each party the same model"):
        env.server()
    without = env.agreement.changed(frozen=None)
    with pytest.raises(ConfigError, match="but None was agreed on"):
        without.check()


def test_a_site_reads_a_file_of_weights_only_if_its_policy_lists_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights: dict[str, Any] = {
        "1.weight": np.full((256, 64), 0.01, np.float32), "1.bias": np.zeros(256, np.float32),
    }  # fmt: skip
    save_file(weights, "encoder.safetensors")
    settings = ("model=mlp", "trainable=head", "initial=encoder.safetensors")
    listed = {"models": ["mlp", "encoder.safetensors"]}
    env = make_environment(tmp_path / "world", *settings, policy=listed)
    content, own = env.agreement.to_bytes(), env.policies[0].own_code
    assert Agreement.parse(content, own=own).digest == env.agreement.digest
    env.policies[0].check(env.agreement)
    with pytest.raises(
        ConfigError,
        match="would read this file on your machine; to allow that, add it to models",
    ):
        Agreement.parse(content)
    with pytest.raises(PrivacyError, match=r"the agreement has encoder.safetensors, which"):
        write_policy(tmp_path / "world" / "site-0").check(env.agreement)
    save_file({**weights, "1.bias": np.ones(256, np.float32)}, "encoder.safetensors")
    with pytest.raises(ConfigError, match=r"the frozen parameters of model = mlp have the digest"):
        env.policies[0].check(env.agreement)


def test_a_file_is_given_in_one_place_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the file as deploy invite --initial"):
        make_environment(tmp_path / "one", "model=mlp", "initial=encoder.safetensors")
    with pytest.raises(ConfigError, match="set initial to the file in the configuration"):
        make_environment(tmp_path / "two", "model=mlp", "trainable=head", initial="0" * 64)
