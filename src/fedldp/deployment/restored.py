"""A site whose ledger, or whole disk, came back from an older copy.

What was released since the copy was made is not in its ledger, and cannot be found out: a server
that is not trusted would say what suits it. So all is charged that may have been released, beside
what the runs go on to cost: of each agreement that was accepted, before the copy or since, every
round that the ledger does not have. What has left is charged whatever the limit; where that is
passed, nothing more is released with this ledger.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fedldp.accounting.accountants import releases_nothing
from fedldp.core.errors import ConfigError, LedgerUnusable, RunError
from fedldp.deployment.agreement import Agreement, read_agreement
from fedldp.deployment.messages import RECEIPT_BYTES
from fedldp.deployment.policy import SitePolicy
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_store import FolderStore
from fedldp.reporting.record import replace_file


@dataclass(frozen=True)
class UnrecordedSpend:
    """What was charged for one run.

    Attributes:
        run: its name.
        rounds: that may have been answered since the copy was made.
    """

    run: str
    rounds: int


def open_ledger(policy: SitePolicy) -> SqliteLedger:
    """Return the site's ledger, which is begun once.

    Raises:
        LedgerUnusable: it was begun, and its file is gone: a new one would have the whole budget.
    """
    begun = policy.state / "ledger-begun"
    if begun.exists() and not policy.ledger.exists():
        raise LedgerUnusable(
            f"ledger {policy.ledger}: it was begun, and is gone; restore it from a copy, and run "
            "fedldp deploy restored, or correct its path in the policy"
        )
    ledger = SqliteLedger(policy.ledger, policy.budgets)
    if not begun.exists():
        replace_file(begun, b"The site's ledger was begun. Do not remove this file.\n")
    return ledger


def left_of(policy: SitePolicy) -> tuple[float, ...]:
    """Return what each of the site's budgets has left; no ledger is begun for it.

    Raises:
        LedgerUnusable: see ``open_ledger``.
    """
    if not (policy.state / "ledger-begun").exists() and not policy.ledger.exists():
        return tuple(budget.limit for budget in policy.budgets)
    ledger = open_ledger(policy)
    return tuple(ledger.all_remaining(ledger.releases()))


def charge_lost(
    policy: SitePolicy, since: Sequence[Agreement], *, restores: int = 1
) -> list[UnrecordedSpend]:
    """Charge what may have been released since an older copy of the ledger was made.

    Secrets of rounds that were under way are removed: what they masked is never masked again.

    Args:
        policy: of the site.
        since: agreements that were accepted since, which the copy does not have. To go on with one
            it is accepted again.
        restores: how often that copy was restored: after each, all may have been released anew, and
            what was charged then is not in the copy either.

    Raises:
        FedldpError: the ledger or an accepted agreement cannot be used.
    """
    ledger, restored = open_ledger(policy), Restored(policy)
    paths = sorted(policy.accepted.glob("*.agreement"))
    known = [read_agreement(path, policy.data_dir, own=policy.own_code) for path in paths]
    accepted = {agreement.digest: agreement for agreement in (*known, *since)}
    restored.begin()
    found = []
    for agreement in accepted.values():
        FolderStore(policy.state / "kept", agreement.run).forget_rounds()
        found += [_charge(ledger, agreement) for _ in range(restores)]
        restored.tolerate(agreement)
    return found


def _charge(ledger: SqliteLedger, agreement: Agreement) -> UnrecordedSpend:
    # What has no finite cost has not left: no limit ever let it.
    events = [
        (phase, event)
        for phase, event in enumerate(agreement.events)
        if all(budget.may_cover(event) for budget in ledger.budgets)
    ]
    if all(releases_nothing(event) for _, event in events):
        return UnrecordedSpend(agreement.run, 0)
    entries = ledger.releases()
    answered = {
        entry.round
        for entry in entries
        if entry.run == agreement.run and not releases_nothing(entry.event)
    }
    rounds = agreement.max_participations - len(answered)
    times = len({entry.run for entry in entries if entry.run.startswith(f"{agreement.run} lost ")})
    name = f"{agreement.run} lost {times + 1}"
    for round in range(1, rounds + 1):
        for phase, event in events:
            ledger.charge_lost(name, round, phase, event)
    return UnrecordedSpend(agreement.run, rounds)


class Restored:
    """What a site knows of its last restore: which agreements it charged, and a receipt of each.

    That receipt is no reason to refuse where the ledger does not know it.

    Args:
        policy: of the site.
    """

    def __init__(self, policy: SitePolicy) -> None:
        self._path = policy.state / "restored.json"

    def begin(self) -> None:
        """Note that there was a restore; what an earlier one charged tells nothing of this one."""
        self._write({})

    def check_new(self, agreement: Agreement, *, new: bool) -> None:
        """Refuse an agreement that may have been accepted since the copy was made.

        Args:
            agreement: which is to be accepted.
            new: whether the site's operator says that it never was.

        Raises:
            ConfigError: there was a restore, and what it released is charged nowhere; or another
                agreement of its run was charged.
        """
        if not self._path.exists():
            return
        known = self._read()
        if agreement.digest.hex() in known:
            return
        if agreement.run in {of.run for of in known.values()}:
            raise ConfigError(
                f"run {agreement.run}: another agreement of this run was served before the "
                "restore; refuse this one, and ask for one of a run of its own"
            )
        if not new:
            raise ConfigError(
                f"run {agreement.run}: this site was restored from an older copy, and may have "
                "accepted it since that was made: then run fedldp deploy restored again, with "
                "--since and the file of each that it did; if it never did, accept it with --new"
            )

    def tolerate(self, agreement: Agreement) -> None:
        """Let the next receipt of a run that the ledger does not know pass, and no other."""
        self._write({**self._read(), agreement.digest.hex(): _Charged(agreement.run, None)})

    def tolerates(self, agreement: Agreement, receipt: bytes) -> bool:
        """Return whether ``receipt`` may pass."""
        known, digest = self._read(), agreement.digest.hex()
        if digest not in known:
            return False
        if known[digest].receipt is None:
            self._write({**known, digest: _Charged(agreement.run, receipt.hex())})
            return True
        return known[digest].receipt == receipt.hex()

    def _read(self) -> dict[str, _Charged]:
        if not self._path.exists():
            return {}
        try:
            found = json.loads(self._path.read_text())
            known = {digest: _Charged(**of) for digest, of in found.items()}
            for of in known.values():
                if of.receipt is not None and len(bytes.fromhex(of.receipt)) != RECEIPT_BYTES:
                    raise ValueError("a receipt of another length")
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise RunError(
                f"{self._path} is damaged: run fedldp deploy restored again, which charges all "
                "that may be lost once more"
            ) from error
        return known

    def _write(self, known: dict[str, _Charged]) -> None:
        document = {digest: asdict(of) for digest, of in known.items()}
        replace_file(self._path, json.dumps(document, sort_keys=True).encode())


@dataclass(frozen=True)
class _Charged:
    """An agreement that was charged: its run, and the receipt in hexadecimal that may pass."""

    run: str
    receipt: str | None
