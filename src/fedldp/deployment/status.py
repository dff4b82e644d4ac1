"""The state of a run at its server or at a site, read from files at any time.

Each side shows only its own state. A server does not know what is left of a site's budget: the
largest cost of a run is public, but only the site knows its limit and its other releases.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from fedldp.accounting.accountants import sent_of_nothing
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.formatting import number
from fedldp.core.locks import is_held
from fedldp.deployment.agreement import Agreement, parse_agreement, read_agreement
from fedldp.deployment.identity import read_private
from fedldp.deployment.policy import SitePolicy, check_accepted_data, is_retired
from fedldp.deployment.site_ledger import SiteLedger, was_begun
from fedldp.deployment.source import digest_of_data
from fedldp.deployment.watch import ENDED, read_status
from fedldp.ledgers.budget import Budget, total_of
from fedldp.ledgers.sqlite import LOST, Release, SqliteLedger, renewals
from fedldp.simulation.recorded import is_finished


def status_of_server(folder: Path) -> dict[str, Any]:
    """Return the state of the run in a server's folder, for ``fedldp deploy status --json``.

    Raises:
        FedldpError: the folder is not that of a server, or its agreement is damaged.
    """
    file = folder / "agreement"
    if not file.is_file():
        raise ConfigError(
            f"{folder}: not a server's folder, because it has no file named agreement; give the "
            "folder of fedldp deploy server, or a site's policy"
        )
    agreement = parse_agreement(file.read_bytes(), own=None)
    known, done = read_status(folder), _lines(folder / "metrics.jsonl")
    of, complete = agreement.config.rounds, is_finished(folder)
    runs = is_held(folder.with_name(f"{folder.name}.lock"))
    before = {each.get("name"): each for each in known.get("sites", ()) if isinstance(each, dict)}
    sites = [
        {
            "name": site.name,
            "last_seen": before.get(site.name, {}).get("last_seen"),
            "state": before.get(site.name, {}).get("state", "unseen"),
            "budget_left": None,
            **{
                key: before.get(site.name, {}).get(key, otherwise)
                for key, otherwise in _MORE.items()
            },
        }
        for site in agreement.sites
    ]
    if complete:
        following = f"the run is complete: see {folder / 'report.html'}"
    elif runs:
        following = str(known.get("next", "begins"))
    elif _ended(known) is not None:
        usable = "no round is complete, so there is no model"
        if done:
            usable = (
                f"the model after {done} of {of} rounds can be used, for example with fedldp "
                f"evaluate {folder}; its statement and scores are in {folder / 'report.html'}"
            )
        following = f"{usable}; once the cause is mended, fedldp deploy server continues the run"
    else:
        following = (
            "start fedldp deploy server again, which continues after the last complete round"
        )
    return {
        "rounds": {"done": done, "of": of},
        "sites": sites,
        "next": following,
        "warnings": [] if complete else list(_of_server(runs, known, sites)),
        "run": agreement.run,
        "digest": agreement.digest.hex(),
        "state": "complete" if complete else "runs" if runs else "stopped",
        "seconds": known.get("seconds"),
    }


_MORE = {"detail": None, "rounds": 0, "sent_bytes": 0, "received_bytes": 0}


def _of_server(runs: bool, known: dict[str, Any], sites: Iterable[dict[str, Any]]) -> Iterable[str]:
    if not runs:
        yield "the server is not running"
        ended = _ended(known)
        if ended is not None:
            yield f"the run ended: {ended}"
        elif str(known.get("next", "")).startswith("stopped: "):
            yield str(known["next"])
    missed = known.get("missed", 0)
    if missed:
        yield f"the current round was tried {missed} times, but too few sites took part"
    for site in sites:
        detail = f" ({site['detail']})" if site["detail"] else ""
        if site["state"] in _AMISS:
            yield f"{site['name']} {_AMISS[site['state']]}{detail}"


def _ended(known: dict[str, Any]) -> str | None:
    """Return why a run ended that would end again if it were continued; None if none did."""
    text = str(known.get("next", ""))
    return text.removeprefix(ENDED) if text.startswith(ENDED) else None


_AMISS = {
    "unseen": "was never there",
    "away": "is not there",
    "not-accepted": "has not accepted the agreement",
    "other-version": "has another version of fedldp",
    "refused": "refused",
}


def status_of_site(policy: SitePolicy) -> dict[str, Any]:
    """Return a site's state in the form of a server's, plus details that only the site may see."""
    runs, known = is_held(policy.state / "lock"), read_status(policy.state)
    warnings = [] if runs else ["the agent is not running"]
    budgets: list[dict[str, Any]] | None = None
    entries, last = list[Release](), "no release yet"
    ledger: SqliteLedger | None = None
    try:
        if policy.ledger.exists() or was_begun(policy):
            kept = SiteLedger(policy, look=True)
            entries = kept.look()
            last = kept.last_words(entries)
            ledger = kept.ledger
            budgets = budgets_of(ledger, entries)
        else:
            limits = [budget.limit for budget in policy.budgets]
            budgets = _left(policy.budgets, [0.0] * len(limits), limits)
    except FedldpError as error:
        warnings.append(str(error))
    if runs and known.get("refuses"):
        warnings.append(f"the agent refuses: {known['refuses']}")
    connected = bool(runs and known.get("connected"))
    if runs and not connected:
        warnings.append(f"the server cannot be reached: {known.get('amiss')}")
    found, names, own = list[dict[str, Any]](), list[str](), _own(policy)
    data = _data_now(policy)
    for path in sorted(policy.accepted.glob("*.agreement")):
        try:
            agreement = read_agreement(path, policy.data_dir, own=policy.own_code)
        except FedldpError as error:
            warnings.append(str(error))
            continue
        places = [place for place, site in enumerate(agreement.sites) if site.key == own]
        names += [agreement.sites[place].name for place in places]
        of = agreement.rounds_of(places[0]) if places else 0
        found.append(_run(policy, agreement, entries, of))
        if data is not None and found[-1]["state"] == "under way":
            try:
                check_accepted_data(policy, agreement.digest, data)
            except FedldpError as error:
                warnings.append(str(error))
        if ledger is not None and places and found[-1]["state"] == "under way":
            try:
                check_can_pay(ledger, policy.as_here(agreement), places[0], entries)
            except FedldpError as error:
                warnings.append(str(error))
    under_way = [each for each in found if each["state"] == "under way"]
    state = "stopped" if not runs else "refused" if known.get("refuses") else "ready"
    return {
        "rounds": {
            "done": sum(each["rounds"]["done"] for each in found if each["state"] != "retired"),
            "of": sum(each["rounds"]["of"] for each in found if each["state"] != "retired"),
        },
        "sites": [
            {
                "name": names[-1] if names else policy.key.stem,
                "last_seen": known.get("last_seen"),
                "state": "away" if state == "ready" and not connected else state,
                "budget_left": budgets,
            }
        ],
        "next": _next_of_site(runs, under_way, found),
        "warnings": warnings,
        "runs": found,
        "last_release": last,
        "server": policy.server.url,
    }


def check_can_pay(
    ledger: SqliteLedger, agreement: Agreement, index: int, entries: list[Release]
) -> None:
    """Refuse if the run may have another round for which the ledger cannot pay.

    Raises:
        FedldpError: the ledger cannot pay; the message says what a round costs and what is left.
    """
    of_run = [entry for entry in entries if entry.run == agreement.run]
    if len({entry.round for entry in of_run}) >= agreement.rounds_of(index):
        return
    paid = [entry.event for entry in of_run]
    lefts = ledger.all_remaining(entries)
    for budget, left in zip(ledger.budgets, lefts, strict=True):
        events = agreement.events_of(index)
        cost = budget.spent([total_of(budget.price(event, paid) for event in events)])
        if cost > left:
            raise FedldpError(
                f"run {agreement.run[:8]}: its next round costs {budget.amount(cost)}, but only "
                f"{number(left, up=False)} is left: the agent refuses it"
            )


def rounds_paid(policy: SitePolicy, agreement: Agreement, index: int) -> tuple[int, int]:
    """Return how many rounds of a run the site's budgets pay for, and how many it takes part in.

    Rounds that the site has already paid for count. This creates no ledger.

    Args:
        policy: the site's policy.
        agreement: the agreement of the run.
        index: the site's number in it.

    Raises:
        LedgerUnusable: see ``SiteLedger``.
    """
    of, entries = agreement.rounds_of(index), list[Release]()
    lefts = [budget.limit for budget in policy.budgets]
    if policy.ledger.exists() or was_begun(policy):
        kept = SiteLedger(policy, look=True)
        entries = kept.look()
        lefts = kept.ledger.all_remaining(entries)
    of_run = [entry for entry in entries if entry.run == agreement.run]
    paid = [entry.event for entry in of_run]
    done, events = (
        len({entry.round for entry in of_run}),
        policy.as_here(agreement).events_of(index),
    )
    found = of
    for budget, left in zip(policy.budgets, lefts, strict=True):
        if left == math.inf:
            continue
        first = total_of(budget.price(event, paid) for event in events)
        later = total_of(budget.price(event, [*paid, *events]) for event in events)
        if first > left:
            found = min(found, done)
        elif later > 0:
            found = min(found, done + 1 + int((Fraction(left) - Fraction(first)) // later))
    return found, of


def check_can_pay_all(
    policy: SitePolicy, agreement: Agreement, index: int, enough: int | None
) -> None:
    """Refuse a run for whose rounds the site's budgets cannot pay.

    Args:
        policy: the site's policy.
        agreement: the agreement of the run.
        index: the site's number in it.
        enough: how many rounds are enough. None: all.

    Raises:
        FedldpError: the budgets cannot pay for so many rounds.
    """
    paid, of = rounds_paid(policy, agreement, index)
    if enough is not None and not 1 <= enough <= of:
        raise ConfigError(f"rounds = {enough}: this site takes part in {of}; give 1 to {of}")
    if paid < (of if enough is None else enough):
        fewer = f", or accept it for fewer rounds: --rounds {paid}" if paid else ""
        raise ConfigError(
            f"what is left of this site's budgets covers only {paid} of the {of} rounds that it "
            f"takes part in; refuse this agreement, and ask for one that costs less{fewer}"
        )


def budgets_of(ledger: SqliteLedger, entries: list[Release]) -> list[dict[str, Any]]:
    """Return what each budget of a ledger allows, has spent and has left; None means infinity.

    ``left`` counts since the owner's last renewal, ``spent`` since the beginning.
    """
    lefts = ledger.all_remaining(entries)
    return _left(ledger.budgets, ledger.all_spent(entries), lefts, renewals(entries))


def _left(
    budgets: Iterable[Budget], spent: Iterable[float], left: Iterable[float], renewed: int = 0
) -> list[dict[str, Any]]:
    return [
        {
            "kind": budget.kind,
            "limit": _finite(budget.limit),
            "unit": budget.unit,
            "spent": _finite(used),
            "left": _finite(rest),
            "renewals": renewed,
        }
        for budget, used, rest in zip(budgets, spent, left, strict=True)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _run(
    policy: SitePolicy, agreement: Agreement, entries: list[Release], of: int
) -> dict[str, Any]:
    of_run = [entry for entry in entries if entry.run == agreement.run]
    answered = {
        entry.round
        for entry in of_run
        if entry.request != LOST.hex() and sent_of_nothing(entry.event) is None
    }
    done = len(answered)
    over = "all rounds answered" if done >= of else "under way"
    return {
        "run": agreement.run,
        "digest": agreement.digest.hex(),
        "system": agreement.config.name(),
        "rounds": {"done": done, "of": of},
        "state": "retired" if is_retired(policy, agreement.digest) else over,
    }


def _next_of_site(runs: bool, under_way: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    if not found:
        return "accept an agreement: fedldp deploy accept run.agreement"
    if not runs:
        return "start the agent: fedldp deploy site site.toml"
    if under_way:
        return "answers " + ", ".join(f"run {each['run'][:8]}" for each in under_way)
    done = [each["digest"][:16] for each in found if each["state"] != "retired"]
    if done:
        return f"all rounds are answered; once the server is done: fedldp deploy retire {done[0]}"
    return "accept an agreement: fedldp deploy accept run.agreement"


def _data_now(policy: SitePolicy) -> str | None:
    """Return what identifies the site's data now; None if they cannot be read."""
    try:
        return digest_of_data(policy.data, policy.label_column, policy.person_column)
    except FedldpError:
        return None


def _own(policy: SitePolicy) -> str | None:
    """Return the site's public key, if its file can be read."""
    try:
        return read_private(policy.key).public_key().public_bytes_raw().hex()
    except FedldpError:
        return None


def _lines(path: Path) -> int:
    try:
        return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if json.loads(line))
    except (OSError, ValueError):
        return 0
