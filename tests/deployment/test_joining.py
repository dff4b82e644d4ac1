"""Joining as operators type it: an invite, answers from sites, admission, and refusals."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from documents import document
from environments import make_environment

from fedldp.core.errors import ConfigError
from fedldp.core.locks import alone
from fedldp.deployment import joining, running, words
from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import check_host, fingerprints
from fedldp.deployment.https.site import fetch_digests
from fedldp.deployment.identity import read_private
from fedldp.deployment.key_changes import KnownKeys
from fedldp.deployment.policy import costs_of, read_policy
from fedldp.deployment.running import OverHttps, pipe_of
from fedldp.ledgers.budget import Budget

RECIPE = """
system = "person_dp_sgd"
channel = "named"
epsilon = 4.0
num_clients = 2
dataset = "server/patients.csv"
label_column = "outcome"
classes = ["well", "ill"]
ignore_columns = ["relapse"]
person_column = "patient"
model = "logistic"
rounds = 2
clip = 1.0
learning_rate = 1.0

[scale_columns]
age = [0, 120]
"""
INVITE = (
    *("invite", "mine.toml", "-o", "server/run.invite", "--channel", "named"),
    *("--examples", "60", "--people", "60"),
)
URL = ("--url", "https://localhost:8443")


def write_table(folder: str, rows: int = 30) -> Path:
    place = Path(folder)
    place.mkdir(exist_ok=True)
    table = place / "patients.csv"
    lines = [
        f"{folder}{i // 2},{20 + i},{'ill' if i % 3 else 'well'},{'yes' if i % 2 else 'no'}"
        for i in range(rows)
    ]
    table.write_text("\n".join(["patient,age,outcome,relapse", *lines]) + "\n")
    table.chmod(0o600)
    return table


@pytest.fixture
def deploy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedldp_command: Any
) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    os.umask(0o022)  # an agent or a server that began in this process changed it
    Path("mine.toml").write_text(RECIPE)
    for folder in ("server", "north", "south"):
        write_table(folder)
    return lambda *given: fedldp_command("deploy", *given)


@pytest.fixture
def invited(deploy: Callable[..., Any]) -> Callable[..., Any]:
    assert deploy(*INVITE, *URL).status == 0
    return deploy


def join(deploy: Callable[..., Any], site: str, *more: str) -> Any:
    data = ("--data", f"{site}/patients.csv", "--budget", "1")
    return deploy("join", "server/run.invite", "--site", site, *data, *more)


@pytest.fixture
def joined(invited: Callable[..., Any]) -> Callable[..., Any]:
    for site in ("north", "south"):
        assert join(invited, site).status == 0
    return invited


def admit(deploy: Callable[..., Any], *files: str, yes: bool = True) -> Any:
    named = files or ("north/north.join", "south/south.join")
    return deploy("admit", "server/run.invite", *named, *(["--yes"] if yes else []))


def words_in(text: str, name: str) -> str:
    (found,) = re.findall(rf"^{name} +((?:[a-z]+ ){{9}}[a-z]+)$", text, re.M)
    return str(found)


def test_three_commands_make_an_agreement_and_move_no_private_key(
    joined: Callable[..., Any],
) -> None:
    policy = read_policy(Path("north/site.toml"))
    (budget,) = policy.budgets
    assert (budget.kind, budget.unit, budget.limit) == ("zcdp", "person", 1.0)
    assert (policy.systems, policy.channels) == (("person_dp_sgd",), ("named",))
    modes = {file.name: file.stat().st_mode & 0o777 for file in Path("north").iterdir()}
    assert [name for name, mode in modes.items() if mode & 0o077] == [
        name
        for name in modes
        if name in ("ca.pem", "north.pub", "north.join", "patients.csv.ledger")
    ]
    assert Path("north").stat().st_mode & 0o777 == 0o700
    answer = document(Path("north/north.join").read_text())
    assert answer.keys() == {"join", "version", "invite", "name", "key", "signature"}
    assert fingerprints(Path("north/ca.pem")) == fingerprints(Path("server/ca.pem"))
    outcome = admit(joined)
    assert outcome.status == 0
    agreement = Agreement.read(Path("server/run.agreement"))
    assert [(site.name, site.key) for site in agreement.sites] == [
        (name, Path(name, f"{name}.pub").read_text().strip()) for name in ("north", "south")
    ]
    assert list(agreement.server_ca) == fingerprints(Path("server/ca.pem"))
    assert agreement.problem.people == 60
    assert words_in(outcome.out, "words") == words.words_of(agreement.digest)
    for site in ("north", "south"):
        accept = ("accept", "server/run.agreement", "--policy", f"{site}/site.toml", "--yes")
        assert joined(*accept).status == 0


def test_words_are_the_same_on_both_sides_and_are_asked_for(
    invited: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    said = [words_in(join(invited, site).out, "words") for site in ("north", "south")]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    outcome = admit(invited, yes=False)
    assert outcome.status == 1
    assert not Path("server/run.agreement").exists()
    assert [words_in(outcome.out, site) for site in ("north", "south")] == said
    assert said[0] != said[1]


def test_a_servers_keys_are_made_once_and_are_for_its_name(invited: Callable[..., Any]) -> None:
    assert "already exists" in invited(*INVITE, *URL).assert_refused()
    first = Path("server/ca.pem").read_bytes()
    Path("server/run.invite").unlink()
    assert invited(*INVITE, *URL).status == 0
    assert Path("server/ca.pem").read_bytes() == first
    Path("server/run.invite").unlink()
    other = invited(*INVITE, "--url", "https://server.example.org:8443").assert_refused()
    assert "it is not for server.example.org" in other
    assert Path("server/server.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("change", "more", "part"),
    [
        (None, ("--budget", "inf"), "budget = inf: give a finite number above 0"),
        (None, ("--site", "../north"), "give a name of letters"),
        (None, ("--epsilon", "2"), "epsilon = 2: in person_dp_sgd the invite sets one epsilon"),
        ("chmod", (), "others may read it; run chmod 600"),
        ("class", (), "dead"),
        ("person", (), "patient"),
    ],
)
def test_data_are_checked_before_anything_is_written(
    invited: Callable[..., Any], change: str | None, more: tuple[str, ...], part: str
) -> None:
    table = Path("north/patients.csv")
    old, new = {"class": ("ill", "dead"), "person": ("north3,", ",")}.get(change or "", ("", ""))
    table.write_text(table.read_text().replace(old, new) if old else table.read_text())
    if change == "chmod":
        table.chmod(0o644)
    assert part in join(invited, "north", *more).assert_refused()
    assert [file.name for file in Path("north").iterdir()] == ["patients.csv"]


def test_without_a_budget_the_cost_of_a_run_is_shown(invited: Callable[..., Any]) -> None:
    line = invited(
        *("join", "server/run.invite", "--site", "north", "--data", "north/patients.csv")
    ).assert_refused()
    assert re.search(r"costs rho 0\.\d+ for each person; give --budget LIMIT", line)
    line = invited("join", "server/run.invite", "--site", "north").assert_refused()
    assert "data is not set: give --data FILE" in line


def test_a_site_answers_another_invite_by_the_same_key_and_ledger(
    joined: Callable[..., Any],
) -> None:
    key = Path("north/north.key").read_bytes()
    Path("server/run.invite").unlink()
    assert joined(*INVITE, *URL).status == 0
    for site in ("north", "south"):
        assert "exists already, with data" in join(joined, site).assert_refused()
        assert joined("join", "server/run.invite", "--site", site).status == 0
    assert Path("north/north.key").read_bytes() == key
    assert (
        "leave these options out"
        in joined(
            *("join", "server/run.invite", "--site", "north", "--budget", "3")
        ).assert_refused()
    )
    assert admit(joined).status == 0


def test_an_invite_changes_no_authority_that_a_site_trusts(joined: Callable[..., Any]) -> None:
    """A forged invite could name the authority of another server."""
    own, ca = Path("north/ca.pem"), Path("server/ca.pem")
    before = own.read_bytes()
    assert joined("keys", "other", "--server", "localhost").status == 0
    other = Path("other/ca.pem").read_bytes()
    for name, content in (("both", before + other), ("new", other)):
        ca.write_bytes(content)
        invite = f"server/{name}.invite"
        if name == "new":
            shutil.copy("other/server.pem", "server/server.pem")
        assert joined(*INVITE[:3], invite, *INVITE[4:], *URL).status == 0
        answer = ("join", invite, "--site", "north")
        assert "the invite names other authorities" in joined(*answer).assert_refused()
        assert own.read_bytes() == before
    own.write_bytes(other)
    assert joined(*answer).status == 0
    moved = (*INVITE[:3], "server/moved.invite", *INVITE[4:], "--url", "https://127.0.0.1:1")
    assert joined(*moved).status == 0
    outcome = joined("join", "server/moved.invite", "--site", "north", "--yes")
    assert "server: https://127.0.0.1:1, by the authorities of the invite" in outcome.out
    assert [each.url for each in read_policy(Path("north/site.toml")).server] == [
        "https://localhost:8443",
        "https://127.0.0.1:1",
    ]


def test_answers_to_another_invite_and_second_answers_are_named(joined: Callable[..., Any]) -> None:
    assert (
        "they have the same key"
        in admit(joined, "north/north.join", "north/north.join").assert_refused()
    )
    line = admit(joined, "server/run.invite").assert_refused()
    assert "server/run.invite: this is another kind of file: it has no join; check the path" in line
    assert join(joined, "north", "--folder", "other", "--second-ledger").status == 0
    line = admit(joined, "north/north.join", "other/north.join").assert_refused()
    assert "both sites are called north" in line
    shutil.copytree("north", "third")
    assert joined("join", "server/run.invite", "--site", "n2", "--folder", "third").status == 0
    line = admit(joined, "north/north.join", "third/n2.join").assert_refused()
    assert "north/north.join and third/n2.join: they have the same key" in line
    Path("server/run.invite").rename("old.invite")
    assert joined(*INVITE, *URL).status == 0
    line = admit(joined).assert_refused()
    assert "join file north/north.join: site north answers another invite" in line
    assert not Path("server/run.agreement").exists()


@pytest.mark.slow
def test_a_network_signs_the_answers_of_hundreds_of_sites(invited: Callable[..., Any]) -> None:
    invite = joining.Invite.read(Path("server/run.invite"), own=None)
    fields = {"version": invite.version, "invite": invite.digest.hex()}
    Path("answers").mkdir()
    for number in range(300):
        key, name = Ed25519PrivateKey.generate(), f"site-{number:03d}"
        answer = joining.Joining.signed(key, name=name, **fields)
        Path(f"answers/{name}.join").write_bytes(answer.to_bytes())
    for name in ("net", "stranger"):
        assert invited("keys", name, "--site", name).status == 0
        signed = invited("vouch", f"{name}/{name}.key", "answers", "-o", f"by-{name}", "--yes")
        assert signed.status == 0
    known = ("--signed-by", "net/net.pub")
    first = "site-000.join"
    for files, more, part in (
        ("by-stranger", known, f"by-stranger/{first}: a network with the key"),
        (f"by-net/{first}", (), "give its public key (--signed-by) if you know that network"),
        ("answers", known, f"answers/{first}: no network signed it"),
        ("server", known, "it has no .join file"),
    ):
        line = invited("admit", "server/run.invite", files, *more, "--yes").assert_refused()
        assert part in line
    text = Path(f"by-net/{first}").read_text()
    Path("bad.join").write_text(text.replace("site-000", "site-xxx"))
    line = invited("admit", "server/run.invite", "bad.join", *known).assert_refused()
    assert "it was changed after" in line
    admitted = invited("admit", "server/run.invite", "by-net", *known)
    assert admitted.out.count(", signed\n") == 300  # without words, which take seconds each
    agreement = Agreement.read(Path("server/run.agreement"))
    assert [site.name for site in agreement.sites] == [f"site-{i:03d}" for i in range(300)]


def test_only_what_was_shown_is_signed_and_admitted(
    joined: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may be replaced while the operator reads what it says."""
    assert joined("keys", "net", "--site", "net").status == 0
    answer = Path("north/north.join")
    shown = answer.read_bytes()
    mallory = joining.Joining.signed(
        Ed25519PrivateKey.generate(),
        **{name: json.loads(shown)[name] for name in ("version", "invite", "name")},
    )

    def replaced(file: Path) -> Callable[..., bool]:
        def confirm(*given: Any, **more: Any) -> bool:
            file.write_bytes(mallory.to_bytes())
            return True

        return confirm

    key = document(shown.decode())["key"]
    monkeypatch.setattr("typer.confirm", replaced(answer))
    outcome = joined("vouch", "net/net.key", answer, "south/south.join", "-o", "signed")
    assert f"key {key[:16]}" in outcome.out
    signed = Path("signed/north.join")
    assert joining.Vouched.read(signed).joining.key == key
    answer.write_bytes(shown)
    assert admit(joined, yes=False).status == 0
    assert Agreement.read(Path("server/run.agreement")).sites[0].key == key
    # A signature is for the invite that the site answered, too.
    Path("server/run.invite").rename("server/old.invite")
    Path("server/run.agreement").unlink()
    assert joined(*INVITE, *URL).status == 0
    known = ("--signed-by", "net/net.pub")
    line = joined("admit", "server/run.invite", "signed", *known).assert_refused()
    assert "join file signed/north.join: site north answers another invite" in line


