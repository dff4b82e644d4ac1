"""Checks, before a run, whether everything at a site or at a server is in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fedldp.core.errors import ConfigError, FedldpError, LedgerUnusable
from fedldp.data.people import count_of
from fedldp.deployment.acceptance import Acceptance, Acceptances
from fedldp.deployment.agreement import Agreement, check_stated
from fedldp.deployment.certificates import lifetime, tls_of_server
from fedldp.deployment.https.site import check_reachable
from fedldp.deployment.identity import check_private, public_of, read_private
from fedldp.deployment.initial import agreed_initial, beside
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.site import check_randomness, open_run
from fedldp.deployment.site_ledger import SiteLedger
from fedldp.deployment.source import SiteData, agreed_examples, is_about_people, open_source
from fedldp.deployment.status import Process, cannot_pay
from fedldp.ledgers.sqlite import in_list, renewals
from fedldp.protocol.keys import SecretKeys
from fedldp.reporting import words
from fedldp.simulation.result import is_finished


@dataclass(frozen=True)
class Found:
    """The result of one check.

    Attributes:
        ok: whether everything checked is in order.
        what: what was checked and what was found, in one line.
    """

    ok: bool
    what: str


Check = tuple[str, Callable[[], str], str]
"""What is checked; the test, which returns what is in order or raises an error; and what the
operator can do, unless the error says so itself."""

_WRITABLE = "check the folder's owner and the disk"
_DATES = "correct this machine's clock, or make another certificate"


def check_site(policy: SitePolicy) -> list[Found]:
    """Check a site's files, ledger and accepted agreements; this changes nothing.

    It opens the same files as the agent, with the same functions, and may run while the agent is
    running. A ledger or secret that was never created is not an error, because the agent will
    create it.
    """
    checks: list[Check] = [
        ("agent", lambda: _agent(policy), ""),
        ("data", lambda: f"{policy.data}: {open_source(*policy.source)}", ""),
        ("ledger", lambda: _ledger(policy), ""),
        ("mark", lambda: _writable(policy.mark.parent), _WRITABLE),
        ("key", lambda: f"{policy.key}: key {public_of(read_private(policy.key))[:16]}", ""),
        ("state", lambda: _writable(policy.state, policy.ledger), _WRITABLE),
        *_private_ones(data=policy.data, ledger=policy.ledger, state=policy.state),
    ]
    accepted = list[Acceptance]()
    with suppress(LedgerUnusable):  # which the check of the ledger tells
        accepted = Acceptances(policy).current()
    for server in policy.server:
        away = f"ask whether the server is running, or correct its url; else check {server.ca}"
        checks += [
            ("ca", partial(_in_time, server.ca, authorities=True), _DATES),
            ("server", partial(check_reachable, server.url, server.ca), away),
        ]
    checks += [("accepted", partial(_accepted, policy, each), "") for each in accepted]
    return [_tried(*each) for each in checks]


def check_server(folder: Path, agreement: Path, certificate: Path, key: Path) -> list[Found]:
    """Check a server's agreement, folder, certificate and key."""
    checks: list[Check] = [
        ("server", lambda: _server(folder), ""),
        ("agreement", lambda: _agreed(folder, agreement), ""),
        *_private_ones(folder=folder),
        ("certificate", lambda: _in_time(certificate), _DATES),
        ("key", lambda: _belongs(certificate, key), ""),
    ]
    return [_tried(*each) for each in checks]


def _private_ones(**paths: Path) -> list[Check]:
    """Return the checks that nobody else may read the paths that exist."""
    return [
        (name, partial(_private, name, path), "") for name, path in paths.items() if path.exists()
    ]


def _tried(name: str, test: Callable[[], str], remedy: str) -> Found:
    try:
        return Found(True, f"{name:<10} {test()}")
    except (FedldpError, ValueError, OSError) as error:
        return Found(False, f"{name:<10} {error}{f'; {remedy}' if remedy else ''}")


# Tests


def _agent(policy: SitePolicy) -> str:
    process = Process.of_agent(policy)
    told, refuses = _not_running(process), (process.known or {}).get("refuses")
    if told is None and refuses:
        raise FedldpError(f"it is running, but refuses: {refuses}")
    return told or "it runs"


def _server(folder: Path) -> str:
    process = Process.of_server(folder)
    return _not_running(process) or f"it runs: {(process.known or {}).get('next', 'unknown')}"


def _not_running(process: Process) -> str | None:
    """Return in words that a process does not run, or that this is unknown; None if it runs.

    Raises:
        FedldpError: it runs, but is silent, or its status cannot be read.
    """
    amiss = "; ".join(map(words.line, process.warnings()))
    if process.runs and amiss:
        raise FedldpError(amiss)
    if process.runs is None:
        return amiss
    return None if process.runs else "it is not running now"


def _private(name: str, path: Path) -> str:
    check_private(name, path)
    return f"{path}: readable by its owner only"


def _writable(folder: Path, *files: Path) -> str:
    for path in (folder, *files):
        if path.exists() and not os.access(path, os.W_OK):
            raise FedldpError(f"{path}: the agent cannot write there")
    return f"{folder}: the agent can write there"


