"""The contract of ``Mechanism``, for fedldp's own mechanisms and for yours.

    >>> from fedldp.testing.mechanisms import check_mechanism
    >>> from fedldp.testing.toys import ToyBits
    >>> [outcome for outcome in check_mechanism(ToyBits) if outcome.verdict == "fails"]
    []

The checks cannot prove an epsilon. ``law`` and ``category`` can refute one, and so can the audit.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedldp.accounting.events import SubsetResponse
from fedldp.accounting.guarantees import proven_epsilon
from fedldp.audit import efforts, mechanism_checks, report_games
from fedldp.audit.observations import AuditKeys, needs_simulated
from fedldp.core.errors import ConfigError, FedldpError, PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, find_mechanism, stated_event
from fedldp.testing.checks import FALSE_ALARM, Check, NotApplicable, Outcome, outcomes

Values = NDArray[Any]
Floats = NDArray[np.float64]

SETTINGS = ((0.5, 8), (4.0, 64), (1.0, 1))
"""The settings ``epsilon`` and d for which a mechanism is made."""
DELTA = 1e-5
EXAMPLE_SIZE = 40
REPORTS, PAIRS, TRIALS = 150, 64, 20_000
ENDS_OF_BLOCKS = (1, 7, 8, 9, 32_767, 32_768, 32_769, 65_536, 65_537, 100_000)
"""Encoders work in blocks, which end at powers of two."""
_MOST_CATEGORIES = 5000
_DTYPES: tuple[Any, ...] = (np.float64, np.float32)


@dataclass(frozen=True)
class Instance:
    """A mechanism and the size of the reports with which it is checked.

    Attributes:
        mechanism: the mechanism.
        size: d, coordinates of a report.
        asked: the setting ``epsilon`` for which it was made; None for an example.
        first: whether it is the example on which the long checks are made.
    """

    mechanism: Mechanism
    size: int
    asked: float | None = None
    first: bool = False

    @property
    def counts(self) -> bool:
        """Whether many reports are drawn: not for every example, which would take too long."""
        return self.first or self.asked is not None

    def __str__(self) -> str:
        return f"{self.mechanism!r}, d = {self.size}"

    def stream(self, number: int, purpose: str = "report") -> Stream:
        """Return a stream of the kind that a deployment uses, if the mechanism accepts it."""
        keys = AuditKeys(0).draws(
            1, repr(self.mechanism), number, purpose,
            simulated=needs_simulated(self.mechanism, self.size),
        )  # fmt: skip
        return keys.streams(0, 1)[0]

    def encode(self, values: Values, number: int, purpose: str = "report") -> bytes:
        """Return the report of some values from a numbered stream."""
        return self.mechanism.encode(values.copy(), self.stream(number, purpose))

    def estimates(self, values: Values, count: int, purpose: str) -> Floats:
        """Return the server's estimates from single reports, shape (count, d)."""
        found = np.empty((count, values.size))
        for number in range(count):
            aggregate = self.mechanism.aggregate(values.size)
            given = values.astype((np.float64, np.float32)[number % 2])
            aggregate.add(self.encode(given, number, purpose))
            found[number] = aggregate.mean()
        return found


def instances(kind: type[Mechanism]) -> list[Instance]:
    """Return the instances on which a class is checked: by its settings, then its examples."""
    found = []
    for epsilon, size in SETTINGS:
        with suppress(ConfigError):  # a mechanism may refuse these settings
            settings = MechanismSettings(epsilon=epsilon, delta=DELTA, clip=1.0, size=size)
            found.append(Instance(kind.from_settings(settings), size, epsilon))
    examples = kind.examples()
    found += [Instance(each, EXAMPLE_SIZE, None, place == 0) for place, each in enumerate(examples)]
    return found


def some_values(size: int, seed: int = 0) -> Floats:
    """Return values within and beyond every bound, with ends and zeros, exact as float32."""
    values = np.random.default_rng(seed).uniform(-1.4, 1.4, size).astype(np.float32)
    values[:6] = [-1.0, 1.0, 0.0, -0.0, 3.0, -3.0][:size]
    return values.astype(np.float64)


