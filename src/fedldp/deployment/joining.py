"""How sites join a run without moving a private key: invite, join, admit.

    server's operator                              a site's operator
    invite: what the run will be, and where  --->  join: keys and policy
    admit: the roster, and the agreement     <---  NAME.join: name and public key, signed

Both files are public, but must arrive unchanged. People check this by telephone: they compare the
ten words of each site's file, which also cover the invite.
"""

from __future__ import annotations

import base64
import math
import os
import re
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import tomlkit
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field, PlainSerializer, PlainValidator

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, Noted, os_errors
from fedldp.core.registry import import_extra
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, Channel, RunDocument, check_frozen
from fedldp.deployment.certificates import authorities_of, fingerprint, fingerprints
from fedldp.deployment.checks import check_data
from fedldp.deployment.data_ledgers import check_only, note_ledger
from fedldp.deployment.deployable import without_simulation
from fedldp.deployment.documents import LARGEST, SITE_NAME, SignedDocument, check_version
from fedldp.deployment.identity import (
    check_private,
    make_identity,
    new_file,
    read_keys,
    read_private,
    replace_secret,
)
from fedldp.deployment.key_changes import KnownKeys
from fedldp.deployment.own_budgets import Joining, OwnBudget, stay_at_sites
from fedldp.deployment.policy import (
    URL,
    ServerTable,
    SitePolicy,
    StudyTable,
    budget_table,
    checked_policy,
    costs_of,
    needed_for,
    protected_part,
    read_policy,
)
from fedldp.ledgers.budget import Budget
from fedldp.reporting import words

_NONCE_BYTES = 16
POLICY = "site.toml"


def _certificate(given: Any) -> bytes:
    """Return a certificate (DER), which a document has in base64."""
    found = given if isinstance(given, bytes) else base64.b64decode(given, validate=True)
    x509.load_der_x509_certificate(found)
    return found


class Invite(RunDocument):
    """An invitation from a server's operator to take part in a run.

    The configuration's number of clients is the expected number of sites.

    Attributes:
        url: the server's address.
        authorities: certificates (DER) of the authorities that may sign the server's certificate.
        quorum: see ``agree``.
        nonce: 32 random hexadecimal digits, so that no two invites are equal.
    """

    kind = "invite"
    what = "invite"

    url: Annotated[str, Field(pattern=URL)]
    authorities: tuple[
        Annotated[
            bytes,
            PlainValidator(_certificate),
            PlainSerializer(lambda each: base64.b64encode(each).decode()),
        ],
        ...,
    ] = ()
    quorum: Annotated[int, Field(ge=1)] | None = None
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse an invite of another version, or without authority."""
        check_version(self.version)
        if not self.authorities:
            raise ConfigError("it names no authority of its server; ask for it again")

    @classmethod
    def new(
        cls,
        config: RunConfig,
        problem: Problem,
        url: str,
        *,
        channel: Channel,
        quorum: int | None,
        deadline_seconds: float,
        initial: str | None = None,
    ) -> Invite:
        """Return a new invite without its server's authorities, which ``vouched`` adds.

        Raises:
            ConfigError: the run cannot be deployed; the message says why.
        """
        told = without_simulation(config).changed(target=config.target)
        return cls(
            url=url,
            config=told,
            problem=problem,
            channel=channel,
            quorum=quorum,
            deadline_seconds=deadline_seconds,
            nonce=os.urandom(_NONCE_BYTES).hex(),  # noqa: TID251  # the nonce of an invitation
            version=version("fedldp"),
            initial=initial,
            frozen=told.algorithm(problem).frozen_digest(),
        )

    def vouched(self, ca: Path) -> Invite:
        """Return the invite with its server's authorities: the certificates in a PEM file."""
        return self.changed(authorities=tuple(authorities_of(ca)))

    @property
    def ca_pem(self) -> bytes:
        """The authorities' certificates, PEM."""
        found = [x509.load_der_x509_certificate(each) for each in self.authorities]
        return b"".join(each.public_bytes(Encoding.PEM) for each in found)

    def agreement(self, answers: Sequence[Joining]) -> Agreement:
        """Return the agreement with the sites that gave these answers.

        If one states a budget of its own, the agreement has the answers, for all sites to see.

        Raises:
            ConfigError: the run cannot be deployed with this many sites, or with these budgets; the
                message says why.
        """
        config = self.config
        if any(each.own for each in answers):
            common = config.model_dump().get("epsilon")
            epsilons = [each.own.epsilon if each.own else common for each in answers]
            config = config.changed(num_clients=len(answers), epsilon=epsilons)
        return self._agreement(config, {each.name: each.key for each in answers}, answers)

    def _agreement(
        self, config: RunConfig, sites: Mapping[str, str], answers: Sequence[Joining] = ()
    ) -> Agreement:
        found = agree(
            config,
            self.problem,
            sites,
            channel=self.channel,
            quorum=self.quorum,
            deadline_seconds=self.deadline_seconds,
            server_ca=[fingerprint(each) for each in self.authorities],
            initial=self.initial,
            invite=self.digest.hex(),
            answers=answers,
        )
        check_frozen(found, self.frozen)
        return found

    def expected(self, own: OwnBudget | None = None) -> Agreement:
        """Return the agreement that results if as many sites join as expected.

        It has placeholder keys; use it to see the statement and the cost.

        Args:
            own: the budget of the site that looks at the agreement; all other sites are assumed to
                have the same budget.
        """
        config = self.config if own is None else self.config.changed(epsilon=own.epsilon)
        sites = {f"site-{i}": f"{i:064x}" for i in range(config.num_clients)}
        return self._agreement(config, sites)


