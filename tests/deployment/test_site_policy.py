"""A site's policy refuses in one line, before the site imports anything of the agreement."""

from __future__ import annotations

import json
import math
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from environments import (
    Environment,
    acceptance_of,
    allowed,
    changes_database,
    make_environment,
    write_policy,
)

from fedldp.accounting.events import Event, GaussianShare, InClear, PerPerson, PerRecord
from fedldp.core.errors import ConfigError, FedldpError, LedgerUnusable, PrivacyError
from fedldp.core.kinds import OTHER_SENT
from fedldp.deployment.acceptance import Acceptances, accept
from fedldp.deployment.agreement import Agreement, agreed
from fedldp.deployment.policy import SitePolicy, make_state, read_policy
from fedldp.deployment.site_ledger import SiteLedger
from fedldp.ledgers.budget import Budget
from fedldp.reporting import words

COUNTS = {"kind": "zcdp", "limit": math.inf}
ADDED_UP = OTHER_SENT(text="what many people add up to")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("world"), seeded=False)


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("summed"), channel="sum", seeded=False)


def one_line(error: BaseException, *parts: str) -> None:
    assert isinstance(error, FedldpError)
    assert "\n" not in str(error)
    for part in parts:
        assert part in str(error)


def refused(place: Path, agreement: Agreement, *parts: str, **terms: Any) -> None:
    with pytest.raises(PrivacyError) as found:
        write_policy(place, **terms).check(agreement)
    one_line(found.value, *parts)


def test_parts_that_the_policy_does_not_name_are_refused(
    env: Environment, summed: Environment, tmp_path: Path
) -> None:
    for terms, parts in (
        ({"channels": ["sum"]}, ("channels = sum", "has named", "add it to channels")),
        ({"channels": []}, ("channels = none", "has named")),
        ({"systems": ["nbafl"]}, ("systems = nbafl", "has ldp_fl", "add it to systems")),
        ({"mechanisms": ["laplace"]}, ("mechanisms = laplace", "has two_point", "add it to mech")),
        ({"models": ["mlp"]}, ("models = mlp", "has logistic", "add it to models")),
    ):
        refused(tmp_path, env.agreement, *parts, **terms)
    refused(tmp_path, summed.agreement, "channels = named", "has sum", channels=["named"])
    write_policy(tmp_path, channels=["sum"]).check(summed.agreement)


@pytest.mark.parametrize("recipe", ["fedavg-quickstart", "secure-aggregation-digits"])
def test_releases_in_clear_must_be_allowed_and_cost_infinitely_much(
    tmp_path: Path, recipe: str
) -> None:
    channel = "sum" if recipe.startswith("secure") else "named"
    allow = {"allow_in_clear": True, "budget": COUNTS}
    settings = ["dropout=0"] if channel == "sum" else []
    env = make_environment(
        tmp_path, "rounds=1", *settings, recipe=recipe, channel=channel, policy=allow, seeded=False
    )
    refused(tmp_path, env.agreement, "allow_in_clear = false", env.config.name())
    refused(tmp_path, env.agreement, "allow_in_clear", budget=COUNTS)
    env.serve()
    for index in range(3):
        costs = [e.costs[0] for e in env.ledger(index).releases() if isinstance(e.event, InClear)]
        assert costs == [math.inf]


def test_a_policy_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    for content in (None, b"\xff\xfe", b"data = ", b"[" * 5000, b""):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as found:
            read_policy(path)
        one_line(found.value, "policy ")


