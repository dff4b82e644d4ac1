"""The state of a run at its server or at a site, read from files at any time.

Each side shows only its own state. A server does not know what is left of a site's budget: the
largest cost of a run is public, but only the site knows its limit and its other releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.facts import Status
from fedldp.core.kinds import (
    CANNOT_BE_READ,
    CANNOT_PAY,
    ENDED,
    NOT_RUNNING,
    NOT_SERVED,
    QUORUM_MISSED,
    REFUSES,
    SILENT,
    SITE_AMISS,
    UNREACHABLE,
)
from fedldp.core.locks import is_held
from fedldp.deployment.acceptance import Acceptance, Acceptances, policy_for
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import lifetime, validity
from fedldp.deployment.policy import SitePolicy, rounds_answered
from fedldp.deployment.runs import Queue, asked_to_finish
from fedldp.deployment.site_ledger import NO_RELEASE, SiteLedger
from fedldp.deployment.source import digest_of_data
from fedldp.deployment.watch import FILE, SILENT_SECONDS, read_status
from fedldp.ledgers.budget import total_of
from fedldp.ledgers.sqlite import Account, Release, SqliteLedger, renewals
from fedldp.reporting import words
from fedldp.simulation.result import is_finished


def status_of_server(folder: Path) -> dict[str, Any]:
    """Return the state of the run in a server's folder, for ``fedldp deploy status --json``.

    What cannot be read is None, and a warning says so.

    Raises:
        FedldpError: the folder is not that of a server, or its agreement is damaged.
    """
    file = folder / "agreement"
    if not file.is_file():
        raise ConfigError(
            f"{folder}: not a server's folder, because it has no file named agreement; give the "
            "folder of a run, or a site's policy; fedldp deploy list names the runs of a home"
        )
    agreement = Agreement.parse(file.read_bytes(), own=None)
    process = Process.of_server(folder)
    known, complete = process.known or {}, is_finished(folder)
    done = known.get("rounds", {}).get("done")
    before = {each.get("name"): each for each in known.get("sites", ()) if isinstance(each, dict)}
    sites = [
        {"name": site.name, "budget_left": None}
        | {name: before.get(site.name, {}).get(name) for name in ("last_seen", "state", "detail")}
        for site in agreement.sites
    ]
    warnings = list[Status]()
    if not complete:
        warnings += process.warnings()
        warnings += [] if process.over is None else [process.over]
        warnings += of_watched(known, sites)
    return {
        "rounds": {"done": done, "of": agreement.config.rounds},
        "sites": sites,
        "next": _next_of_server(folder, process, complete, done, agreement.config.rounds),
        "warnings": words.facts(warnings),
        "run": agreement.run,
        "digest": agreement.digest.hex(),
        "state": "complete" if complete else process.state("runs"),
        "seconds": known.get("seconds"),
    }


@dataclass(frozen=True)
class Process:
    """What can be read about a server's or an agent's process.

    Attributes:
        of: "server" or "agent".
        lock: the file that the process holds while it runs.
        file: the file to which it writes its status.
        runs: whether the process exists; None if that is unknown.
        known: the status that it wrote last; None if it cannot be read.
    """

    of: str
    lock: Path
    file: Path
    runs: bool | None
    known: dict[str, Any] | None

    @classmethod
    def of_server(cls, folder: Path) -> Process:
        """Return the process of the server of a folder."""
        return cls._of("server", folder, folder.with_name(f"{folder.name}.lock"))

    @classmethod
    def of_agent(cls, policy: SitePolicy) -> Process:
        """Return the process of a site's agent."""
        return cls._of("agent", policy.state, policy.state / "lock")

    @classmethod
    def _of(cls, of: str, folder: Path, lock: Path) -> Process:
        runs, known = is_held(lock), read_status(folder)
        if runs is False and not lock.exists() and known is not None and not known.get("ended"):
            runs = None  # a process that ends says so, and one that is killed leaves its lock
        return cls(of, lock, folder / FILE, runs, known)

    @property
    def silent_since(self) -> str | None:
        """When a process that exists wrote its status last, if that is too long ago."""
        if not self.runs or self.known is None:
            return None
        written = str(self.known["written"])
        age = (datetime.now(UTC) - datetime.fromisoformat(written)).total_seconds()
        return written if age > SILENT_SECONDS else None

    @property
    def over(self) -> Status | None:
        """Why a server that does not run has ended, if it said so."""
        found = None if self.runs or self.known is None else self.known.get("over")
        if found is None:
            return None
        try:
            return Status.from_json(found)
        except ConfigError as error:
            return CANNOT_BE_READ(what="reason why the server ended", why=str(error))

    def state(self, running: str | None) -> str | None:
        """Return the state in a word; ``running`` if the process runs and writes its status."""
        if self.runs is None or (self.runs and self.known is None):
            return None
        if not self.runs:
            return "stopped"
        return running if self.silent_since is None else "silent"

    def warnings(self) -> Iterator[Status]:
        """Yield what needs attention about the process itself."""
        if self.runs is None:
            why = "it is missing" if not self.lock.exists() else "this user may not read it"
            yield _unread("lock", f"{self.lock}: {why}, and no {self.of} said that it ended")
        elif not self.runs:
            yield NOT_RUNNING(of=self.of)
        if self.known is None and (self.runs or self.file.exists()):
            yield _unread("status", f"{self.file} is missing or damaged")
        if self.silent_since is not None:
            yield SILENT(of=self.of, since=self.silent_since)


