"""What holds against a server that sees of every round the sum of the reports, and nothing else.

One branch for each kind of report that a sum protects. Of one-bit reports a sum shows the number of
ones at each coordinate, which is what an ideal shuffler of single bits shows: the figures are the
same, and only what they rest on differs. Of reports with shares of noise a sum shows one vector
with the noise of all shares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fedldp.accounting.events import GaussianShare, TwoValuedBits
from fedldp.accounting.guarantees import (
    DISCRETE,
    FRESH,
    LEAST_FOR_MU,
    TAKES_PART,
    Guarantee,
    History,
    Unit,
    gaussian_sums_epsilon,
    shuffled_guarantees,
)
from fedldp.errors import ConfigError


def summing_guarantees(
    history: History, *, summands: int, untrusted: int, delta: float
) -> list[Guarantee]:
    """Return the lines of one client, whose reports the server sees within sums only.

    None where a sum adds nothing to what holds for each report by itself.

    Args:
        history: how often the client released which event, NoData left out.
        summands: honest clients in the sum of every round that it took part in, at least 1, itself
            among them; each releases the same event in it.
        untrusted: clients of a round that may collude with the server, or be missing; they are not
            among ``summands``.
        delta: of the approximate lines; at 0 there are none.

    Raises:
        ConfigError: the client releases several kinds of bits, or of shares.
    """
    if delta == 0 or not any(isinstance(e, TwoValuedBits | GaussianShare) for e in history):
        return []
    if len(history) > 1:
        raise ConfigError("a sum's guarantee is known for one kind of report per client only")
    ((event, rounds),) = history.items()
    if isinstance(event, GaussianShare):
        return _of_shares(event, rounds, summands, untrusted, delta)
    assert isinstance(event, TwoValuedBits)
    lines = shuffled_guarantees(event, rounds, anonymity_set=summands, chunk=1, delta=delta)
    return [
        replace(
            line,
            adversary="summing-server",
            assumptions=sum_assumptions(summands, untrusted)
            + [a for a in line.assumptions if a.startswith(TAKES_PART)],
            method=f"a sum of bits shows what shuffled bits show; {line.method}",
        )
        for line in lines
    ]


def _of_shares(
    event: GaussianShare, rounds: int, summands: int, untrusted: int, delta: float
) -> list[Guarantee]:
    """Return the lines of reports that each add a share of discrete Gaussian noise to the sum.

    There are none at a delta below 1e-100, where the closed form of sums is not proven.
    """
    if delta < LEAST_FOR_MU:
        return []
    units: tuple[tuple[Unit, int], ...] = (("client-round", 1), ("client-run", rounds))
    return [
        Guarantee(
            unit=unit,
            adversary="summing-server",
            kind="approximate",
            epsilon=gaussian_sums_epsilon(Counter({event: times}), summands, delta),
            delta=delta,
            assumptions=[
                *sum_assumptions(summands, untrusted),
                DISCRETE,
                f"each of the {summands} draws its own share of the noise",
            ]
            + ([f"{TAKES_PART} {rounds} rounds"] if unit == "client-run" else []),
            method=f"sum of {summands:,} shares of discrete Gaussian noise (Kairouz, Liu, Steinke "
            "2021), closed form (Balle, Wang 2018), but for 1e-100",
        )
        for unit, times in units
    ]


def sum_assumptions(summands: int, untrusted: int) -> list[str]:
    """Return what every line for a summing server rests on; see ``summing_guarantees``."""
    return [
        FRESH,
        "the server follows the protocol of the secure sum, and whoever sees its memory sees no "
        "more than it does",
        "the keys of a sum are certified by a roster that every site accepted, and each key of it "
        "is a real site's",
        f"at most {untrusted} participants of a round collude with the server or are missing",
        f"{summands} honest clients in the sum of every round, which bounds nobody's report: a "
        "client that lies may add anything",
        "when and whether messages are sent does not depend on the data",
    ]