class _Unread:
    """A stream that must not be read."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the stream's {name} was used before the values were refused")


UNREAD: Any = _Unread()


def value(at: Instance) -> Iterator[str]:
    """A mechanism is one frozen value: what randomises and what is claimed cannot part."""
    m: Any = at.mechanism
    for name in (*(field.name for field in dataclasses.fields(m)), "something_new"):
        with suppress(dataclasses.FrozenInstanceError):
            setattr(m, name, getattr(m, name, None))
            yield f"{name} can be set: write @dataclass(frozen=True)"
    for twin in (dataclasses.replace(m), pickle.loads(pickle.dumps(m))):
        if not (twin == m and hash(twin) == hash(m) and repr(twin) == repr(m)):
            yield "a copy differs in ==, hash or repr"
    examples = type(m).examples()
    if len(examples) < 2 or len(set(map(repr, examples))) < len(examples):
        yield "examples() gives fewer than two instances, or equal ones"
    if not inspect.getdoc(type(m)):
        yield "the class has no docstring"


def event(at: Instance) -> Iterator[str]:
    """The stated event may be stated, and proves no more than the setting ``epsilon``."""
    stated_event(at.mechanism, 1000)
    if at.asked is not None:
        stated = stated_event(at.mechanism, at.size)
        unit = at.mechanism.epsilon_unit
        proven = [proven_epsilon(stated, unit, delta) for delta in (0.0, DELTA)]
        least = min((epsilon for epsilon in proven if epsilon is not None), default=math.inf)
        if least > at.asked * (1 + 1e-6) and least < math.inf:
            yield f"epsilon = {at.asked:g} was asked for; {least:.4g} per {unit} is stated"


_REFUSED: dict[str, Any] = {
    "NaN": np.array([0.1, np.nan, 0.2]),
    "infinity": np.array([0.1, np.inf]),
    "minus infinity, as float32": np.array([-np.inf, 0.1], np.float32),
    "NaN in two axes": np.array([[0.1, 0.2], [np.nan, 0.3]]),
    "NaN under a mask": np.ma.array([np.nan, 0.5], mask=[True, False]),
    "int64": np.array([0, 1]),
    "bool": np.array([True, False]),
    "complex": np.array([0.1 + 0j]),
    "float16": np.array([0.1], np.float16),
    "objects": np.array([0.1, 0.2], object),
    "text": np.array(["0.1"]),
    "an array without axes": np.array(0.5),
    "an empty array": np.array([], np.float32),
    "a list": [0.1, 0.2],
    "a number": 0.1,
    "None": None,
    "bytes": b"12345678",
}
"""What no randomiser can protect, and no mechanism may accept."""


def refusals(at: Instance) -> Iterator[str]:
    """What cannot be protected is refused, with one line, before anything is drawn."""
    for name, given in _REFUSED.items():
        try:
            at.mechanism.encode(given, UNREAD)
            yield f"encode accepts {name}"
        except PrivacyError as refusal:
            if len(str(refusal).splitlines()) != 1:
                yield f"the refusal of {name} is not one line"
    blocks: dict[str, Values] = {}
    for odd in (np.nan, np.inf, -np.inf):
        blocks[f"a block with {odd}"] = np.zeros((3, 8))
        blocks[f"a block with {odd}"][2, 7] = odd
    for shape in [(3,), (2, 8), (4, 8), (3, 2, 4), (0, 8), (3, 0)]:
        blocks[f"a block of shape {shape} with 3 streams"] = np.zeros(shape)
    for name, block in blocks.items():
        with suppress(PrivacyError):
            at.mechanism.encode_many(block, [UNREAD] * 3)
            yield f"encode_many accepts {name}"


def extremes(at: Instance) -> Iterator[str]:
    """Every finite vector is bounded to a finite one, once and for all, and sent as that one."""
    m = at.mechanism
    plain = some_values(at.size)
    tried = {
        "values beyond the bound": plain,
        "5e-324": np.full(at.size, 5e-324),
        "1e30": plain * 1e30,
        "1e200": plain * 1e200,
        "1.7e308": np.full(at.size, 1.7e308),
        "float32's largest": np.full(at.size, 3.4e38, np.float32),
    }
    for what, given in tried.items():
        bounded = m.bound(given)
        for found in (bounded, m.expected(given), m.variance(given)):
            if found.shape != given.shape or found.dtype != np.float64:
                yield f"bound, expected or variance of {what} is not float64 of the same shape"
            if not np.isfinite(found).all():
                yield f"bound, expected or variance of {what} is not finite"
        if (m.variance(given) < 0).any():
            yield f"the variance of {what} is negative"
        if not np.allclose(m.bound(bounded), bounded, rtol=1e-12):
            yield f"{what}, bounded twice, is another vector"
        for same in (m.expected, m.variance):
            if not np.array_equal(same(given), same(bounded)):
                yield f"{what} has another expected value or variance than its bounded vector"
        if at.encode(given, 0) != at.encode(bounded, 0):
            yield f"{what} is encoded differently from its bounded vector"
        nearer = m.bound((given / np.abs(given).max() * 1e6).astype(given.dtype))
        largest = np.abs(nearer).max()
        alike = np.allclose(nearer, bounded, rtol=1e-6, atol=1e-6 * largest)
        if np.abs(given).max() > 1e31 and not alike:
            yield (
                f"{what} is bounded to {np.abs(bounded).max():.3g}, but 1e6 in the same direction "
                f"to {largest:.3g}"
            )


def length(at: Instance) -> Iterator[str]:
    """A report has the length that ``payload_bits`` says, whatever the values are."""
    for size in ENDS_OF_BLOCKS if at.first else ENDS_OF_BLOCKS[:4]:
        due = math.ceil(at.mechanism.payload_bits(size) / 8)
        tried = (np.zeros(size), some_values(size), 1e30 * some_values(size))
        for number, given in enumerate(tried):
            payload = at.encode(given, number)
            if not isinstance(payload, bytes) or len(payload) != due:
                yield f"{len(payload)} bytes for d = {size}; payload_bits says {due}"
        aggregate = at.mechanism.aggregate(size)
        aggregate.add(payload)
        mean = aggregate.mean()
        if mean.shape != (size,) or mean.dtype != np.float64 or not np.isfinite(mean).all():
            yield f"the mean of a report of d = {size} is not {size} finite float64"


def batch(at: Instance) -> Iterator[str]:
    """``encode_many`` gives the bytes that ``encode`` gives, row by row."""
    shapes = [(1, 1), (5, 9), (3, 650)] + [(20, 4000), (2, 65_537)] * at.first
    for rows, size in shapes:
        for dtype in _DTYPES:
            given = np.array([some_values(size, row) for row in range(rows)]).astype(dtype)
            many = at.mechanism.encode_many(given.copy(), [at.stream(n) for n in range(rows)])
            due = (rows, math.ceil(at.mechanism.payload_bits(size) / 8))
            if many.dtype != np.uint8 or many.shape != due:
                yield f"encode_many returns {many.dtype} of shape {many.shape}, not uint8 of {due}"
            if any(many[n].tobytes() != at.encode(given[n], n) for n in range(rows)):
                yield f"encode_many and encode give different bytes for {rows} rows of {size}"


def untouched(at: Instance) -> Iterator[str]:
    """The values stay as they were, and only they matter: not how they lie in memory."""
    for dtype in _DTYPES:
        given = some_values(500).astype(dtype)
        given.flags.writeable = False
        before = given.tobytes()
        at.mechanism.encode(given, at.stream(0))
        at.mechanism.bound(given)
        at.mechanism.variance(given)
        if given.tobytes() != before:
            yield "the given values were changed"
    apart = some_values(600)[::2]
    for same in (apart, apart[::-1][::-1]):
        if at.mechanism.encode(same, at.stream(0)) != at.encode(apart, 0):
            yield "values that are not contiguous are encoded differently"


class _Integers(Stream):
    def generator(self) -> Any:
        raise AssertionError("generator() is used: it is not cryptographic, and draws floats")


def integers(at: Instance) -> Iterator[str]:
    """In a deployment, nothing is drawn by a generator of floats."""
    if needs_simulated(at.mechanism, at.size):
        raise NotApplicable("its event is for simulations only")
    at.mechanism.encode(some_values(at.size), _Integers(bytes(32), simulated=False))
    yield from ()


def noise(at: Instance) -> Iterator[str]:
    """All randomness comes from the given stream, so that two rounds share nothing."""
    given = some_values(max(at.size, 200))
    if at.encode(given, 0) != at.encode(given, 0):
        yield "one stream gives two reports: something else is drawn from"
    if not at.counts or at.mechanism.variance(given).sum() < 20:
        return  # hardly any coordinate is changed
    if len({at.encode(given, n, each) for n in range(PAIRS) for each in ("one", "two")}) == 1:
        yield "two streams give the same report: whoever has two rounds subtracts the noise"
    first, second = (at.estimates(given, PAIRS, each) for each in ("one", "two"))
    product = ((first - first.mean(0)) * (second - second.mean(0))).sum(1)
    off = product.mean() / max(product.std(ddof=1) / math.sqrt(PAIRS), 1e-300)
    if abs(off) > stats.t.isf(FALSE_ALARM / 2, PAIRS - 1):
        yield f"the noises of two rounds are correlated, by {off:.1f} standard errors"


def moments(at: Instance) -> Iterator[str]:
    """The estimate has the mean ``expected`` and the variance ``variance``."""
    if not at.counts:
        raise NotApplicable("other instances are enough")
    yield from _misfits(at, some_values(max(at.size, 400)), REPORTS)


def moments_across_blocks(at: Instance) -> Iterator[str]:
    """The same for a long report, whose blocks an encoder may confuse."""
    if not at.first:
        raise NotApplicable("one instance is enough")
    ends = np.random.default_rng(0).random(ENDS_OF_BLOCKS[-1]) < 0.5
    yield from _misfits(at, np.where(ends, 0.875, -0.75), 12)


def _misfits(at: Instance, given: Floats, reports: int) -> Iterator[str]:
    m, size = at.mechanism, given.size
    due, variance, bounded = m.expected(given), m.variance(given), m.bound(given)
    limit = stats.t.isf(FALSE_ALARM / 2, reports - 1)
    off = at.estimates(given, reports, "moments") - due
    half = np.arange(size) < size // 2
    weights = {
        "all coordinates": np.ones(size),
        "along the values": bounded,
        "along their cubes": bounded**3,
        "along the first half": bounded * half,
        "along the second half": bounded * ~half,
        "along the end": bounded * (np.arange(size) >= size - 9),
    }
    for name, weight in weights.items():
        along = off @ weight
        # A mechanism that samples coordinates may send none of the few in a weighted sum.
        error = math.sqrt(max(along.var(ddof=1), variance @ weight**2) / reports)
        if abs(along.mean()) > limit * error + 1e-9 * math.sqrt(size):
            ratio = 1 + along.mean() / (weight @ due) if weight @ due else math.nan
            yield (
                f"the mean, {name}, is {ratio:.3g} times what is expected, "
                f"{abs(along.mean()) / max(error, 1e-300):.0f} standard errors off"
            )
    excess = off**2 - variance
    ratio = (off**2).sum() / max(variance.sum() * reports, 1e-300)
    # Outcomes that are too rare to be seen may make up the rest of the variance.
    unseen = ratio < 1 and (ratio > 0.9 or variance.mean() < 1e-3)
    for sums in (excess.sum(1), excess @ np.abs(bounded)):
        error = sums.std(ddof=1) / math.sqrt(reports)
        if abs(sums.mean()) > limit * error + 1e-9 * size and not unseen:
            yield f"the variance is {ratio:.3g} times what is stated"


def aggregate(at: Instance) -> Iterator[str]:
    """The server's mean needs a report, refuses other lengths, and knows no order of reports."""
    m = at.mechanism
    with suppress(RunError):
        m.aggregate(5).mean()
        yield "an aggregate without reports has a mean"
    for size in (1, 8, 1000):
        payload, found = at.encode(some_values(size), 0), m.aggregate(size)
        found.add(payload)
        before = found.mean().copy()
        for wrong in (b"", payload[:-1], payload + b"\0", payload * 2):
            try:
                found.add(wrong)
                yield f"the aggregate accepts {len(wrong)} bytes in place of {len(payload)}"
            except RunError as refusal:
                if len(str(refusal).splitlines()) != 1:
                    yield "the refusal of a wrong length is not one line"
        if not np.array_equal(found.mean(), before):
            yield "a refused report changes the mean"
    payloads = [at.encode(some_values(50, n), n) for n in range(40)]
    plain, mixed, read = m.aggregate(50), m.aggregate(50), m.aggregate(50)
    for payload, other in zip(payloads, np.random.default_rng(0).permutation(40), strict=True):
        plain.add(payload)
        mixed.add(payloads[other])
        read.add(payload)
        read.mean()
    mean = plain.mean()
    apart = 1e-12 * float(np.ptp(mean))
    if not np.allclose(mixed.mean(), mean, rtol=1e-12, atol=apart):
        yield "the mean depends on the order of reports"
    if not np.allclose(read.mean(), mean, rtol=1e-12, atol=apart):
        yield "reading the mean on the way changes it"