def host_of(url: str) -> str:
    """Return the host of a server's address.

    Raises:
        ConfigError: the address does not have the form https://HOST:PORT.
    """
    if not re.fullmatch(URL, url):
        raise ConfigError(f"url = {url}: write it as https://HOST:PORT")
    return urlsplit(url).hostname or ""


class Vouched(SignedDocument):
    """A site's answer to an invite, which a network that knows the site signed.

    Attributes:
        joining: the site's answer.
    """

    kind = "vouched"
    what = "join file"

    joining: Joining

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse an answer that its network or its site did not sign."""
        super().check_read(own)
        self.joining.check_read(own)


@dataclass(frozen=True)
class Terms:
    """What a site's operator decides when joining.

    Attributes:
        data: the site's examples. None for a site that has a policy, with data and a budget.
        budget: the limit on everything that the site ever releases about these data. None: not
            decided yet.
        label_column: the label column of a table. None: the one that the invite names.
        person_column: the person column of a table. None: the one that the invite names.
        epsilon: the epsilon of the site's own budget. None: the epsilon that the invite has for all
            sites.
    """

    data: Path | None = None
    budget: float | None = None
    label_column: str | None = None
    person_column: str | None = None
    epsilon: float | None = None

    def own(self, invite: Invite) -> OwnBudget | None:
        """Return the site's own budget for a run, if it has one.

        Raises:
            ConfigError: the system has no proof for the chosen epsilon.
        """
        config = invite.config
        if self.epsilon is None:
            return None
        if "epsilon" not in config.per_client:
            raise ConfigError(
                f"epsilon = {self.epsilon:g}: in {config.name()} the invite sets one epsilon for "
                "all sites; leave --epsilon out, or ask for a system in which each site may "
                "have its own (fedldp list systems)"
            )
        found = OwnBudget.of(config, self.epsilon)
        found.check(config, self.epsilon)
        return found


@dataclass(frozen=True)
class Joined:
    """The result of joining.

    Attributes:
        invite: what was answered.
        file: the file to send to the server's operator.
        joining: the content of the file.
        policy: the policy of the site for the run.
        expected: the agreement that results if as many sites join as expected.
        noted: whether a file beside the data says that this site's ledger counts them.
    """

    invite: Invite
    file: Path
    joining: Joining
    policy: SitePolicy
    expected: Agreement
    noted: bool


def join(
    path: Path,
    name: str,
    terms: Terms,
    folder: Path,
    *,
    second_ledger: bool = False,
    confirm: Callable[[Sequence[str]], None] = lambda added: None,
) -> Joined:
    """Create a site's keys and policy in ``folder``, or add to them; and its answer to an invite.

    Args:
        path: the file of the invite that the site received.
        name: the name of the site.
        terms: what its operator decided.
        folder: the site's folder, created if it does not exist.
        second_ledger: whether the operator declares another ledger for data that have one.
        confirm: is called with what the policy lacks and will be added, in words; it may raise.

    Raises:
        FedldpError: the invite cannot be read, the data are incompatible with it, no budget covers
            the cost, the terms lack the data or have what the policy already sets, or a file
            already exists. In that case nothing is written.
    """
    if not re.fullmatch(SITE_NAME, name):
        raise ConfigError(f"site {name!a:.80}: give a name of letters, digits, . _ -")
    place = folder / POLICY
    if terms.data is None:
        if not place.exists():
            raise ConfigError("data is not set: give --data FILE, this site's examples")
        if (terms.budget, terms.person_column) != (None, None):
            raise ConfigError(
                f"{place} already sets the budget and the person column; leave these options out"
            )
        invite = Invite.read(path, own=read_policy(place).own_code)
        policy, expected = _joined_again(
            invite, terms, place, second=second_ledger, confirm=confirm
        )
    else:
        if place.exists():
            raise ConfigError(
                f"{place} exists already, with data and a budget; to answer another invite with "
                "the same key and ledger, leave --data and --budget out; otherwise choose "
                "another --folder"
            )
        invite = Invite.read(path)
        expected = invite.expected(terms.own(invite))
        text = _policy(invite, expected, name, terms, folder)
        policy = checked_policy(tomllib.loads(text), place)
        check_data(policy, expected)
        check_private("data", terms.data)
        check_only(terms.data, (), second=second_ledger)
        with os_errors(f"folder {folder}", "choose another --folder"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        make_identity(folder / f"{name}.key", folder / f"{name}.pub")
        new_file(folder / "ca.pem", invite.ca_pem, 0o644)
        new_file(place, text.encode(), 0o600)
    keys = read_keys(policy.key)
    noted = note_ledger(policy.data, keys, second=second_ledger)
    own = None if stay_at_sites(invite.config) else policy.own
    joining = Joining.signed(
        keys[0], version=version("fedldp"), invite=invite.digest.hex(), name=name, own=own
    )
    file = folder / f"{name}.join"
    file.unlink(missing_ok=True)
    new_file(file, joining.to_bytes(), 0o644)
    return Joined(invite, file, joining, policy, expected, noted)


def _joined_again(
    invite: Invite,
    terms: Terms,
    place: Path,
    *,
    second: bool,
    confirm: Callable[[Sequence[str]], None],
) -> tuple[SitePolicy, Agreement]:
    """Add to a site's policy what it lacks for an invite; see ``join``.

    Returns:
        The policy for the run, and the expected agreement.
    """
    policy, added = read_policy(place), list[str]()
    # Its owner's comments stay. tomlkit adds to the last line if that does not end.
    document = tomlkit.parse(place.read_text(encoding="utf-8").rstrip() + "\n")
    for setting, values in needed_for(invite).items():
        allowed = getattr(policy, setting)
        lacks = [value for value in values if allowed is not None and value not in allowed]
        if lacks:
            document[setting].extend(lacks)
            added.append(f"{setting}: {', '.join(lacks)}")
    label, own = terms.label_column or invite.config.label_column, policy.own
    if terms.epsilon is not None or "epsilon" not in invite.config.per_client:
        own = terms.own(invite)
    study = StudyTable(invite=invite.digest.hex(), label_column=label, own=own)
    before = study.changed(label_column=policy.label_column, own=policy.own)
    for each in policy.study:  # the last one for the invite counts; see ``policy_for``
        before = each if each.invite == study.invite else before
    if study != before:
        table = study.model_dump(exclude={"invite"}, exclude_none=True)
        added.append(f"study: for this run, {table}")
        document.setdefault("study", tomlkit.aot()).append({"invite": study.invite, **table})
    server = next((each for each in policy.server if each.url == invite.url), None)
    new_ca: Path | None = None
    if server is None:
        new_ca = place.with_name(f"ca-{invite.digest.hex()[:8]}.pem")
        server = ServerTable(url=invite.url, ca=new_ca)
        document["server"].append({"url": invite.url, "ca": new_ca.name})
        added.append(f"server: {invite.url}, by the authorities of the invite")
    elif {*fingerprints(server.ca)} != {fingerprint(each) for each in invite.authorities}:
        raise ConfigError(
            f"server.ca = {server.ca}: the invite names other authorities of {invite.url}; if its "
            "operator confirms by telephone that they are right, put its ca.pem there, once all "
            "runs whose agreements do not name them are over"
        )
    expected = invite.expected(study.own)
    text = tomlkit.dumps(document)
    here = checked_policy(tomllib.loads(text), place).for_run(server, study)
    here.check(expected.changed(server_ca=()) if new_ca else expected)  # it is not written yet
    check_data(here, expected)
    check_private("data", policy.data)
    check_only(policy.data, policy.public_keys, second=second)
    if added:
        confirm(added)
    if new_ca is not None:
        new_file(new_ca, invite.ca_pem, 0o644)
    if added:
        replace_secret(place, text.encode())
    return here, expected


def fetched_agreement(policy: SitePolicy, check: Callable[[bytes], None]) -> tuple[Agreement, str]:
    """Return the agreement of one of a site's servers that passes a check of its digest.

    Args:
        policy: the site's policy.
        check: refuses the digest of an agreement other than the one that is meant.

    Returns:
        The agreement, and the address of its server.

    Raises:
        FedldpError: no server that is reached and knows the site has such an agreement.
    """
    import_extra("starlette", extra="deploy")
    from fedldp.deployment.https.site import fetch_agreement, fetch_digests

    key, amiss = read_private(policy.key), Noted()
    for server in policy.server:
        with amiss.check():
            digests = fetch_digests(server.url, server.ca, key)
            if not digests:
                raise ConfigError(
                    f"server {server.url}: it runs no agreement that names this site's key"
                )
            for digest in digests:
                with amiss.check():
                    check(digest)
                    content = fetch_agreement(server.url, server.ca, key, LARGEST, digest)
                    found = Agreement.parse(content, policy.data_dir, own=policy.own_code)
                    check(found.digest)
                    return found, server.url
    amiss.refuse()
    raise AssertionError("a policy has a server")


def _answer(file: Path, network: str | None) -> Joining:
    """Return a site's answer, signed by a network if one is given as its public key."""
    if not Vouched.is_in(file):
        if network is not None:
            raise ConfigError(
                f"join file {file}: no network signed it; ask for the signed file, or admit the "
                "sites by their words, without --signed-by"
            )
        return Joining.read(file)
    found = Vouched.read(file)
    if found.key != network:
        known = "" if network is None else f", not {network[:16]},"
        raise ConfigError(
            f"join file {file}: a network with the key {found.key[:16]}{known} signed it; give its "
            "public key (--signed-by) if you know that network, or ask the site for its own file"
        )
    return found.joining