def _unread(what: str, why: object) -> Status:
    return CANNOT_BE_READ(what=what, why=str(why))


def of_watched(known: dict[str, Any], sites: Iterable[dict[str, Any]]) -> Iterator[Status]:
    """Yield what needs attention about a run, given what its server knows; see ``Watch``."""
    if known.get("certificate"):
        yield from _validity(Path(known["certificate"]))
    if known.get("missed"):
        yield QUORUM_MISSED(times=int(known["missed"]))
    for site in sites:
        if site["state"] in _AMISS:
            yield SITE_AMISS(site=site["name"], state=site["state"], detail=site["detail"])


_AMISS = {"unseen", "away", "not-accepted", "other-version", "refused"}


def of_authority(policy: SitePolicy) -> Iterator[Status]:
    """Yield what needs attention about the authorities that vouch for a site's servers."""
    for server in policy.server:
        yield from _validity(server.ca, authorities=True)


def _validity(certificate: Path, *, authorities: bool = False) -> Iterator[Status]:
    try:
        _, at = lifetime(certificate, authorities=authorities)
    except (OSError, ValueError) as error:
        yield _unread("certificate", f"{certificate}: {error}")
        return
    found = validity(str(certificate), at)
    if found is not None:
        yield found


def _next_of_server(
    folder: Path, process: Process, complete: bool, done: int | None, of: int
) -> str:
    if complete:
        return f"the run is complete: see {folder / 'report.html'}"
    if process.runs is None:
        return "look whether the server's process exists; if not, start fedldp deploy server again"
    if process.runs:
        return str((process.known or {}).get("next", "unknown"))
    command = "fedldp deploy server"
    if Queue(folder.parent).is_stopped(folder.name):
        queued = folder.parent / "queue" / f"{folder.name}.agreement"
        command = f"fedldp deploy queue {folder.parent} {queued}"
    if not ENDED.is_in([process.over] if process.over is not None else []):
        return f"run {command} again, which continues after the last complete round"
    usable = "no round is complete, so there is no model"
    if done == 0 and asked_to_finish(folder) is not None:
        return f"{usable}; its operator ended it"
    if done != 0:
        after = "the last complete round" if done is None else f"{done} of {of} rounds"
        usable = (
            f"the model after {after} can be used, for example with fedldp evaluate {folder}; its "
            f"statement and scores are in {folder / 'report.html'}"
        )
    return (
        f"{usable}; once the cause is mended, {command} continues the run, and fedldp deploy "
        f"finish {folder} ends it as it is"
    )


