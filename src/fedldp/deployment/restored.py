"""A site whose ledger, or whole disk, came back from an older copy.

What was released since the copy was made is not in its ledger, and cannot be found out: a server
that is not trusted would say what suits it. So all is charged that may have been released, beside
what the runs go on to cost: of each accepted agreement every round that the ledger does not have.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fedldp.accounting.events import NoData
from fedldp.accounting.ledger import LedgerUnusable, OverBudget
from fedldp.accounting.sqlite_ledger import SqliteLedger
from fedldp.client.store import FolderStore
from fedldp.deployment.agreement import Agreement, read_agreement
from fedldp.deployment.messages import RECEIPT_BYTES
from fedldp.deployment.policy import SitePolicy
from fedldp.errors import RunError
from fedldp.reporting.record import replace_file

_QUESTION = hashlib.sha256(b"questions that were lost with a ledger").digest()


@dataclass(frozen=True)
class Lost:
    """What was charged for one run.

    Attributes:
        run: its name.
        rounds: that may have been answered since the copy was made.
        paid: whether the ledger could pay for all of them. Where it could not, the agreement is
            not served any more.
    """

    run: str
    rounds: int
    paid: bool


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
    ledger = SqliteLedger(policy.ledger, policy.limit)
    if not begun.exists():
        replace_file(begun, b"The site's ledger was begun. Do not remove this file.\n")
    return ledger


def charge_lost(policy: SitePolicy) -> list[Lost]:
    """Charge what may have been released since an older copy of the ledger was made.

    Secrets of rounds that were under way are removed: what they masked is never masked again.

    Raises:
        FedldpError: the ledger or an accepted agreement cannot be used.
    """
    ledger = open_ledger(policy)
    found = []
    for path in sorted(policy.accepted.glob("*.agreement")):
        agreement = read_agreement(path, policy.data_dir, own=policy.own_code)
        FolderStore(policy.state / "kept", agreement.run).forget_rounds()
        found.append(_charge(ledger, agreement))
        if found[-1].paid:
            Restored(policy).tolerate(agreement.run)
        else:
            path.unlink()
    return found


def _charge(ledger: SqliteLedger, agreement: Agreement) -> Lost:
    entries = ledger.releases()
    answered = {
        entry.round
        for entry in entries
        if entry.run == agreement.run and not isinstance(entry.event, NoData)
    }
    rounds = agreement.turns - len(answered)
    times = len({entry.run for entry in entries if entry.run.startswith(f"{agreement.run} lost ")})
    name = f"{agreement.run} lost {times + 1}"
    try:
        for round in range(1, rounds + 1):
            for exchange, event in enumerate(agreement.events):
                ledger.release(name, round, exchange, _QUESTION, event, lambda: b"")
    except OverBudget:
        return Lost(agreement.run, rounds, paid=False)
    return Lost(agreement.run, rounds, paid=True)


class Restored:
    """Which receipts that the ledger does not know are no reason to refuse: one of each run.

    Args:
        policy: of the site.
    """

    def __init__(self, policy: SitePolicy) -> None:
        self._path = policy.state / "restored.json"

    def tolerate(self, run: str) -> None:
        """Let the next receipt of a run that the ledger does not know pass, and no other."""
        self._write({**self._read(), run: None})

    def tolerates(self, run: str, receipt: bytes) -> bool:
        """Return whether ``receipt`` may pass."""
        known = self._read()
        if run not in known:
            return False
        if known[run] is None:
            self._write({**known, run: receipt.hex()})
            return True
        return known[run] == receipt.hex()

    def _read(self) -> dict[str, str | None]:
        if not self._path.exists():
            return {}
        try:
            found = json.loads(self._path.read_text())
            for receipt in found.values():
                if receipt is not None and len(bytes.fromhex(receipt)) != RECEIPT_BYTES:
                    raise ValueError("a receipt of another length")
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise RunError(f"{self._path} is damaged: remove it, and run it again") from error
        return dict(found)

    def _write(self, document: dict[str, str | None]) -> None:
        replace_file(self._path, json.dumps(document, sort_keys=True).encode())