def _ledger(policy: SitePolicy) -> str:
    kept = SiteLedger.existing(policy)
    if kept is None:
        return f"{policy.ledger}: not created yet; it will have a {in_list(policy.budgets)}"
    found = kept.ledger
    found.verify()
    _ = found.secret
    entries = kept.look()
    amounts = []
    for budget, *_, left in found.accounts(entries):
        if left < 0:
            raise FedldpError(
                f"{policy.ledger}: with the releases that may be lost, it exceeds its {budget} by "
                f"{budget.amount(-left)}, so nothing more is released"
            )
        amounts.append(budget.amount(left, up=False))
    return (
        f"{policy.ledger}: {len(entries) - renewals(entries)} releases, {' and '.join(amounts)} is "
        f"left; {kept.last_words(entries)}"
    )


def _agreed(folder: Path, agreement: Path) -> str:
    found = Agreement.read(agreement, own=None)
    found.check()
    check_stated(found)
    if found.initial is not None:
        agreed_initial(found, beside(agreement))
    own, state = folder / "agreement", "is not begun"
    if own.exists():
        if Agreement.read(own, own=None).digest != found.digest:
            raise FedldpError(
                f"{folder}: it belongs to another agreement; name that, or another folder"
            )
        state = "is complete" if is_finished(folder) else "continues there"
    what = f"{found.config.name()}, {len(found.sites)} sites, {found.channel}"
    return f"{agreement}: {what}; the run {state}"


def _belongs(certificate: Path, key: Path) -> str:
    tls_of_server(certificate, key)
    return f"{key}: belongs to the certificate; readable by its owner only"


def check_data(policy: SitePolicy, agreement: Agreement) -> str:
    """Refuse data that a run cannot use, or of which it would leave out too many rows.

    Only the site's operator may see the refusal: a round leaves rows out without a word.

    Returns:
        How many rows are left out, which, and why; "" if none are.

    Raises:
        FedldpError: the data do not fit, do not name a person for each row although the run
            requires it, or come from more than twice as many people as the run says that all sites
            have; the message tells the operator what the site can change.
    """
    source = open_source(*policy.source)
    columns, problem = agreement.config.columns, agreement.problem
    found = agreed_examples(agreement, source, policy.data)
    count, reasons = source.left_out(columns, problem.features, problem.end_of_labels)
    why = "; ".join(f"{name}: {source.named(rows)}" for name, rows in reasons.items())
    said = f"{count:,} of {len(source):,} rows do not fit ({why})"
    if count > policy.leave_out_at_most * len(source):
        raise ConfigError(
            f"data {policy.data}: {said}, and the policy leaves out at most "
            f"{policy.leave_out_at_most:.3g} of them (leave_out_at_most); "
            f"{_first_misfit(source, agreement)}"
        )
    if is_about_people(agreement):
        source.check_people(columns)
    stated = problem.num_examples if problem.people is None else problem.people
    people = len(found) if found.people is None else count_of(found.people)
    if people > 2 * stated:
        raise ConfigError(
            f"data {policy.data}: they come from {people:,} people, but the run says that all "
            f"sites together have about {stated:,}; ask the server's operator for another invite"
        )
    return said if count else ""


def check_replaced(policy: SitePolicy, agreement: Agreement, data: str) -> bool:
    """Return whether an agreement was accepted with other data; refuse data that a run cannot take.

    Args:
        policy: the site's policy for the run.
        agreement: the agreement, which may have been accepted before.
        data: what identifies the present data; see ``digest_of_data``.

    Raises:
        FedldpError: the site released something in the run for which something was drawn once, by
            the place of each example; see ``source.check_unchanged``.
    """
    before = Acceptances(policy).of(agreement.digest)
    if before is None or before.data == data:
        return False
    ledger = SiteLedger(policy, look=True).ledger
    source = open_source(*policy.source)
    open_run(policy, agreement, source, SecretKeys(ledger.secret, agreement.run), ledger)
    return True


def _first_misfit(source: SiteData, agreement: Agreement) -> str:
    """Return what is wrong with the first row that does not fit, and what the site can change.

    The settings for a table's columns come from the invite, so that a site cannot change them.
    """
    try:
        source.examples(agreement.config.columns, agreement.problem.features, leave_out=False)
    except FedldpError as error:
        return (
            f"the first: {error}. Only the data can be changed here, because all settings for "
            "columns are of the run; otherwise, ask the server's operator for another invite"
        )
    return "correct the labels, or ask the server's operator for another invite"


def _accepted(policy: SitePolicy, accepted: Acceptance) -> str:
    agreement, policy = accepted.allowed(policy)
    check_randomness(agreement)
    left_out = check_data(policy, agreement)
    source = open_source(*policy.source)
    accepted.check_data(policy, source.digest)
    ledger = SiteLedger(policy, look=True).ledger
    keys = SecretKeys(ledger.secret, agreement.run)
    index = open_run(policy, agreement, source, keys, ledger).index
    short = cannot_pay(ledger, accepted, agreement, index, ledger.releases())
    if short:
        raise FedldpError("; ".join(map(words.line, short)))
    said = f"; {left_out}, so they are left out" if left_out else ""
    name = agreement.sites[index].name
    return f"run {agreement.run[:8]}: {agreement.config.name()}, as {name}{said}"


def _in_time(path: Path, *, authorities: bool = False) -> str:
    """Return in words when a certificate expires; refuse one that is not valid now."""
    begins, ends = lifetime(path, authorities=authorities)
    now = datetime.now(UTC)
    if not begins <= now <= ends:
        raise FedldpError(
            f"{path}: valid from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}, but this machine's date is "
            f"{now:%Y-%m-%d}"
        )
    return f"{path}: valid until {ends:%Y-%m-%d}"
