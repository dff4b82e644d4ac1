"""Which ledgers count what is released about a table: a file beside the table says it.

    patients.csv.ledger     one signed entry for each site's folder that joined a run with the table

A second ledger would spend a second budget on the same people, so only its owner can declare one.
"""

from __future__ import annotations

import fcntl
from collections.abc import Container, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.core.errors import ConfigError, FedldpError
from fedldp.deployment.documents import Document, SignedDocument
from fedldp.deployment.identity import public_of
from fedldp.ledgers.database import Database, now
from fedldp.reporting.record import replace_file

_ACT = "second ledger"


class DataLedger(SignedDocument):
    """One ledger that counts what is released about a table.

    Attributes:
        date: since when, by the site's clock.
        second: whether its owner declared it while the table had another one.
    """

    kind = "data_ledger"
    what = "ledger of data"

    date: str
    second: bool = False


class DataLedgers(Document):
    """All ledgers that count what is released about a table, oldest first."""

    kind = "data_ledgers"
    what = "ledgers of data"

    ledgers: tuple[DataLedger, ...] = ()

    @classmethod
    def of(cls, data: Path) -> DataLedgers:
        """Return the ledgers of a table.

        Raises:
            ConfigError: their file is damaged, or was changed after a site signed its entry.
        """
        path = _beside(data)
        return cls.read(path) if path.exists() else cls()

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse entries that their sites did not sign."""
        for each in self.ledgers:
            each.check_read(own)

    def others(self, keys: Container[str]) -> list[DataLedger]:
        """Return the ledgers of sites other than the one that has, or had, these keys."""
        return [each for each in self.ledgers if each.key not in keys]


def check_only(data: Path, keys: Container[str], *, second: bool) -> None:
    """Refuse another ledger for a table that has one, unless its owner declares it.

    Args:
        data: the table.
        keys: the public keys that the site has and had; none if it has none yet.
        second: whether the owner declares a second ledger.

    Raises:
        ConfigError: see above; or see ``DataLedgers.of``.
    """
    found = DataLedgers.of(data)
    others = found.others(keys)
    if others and len(others) == len(found.ledgers) and not second:
        raise ConfigError(
            f"data {data}: since {others[0].date}, the ledger of another site's folder (key "
            f"{others[0].key[:16]}) counts what is released about it; join in that folder, with "
            "its budget. A second ledger would spend a second budget on the same people: "
            "--second-ledger declares one"
        )


def note_ledger(data: Path, keys: Sequence[Ed25519PrivateKey], *, second: bool) -> bool:
    """Note beside a table that this site's ledger counts it; return whether that was possible.

    Args:
        data: the table.
        keys: the site's keys, the present one first.
        second: see ``check_only``.

    Raises:
        ConfigError: another site noted its ledger since ``check_only`` was called.
    """
    with data.open("rb") as table:
        fcntl.flock(table, fcntl.LOCK_EX)  # of two sites that join at once, one is refused
        own = [*map(public_of, keys)]
        check_only(data, own, second=second)
        found = DataLedgers.of(data)
        others = found.others(own)
        if len(others) < len(found.ledgers):
            return True
        noted = DataLedger.signed(keys[0], date=now(), second=bool(others))
        try:
            replace_file(_beside(data), DataLedgers(ledgers=(*found.ledgers, noted)).to_bytes())
        except FedldpError:  # such as a disk that is read-only
            return False
        return True


def other_ledgers(data: Path, keys: Container[str]) -> list[str]:
    """Return in words the ledgers that other sites have for a table; see ``check_only``."""
    others = DataLedgers.of(data).others(keys)
    return [f"key {each.key[:16]}, since {each.date}" for each in others]


def note_others(data: Path, keys: Container[str], database: Database) -> None:
    """Record as an act in a site's database each other ledger of its table, once."""
    known = {row["words"] for row in database.history() if row["what"] == _ACT}
    for each in other_ledgers(data, keys):
        if each not in known:
            database.note(_ACT, words=each)


def _beside(data: Path) -> Path:
    data = data.resolve()  # a link to a table is no other table
    return data.with_name(f"{data.name}.ledger")
