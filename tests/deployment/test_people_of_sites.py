"""Sites that protect people: their reports, their cost, and what a round must not reveal."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    Environment,
    ask,
    ask_bytes,
    asks,
    assert_each_once,
    bits,
    content,
    make_environment,
    request_of,
    write_policy,
)
from safetensors.numpy import save_file
from typer.testing import CliRunner

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.cli import app
from fedldp.core.errors import ConfigError, DataError
from fedldp.core.kinds import TRAINED_ON
from fedldp.data import Columns
from fedldp.data.label_range import STEPS, LabelRange
from fedldp.deployment import running
from fedldp.deployment.acceptance import accept, payable
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.checks import check_data
from fedldp.deployment.demo import DemoEnvironment
from fedldp.deployment.initial import write_initial
from fedldp.deployment.messages import Answered, read_message
from fedldp.deployment.restored import charge_lost
from fedldp.deployment.source import NO_CLASS, open_source
from fedldp.ledgers.budget import Budget
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.protocol.client_runtime import digest_of_weights
from fedldp.protocol.server_loop import asked_of
from fedldp.protocol.wire import Report
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import resolve

BUDGET = {"kind": "zcdp", "limit": 5.0, "unit": "person"}
PERSONS = {"budget": None, "person_budget": BUDGET}
AGAINST = {"named": "server", "sum": "summing-server"}


def write_people(folder: Path, count: int = 45, *, numbers: bool = False) -> list[str]:
    """Write examples of people who have one to four rows each; return the settings that name
    them."""
    rng = np.random.default_rng(0)
    whose = np.repeat(np.arange(count), rng.integers(1, 5, count))
    features = rng.random((len(whose), 4), np.float32)
    labels = 30 * features[:, 0] if numbers else (features[:, 0] > 0.5).astype(int)
    tested = 1.5 * np.arange(20) if numbers else np.arange(20) % 2
    others = count + np.arange(20)
    people, test = folder / "people.npz", folder / "test.npz"
    np.savez(people, features=features, labels=labels, groups=whose)
    np.savez(test, features=features[:20], labels=tested, groups=others)
    return [f"dataset={people}", f"test_file={test}"]


def environment_of(
    folder: Path,
    *settings: str,
    channel: str = "named",
    recipe: str = "person-dp-sgd-digits",
    **given: Any,
) -> Environment:
    return make_environment(
        folder,
        *write_people(folder, numbers=given.pop("numbers", False)),
        "model=logistic",
        "num_examples=",
        f"channel={channel}",
        "epsilon=2.0",
        *settings,
        recipe=recipe,
        channel=channel,
        deadline=60.0,
        **{"policy": PERSONS, **given},
    )


def person_line(env: Environment, stated: Statement) -> Guarantee:
    """Return the line for a person against whoever sees what the channel shows."""
    against = AGAINST[env.agreement.channel]
    lines = stated.guarantees
    (line,) = [each for each in lines if (each.unit, each.adversary) == ("person", against)]
    assert line.epsilon is not None
    return line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "settings"),
    [("sum", ()), ("named", ("class_weights=[0.2, 1.0]", "model=mlp_64", "rows_per_person=2"))],
)
def test_the_sites_model_is_that_of_the_simulation(
    tmp_path: Path, channel: str, settings: tuple[str, ...]
) -> None:
    env = environment_of(tmp_path, *settings, channel=channel)
    pipe = env.pipe()
    served = env.serve(pipe)
    assert bits(served) == bits(simulate(env.config))
    assert_each_once(env, pipe)
    line = person_line(env, served.privacy)
    assert 1.9 < line.epsilon <= 2
    assert line.neighbours == "replace-person"
    release, run = env.policies[0].costs(env.agreement)
    for index in range(3):
        assert env.ledger(index).spent() == pytest.approx(2 * release)
    assert 0 < release < run == pytest.approx(2 * release)


def test_a_site_with_many_more_people_than_the_run_states_learns_so_beforehand(
    tmp_path: Path,
) -> None:
    """A sum of so many would not fit its modulus, and each count in it would be wrong."""
    env = environment_of(tmp_path)
    with np.load(env.policies[0].data) as data:
        own = len(np.unique(data["groups"]))
    for stated, fits in (((own + 1) // 2, True), (own // 2 - 1, False)):
        problem = replace(env.agreement.problem, people=stated)
        agreement = env.agreement.changed(problem=problem)
        if fits:
            check_data(env.policies[0], agreement)
            continue
        with pytest.raises(ConfigError, match=f"from {own} people, but .* have about {stated};"):
            check_data(env.policies[0], agreement)


STAGED = (
    "model=linear", "features=unit-norm", "rounds=6", "measure_share=0.1", "intercept_share=0.05",
    "server_optimizer=none",
)  # fmt: skip
OF_NUMBERS = ("label_range=[0, 30]", "label_typical=4")


def test_sites_that_predict_numbers_give_labels_in_their_own_unit(tmp_path: Path) -> None:
    env = environment_of(tmp_path, *STAGED, "intercept_share=0", *OF_NUMBERS, numbers=True)
    assert env.policies[0].data.suffix == ".npz"
    with np.load(env.policies[0].data) as own:
        assert 1 < own["labels"].max() <= 30


@pytest.mark.parametrize(
    ("labels", "places", "classes"),
    [
        ([0, 7, 3], [0, 7 / 30, 0.1], [0, 7, 3]),
        ([1.5, -2, 40], [0.05, 0, 1], [None, None, 40]),
        (["2", "0", "30"], [1 / 15, 0, 1], [2, 0, 30]),
        ([2.0**31, 5, 1e300], [1, 1 / 6, 1], [None, 5, None]),
    ],
)
def test_labels_of_arrays_fit_a_run_about_numbers_or_about_classes(
    tmp_path: Path, labels: list[Any], places: list[float], classes: list[int | None]
) -> None:
    np.savez(tmp_path / "own.npz", features=np.eye(3), labels=labels)
    source = open_source(tmp_path / "own.npz", "label")
    found = source.examples(Columns(label_range=LabelRange(0, 30))).labels
    assert found.tolist() == np.rint(np.array(places) * STEPS).tolist()
    assert source.left_out(Columns(label_range=LabelRange(0, 30)), None, STEPS + 1) == (0, {})
    of_classes = source.examples(Columns()).labels.tolist()
    assert of_classes == [NO_CLASS if each is None else each for each in classes]
    count, reasons = source.left_out(Columns(), None, 8)
    unknown, beyond = classes.count(None), sum(each is not None and each > 7 for each in classes)
    assert count == unknown + beyond
    assert len(reasons.get("a label that is no integer from 0", ())) == unknown
    assert len(reasons.get("a label above 7", ())) == beyond


@pytest.mark.parametrize("bad", [np.nan, np.inf, "high"])
def test_labels_of_arrays_that_fit_no_run_are_refused_when_they_are_read(
    tmp_path: Path, bad: Any
) -> None:
    np.savez(tmp_path / "own.npz", features=np.eye(3), labels=[1, 0, bad])
    with pytest.raises(DataError, match=r"own\.npz: the label of row 2 is"):
        open_source(tmp_path / "own.npz", "label")


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_sites_run_stages_like_the_simulation_and_pay_each_at_its_own_price(
    tmp_path: Path, channel: str
) -> None:
    env = environment_of(tmp_path, *STAGED, channel=channel)
    pipe = env.pipe()
    served = env.serve(pipe)
    assert bits(served) == bits(simulate(env.config))
    phases = range(1 if channel == "named" else 4)
    for index in range(3):
        assert env.releases(index) == [(r, phase) for r in range(1, 7) for phase in phases]
    line = person_line(env, served.privacy)
    assert 1.9 < line.epsilon <= 2
    dearest, run = env.policies[0].costs(env.agreement)
    budget = Budget("zcdp", math.inf, "person")
    prices = [budget.price(env.agreement.events_of(0, round)[0]) for round in range(1, 7)]
    assert len(set(prices)) == 3  # one event for each stage
    assert dearest == max(prices)
    for index in range(3):
        ledger = env.ledger(index)
        assert ledger.spent() == pytest.approx(run) == pytest.approx(sum(prices))
        paid = [entry.event for entry in ledger.releases() if budget.price(entry.event)]
        assert [budget.price(event) for event in paid] == prices
    shares = [price * len(rounds) / sum(prices) for price, rounds in (
        (prices[0], [1]), (prices[1], [2, 3]), (prices[3], [4, 5, 6])
    )]  # fmt: skip
    assert shares == pytest.approx([0.1, 0.85, 0.05], rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("pays", [0, 2, 6])
def test_a_site_knows_how_many_rounds_of_all_stages_its_budget_pays(
    tmp_path: Path, pays: int
) -> None:
    """The ledger, which grants just as many, is the oracle; before and after every round."""
    staged = [*STAGED, "measure_share=0.03"]
    for name in ("free", "world"):
        (tmp_path / name).mkdir()
    free = environment_of(tmp_path / "free", *staged)
    budget = Budget("zcdp", math.inf, "person")
    prices = [budget.price(free.agreement.events_of(0, round)[0]) for round in range(1, 7)]
    assert min(prices) < prices[0] < max(prices)
    limit = sum(prices[:pays]) + 0.5 * min(prices)
    terms = {"budget": None, "person_budget": {**BUDGET, "limit": limit}}
    if not pays:
        with pytest.raises(ConfigError, match="covers only 0 of the 6 rounds"):
            environment_of(tmp_path / "world", *staged, policy=terms)
        return
    env = environment_of(tmp_path / "world", *staged, policy=terms, enough=pays)
    agent, granted = env.agent(0), 0
    for round in range(1, 7):
        can_pay = payable(env.policies[0], env.agreement)
        assert (can_pay.paid, can_pay.of) == (pays, 6)
        granted += isinstance(content(ask(agent, env, request_of(env, round))), Report)
    assert granted == pays


@pytest.mark.slow
def test_a_restored_site_is_charged_every_lost_round_at_its_stages_price(tmp_path: Path) -> None:
    env = environment_of(tmp_path, *STAGED)
    ledger, copy = env.policies[0].ledger, tmp_path / "copy"
    env.agent(0)
    shutil.copy(ledger, copy)
    env.serve()
    spent = env.ledger(0).spent()
    assert spent == pytest.approx(env.policies[0].costs(env.agreement)[1])
    shutil.copy(copy, ledger)
    (lost,) = charge_lost(env.policies[0], [])
    assert lost.rounds == 6
    assert env.ledger(0).spent() == pytest.approx(spent)


@pytest.mark.slow
def test_no_round_reveals_that_a_site_has_few_people(tmp_path: Path) -> None:
    """Its answers have the same length as those of other sites, and arrive in the same way."""
    env = environment_of(tmp_path)
    place = tmp_path / "site-0"
    with np.load(place / "data.npz") as data:
        own = {name: np.array(data[name]) for name in data.files}
    assert len(np.unique(own["groups"])) > 2
    kept = np.isin(own["groups"], np.unique(own["groups"])[:2])
    np.savez(place / "data.npz", **{name: array[kept] for name, array in own.items()})
    policies = [write_policy(place, **PERSONS), *env.policies[1:]]
    accept(policies[0], env.agreement)
    pipe = replace(env, policies=policies).pipe()
    served = env.serve(pipe)
    assert served.rounds[-1].round == 2
    sizes = {
        len(answer)
        for _, asked, answer in pipe.seen
        if answer and asks(asked) and isinstance(read_message(answer), Answered)
    }
    assert len(sizes) == 1


@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_demo_states_what_its_sites_pay_for_one_row(tmp_path: Path, channel: Any) -> None:
    """Nothing is proven for the whole site, and the policy does not ask for that."""
    config = resolve("person-dp-sgd-digits", ["num_clients=3", "rounds=2", f"channel={channel}"])
    made = DemoEnvironment.made(tmp_path, config, channel, None)
    for policy in made.sites:
        assert policy.budgets == (Budget("zcdp", math.inf, "record"),)
        assert not policy.allow_in_clear
        assert 0 < policy.costs(made.agreement)[1] < math.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "more"),
    [
        ("sum", (*STAGED, "rounds=8", "evaluation_share=0.2")),
        ("named", ("held_out_people=0.3", "rounds=3")),
        ("sum", ('ask=["shares", "evaluation"]', "server_optimizer=none", "rounds=3")),
        ("named", (*STAGED, "intercept_share=0", *OF_NUMBERS, "rounds=5", "evaluation_share=0.3")),
    ],
)
def test_sites_answer_questions_like_the_simulation(
    tmp_path: Path, channel: str, more: tuple[str, ...]
) -> None:
    """The server's figures are the simulation's, bit for bit, and each round is charged once.

    All of them are charged what the statement covers; in a sum, a site relies on its own noise.
    """
    numbers = set(OF_NUMBERS) <= set(more)
    asks, given = "ask=" in more[0], np.linspace(-3, 5, 10, dtype=np.float32)
    begins = digest_of_weights(given).hex() if asks else None
    env = environment_of(tmp_path, *more, channel=channel, numbers=numbers, initial=begins)
    config = env.config
    if asks:  # a given model, which is nobody's setting: the server has its file
        file, layout = tmp_path / "given.safetensors", env.agreement.layout
        save_file({name: each.copy() for name, each in layout.split(given).items()}, file)
        write_initial(file, tmp_path / "run.agreement")
        config = config.changed(initial=str(file))
    assert (env.agreement.problem.num_classes == 1) == numbers
    pipe = env.pipe()
    served = env.serve(pipe)
    simulated = simulate(config)
    assert bits(served) == bits(simulated)
    trained_on = any(TRAINED_ON in each.doubts for each in served.figures)
    assert trained_on == any("evaluation_share" in each for each in more)
    told, expected = (
        [(each.round, name, value) for each in result.rounds
         for name, value in each.metrics.items() if name.startswith("private ")]
        for result in (served, simulated)
    )  # fmt: skip
    assert told == expected
    assert asked_of(served.rounds) == asked_of(simulated.rounds) != {}
    assert told[-1][0] == env.config.rounds
    phases = range(1 if channel == "named" else 4)
    every = [(r, phase) for r in range(1, env.config.rounds + 1) for phase in phases]
    _, run = env.policies[0].costs(env.agreement)
    for index in range(3):
        assert env.releases(index) == every
        assert env.ledger(index).spent() == pytest.approx(run)
    line = person_line(env, served.privacy)
    stated = (1 if channel == "named" else 3) * largest_mu(line.epsilon, line.delta) ** 2
    assert 2 * run == pytest.approx(stated, rel=1e-6)


def write_visits(folder: Path) -> Path:
    """Write a table of people at three sites, with odd cells, and each site's own table of it."""
    rng, head = np.random.default_rng(1), "age,sex,who,ill"
    ages = ["3", "30", "39.5", "40", "71", "1e30", "", "nan", "inf", "-inf", "1e300"]
    rows = [
        f"{rng.choice(ages)},{rng.choice(['f', 'm', 'x', ''])},{who},{rng.choice(['yes', 'no'])}"
        for who in np.repeat(np.arange(60), rng.integers(1, 4, 60))
    ]
    sites = [int(row.split(",")[2]) % 3 for row in rows]
    text = [f"{row},site-{site}" for row, site in zip(rows, sites, strict=True)]
    (folder / "all.csv").write_text("\n".join([f"{head},where", *text]) + "\n")
    for site in range(3):
        own = [row for row, where in zip(rows, sites, strict=True) if where == site]
        (folder / f"site-{site}").mkdir()
        (folder / f"site-{site}" / "own.csv").write_text("\n".join([head, *own]) + "\n")
        (folder / f"site-{site}" / "own.csv").chmod(0o600)
    return folder / "all.csv"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "ask", "label"),
    [("sum", '["shares", "age", "sex"]', "ill"), ("named", '["sex", "age"]', "nowhere")],
)
def test_sites_answer_about_the_columns_of_their_own_tables_like_the_simulation(
    tmp_path: Path, channel: str, ask: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are counted: also numbers out of range or missing, and undeclared strings."""
    env = make_environment(
        tmp_path, f"dataset={write_visits(tmp_path)}", "num_examples=", f"ask={ask}",
        f"label_column={label}", 'classes=["no", "yes"]', "client_column=where",
        "person_column=who", "edges.age=[20, 40]", 'categories.sex=["f", "m"]', "rounds=1",
        f"channel={channel}", "epsilon=20", "model=linear", "server_optimizer=none",
        recipe="person-dp-sgd-digits", channel=channel, deadline=60.0,
        policy={**PERSONS, "data": "own.csv", "label_column": label, "person_column": "who",
                "person_budget": {**BUDGET, "limit": 99.0}},
    )  # fmt: skip
    served, simulated = env.serve(), simulate(env.config)
    told = served.rounds[-1].metrics
    assert asked_of(served.rounds) == asked_of(simulated.rounds)
    demo = DemoEnvironment.made(tmp_path / "demo", env.config, env.agreement.channel, None)
    assert demo.test == []  # nobody is held out
    cells = [f"age {where}" for where in ("below 20", "20 to 40", "from 40 on")]
    for names in ([*cells, "age=missing"], ["sex=f", "sex=m", "sex=none of these"]):
        assert sum(told[f"private {name}"] for name in names) == pytest.approx(1, abs=0.01)
    for index in range(3):
        cost = env.policies[index].costs(env.agreement)[1]
        assert env.ledger(index).spent() == pytest.approx(cost)
    # The server's command prints them, and the settings that follow.
    monkeypatch.setattr(running, "run_server", lambda *given: served)
    (tmp_path / "server.key").write_bytes((tmp_path / "tls" / "server.key").read_bytes())
    (tmp_path / "server.pem").write_bytes((tmp_path / "tls" / "server.pem").read_bytes())
    shown = CliRunner().invoke(app, ["deploy", "server", "x", str(tmp_path / "run.agreement")])
    assert 'categories.sex = ["f", "m"]' in shown.output.splitlines()
    assert ("class_shares = [" in shown.output) == (label == "ill")


def test_asking_again_is_stopped_by_the_ledger_which_lists_all_that_was_asked(
    tmp_path: Path,
) -> None:
    """Each new run asks the same people; no budget is left for the third."""
    asked = ('ask=["shares"]', "rounds=1", "server_optimizer=none")
    for name in ("free", "world"):
        (tmp_path / name).mkdir()
    free = environment_of(tmp_path / "free", *asked)
    limit = 2.5 * free.policies[0].costs(free.agreement)[1]
    terms = {"budget": None, "person_budget": {**BUDGET, "limit": limit}}
    env = environment_of(tmp_path / "world", *asked, policy=terms)
    runs = [env.agreement, *map(env.another_run, range(2))]
    accept(env.policies[0], runs[1])
    with pytest.raises(ConfigError, match="what is left of this site's budgets"):
        accept(env.policies[0], runs[2])
    assert [_answered(env, each) for each in runs[:2]] == [Report, Report]
    assert [each.run for each in env.ledger(0).verify()] == [each.run for each in runs[:2]]


def _answered(env: Environment, agreement: Agreement) -> type:
    of = replace(env, agreement=agreement)
    answer = read_message(of.agent(0).answer(ask_bytes(of, request_of(of)), agreement.digest))
    assert isinstance(answer, Answered)
    return type(content(answer))