def _category(at: Instance) -> SubsetResponse | None:
    """Return the category that a report is; None if it is none, or one of too many to count."""
    with suppress(FedldpError):
        stated = at.mechanism.category(at.size)
        if stated is not None and stated.categories <= _MOST_CATEGORIES:
            return stated
    return None


def category(at: Instance) -> Iterator[str]:
    """A report that is one category is drawn with exactly the stated weights, by a public seed.

    The seed must not depend on the values: a randomiser that draws two seeds and keeps the better
    one tells more than it states.
    """
    stated = _category(at)
    if at.asked is None or stated is None:
        raise NotApplicable("it states no category, or too many to count")
    lines = report_games.lines_of(at.mechanism, at.size, "client-round")
    check = mechanism_checks.WeightCheck(mechanism=at.mechanism, stated=stated, lines=lines)
    (row,) = check.play(AuditKeys(0), 1 - FALSE_ALARM)
    if row.verdict == "bug":
        yield f"{row.attack}: the weights or the seed depend on the input, or are not as stated"


def law(at: Instance) -> Iterator[str]:
    """No two inputs can be told apart better than the event says, by what the audit tries."""
    if at.asked is None:
        raise NotApplicable("examples are audited by their settings")
    stated = stated_event(at.mechanism, at.size)
    delta = 0.0 if proven_epsilon(stated, "client-round", 0.0) is not None else 0.1
    proven = proven_epsilon(stated, "client-round", delta)
    if proven is None:
        raise NotApplicable("it proves nothing about a report")
    lines = report_games.lines_of(at.mechanism, at.size, "client-round", (delta,))
    effort = replace(efforts.QUICK, mechanism_scan=8)
    game = report_games.ReportGame(mechanism=at.mechanism, lines=lines, effort=effort)
    # Where the weights of all categories are counted, trials look only for other mistakes.
    trials = TRIALS if _category(at) is None else TRIALS // 5
    (found,) = game.play(AuditKeys(0), 1 - FALSE_ALARM, trials)
    if found.lower > proven:
        yield (
            f"epsilon is at least {found.lower:.3f} at delta {delta:g}; {proven:.3f} is stated "
            f"({found.attack})"
        )