def status_of_site(policy: SitePolicy) -> dict[str, Any]:
    """Return a site's state in the form of a server's, plus details that only the site may see.

    What cannot be read is None, and a warning says so.
    """
    process = Process.of_agent(policy)
    known, warnings = process.known or {}, list(process.warnings())
    last_seen = known.get("last_seen")
    kept, entries, last, budgets = _read(warnings, "ledger", lambda: _kept(policy)) or (None,) * 4
    if process.runs and known.get("refuses"):
        warnings.append(REFUSES(why=str(known["refuses"])))
    connected = bool(known["connected"]) if process.runs and "connected" in known else None
    if connected is False:
        warnings.append(UNREACHABLE(why=str(known.get("amiss")), since=last_seen))
    warnings += of_authority(policy)
    own = _read(warnings, "key", lambda: policy.public_keys) or []
    data = _read(warnings, "data", lambda: digest_of_data(*policy.source))
    found, names = list[dict[str, Any]](), list[str]()
    all_accepted: list[Acceptance] | None = None
    if policy.ledger.exists() or not policy.mark.exists():
        amiss = warnings if entries is not None else []  # else it is said of the ledger already
        all_accepted = _read(amiss, "agreements", Acceptances(policy).all)
    all_read = all_accepted is not None
    for accepted in all_accepted or ():
        try:
            agreement = accepted.agreement(policy)
        except FedldpError as error:
            warnings.append(_unread("agreement", error))
            all_read = False
            continue
        places = [place for place, site in enumerate(agreement.sites) if site.key in own]
        names += [agreement.sites[place].name for place in places]
        of = agreement.rounds_of(places[0]) if places else None  # with another key: unknown
        found.append(_run(accepted, agreement, entries, of))
        if found[-1]["state"] not in ("under-way", None):
            continue
        try:
            own_policy = policy_for(policy, agreement, accepted.server)
            if data is not None:
                same = own_policy.source == policy.source
                accepted.check_data(policy, data if same else digest_of_data(*own_policy.source))
        except FedldpError as error:
            warnings.append(NOT_SERVED(run=agreement.run, why=str(error)))
            continue
        if kept is not None and entries is not None and places:
            here = agreement.answered_with(accepted.own)
            warnings += cannot_pay(kept.ledger, accepted, here, places[0], entries)
    for at, budget in enumerate(budgets or ()):
        budget["promised"] = None
        if all_accepted is not None and entries is not None:
            rests = [accepted.rest(at, entries) for accepted in all_accepted]
            budget["promised"] = _finite(float(total_of(rests)))
    refuses = "refused" if known.get("refuses") else "ready" if connected else "away"
    return {
        "rounds": {
            name: _total([each["rounds"][name] for each in found if each["state"] != "retired"])
            if all_read
            else None
            for name in ("done", "of")
        },
        "sites": [
            {
                "name": names[-1] if names else None,
                "last_seen": last_seen,
                "state": process.state(refuses),
                "budget_left": budgets,
            }
        ],
        "next": _next_of_site(process, found, all_read=all_read),
        "warnings": words.facts(warnings),
        "runs": found,
        "last_release": last,
        "servers": [server.url for server in policy.server],
    }


def _kept(
    policy: SitePolicy,
) -> tuple[SiteLedger | None, list[Release], str, list[dict[str, Any]]]:
    """Return a site's ledger, if one was begun, its entries, the last in words, and its budgets."""
    kept = SiteLedger.existing(policy)
    if kept is None:
        unused = [Account(each, 0.0, 0.0, each.limit) for each in policy.budgets]
        return None, [], NO_RELEASE, _left(unused)
    entries = kept.look()
    left = _left(kept.ledger.accounts(entries), renewals(entries))
    return kept, entries, kept.last_words(entries), left