def admit(
    invite: Invite, files: Sequence[Path], known: KnownKeys, network: str | None = None
) -> list[Joining]:
    """Return the answers in ``files``, if all are for this invite and from different sites.

    Args:
        invite: the invite.
        files: the sites' answers.
        known: what the server knows about changed keys.
        network: the public key of the network that must have signed them. None: nobody did.

    Raises:
        ConfigError: an answer is for another invite, signed with a key that its site has changed,
            or not signed by the network, or two answers are from one site; the message names their
            files.
    """
    found = [_answer(file, network) for file in files]
    names: dict[str, Path] = {}
    keys: dict[str, Path] = {}
    for file, each in zip(files, found, strict=True):
        if each.invite != invite.digest.hex():
            raise ConfigError(
                f"join file {file}: site {each.name} answers another invite; send it this invite "
                "again"
            )
        if known.is_replaced(each.key):
            raise ConfigError(
                f"join file {file}: site {each.name} changed the key {each.key[:16]}, which is no "
                "longer valid; let it join with its present key"
            )
        if each.key in keys:
            raise ConfigError(
                f"join files {keys[each.key]} and {file}: they have the same key, but a site "
                "takes part in a run only once; leave one out"
            )
        if each.name in names:
            raise ConfigError(
                f"join files {names[each.name]} and {file}: both sites are called {each.name}; "
                "ask one of them to join under another name"
            )
        names[each.name] = keys[each.key] = file
    return found