CHECKS: tuple[Check[Instance], ...] = (
    Check("one value", value, "write @dataclass(frozen=True), and give all parameters as fields"),
    Check("event", event, "state an event of accounting.events for these parameters, rounded up"),
    Check("refusals", refusals, "call core.bounding.check_releasable(values) first in encode"),
    Check("huge and tiny values", extremes, "clip with core.bounding, which does not overflow"),
    Check("length of a report", length, "send as many bytes for every input"),
    Check("many as one by one", batch, "leave encode_many out, or draw each row from its stream"),
    Check("input untouched", untouched, "copy the values before you change them"),
    Check("integers", integers, "draw with stream.bytes or stream.integers; compare integers"),
    Check("noise of two rounds", noise, "draw everything from the stream that encode is given"),
    Check("mean and variance", moments, "state expected() and variance() as they are"),
    Check("long reports", moments_across_blocks, "look at what happens where a block ends"),
    Check("aggregate", aggregate, "check the length first in add; sum, and divide in mean"),
    Check(
        "category",
        category,
        "draw the seed before you look at the values, and send that one",
        thorough=True,
    ),
    Check("law", law, "the report costs more than is stated: state that", thorough=True),
)


def check_mechanism(
    subject: type[Mechanism] | Mechanism | str, *, thorough: bool = False
) -> list[Outcome]:
    """Check that a mechanism keeps the contract of ``Mechanism``.

    Args:
        subject: a class; one instance, of which only the class is then checked on it; or a name, as
            the setting ``mechanism`` takes it.
        thorough: whether reports are also counted and attacked, as the audit does (``category``,
            ``law``), which takes minutes.

    Returns:
        One outcome for each check. The probability that an honest mechanism fails any of them is
        at most 1e-6.

    Raises:
        ConfigError: there is no such mechanism.
    """
    if isinstance(subject, Mechanism):
        on = [Instance(subject, EXAMPLE_SIZE, None, True)]
    else:
        on = instances(find_mechanism(subject) if isinstance(subject, str) else subject)
    return list(outcomes(CHECKS, on, thorough=thorough))