@pytest.mark.parametrize(
    ("file", "change", "part"),
    [
        ("north/north.join", {"key": "0" * 64}, "it was changed after the site signed it"),
        ("north/north.join", {"join": 2}, "damaged at join, or was written by another version"),
        ("server/run.invite", {"version": "9.9"}, "fedldp = 9.9: it was made with this version"),
        ("server/run.invite", {"authorities": ["AAAA"]}, "damaged at authorities"),
        ("server/run.invite", {"deadline_seconds": 5.0}, "answers another invite"),
        ("server/run.invite", None, "damaged"),
    ],
)
def test_a_file_changed_on_the_way_is_refused(
    joined: Callable[..., Any], file: str, change: dict[str, Any] | None, part: str
) -> None:
    path = Path(file)
    text = path.read_text()
    path.write_text(text[:-40] if change is None else json.dumps({**json.loads(text), **change}))
    assert part in admit(joined).assert_refused()
    assert not Path("server/run.agreement").exists()


@pytest.mark.parametrize("setting", ["system", "model"])
def test_an_invite_that_names_code_is_refused_before_it_is_imported(
    setting: str, invited: Callable[..., Any]
) -> None:
    Path("planted.py").write_text("from pathlib import Path\n\nPath('ran').touch()\n")
    path = Path("server/run.invite")
    found = json.loads(path.read_text())
    found["config"][setting] = "planted:Mine"
    path.write_text(json.dumps(found))
    assert "this code is not part of fedldp" in join(invited, "north").assert_refused()
    assert not Path("ran").exists()
    assert not Path("north/site.toml").exists()


