"""What to charge after a site's ledger or whole disk was restored from an older copy.

The ledger lacks what was released since the copy was made, and nothing can prove what was released,
because an untrusted server may say anything. So everything that may have been released is charged,
in addition to what the runs still cost. For each agreement accepted before or after the copy was
made, this is every round that the ledger lacks, at the epsilon that is stated for all sites: a copy
may lack the one that this site chose last. These rounds are charged even beyond the limit; once the
limit is exceeded, nothing more is released with this ledger. A run that its server had ended by
then is not charged, because the site accepts it never again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fedldp.accounting.accountants import releases_nothing
from fedldp.core.errors import ConfigError
from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.policy import SitePolicy, make_state, rounds_answered
from fedldp.deployment.site_ledger import LEAST_HASH, Mark, SiteLedger, Witness, last_of, read_mark
from fedldp.ledgers.sqlite import Release, SqliteLedger, renewals
from fedldp.secure_sum.client import Phase


@dataclass(frozen=True)
class UnrecordedSpend:
    """The charge for one run.

    Attributes:
        run: the name of the run.
        rounds: rounds that may have been answered since the copy was made.
    """

    run: str
    rounds: int


def charge_lost(
    policy: SitePolicy,
    since: Sequence[Agreement],
    *,
    restores: int = 1,
    anew: bool = False,
) -> list[UnrecordedSpend]:
    """Charge what may have been released since an older copy of the ledger was made.

    Secrets of unfinished rounds are removed, so that they never mask a second value.

    Args:
        policy: the policy of the site.
        since: agreements that were accepted after the copy was made, so the copy lacks them. To
            continue with such an agreement, accept it again.
        restores: how many times this copy was restored. After each restore, everything may have
            been released again, and the charges of that restore are not in the copy either.
        anew: whether there is no copy, so that a new ledger is begun; ``since`` then has all
            agreements that were ever accepted.

    Raises:
        FedldpError: the ledger or an accepted agreement cannot be used, sites have their own
            budgets in one whose roster has no key of this site, or ``since`` evidently lacks some
            agreements.
    """
    if anew and policy.ledger.exists():
        raise ConfigError(
            f"--anew: ledger {policy.ledger} exists; leave --anew out, or move the ledger"
        )
    if policy.witness is not None:
        Witness(policy.witness).last()  # refuses an unusable witness before anything is charged
    mark = _mark_of(policy)
    make_state(policy)
    all_known = Acceptances(policy).all()
    # A run that its server ended before the copy was made has released nothing since.
    known = [each.agreement(policy) for each in all_known if each.state != "finished"]
    accepted = {agreement.digest: agreement for agreement in (*known, *since)}
    begins = not policy.ledger.exists() and (anew or not policy.mark.exists())
    entries = [] if begins else SiteLedger(policy, look=True).ledger.releases()
    placed = [(each, policy.place_in(each)) for each in accepted.values()]
    _check_all_named(mark, placed, entries, restores)
    if begins:
        SqliteLedger(policy.ledger, policy.budgets)
    kept, found = SiteLedger(policy, look=True), list[UnrecordedSpend]()
    with kept.ledger.database.writing() as db:
        kept.ledger.forget_rounds()
        db.execute("DELETE FROM charged")  # what an earlier restore charged does not count now
        for each, place in placed:
            found += [_charge(kept.ledger, each, place) for _ in range(restores)]
            row = (each.digest.hex(), each.run)
            db.execute("INSERT INTO charged VALUES (?, ?)", row)
        kept.ledger.database.note("restored")
    before = mark.restores if mark.seen is None else max(mark.restores, mark.seen.restores)
    kept.restored(mark.changed(restores=before + restores))
    return found


def moved_to(policy: SitePolicy, last: str) -> None:
    """Mark a ledger in its new location, if the ledger is complete and only its mark is a copy.

    Args:
        policy: the policy of the site.
        last: the first digits of the last release's hash, as the operator noted them before the
            move; "none" if nothing was released.

    Raises:
        FedldpError: ``last`` does not match the ledger's last release, or something is lost.
    """
    kept, mark = SiteLedger(policy, look=True), _mark_of(policy)
    entries = kept.ledger.releases()
    _, hash = last_of(entries)
    named = re.fullmatch(rf"[0-9a-f]{{{LEAST_HASH},64}}", last) is not None
    if not (hash.startswith(last) if named and entries else last == "none" and not entries):
        raise ConfigError(
            f"--moved {last!a:.80}: the ledger's last release does not have that hash; give at "
            f"least {LEAST_HASH} digits of the last hash that was noted where the site ran "
            "before; if this copy is older, run fedldp deploy restored without --moved"
        )
    kept.check(moved=True)
    kept.restored(mark)


def _mark_of(policy: SitePolicy) -> Mark:
    """Return the mark, even if it is a copy; an empty mark if none can be read."""
    mark, _ = read_mark(policy.mark)
    return Mark() if mark is None else mark


def _check_all_named(
    mark: Mark,
    agreements: Sequence[tuple[Agreement, int]],
    entries: Sequence[Release],
    restores: int,
) -> None:
    """Refuse to charge fewer releases than the site is known to have made.

    Raises:
        ConfigError: the ledger and the agreements have fewer releases than are known.
    """
    if mark.restores or (mark.seen is not None and mark.seen.restores):
        return  # an earlier restore already charged some of these releases
    charged = 0
    for each, place in agreements:
        of_run = sum(entry.run == each.run for entry in entries)
        # The ledger has an entry for each phase, whether or not it releases anything.
        whole = each.rounds_of(place) * (len(Phase) if each.channel == "sum" else 1)
        charged += max(0, whole - of_run) * restores
    often = renewals(entries)
    # An entry that only a receipt proves counts as a release, even if it was a renewal.
    lost = mark.renewals - often
    short = mark.number - lost - len(entries) - charged
    if mark.seen is not None:
        short = max(short, mark.seen.number - max(0, lost) - len(entries) - charged)
    if short > 0:
        raise ConfigError(
            f"--since: a mark or receipt proves {short} more release{'s' * (short > 1)} than the "
            "ledger and the known agreements explain; name the file of every agreement that was "
            "accepted since the copy was made; if none is missing and the budget was renewed "
            "since, let its owner renew it in this copy first (fedldp ledger renew), or give "
            "--restores 2, which charges everything twice"
        )


def _charge(ledger: SqliteLedger, agreement: Agreement, place: int) -> UnrecordedSpend:
    entries = ledger.releases()
    answered = rounds_answered([entry for entry in entries if entry.run == agreement.run])
    # Rounds differ only where a site takes part in all of them; else any are as dear as others.
    lost = [round for round in range(1, agreement.config.rounds + 1) if round not in answered]
    lost = lost[: agreement.rounds_of(place) - len(answered)]
    taken = {entry.run for entry in entries}
    names = (f"{agreement.run} lost {number}" for number in itertools.count(1))
    name = next(each for each in names if each not in taken)
    number = 0
    for stage in agreement.stages:
        # Values without a finite cost never left the site, because no limit ever allowed them.
        events = [
            (phase, event)
            for phase, event in enumerate(agreement.events_of(place, stage[0]))
            if all(budget.may_cover(event) for budget in ledger.budgets)
        ]
        if all(releases_nothing(event) for _, event in events):
            continue
        for _ in set(lost).intersection(stage):
            number += 1
            for phase, event in events:
                ledger.charge_lost(name, number, phase, event)
    return UnrecordedSpend(agreement.run, number)