def _total(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(each or 0 for each in counts)


T = TypeVar("T")


def _read(warnings: list[Status], what: str, read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns; None, with a warning, if it cannot be read."""
    try:
        return read()
    except (FedldpError, OSError) as error:
        warnings.append(_unread(what, error))
        return None


def cannot_pay(
    ledger: SqliteLedger,
    accepted: Acceptance,
    agreement: Agreement,
    index: int,
    entries: list[Release],
) -> list[Status]:
    """Return a fact if the run may have another round for which the ledger cannot pay."""
    costs = next_costs(ledger, agreement, index, entries)
    accounts = ledger.accounts(entries)
    for at, (account, cost) in enumerate(zip(accounts, costs, strict=False)):
        budget, left = account.budget, min(account.left, float(accepted.rest(at, entries)))
        if cost > left:
            of = {"cost": _finite(cost), "left": left, "kind": budget.kind, "unit": budget.unit}
            return [CANNOT_PAY(run=agreement.run, **of)]
    return []


def next_costs(
    ledger: SqliteLedger, agreement: Agreement, index: int, entries: list[Release]
) -> list[float]:
    """Return what a run's next round costs under each budget of a ledger; none if it has no next.

    Args:
        ledger: the site's ledger.
        agreement: the agreement, with the site's own budget.
        index: the site's index in the roster.
        entries: the ledger's entries that count.
    """
    of_run = [entry for entry in entries if entry.run == agreement.run]
    if len(rounds_answered(of_run)) >= agreement.rounds_of(index):
        return []
    paid = [entry.event for entry in of_run]
    following = 1 + max((entry.round for entry in of_run), default=0)
    events = agreement.events_of(index, min(following, agreement.config.rounds))
    return [
        budget.spent([total_of(budget.price(event, paid) for event in events)])
        for budget in ledger.budgets
    ]


def _left(accounts: Iterable[Account], renewed: int = 0) -> list[dict[str, Any]]:
    """Return what each budget allows, has spent and has left; None means infinity.

    ``left`` counts since the owner's last renewal, ``spent`` since the beginning.
    """
    return [
        {
            "kind": budget.kind,
            "limit": _finite(budget.limit),
            "unit": budget.unit,
            "spent": _finite(spent),
            "left": _finite(left),
            "renewals": renewed,
        }
        for budget, spent, _, left in accounts
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _run(
    accepted: Acceptance, agreement: Agreement, entries: list[Release] | None, of: int | None
) -> dict[str, Any]:
    """Return a run's state: retired, finished, answered, under-way, or None if unknown."""
    done, state = None, None
    if entries is not None:
        done = len(rounds_answered([entry for entry in entries if entry.run == agreement.run]))
        if of is not None:
            state = "answered" if done >= of else "under-way"
    return {
        "run": agreement.run,
        "digest": agreement.digest.hex(),
        "system": agreement.config.name(),
        "rounds": {"done": done, "of": of},
        "state": state if accepted.is_open else accepted.state,
    }


def _next_of_site(process: Process, found: list[dict[str, Any]], *, all_read: bool) -> str:
    if not found and all_read:
        return "accept an agreement: fedldp deploy accept run.agreement"
    if process.runs is None:
        return "look whether the agent's process exists; if not, start it: fedldp deploy site"
    if not found or any(
        each["state"] is None for each in found
    ):  # an agent that starts would refuse too
        return "unknown, because not everything can be read: see the warnings"
    if not process.runs:
        return "start the agent: fedldp deploy site site.toml"
    under_way = [each["run"][:8] for each in found if each["state"] == "under-way"]
    if under_way:
        return "answers " + ", ".join(f"run {run}" for run in under_way)
    done = [each["digest"][:16] for each in found if each["state"] == "answered"]
    if done:
        return f"all rounds are answered; once the server is done: fedldp deploy retire {done[0]}"
    return "accept an agreement: fedldp deploy accept run.agreement"
