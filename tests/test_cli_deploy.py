"""``fedldp deploy`` as a user types it: keys, agreement, acceptance, checks."""

from __future__ import annotations

import io
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import document

from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.identity import make_identity, read_private
from fedldp.deployment.joining import Invite
from fedldp.deployment.own_budgets import Joining
from fedldp.deployment.policy import read_policy
from fedldp.ledgers.sqlite import SqliteLedger

SITES = ("hospital", "clinic", "practice")
OF_TABLES = ("model=logistic", "standardise=false")

POLICY = """
data = "examples.npz"
key = "keys/hospital.key"
state = "state"
{terms}

[[server]]
url = "https://127.0.0.1:9"
ca = "{ca}/ca.pem"

[budget]
kind = "zcdp"
limit = {limit}
"""


pytestmark = pytest.mark.usefixtures("folder_of_its_own")


@pytest.fixture
def agreed(fedldp_command: Any) -> Any:
    """Return a function that invites three sites and writes run.agreement with their keys."""

    def agree(*more: str, channel: str = "sum", recipe: str = "quickstart") -> Any:
        Path("run.invite").unlink(missing_ok=True)
        planned = ("--channel", channel, "--set", "num_clients=3", "--set", "rounds=2")
        invite = ("deploy", "invite", recipe, "-o", "run.invite", "--url", "https://127.0.0.1:9")
        invited = fedldp_command(*invite, *planned, *more)
        if invited.status:
            return invited
        answers = {
            "version": version("fedldp"),
            "invite": Invite.read(Path("run.invite")).digest.hex(),
        }
        for name in SITES:
            key = Path("keys", f"{name}.key")
            if not key.exists():
                make_identity(key, key.with_suffix(".pub"))
            joining = Joining.signed(read_private(key), name=name, **answers)
            Path(f"{name}.join").write_bytes(joining.to_bytes())
        files = [f"{name}.join" for name in SITES]
        return fedldp_command("deploy", "admit", "run.invite", *files, "--yes")

    return agree


def site(terms: str = "", limit: float = 2000.0, ca: str = ".") -> None:
    """Write a site's policy and its data."""
    Path("site.toml").write_text(POLICY.format(terms=terms, limit=limit, ca=ca))
    rng = np.random.default_rng(0)
    features = rng.random((20, 1, 8, 8)).astype(np.float32)
    np.savez("examples.npz", features=features, labels=rng.integers(0, 10, 20))
    Path("examples.npz").chmod(0o600)


def amiss(outcome: Any) -> list[str]:
    """Return what a check found amiss; in these tests nothing listens where the server should."""
    return [line.split()[2] for line in outcome.out.splitlines() if "NOT OK" in line]


def test_a_recipe_that_needs_the_channel_of_the_agreement_gets_it(agreed: Any) -> None:
    """Where a recipe is valid without it, its reports keep the noise that each needs by itself."""
    committees = ("--set", "committee=3")
    assert "committee = 3" in agreed(*committees, channel="named").assert_refused()
    assert "committee = 3" in agreed(*committees, "--set", "channel=named").assert_refused()
    for more, channel in ((committees, "sum"), ((), "named")):
        assert agreed(*more).status == 0
        found = document(Path("run.agreement").read_text())
        assert found["channel"] == "sum"
        assert Agreement.read(Path("run.agreement")).config.channel == channel
        Path("run.agreement").unlink()


def test_the_heading_is_not_below_what_the_quorum_allows(agreed: Any) -> None:
    """Noise sized for a sum of all clients protects less when a sum may have fewer."""

    def stated_by(*more: str) -> tuple[list[str], float]:
        settings = ("--set", "rounds=3", "--set", "epsilon=4")
        outcome = agreed(*settings, *more, recipe="distributed-gaussian-digits")
        assert outcome.status == 0, outcome.err
        lines = document(Path("run.agreement").read_text())["statement"]["guarantees"]
        Path("run.agreement").unlink()
        stated = [li["epsilon"] for li in lines if li["adversary"] == "summing-server"
                  and li["unit"] == "client-run"]  # fmt: skip
        headings = [line for line in outcome.out.splitlines() if line.startswith("setting ")]
        return headings, min(stated)

    heading, stated = stated_by()
    assert stated <= 4
    assert heading == ["setting    epsilon 4 per client-run against a summing-server (proven)"]
    heading, stated = stated_by("--quorum", "2")
    assert stated > 4.5
    assert heading == []


