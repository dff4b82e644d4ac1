"""The agreements that a site has accepted, and what their runs may still spend.

They are in the site's database, beside the ledger. So an agreement is accepted in one transaction
with what its run promises to cost at most, and no two runs are promised the same budget.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from fedldp.core.errors import ConfigError, FedldpError, PrivacyError
from fedldp.core.numbers import round_up
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.own_budgets import stay_at_sites
from fedldp.deployment.policy import SitePolicy, make_state, prices_due
from fedldp.deployment.site_ledger import NO_RELEASE, SiteLedger
from fedldp.deployment.source import digest_of_data
from fedldp.deployment.words import words_of
from fedldp.ledgers.budget import total_of
from fedldp.ledgers.database import Database, now
from fedldp.ledgers.sqlite import Release, since_renewal

_COLUMNS = "digest, run, server, content, data, own, promised, state, date"


@dataclass(frozen=True)
class Acceptance:
    """An agreement that a site has accepted.

    Attributes:
        digest: the agreement's digest.
        run: the run's name.
        server: the URL of the server that runs it.
        content: the agreement's file.
        data: the digest of the data with which it was accepted; see ``digest_of_data``.
        own: the site's epsilon for the run, if no other party knows it.
        promised: the most that the run may cost the site under each of its budgets.
        state: whether its run goes on; otherwise, its rounds are not answered.
        date: when it was accepted, by the site's clock.
    """

    digest: bytes
    run: str
    server: str
    content: bytes = field(repr=False)
    data: str
    own: float | None
    promised: tuple[float, ...]
    state: Literal["accepted", "retired", "finished"]
    date: str

    @property
    def is_open(self) -> bool:
        """Whether the site takes part in the run."""
        return self.state == "accepted"

    def agreement(self, policy: SitePolicy) -> Agreement:
        """Return the agreement as all parties know it, without checking it against the policy.

        Raises:
            ConfigError: it is damaged, or needs code that the policy does not allow.
        """
        name = f"agreement {self.digest.hex()[:16]}"
        try:
            found = Agreement.parse(self.content, policy.data_dir, own=policy.own_code)
        except FedldpError as error:
            raise ConfigError(f"{name}, which was accepted here: {error}") from error
        if found.digest != self.digest:
            raise ConfigError(f"{name}: it was changed after it was accepted; accept it again")
        return found

    def allowed(self, policy: SitePolicy) -> tuple[Agreement, SitePolicy]:
        """Return the agreement as the site answers it, and its policy for the run, which allows it.

        Raises:
            FedldpError: see ``agreement``; or the policy does not allow it any more.
        """
        found = self.agreement(policy).answered_with(self.own)
        policy = policy_for(policy, found, self.server)
        own = None if policy.own is None else policy.own.epsilon
        if stay_at_sites(found.config) and own != self.own:
            raise PrivacyError(
                f"own.epsilon = {own}: the agreement was accepted with {self.own}; put it back, or "
                "accept the agreement again to answer its other rounds with this one"
            )
        policy.check(found)
        return found, policy

    def check_data(self, policy: SitePolicy, data: str) -> None:
        """Refuse data other than those with which the agreement was accepted.

        Args:
            policy: the site's policy.
            data: see ``digest_of_data``; of the run's columns.

        Raises:
            PrivacyError: the data differ.
        """
        if self.data != data:
            raise PrivacyError(
                f"data {policy.data}: these are not the data with which agreement "
                f"{self.digest.hex()[:16]} was accepted; put those back, or accept the agreement "
                "again; then restart the agent"
            )

    def rest(self, at: int, entries: Sequence[Release]) -> Fraction | float:
        """Return what the run may still spend of the budget at an index, given the ledger."""
        if not self.is_open:
            return 0
        spent = total_of(entry.costs[at] for entry in entries if entry.run == self.run)
        most = self.promised[at]
        if math.isinf(most):
            return most
        return Fraction(most) - spent if spent < most else Fraction(0)


class Acceptances:
    """What a site has accepted, as its database says.

    Args:
        policy: the site's policy.
        database: the site's database, if it is open already.

    All methods raise ``LedgerUnusable`` if the database cannot be used.
    """

    def __init__(self, policy: SitePolicy, database: Database | None = None) -> None:
        self._policy = policy
        self._database = Database(policy.ledger) if database is None else database

    def all(self) -> list[Acceptance]:
        """Return everything that was accepted, oldest first."""
        return self._where("TRUE ORDER BY date, rowid")

    def current(self) -> list[Acceptance]:
        """Return what was accepted and not retired, oldest first."""
        return [each for each in self.all() if each.is_open]

    def of(self, digest: bytes) -> Acceptance | None:
        """Return the acceptance of the agreement with a digest; None if it was not accepted."""
        found = self._where("digest = ?", digest.hex())
        return found[0] if found else None

    def retire(self, digest: bytes) -> None:
        """Stop answering a run that is over, and free what it may still spend.

        The agreement stays: after a restore from an older copy, its rounds are charged like the
        rounds of other runs. Accepting it again undoes this.

        Raises:
            ConfigError: the agreement was not accepted here.
        """
        found = self.of(digest)
        if found is None:
            raise ConfigError(
                f"digest {digest.hex()}: no agreement with this digest is accepted here"
            )
        if found.state != "finished":  # else it is over already, and is accepted never again
            self._end(found, "retired")

    def finish(self, digest: bytes) -> None:
        """Note that the server ended a run, as it signed; what the run may still spend is free."""
        found = self.of(digest)
        if found is not None and found.is_open:
            self._end(found, "finished")

    def _end(self, found: Acceptance, state: str) -> None:
        digest = found.digest.hex()
        with self._database.writing() as db:
            db.execute("UPDATE agreements SET state = ? WHERE digest = ?", (state, digest))
            self._database.note(state, digest, words_of(found.digest))

    def check_beside(self, agreement: Agreement) -> None:
        """Refuse an agreement that contradicts what was accepted before.

        Raises:
            ConfigError: another agreement of the same run was accepted, or its server has ended the
                run.
        """
        for other in self.all():
            if other.run == agreement.run and other.digest != agreement.digest:
                raise ConfigError(
                    f"run {agreement.run}: another agreement of this run was accepted before "
                    f"({other.digest.hex()[:16]}); refuse this one, and ask for an agreement for a "
                    "new run"
                )
            if other.digest == agreement.digest and other.state == "finished":
                raise ConfigError(
                    f"run {agreement.run}: its server ended it and asks for nothing more; another "
                    "run needs another invite"
                )

    def check_new(self, agreement: Agreement, *, new: bool) -> None:
        """Refuse an agreement that may have been accepted before the site was last restored.

        Args:
            agreement: the agreement to accept.
            new: whether the site's operator states that the site never accepted it.

        Raises:
            ConfigError: there was a restore, and no charge covers what this run may have released,
                or another agreement of the run was charged.
        """
        if not self._database.path.exists() or self.of(agreement.digest) is not None:
            return
        with self._database.reading() as db:
            charged = dict(db.execute("SELECT digest, run FROM charged"))
            restored = db.execute("SELECT 1 FROM acts WHERE what = 'restored'").fetchone()
        if restored is None or agreement.digest.hex() in charged:
            return
        if agreement.run in charged.values():
            raise ConfigError(
                f"run {agreement.run}: another agreement of this run was served before the "
                "restore; refuse this one, and ask for an agreement for a new run"
            )
        if not new:
            raise ConfigError(
                f"run {agreement.run}: this site was restored from an older copy, and may have "
                "accepted this agreement since the copy was made; if it did, run fedldp deploy "
                "restored again, with --since and the file of each such agreement; if it never "
                "did, accept it with --new"
            )

    def _where(self, condition: str, *values: str) -> list[Acceptance]:
        if not self._database.path.exists():
            return []
        with self._database.reading() as db:
            query = f"SELECT {_COLUMNS} FROM agreements WHERE {condition}"
            rows = db.execute(query, values).fetchall()
        try:
            return [_read(row) for row in rows]
        except (ValueError, TypeError) as error:
            raise self._database.damaged("an accepted agreement is damaged") from error


def _read(row: Sequence[Any]) -> Acceptance:
    digest, run, server, content, data, own, promised, state, date = row
    most = tuple(map(float, json.loads(promised)))
    return Acceptance(bytes.fromhex(digest), run, server, content, data, own, most, state, date)


def policy_for(policy: SitePolicy, agreement: Agreement, url: str | None = None) -> SitePolicy:
    """Return a site's policy for the run of an agreement.

    Args:
        policy: the site's policy.
        agreement: the agreement.
        url: the address of its server. None: the server whose authorities the agreement names.

    Raises:
        ConfigError: the policy has no such server, or several.
    """
    found = list(policy.server)
    if url is not None:
        found = [each for each in found if each.url == url]
    elif len(found) > 1:
        found = [each for each in found if each.is_named_in(agreement)]
    if len(found) != 1:
        known = ", ".join(each.url for each in found or policy.server)
        named = "" if url is None else f" = {url}"
        raise ConfigError(
            f"server{named}: {'more than one' if found else 'none'} of this site's servers may "
            f"run the agreement ({known}); give --server URL, of a [[server]] in the policy"
        )
    study = [each for each in policy.study if each.invite == agreement.invite]
    return policy.for_run(found[0], study[-1] if study else None)


def accept(
    policy: SitePolicy,
    agreement: Agreement,
    data: str | None = None,
    enough: int | None = None,
    url: str | None = None,
) -> Acceptance:
    """Accept an agreement for a site; a site's first acceptance fixes the limits of its budgets.

    With other data than those with which it is accepted, the agent does not serve it.

    Args:
        policy: the site's policy.
        agreement: the agreement, which the policy allows.
        data: what identified the data before they were checked, see ``digest_of_data``. None: the
            data as they are now.
        enough: how many rounds are enough, if the budgets cannot pay for all. None: all.
        url: the address of the run's server; see ``policy_for``.

    Raises:
        ConfigError: see ``Acceptances.check_beside``; or the budgets cannot pay for enough rounds
            beside what the other accepted runs may still spend.
        LedgerUnusable: the ledger cannot be used, or was begun with other limits.
    """
    policy = policy_for(policy, agreement, url)
    own = policy.own_here(agreement)
    make_state(policy)
    data = data or digest_of_data(*policy.source)
    kept = SiteLedger(policy)
    database, digest = kept.ledger.database, agreement.digest
    with database.writing() as db:
        Acceptances(policy, database).check_beside(agreement)
        can_pay = payable(policy, agreement.answered_with(own), kept)
        promised = can_pay.cost(can_pay.check(enough))
        row = (
            *(digest.hex(), agreement.run, policy.server[0].url, agreement.to_bytes()),
            *(data, own, json.dumps(promised), "accepted", now()),
        )
        db.execute(
            f"INSERT OR REPLACE INTO agreements ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        database.note("accepted", digest.hex(), words_of(digest))
    return _read(row)


@dataclass(frozen=True)
class Payable:
    """What a run may cost a site, and what the site can pay.

    Attributes:
        paid: how many rounds of the run the site's budgets pay for.
        of: in how many rounds the site takes part.
        left: what each budget has left beside what other accepted runs may still spend; negative if
            they may spend more than is left.
        others: in words, what each of the other runs may still spend, and all together.
        prices: what the run has cost under each budget, and what each round that is left may cost.
    """

    paid: int
    of: int
    left: tuple[float, ...]
    others: tuple[str, ...]
    prices: tuple[tuple[Fraction | float, list[Fraction | float]], ...]

    def cost(self, rounds: int) -> list[float]:
        """Return the most that so many rounds of the run may cost under each budget, rounded up."""
        left_out = self.of - rounds
        return [
            round_up(total_of([spent, *due[: max(0, len(due) - left_out)]]))
            for spent, due in self.prices
        ]

    def check(self, enough: int | None) -> int:
        """Return for how many rounds a run is accepted.

        Args:
            enough: how many rounds are enough. None: all.

        Raises:
            ConfigError: the site's budgets cannot pay for so many rounds.
        """
        if enough is not None and not 1 <= enough <= self.of:
            raise ConfigError(
                f"rounds = {enough}: this site takes part in {self.of}; give 1 to {self.of}"
            )
        rounds = self.of if enough is None else enough
        if self.paid < rounds:
            fewer = f", or accept it for fewer rounds: --rounds {self.paid}" if self.paid else ""
            others = f" ({'; '.join(self.others)})" if self.others else ""
            raise ConfigError(
                f"what is left of this site's budgets{others} covers only {self.paid} of the "
                f"{self.of} rounds that it takes part in; refuse this agreement, and ask for one "
                f"that costs less{fewer}"
            )
        return rounds


def payable(policy: SitePolicy, agreement: Agreement, kept: SiteLedger | None = None) -> Payable:
    """Return what a run may cost a site beside the runs that it accepted; this writes nothing.

    Args:
        policy: the site's policy.
        agreement: the agreement of the run.
        kept: the site's ledger, if it is open already.

    Raises:
        FedldpError: the ledger cannot be used, or the site is not in the agreement.
    """
    kept = SiteLedger.existing(policy) if kept is None else kept
    entries = [] if kept is None else kept.look()
    open_ = [] if kept is None else Acceptances(policy, kept.ledger.database).current()
    others = [each for each in open_ if each.run != agreement.run]
    of_run = [entry for entry in entries if entry.run == agreement.run]
    place = policy.place_in(agreement)
    of = agreement.rounds_of(place)
    paid, lefts, words, found = of, list[float](), list[str](), []
    for at, budget in enumerate(policy.budgets):
        due = prices_due(agreement, budget, place, of_run)
        found.append((total_of(entry.costs[at] for entry in of_run), due))
        spent = total_of(entry.costs[at] for entry in since_renewal(entries))
        rests = [each.rest(at, entries) for each in others]
        lefts.append(budget.remaining([spent, *rests]))
        told = [
            f"run {each.run[:8]} may still spend {budget.amount(budget.spent([rest]))}"
            for each, rest in zip(others, rests, strict=True)
            if rest
        ]
        if len(told) > 1:
            told.append(f"together {budget.amount(budget.spent(rests))}")
        words += told
        if budget.limit == math.inf:
            continue
        within = Fraction(budget.limit) - total_of([spent, *rests])
        totals = itertools.accumulate(due)
        paid = min(paid, of - len(due) + sum(total <= within for total in totals))
    return Payable(paid, of, tuple(lefts), tuple(words), tuple(found))


def last_release(policy: SitePolicy) -> str:
    """Return a site's last release in words, for people to note and compare; writes nothing.

    Raises:
        LedgerUnusable: see ``SiteLedger``.
    """
    kept = SiteLedger.existing(policy)
    return NO_RELEASE if kept is None else kept.last_words(kept.look())