def test_a_users_model_is_refused_before_it_is_imported(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_model.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
        "from torch import nn\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    document = json.loads(env.agreement.to_bytes())
    document["config"]["model"] = "evil_model:net"
    path = tmp_path / "evil.agreement"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as unlisted:
        Agreement.read(path)
    one_line(unlisted.value, "model = evil_model:net: this code is not part of fedldp")
    found = Agreement.read(path, own=["evil_model:net"])
    refused(tmp_path, found, "models = ", "evil_model:net")
    assert "evil_model" not in sys.modules
    assert not (tmp_path / "ran").exists()
    # A model that the policy names may be used, and the statement is still compared.
    policy = write_policy(tmp_path, models=["evil_model:net"])
    with pytest.raises(ConfigError) as wrong:
        policy.check(found)
    one_line(wrong.value, "its statement differs")
    policy.check(found.changed(statement=agreed(found.planned)))
    assert (tmp_path / "ran").exists()


# Accepted agreements


@pytest.mark.slow
def test_an_accepted_agreement_is_readable_by_its_owner_only_and_read_back_unchanged(
    tmp_path: Path,
) -> None:
    before = os.umask(0o022)
    try:
        env = make_environment(tmp_path, seeded=False)
    finally:
        os.umask(before)
    policy = env.policies[0]
    digest = env.agreement.digest
    assert policy.ledger.stat().st_mode & 0o777 == 0o600
    assert policy.state.stat().st_mode & 0o777 == 0o700
    assert allowed(policy, digest).digest == digest
    assert Acceptances(policy).of(bytes(32)) is None
    content = acceptance_of(policy, digest).content
    change = "UPDATE agreements SET content = ?"
    changes_database(policy, change, content.replace(b'"quorum": 3', b'"quorum": 2'))
    with pytest.raises(ConfigError) as error:
        allowed(policy, env.agreement.digest)
    one_line(error.value, "it was changed after it was accepted; accept it again")
    accept(policy, env.agreement)  # which mends it
    assert allowed(policy, env.agreement.digest) is not None
    changes_database(policy, change, b"{")
    with pytest.raises(ConfigError) as error:
        allowed(policy, env.agreement.digest)
    one_line(error.value, "it is damaged")
    accept(policy, env.agreement)
    assert allowed(policy, env.agreement.digest) is not None
    changes_database(policy, "UPDATE agreements SET promised = '{'")
    with pytest.raises(LedgerUnusable, match="an accepted agreement is damaged"):
        Acceptances(policy).all()


def test_a_stricter_policy_applies_to_accepted_agreements(env: Environment) -> None:
    stricter = env.policies[2].model_copy(update={"channels": ("sum",)})
    with pytest.raises(PrivacyError):
        allowed(stricter, env.agreement.digest)


def test_a_site_outside_the_roster_is_told_so(env: Environment) -> None:
    assert env.policies[1].in_roster(env.agreement)[0] == 1
    others = env.agreement.changed(sites=env.agreement.sites[:1])
    with pytest.raises(ConfigError) as found:
        env.policies[1].in_roster(others)
    one_line(found.value, "key: it is not in the agreement's roster")


def test_foreign_code_is_refused_before_it_is_imported(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "evil_mechanism"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
        "from dataclasses import dataclass\n"
        "from fedldp.mechanisms.two_point import TwoPoint\n"
        "@dataclass(frozen=True)\nclass Part(TwoPoint):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    document = json.loads(env.agreement.to_bytes())
    document["config"]["mechanism"] = f"{name}:Part"
    path = tmp_path / "evil.agreement"
    path.write_text(json.dumps(document))
    # However an agent comes to read the agreement, it accepts no code that the policy does not
    # list.
    policy = write_policy(tmp_path)
    for own in ((), policy.own_code, {"another:Part"}):
        with pytest.raises(ConfigError) as found:
            Agreement.read(path, own=own)
        one_line(found.value, f"mechanism = {name}:Part", "add it to mechanisms")
    assert name not in sys.modules
    assert not (tmp_path / "ran").exists()
    # If the policy lists the code, it is imported, and the rest of the policy still holds.
    policy = write_policy(tmp_path, mechanisms=[f"{name}:Part"])
    assert policy.own_code == {f"{name}:Part"}
    found_config = Agreement.read(path, own=policy.own_code).config
    assert found_config.model_dump()["mechanism"] == f"{name}:Part"
    assert (tmp_path / "ran").exists()


# Budgets for people


SHARE = GaussianShare(squared_distance=64, variance=320)  # rho 0.1
PEOPLE = {"kind": "zcdp", "limit": 0.5}


Releasing = Callable[[Event], Agreement]


@pytest.fixture
def releasing(env: Environment, monkeypatch: pytest.MonkeyPatch) -> Releasing:
    """Return an agreement under which a site releases a given event in each round."""

    def with_event(event: Event) -> Agreement:
        monkeypatch.setattr(Agreement, "events_of", lambda agreement, site, round=1: [event])
        monkeypatch.setattr("fedldp.deployment.policy.check_stated", lambda agreement: None)
        return env.agreement

    return with_event


@pytest.fixture
def of_people(releasing: Releasing) -> Agreement:
    return releasing(PerPerson(person=SHARE, client=InClear(what=(ADDED_UP,))))


def without(place: Path, *tables: str, **terms: Any) -> SitePolicy:
    """Return a policy without some of the tables that ``write_policy`` writes."""
    write_policy(place)
    document = {**tomllib.loads((place / "site.toml").read_text()), **terms}
    for table in tables:
        document.pop(table)
    (place / "site.toml").write_text(tomli_w.dumps(document))
    return read_policy(place / "site.toml")


def people_only(place: Path, **terms: Any) -> SitePolicy:
    return without(place, "budget", **{"person_budget": PEOPLE, **terms})


def test_a_budget_for_people_allows_releases_that_protect_them(
    of_people: Agreement, tmp_path: Path
) -> None:
    policy = people_only(tmp_path)
    policy.check(of_people)
    assert policy.budgets == (Budget("zcdp", 0.5, "person"),)
    rounds = of_people.rounds_of(0)
    assert policy.costs(of_people) == pytest.approx((0.1, rounds * 0.1))
    make_state(policy)
    assert SiteLedger(policy).ledger.budgets == policy.budgets


def test_a_budget_for_the_whole_site_refuses_such_releases_and_names_the_remedy(
    of_people: Agreement, tmp_path: Path
) -> None:
    refused(
        tmp_path, of_people, "allow_in_clear = false", words.line(ADDED_UP),
        "if it protects each person or record, give a [person_budget]",
    )  # fmt: skip
    # Combined with a budget for people, it still protects the whole site.
    refused(tmp_path, of_people, "allow_in_clear = false", person_budget=PEOPLE)
    refused(tmp_path, of_people, "allow_in_clear = false", person_budget=PEOPLE, budget=COUNTS)
    counting = write_policy(tmp_path, person_budget=PEOPLE, budget=COUNTS, allow_in_clear=True)
    counting.check(of_people)
    assert [counting.costs(of_people, budget)[0] for budget in counting.budgets] == [
        math.inf,
        pytest.approx(0.1),
    ]


def test_a_budget_for_people_does_not_cover_rows_or_releases_in_clear(
    releasing: Releasing, tmp_path: Path
) -> None:
    of_rows = releasing(PerRecord(record=SHARE, client=InClear(what="all rows")))
    with pytest.raises(PrivacyError, match=r"or record, give a \[person_budget\], with its unit"):
        people_only(tmp_path).check(of_rows)
    people_only(tmp_path, person_budget={**PEOPLE, "unit": "record"}).check(of_rows)
    with pytest.raises(PrivacyError, match=r"unprotected; .* may see those values"):
        people_only(tmp_path).check(releasing(InClear(what="weights")))
    with pytest.raises(
        PrivacyError,
        match=r"person_budget.kind = pure: what ldp_fl sends has no proven finite cost",
    ):
        people_only(tmp_path, person_budget={"kind": "pure", "limit": 1.0}).check(
            releasing(PerPerson(person=SHARE, client=SHARE))
        )


def test_a_policy_must_have_a_budget(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allow_in_clear = true: what leaves unprotected"):
        people_only(tmp_path, allow_in_clear=True)
    with pytest.raises(ConfigError, match=r"budget is not set; add a table \[budget\] \(or \[pe"):
        without(tmp_path, "budget")
    for table, said in (({"limit": -1.0}, "person_budget.limit"), ({}, "person_budget.limit"),
                        ({**PEOPLE, "unit": "client"}, "person_budget.unit")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            people_only(tmp_path, person_budget=table)
