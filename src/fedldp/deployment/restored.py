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
from dataclasses import dataclass

from fedldp.accounting.events import NoData
from fedldp.accounting.ledger import LedgerUnusable
from fedldp.accounting.sqlite_ledger import SqliteLedger
from fedldp.client.store import FolderStore
from fedldp.deployment.agreement import Agreement, read_agreement
from fedldp.deployment.messages import RECEIPT_BYTES
from fedldp.deployment.policy import SitePolicy
from fedldp.errors import ConfigError, RunError
from fedldp.reporting.record import replace_file


@dataclass(frozen=True)
class Lost:
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
    ledger = SqliteLedger(policy.ledger, policy.limit)
    if not begun.exists():
        replace_file(begun, b"The site's ledger was begun. Do not remove this file.\n")
    return ledger


def charge_lost(policy: SitePolicy, since: Sequence[Agreement]) -> list[Lost]:
    """Charge what may have been released since an older copy of the ledger was made.

    Secrets of rounds that were under way are removed: what they masked is never masked again.

    Args:
        policy: of the site.
        since: agreements that were accepted since, which the copy does not have. To go on with one
            it is accepted again.

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
        found.append(_charge(ledger, agreement))
        restored.tolerate(agreement.run)
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
    for round in range(1, rounds + 1):
        for exchange, event in enumerate(agreement.events):
            ledger.charge_lost(name, round, exchange, event)
    return Lost(agreement.run, rounds)


class Restored:
    """What a site knows of its restore: which runs it charged, and one receipt of each.

    That receipt is no reason to refuse where the ledger does not know it.

    Args:
        policy: of the site.
    """

    def __init__(self, policy: SitePolicy) -> None:
        self._path = policy.state / "restored.json"

    def begin(self) -> None:
        """Note that there was a restore."""
        self._write(self._read())

    def check_new(self, agreement: Agreement, *, new: bool) -> None:
        """Refuse an agreement that may have been accepted since the copy was made.

        Args:
            agreement: which is to be accepted.
            new: whether the site's operator says that it never was.

        Raises:
            ConfigError: there was a restore, and what it released is charged nowhere.
        """
        if not new and self._path.exists() and agreement.run not in self._read():
            raise ConfigError(
                f"run {agreement.run}: this site was restored from an older copy, and may have "
                "accepted it since that was made: then run fedldp deploy restored again, with "
                "--since and its file; if it never did, accept it with --new"
            )

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