def test_the_contents_of_a_private_table_are_not_agreed_on(agreed: Any) -> None:
    rows = "".join(f"{i % 7 / 7:.3f},{i % 5 / 5:.3f},{i % 3}\n" for i in range(91))
    Path("table.csv").write_text("first,second,label\n" + rows)
    settings = [f"--set={each}" for each in ("dataset=table.csv", *OF_TABLES)]
    counted, named = ("--examples", "100"), ("--classes", "3")
    for more, lacks in (((), "--examples"), (counted, "--classes"), (named, "--examples")):
        line = agreed(*settings, *more, channel="named").assert_refused()
        assert lacks in line
        assert not any(number in line for number in ("91", "73", "72"))
        assert not Path("run.agreement").exists()
    assert agreed(*settings, *counted, *named, channel="named").status == 0
    problem = document(Path("run.agreement").read_text())["problem"]
    assert problem == {
        "input_shape": [2], "num_classes": 3, "num_examples": 100, "features": ["first", "second"],
    }  # fmt: skip
    # A declared list of classes is public.
    Path("run.agreement").unlink()
    declared = ("--set", 'classes=["0", "1", "2", "3"]')
    assert agreed(*settings, *declared, *counted, channel="named").status == 0
    assert document(Path("run.agreement").read_text())["problem"]["num_classes"] == 4