def _policy(invite: Invite, expected: Agreement, name: str, terms: Terms, folder: Path) -> str:
    """Return the text of a new site's policy, which allows only what the invite asks for.

    Paths inside the site's folder are relative to it.
    """
    own = terms.own(invite)
    assert terms.data is not None
    data, inside = terms.data.absolute(), folder.absolute()
    table = {
        "data": str(data.relative_to(inside) if data.is_relative_to(inside) else data),
        "label_column": terms.label_column or invite.config.label_column,
        # Later studies are charged for the same people, whatever they call a person.
        "person_column": terms.person_column or invite.config.person_column,
        "key": f"{name}.key",
        "state": "state",
        **needed_for(invite),
        **_budget(expected, terms.budget),
        "own": None if own is None else own.model_dump(),
        "server": [{"url": invite.url, "ca": "ca.pem"}],
    }
    return tomlkit.dumps({name: value for name, value in table.items() if value is not None})


def _budget(expected: Agreement, limit: float | None) -> dict[str, dict[str, Any]]:
    """Return the budget table of a policy, with a budget that can pay for a run.

    The budget is for each person if the run protects people.
    """
    part = protected_part(expected) if expected.in_clear else None
    if expected.in_clear and part is None:
        raise ConfigError(
            f"invite: {expected.config.name()} sends {words.line(expected.in_clear[0])} "
            "unprotected, which no budget covers; refuse the invite, or write a policy with "
            "allow_in_clear by hand"
        )
    count = Budget("zcdp", math.inf, part or "client")
    run = costs_of(expected, count)[1]
    if run == math.inf:
        raise ConfigError(
            f"invite: what {expected.config.name()} sends has no proven finite cost; refuse the "
            "invite"
        )
    if limit is None:
        raise ConfigError(
            f"budget is not set: the invite's run costs {count.amount(run)}; give --budget LIMIT, "
            "for everything that this site ever releases about these data, in all runs together"
        )
    if not 0 < limit < math.inf:
        raise ConfigError(f"budget = {limit:g}: give a finite number above 0")
    return budget_table(part, limit)