def test_unprotected_sites_are_not_asked(
    deploy: Callable[..., Any],
) -> None:
    recipe = ("invite", "fedavg-quickstart", "-o", "server/run.invite", "--channel", "named")
    assert deploy(*recipe, *URL, "--set", "num_clients=2").status == 0
    line = join(deploy, "north").assert_refused()
    assert "unprotected, which no budget covers" in line


def test_only_sites_of_the_roster_fetch_the_agreement_and_only_the_one_they_expect(
    joined: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    strange = ("--data", "south/patients.csv", "--second-ledger")
    assert join(joined, "stranger", *strange).status == 0
    assert admit(joined).status == 0
    agreement = Agreement.read(Path("server/run.agreement"))
    told = words.words_of(agreement.digest).split()
    other = words.words_of(b"other").split()

    def accept(site: str, *said: str) -> Any:
        return joined("accept", *said, "--policy", f"{site}/site.toml", "--yes")

    reached = OverHttps("127.0.0.1:0", Path("server/server.pem"), Path("server/server.key"))
    listener = reached.listener(Path("server"))
    served = pipe_of(agreement, listener.known_keys)
    with listener.opened(), listener.serving(served) as pipe:
        for site in ("north", "south", "stranger"):
            policy = Path(site, "site.toml")
            found = tomllib.loads(policy.read_text())["server"][0]["url"]
            policy.write_text(
                policy.read_text().replace(found, f"https://localhost:{listener.address[1]}")
            )
        assert "the server has another agreement" in accept("north", *other).assert_refused()
        line = accept("north", *told[:9]).assert_refused()
        assert "9 words (unknown: none); give its file" in line
        line = accept("north", *told[:9], "picknick").assert_refused()
        assert "10 words (unknown: picknick); give its file" in line
        assert "does not know this site's key" in accept("stranger", *told).assert_refused()
        assert not Path("north/state").exists()
        assert accept("north", " ".join(told).upper()).status == 0
        assert accept("south", agreement.digest.hex()).status == 0
        assert not any(each.there for each in pipe.sites)  # it was not an agent's session
    (accepted,) = Acceptances(read_policy(Path("north/site.toml"))).current()
    assert accepted.digest == agreement.digest
    assert "refused" in accept("north", *told).assert_refused()  # nothing listens any more


def test_a_site_changes_its_key_and_its_server_admits_the_change(
    joined: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert admit(joined).status == 0
    policy = read_policy(Path("north/site.toml"))
    accepted = ("accept", "server/run.agreement", "--policy", "north/site.toml", "--yes")
    assert joined(*accepted).status == 0
    old, changed = policy.key.read_bytes(), "north/north.changed"
    outcome = joined("keys", "north", "--rotate")
    assert outcome.status == 0, outcome.err
    assert "https://localhost:8443" in outcome.out
    reached = OverHttps("127.0.0.1:0", Path("server/server.pem"), Path("server/server.key"))
    for folder in ("receipts", "other", "run"):  # the server of another run has receipts, too
        Path("server", folder).mkdir()
    Path("server/other/agreement").write_text("{}")
    assert "no server has a folder of this run here" in admit(joined, changed).assert_refused()
    shutil.copy("server/run.agreement", "server/run/agreement")
    with alone(Path("server/receipts/admitting"), "test"):
        assert "another admission of keys is running" in admit(joined, changed).assert_refused()
    before: Any = SimpleNamespace(known_keys=KnownKeys.of(Path("server")))
    running._follow_keys(Path("server"), before)
    assert "already exists" in admit(joined, changed, "south/south.join").assert_refused()
    admitted = admit(joined, changed)
    assert admitted.status == 0, admitted.err
    assert words_in(admitted.out, "north") == words_in(outcome.out, "words")
    assert "was admitted before" in admit(joined, changed).assert_refused()
    begun = list[list[str]]()
    monkeypatch.setattr("os.execv", lambda program, arguments: begun.append(arguments))
    running._follow_keys(Path("server"), before)
    assert len(begun) == 1
    # A server that runs goes on to refuse the earlier key.
    after: Any = SimpleNamespace(known_keys=KnownKeys.of(Path("server")))
    known = Path("server/receipts/keys")
    text = known.read_bytes()
    for content in (b"{", text, None):
        known.unlink() if content is None else known.write_bytes(content)
        running._follow_keys(Path("server"), after)
    assert len(begun) == 1
    known.write_bytes(text)
    agreement = Agreement.read(Path("server/run.agreement"))
    listener, ca = reached.listener(Path("server")), Path("north/ca.pem")
    with listener.opened(), listener.serving(pipe_of(agreement, listener.known_keys)):
        url = f"https://localhost:{listener.address[1]}"
        assert fetch_digests(url, ca, read_private(policy.key)) == [agreement.digest]
        policy.key.write_bytes(old)
        with pytest.raises(ConfigError, match="knows that the key was changed"):
            fetch_digests(url, ca, read_private(policy.key))


def test_a_run_begins_with_weights_that_the_invite_names(deploy: Callable[..., Any]) -> None:
    from safetensors.numpy import save_file

    weights = {"1.bias": np.zeros(2, np.float32), "1.weight": np.zeros((2, 1), np.float32)}
    save_file({"other": weights["1.bias"]}, "model.safetensors")
    wrong = deploy(*INVITE, *URL, "--initial", "model.safetensors").assert_refused()
    assert "give the weights of a run with the same model" in wrong
    assert not Path("server/run.invite").exists()
    save_file(weights, "model.safetensors")
    assert deploy(*INVITE, *URL, "--initial", "model.safetensors").status == 0
    said = [join(deploy, site) for site in ("north", "south")]
    assert all("weights that have the digest" in each.out for each in said)
    kept = Path("server/run.initial.safetensors")
    save_file({**weights, "1.bias": np.ones(2, np.float32)}, kept)
    outcome = admit(deploy)
    assert outcome.status == 2
    assert "these are not the agreed weights" in outcome.err
    assert not Path("server/run.agreement").exists()
    kept.write_bytes(Path("model.safetensors").read_bytes())
    assert admit(deploy).status == 0
    agreement = Agreement.read(Path("server/run.agreement"))
    assert agreement.initial == joining.Invite.read(Path("server/run.invite")).initial is not None


def test_a_servers_certificate_is_renewed_in_one_command(invited: Callable[..., Any]) -> None:
    before = {name: Path("server", name).read_bytes() for name in ("ca.pem", "server.pem")}
    outcome = invited("keys", "server", "--server", "localhost")
    assert outcome.status == 0, outcome.err
    assert "a server uses them from its next start on" in outcome.out
    assert Path("server/ca.pem").read_bytes() == before["ca.pem"]
    assert Path("server/server.pem").read_bytes() != before["server.pem"]
    check_host(Path("server"), "localhost")
    given = ("keys", "server", "--site", "north", "--server", "localhost")
    assert "one of them alone" in invited(*given).assert_refused()


def test_a_site_with_another_key_keeps_its_ledger(joined: Callable[..., Any]) -> None:
    assert admit(joined).status == 0
    terms = ("--policy", "north/site.toml")
    assert joined("accept", "server/run.agreement", *terms, "--yes").status == 0
    (accepted,) = Acceptances(read_policy(Path("north/site.toml"))).current()
    assert joined("retire", accepted.digest.hex(), *terms).status == 0
    assert joined("keys", "next", "--site", "north").status == 0
    for name in ("north.key", "north.pub"):
        Path("next", name).replace(Path("north", name))
    assert joined(*INVITE[:3], "server/next.invite", *INVITE[4:], *URL).status == 0
    again = ("join", "server/next.invite", "--site", "north")
    assert "the ledger of another site's folder" in joined(*again).assert_refused()
    assert joined(*again, "--second-ledger").status == 0
    assert joined("join", "server/next.invite", "--site", "south").status == 0
    answers = ("north/north.join", "south/south.join", "--yes")
    assert joined("admit", "server/next.invite", *answers).status == 0
    agreement = Agreement.read(Path("server/next.agreement"))
    assert agreement.sites[0].key == Path("north/north.pub").read_text().strip()
    assert joined("accept", "server/next.agreement", *terms, "--yes").status == 0
    states = [each.state for each in Acceptances(read_policy(Path("north/site.toml"))).all()]
    assert states == ["retired", "accepted"]


def test_ten_words_stand_for_a_digest() -> None:
    stretched = runpy.run_path(words.__file__)["words_of"]  # as outside tests
    assert (
        stretched(b"\x01" * 32)
        == "high bounce daughter moon lantern rotate august pyramid language orange"
    )
    found = words.words_of(b"\x01" * 32)
    assert len(found.split()) == 10
    assert found == words.words_of(b"\x01" * 32) != words.words_of(b"\x02" * 32)
    assert words.unknown_words(found.upper().split()) == []
    assert words.unknown_words(["picnic", "picknick"]) == ["picknick"]
    assert len({word[:4] for word in words._LIST}) == len(words._LIST) == 1024


OWN = """
system = "personalized_sound"
num_clients = 2
dataset = "server/patients.csv"
label_column = "outcome"
classes = ["well", "ill"]
ignore_columns = ["patient", "relapse"]
scale_columns = {age = [0, 120]}
rounds = 2
clip = 1.0
epsilon = 4.0
"""


def test_sites_may_choose_budgets_that_nobody_learns(deploy: Callable[..., Any]) -> None:
    sums = 'channel = "sum"\nweighting = "uniform"\nlargest_epsilon = 8.0\n'
    Path("mine.toml").write_text(OWN + sums)
    command = ("invite", "mine.toml", "-o", "server/run.invite", "--channel", "sum")
    assert deploy(*command, "--examples", "60", *URL).status == 0
    line = join(deploy, "north", "--epsilon", "5").assert_refused()
    assert "the run states epsilon 4 for all sites, so none may choose more" in line
    assert not Path("north/site.toml").exists()
    outcome = join(deploy, "north", "--epsilon", "1.5")
    assert "own        epsilon 1.5 per client-run" in outcome.out
    assert "nobody else is told" in outcome.out
    assert join(deploy, "south").status == 0  # with what the invite says
    assert admit(deploy).status == 0
    sent = ("server/run.agreement", "north/north.join", "south/south.join")
    assert "1.5" not in "".join(Path(each).read_text() for each in sent)
    assert "own" not in document(Path("north/north.join").read_text())
    found = Agreement.read(Path("server/run.agreement"))
    assert found.config.model_dump()["epsilon"] == 4.0
    shown = []
    for site in ("north", "south"):
        accept = ("accept", "server/run.agreement", "--yes", "--policy", f"{site}/site.toml")
        outcome = deploy(*accept)
        assert outcome.status == 0, outcome.err
        shown.append(outcome.out)
    assert "own budget epsilon 1.5 per client-run at delta 1e-05, which nobody else" in shown[0]
    assert "own budget" not in shown[1]
    north, south = (
        Acceptances(read_policy(Path(f"{site}/site.toml"))).current()[0]
        for site in ("north", "south")
    )
    assert (north.own, south.own) == (1.5, None)
    assert 3 * north.promised[0] < south.promised[0]


def test_a_budget_that_all_sites_learn_is_stated_by_each_or_by_none(
    deploy: Callable[..., Any],
) -> None:
    Path("mine.toml").write_text(OWN)
    assert deploy(*INVITE[:-2], *URL).status == 0
    assert "give a number above 0" in join(deploy, "north", "--epsilon", "0").assert_refused()
    assert not Path("north/site.toml").exists()
    assert "all sites will be told" in join(deploy, "north", "--epsilon", "2").out
    assert join(deploy, "south").status == 0
    assert "let each site state one" in admit(deploy).err
    shutil.rmtree("south")
    write_table("south")
    assert join(deploy, "south", "--epsilon", "4").status == 0
    assert admit(deploy).status == 0
    found = Agreement.read(Path("server/run.agreement"))
    assert found.config.model_dump()["epsilon"] == [2.0, 4.0]
    accept = ("accept", "server/run.agreement", "--yes", "--policy", "south/site.toml")
    assert "own budget epsilon 4 per client-run at delta 1e-05" in deploy(*accept).out


def test_a_first_join_counts_in_the_kind_that_later_studies_can_use_too(tmp_path: Path) -> None:
    """A pure ledger would price Gaussian noise at infinity, and a ledger keeps its kind."""
    agreement = make_environment(tmp_path, sites=2).agreement
    assert costs_of(agreement, Budget("pure", math.inf))[1] < math.inf
    assert joining._budget(agreement, 1e4) == {"budget": {"kind": "zcdp", "limit": 1e4}}