def test_a_site_sees_statement_and_cost_before_it_accepts(
    agreed: Any, fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agreed().status == 0
    site()
    for answer, status in (("n\n", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        outcome = fedldp_command("deploy", "accept", "run.agreement")
        assert outcome.status == status
        for part in ("epsilon", "cost here  rho", "is left", "hospital, number 0 of 3"):
            assert part in outcome.out
        assert Path("state/site.db").exists() == (status == 0)  # accepting fixes its limits
    (accepted,) = Acceptances(read_policy(Path("site.toml"))).all()
    assert accepted.content == Path("run.agreement").read_bytes()
    assert Path("state").stat().st_mode & 0o777 == 0o700
    assert Path("state/site.db").stat().st_mode & 0o777 == 0o600
    assert SqliteLedger("state/site.db").releases() == []


@pytest.mark.slow
def test_a_site_declares_how_its_ledger_came_to_be_what_it_is(
    agreed: Any, fedldp_command: Any
) -> None:
    """What each way charges is tested without the command line, in tests/deployment."""
    assert agreed().status == 0
    site(limit=20_000.0)
    accept = ("deploy", "accept", "run.agreement", "--yes")
    restored = ("deploy", "restored", "site.toml", "--yes")
    assert "last here  no release yet; compare it with" in fedldp_command(*accept).out
    for both_or_none in ((), ("--none-since", "--since", "run.agreement")):
        line = fedldp_command(*restored, *both_or_none).assert_refused()
        assert "--since, --none-since: " in line
    outcome = fedldp_command(*restored, "--none-since")
    assert outcome.out.count("rounds charged as lost") == 1
    assert "is left" in outcome.out
    Path("run.agreement").unlink()
    assert agreed().status == 0
    assert "accept it with --new" in fedldp_command(*accept).assert_refused()
    outcome = fedldp_command(*restored, "--since", "run.agreement", "--restores", "2")
    assert outcome.out.count("rounds charged as lost") == 4  # both agreements, twice
    last = SqliteLedger("state/site.db").releases()[-1]
    shutil.copy("keys/hospital.key.ledger", "copy")
    Path("copy").replace("keys/hospital.key.ledger")
    assert "it is a copy" in fedldp_command(*accept).assert_refused()
    assert fedldp_command(*restored, "--moved", last.hash).status == 0
    shown = fedldp_command(*accept).out
    assert f"last here  release {last.number} on 20" in shown
    assert f", hash {last.hash}; compare it with" in shown
    line = fedldp_command(*restored, "--anew", "--since", "run.agreement").assert_refused()
    assert "--anew: ledger" in line
    shutil.rmtree("state")
    assert "is gone" in fedldp_command(*restored, "--none-since").assert_refused()
    outcome = fedldp_command(*restored, "--anew", "--since", "run.agreement")
    assert "rounds charged as lost" in outcome.out
    assert fedldp_command(*accept).status == 0


@pytest.mark.slow
def test_persons_are_agreed_on_and_a_missing_person_is_reported_before_a_site_accepts(
    agreed: Any, fedldp_command: Any
) -> None:
    table = ("dataset=all.csv", "person_column=patient", *OF_TABLES)
    more = [f"--set={each}" for each in table]
    more += ["--input-shape", "age,height", "--classes", "2", "--examples", "100"]
    assert "give --people NUMBER" in agreed(*more).assert_refused()
    assert "'--people': 0" in agreed(*more, "--people", "0").assert_refused()
    assert agreed(*more, "--people", "50").status == 0
    assert document(Path("run.agreement").read_text())["problem"]["people"] == 50
    site()
    Path("site.toml").write_text(Path("site.toml").read_text().replace("examples.npz", "own.csv"))
    accept = ("deploy", "accept", "run.agreement", "--yes")
    rows = "age,height,patient,label\n1,2,a,0\n1,2,,1\n"
    Path("own.csv").write_text(rows)
    line = fedldp_command(*accept).assert_refused()
    assert "own.csv, line 3: column 'patient' holds '', a missing value" in line
    assert not list(Path().glob("state/accepted/*"))
    Path("own.csv").write_text(rows.replace(",,", ",b,"))
    Path("own.csv").chmod(0o600)
    assert fedldp_command(*accept).status == 0
    check = ("deploy", "site", "site.toml", "--check")
    assert amiss(fedldp_command(*check)) == ["server"]
    Path("own.csv").write_text(rows)  # only the owner learns of it, and no round does
    assert "line 3: column 'patient' holds ''" in fedldp_command(*check).out


def test_a_check_reports_what_is_in_order_and_what_is_not(agreed: Any, fedldp_command: Any) -> None:
    assert agreed().status == 0
    site()
    assert fedldp_command("deploy", "accept", "run.agreement", "--yes").status == 0
    outcome = fedldp_command("deploy", "site", "site.toml", "--check")
    assert amiss(outcome) == ["server"]
    assert "20 examples of shape (1, 8, 8)" in outcome.out
    assert "rho 2,000 is left" in outcome.out
    assert "as hospital" in outcome.out
    Path("keys/hospital.key").chmod(0o644)
    Path("examples.npz").chmod(0o644)
    outcome = fedldp_command("deploy", "site", "site.toml", "--check")
    assert outcome.status == 2
    assert outcome.out.count("others may read it") >= 2
    assert "Traceback" not in outcome.out + outcome.err


def test_the_agreement_pins_the_server(agreed: Any, fedldp_command: Any) -> None:
    assert fedldp_command("deploy", "keys", "other", "--server", "localhost").status == 0
    assert agreed().status == 0
    found = document(Path("run.agreement").read_text())
    assert len(found["server_ca"]) == 1
    accept = ("deploy", "accept", "run.agreement", "--yes")
    for ca, status in (("other", 2), (".", 0)):
        site(ca=ca)
        outcome = fedldp_command(*accept)
        assert outcome.status == status
        assert ("an authority that the agreement does not name" in outcome.err) == (status == 2)
    outcome = fedldp_command("deploy", "site", "site.toml", "--check")
    assert outcome.status == 2  # nothing listens there
    assert amiss(outcome) == ["server"]
    Path("elsewhere").mkdir()
    shutil.copy("run.agreement", "elsewhere")
    server = ("deploy", "server", "served", "elsewhere/run.agreement")
    assert "give --certificate" in fedldp_command(*server).assert_refused()
    tls = ("--certificate", "server.pem", "--key")
    assert fedldp_command(*server, *tls, "server.key", "--check").status == 0
    assert fedldp_command(*server, *tls, "other/server.key", "--check").status == 2
    line = fedldp_command(*server, *tls, "other/server.key").assert_refused()
    assert "do not match" in line


def test_an_agent_that_cannot_start_says_why_in_one_line(fedldp_command: Any) -> None:
    assert "none.toml" in fedldp_command("deploy", "site", "none.toml").assert_refused()
    site()
    make_identity(Path("keys/hospital.key"), Path("keys/hospital.pub"))
    Path("examples.npz").unlink()
    assert "examples.npz" in fedldp_command("deploy", "site", "site.toml").assert_refused()
