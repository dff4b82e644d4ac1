"""Local randomisers: one file each, found by a scan of this package.

A mechanism is one frozen object. It works on normalised coordinates (``core.bounding.Ranges``),
bounds them itself, turns them into bytes, and guarantees how those bytes are distributed.

Mechanisms that a setting may name: ``none``, ``two_point``, ``k_rr``, ``piecewise``, ``laplace``,
``gaussian``, ``privunit`` and others. Reports that only a sum needs (``summing``):
``gaussian_share``, ``gaussian_summand``, ``integer_gaussian`` with noise, and ``codes`` without.
What several share: ``grids``, ``categories``, ``comparison``, ``packing``, ``rotation``, ``words``.

It may use core, accounting, protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.accountants import ACCOUNTANTS, UNITS, Normal, loss_of
from fedldp.accounting.events import Event, SubsetResponse
from fedldp.accounting.prices import cost
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError, PrivacyError, RunError, UnfitEvent
from fedldp.core.randomness import Stream
from fedldp.core.registry import is_address, load, modules, paper_modules, scan
from fedldp.mechanisms.packing import add_ones, count_ones, packed_bytes
from fedldp.mechanisms.summing import Summing, counts_of_bits

__all__ = [
    "Aggregate",
    "BitMechanism",
    "Counts",
    "Mechanism",
    "MechanismSettings",
    "SumAggregate",
    "SummedReports",
    "categories",
    "codes",
    "comparison",
    "find_mechanism",
    "gaussian",
    "gaussian_share",
    "gaussian_summand",
    "grids",
    "integer_gaussian",
    "k_rr",
    "laplace",
    "mechanisms",
    "none",
    "packing",
    "piecewise",
    "privunit",
    "rotation",
    "sends_category",
    "stated_category",
    "stated_event",
    "summing",
    "two_point",
    "words",
]

EpsilonUnit = Literal["weight", "client-round"]


@dataclass(frozen=True, kw_only=True)
class MechanismSettings:
    """The settings of a run that its mechanism depends on.

    Attributes:
        epsilon: the budget for one weight, or for a client's report in one round; see
            ``Mechanism.epsilon_unit``.
        delta: the delta, for mechanisms with an approximate guarantee.
        clip: the bound on the norm of the normalised vector; the mechanism says which norm.
        size: the number of coordinates, d.
        blocks: the number of blocks that the coordinates are split into, for ``KClosest``, which
            reports only the longest block.
    """

    epsilon: float
    delta: float
    clip: float
    size: int
    blocks: int = 1


class Aggregate(ABC):
    """A running estimate of the mean of any number of reports, in O(d) memory."""

    @abstractmethod
    def add(self, payload: bytes) -> None:
        """Add one whole report."""

    @abstractmethod
    def mean(self) -> NDArray[np.float64]:
        """Return the estimate of the mean input, shape (d,), in normalised coordinates.

        The expectation of the estimate is the mean of ``Mechanism.expected`` over the inputs.

        Raises:
            RunError: nothing was added.
        """


class SummedReports(Aggregate):
    """A sum of what whole reports of one length stand for; a factor turns it into the mean.

    Args:
        zeros: the empty sum, shape (d,).
        payload_bytes: the length of a report.
        factor: what each report is multiplied by.
    """

    def __init__(self, zeros: NDArray[Any], payload_bytes: int, factor: float = 1.0) -> None:
        self._sum = zeros
        self._payload_bytes = payload_bytes
        self._factor = factor
        self._reports = 0

    def add(self, payload: bytes) -> None:
        """Add one whole report.

        Raises:
            RunError: the payload has the wrong length, or holds what no report can hold.
        """
        self._add(payload, 1)

    def _add(self, payload: bytes, reports: int) -> None:
        if len(payload) != self._payload_bytes:
            raise RunError(
                f"a report of {len(payload)} bytes for {self._sum.size} coordinates, not "
                f"{self._payload_bytes}: client and server use different models, mechanisms or "
                "budgets"
            )
        self.read(payload)
        self._reports += reports

    @abstractmethod
    def read(self, payload: bytes) -> None:
        """Add to the sum what a report of the right length stands for."""

    def mean(self) -> NDArray[np.float64]:
        """Return the estimate of each coordinate's mean, shape (d,)."""
        return self.scaled(self.counted())

    def counted(self) -> int:
        """Return the number of reports in the sum.

        Raises:
            RunError: there is none.
        """
        if not self._reports:
            raise RunError("no report arrived, so there is no mean to estimate")
        return self._reports

    def scaled(self, reports: int) -> NDArray[np.float64]:
        """Return the estimate of the mean, given the number of reports, at least 1."""
        return np.asarray(self._factor * self._sum / reports)


class SumAggregate(SummedReports):
    """A sum that also takes a sum of several reports, encoded like one report."""

    def add(self, payload: bytes, clients: int = 1) -> None:
        """Add one report, or the sum of the reports of ``clients`` clients.

        Raises:
            RunError: the payload has the wrong length for a report.
        """
        self._add(payload, clients)

    @property
    def clients(self) -> int:
        """The number of clients whose reports are in the sum."""
        return self._reports


class Mechanism(ABC):
    """A local randomiser of one vector.

    Subclasses are frozen dataclasses that check their parameters when they are made.
    """

    name: ClassVar[str]
    epsilon_unit: ClassVar[EpsilonUnit]
    """The unit whose budget the setting ``epsilon`` gives."""
    is_setting: ClassVar[bool] = True
    """Whether the setting ``mechanism`` may name the class; otherwise only systems make it."""
    unsplit: ClassVar[str] = (
        "reports do not have one bit for each weight, so they cannot be split into single weights"
    )
    """Why reports cannot be sent weight by weight, for those that cannot."""
    costly: ClassVar[bool] = False
    """Whether a report of a few coordinates takes as much time as a report of thousands. If so, the
    audit makes fewer trials, as it does for mechanisms that encode one report at a time."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Ensure that ``encode_many`` never skips what a subclass's ``encode`` does."""
        super().__init_subclass__(**arguments)
        latest = next(kind for kind in cls.__mro__ if {"encode", "encode_many"} & set(vars(kind)))
        if "encode_many" not in vars(latest):
            cls.encode_many = Mechanism.encode_many  # type: ignore[method-assign]

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: MechanismSettings) -> Self:
        """Return the mechanism that a run's settings ask for.

        Raises:
            ConfigError: a setting is out of range for this mechanism.
        """

    @abstractmethod
    def event(self, size: int) -> Event:
        """Return what a report of ``size`` values releases: the mechanism's privacy claim as data.

        It must hold for all ranges that the broadcast may carry. ``stated_event`` says which events
        may be stated.
        """

    def category(self, size: int) -> SubsetResponse | None:
        """Return how a report of ``size`` values is drawn, if it is exactly one category.

        A payload may also hold a seed that says what the categories are. The seed comes from the
        fresh stream and is drawn independently of the values. All payloads have the same length. A
        shuffler of whole reports accepts mechanisms that define this; see ``stated_category``.

        Raises:
            ConfigError: a shuffler cannot hide such a report; see ``numerics.blanket.Subset``.
        """
        return None

    @abstractmethod
    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Bound, randomise and pack ``values``, shape (d,), in normalised coordinates.

        Raises:
            PrivacyError: ``values`` must not be released (see ``core.bounding.check_releasable``).
        """

    def encode_many(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        """Return the reports of many vectors: row i is ``encode(values[i], streams[i])``.

        Args:
            values: in normalised coordinates, shape (n, d).
            streams: n streams, one for each vector.

        Returns:
            Shape (n, bytes of a report).

        Raises:
            PrivacyError: some of ``values`` must not be released; nothing is drawn or returned.
        """
        check_block(values, streams)
        reports = [self.encode(row, stream) for row, stream in zip(values, streams, strict=True)]
        return np.array([np.frombuffer(report, np.uint8) for report in reports])

    @abstractmethod
    def payload_bits(self, size: int) -> int:
        """Return the number of bits in a report of ``size`` values, before padding to bytes."""

    @abstractmethod
    def aggregate(self, size: int) -> Aggregate:
        """Return an empty aggregate of reports of ``size`` values."""

    def summing(self, size: int, most: int) -> Summing | None:
        """Return how reports of ``size`` values add up; None if their sum has no meaning.

        Args:
            size: coordinates of a report.
            most: the largest number of reports in one sum.

        Raises:
            ConfigError: a sum of that many reports is too large.
        """
        return None

    def furthest(self, direction: NDArray[np.floating]) -> bytes | None:
        """Return the report that moves the estimate furthest in a direction; for the audit's liars.

        It need not be one that ``encode`` can make: any that the server accepts will do.

        Args:
            direction: shape (d,).

        Returns:
            None if the best of some honest reports should be taken.
        """
        return None

    @abstractmethod
    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` as bounded before randomising, shape (d,); bounding is idempotent."""

    def expected(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the vector that a report estimates without bias, shape (d,).

        It is ``bound(values)``, except for a mechanism whose source defines it with a bias.
        """
        return self.bound(values)

    @abstractmethod
    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of one report's estimate of each of ``values``, shape (d,)."""

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[Mechanism]:
        """Return instances for the contract tests, including some with extreme parameters."""


def check_block(values: Any, streams: Sequence[Stream]) -> None:
    """Refuse a block of vectors if one must not be released, or if the number of streams differs.

    Raises:
        PrivacyError: see ``core.bounding.check_releasable``.
    """
    check_releasable(values)
    if values.ndim != 2 or len(values) != len(streams):
        raise PrivacyError(
            f"cannot release values of shape {values.shape} with {len(streams)} streams: give one "
            "row for each stream"
        )


class Counts(Aggregate):
    """Counts of ones for each coordinate; with the scale K they give the mean.

    Reports may have different budgets: when the scale changes, the counts so far are folded into a
    float64 sum, so memory stays O(d). Whole reports are held until they are counted together: up to
    252 of them if these take at most 1 MiB, or else 60 (7.5 d bytes).
    """

    def __init__(self, size: int, scale: float) -> None:
        self.size = size
        self.reports = 0
        self._scale = scale
        self._sum = np.zeros(size)
        self._ones = np.zeros(size, np.int64)
        self._whole = 0
        self._payload_bytes = packed_bytes(size)
        self._most_waiting = 252 if 252 * self._payload_bytes <= 1 << 20 else 60
        self._waiting: list[bytes] = []

    def use_scale(self, scale: float) -> None:
        """Decode all later reports with this scale."""
        if scale != self._scale:
            self._fold()
            self._scale = scale

    def add(self, payload: bytes) -> None:
        """Add one whole report: packed bits, most significant first.

        Raises:
            RunError: the payload has the wrong length for a report.
        """
        if len(payload) != self._payload_bytes:
            raise RunError(
                f"a report of {len(payload)} bytes for {self.size} coordinates: "
                "client and server run different models"
            )
        self._waiting.append(payload)
        if len(self._waiting) == self._most_waiting:
            self._count_waiting()

    def add_many(self, payloads: NDArray[np.uint8]) -> None:
        """Add whole reports, one in each row, shape (n, bytes of a report).

        Raises:
            RunError: the rows have the wrong length for a report, or do not hold bytes.
        """
        self._ones += count_ones(payloads, self.size)
        self._whole += len(payloads)

    def add_counts(self, ones: NDArray[np.int64], reports: int) -> None:
        """Add the counts of ones of whole reports that were counted elsewhere.

        Args:
            ones: shape (d,), from 0 to ``reports``.
            reports: the number of these reports.

        Raises:
            RunError: ``ones`` cannot be such counts.
        """
        if ones.shape != (self.size,) or ones.dtype != np.int64:
            raise RunError(
                f"counts of shape {ones.shape} and type {ones.dtype}: give int64 counts for "
                f"{self.size} coordinates"
            )
        if not 0 <= ones.min() <= ones.max() <= reports:
            raise RunError(
                f"counts from {ones.min()} to {ones.max()} for {reports} reports: give the number "
                "of ones at each coordinate of whole reports"
            )
        self._ones += ones
        self._whole += reports

    def ones(self) -> NDArray[np.int64]:
        """Return the number of ones for each coordinate in reports with the current scale."""
        self._count_waiting()
        return self._ones.copy()

    def mean(self) -> NDArray[np.float64]:
        """Return the estimate K (2 ones/n - 1) of each coordinate's mean, shape (d,)."""
        self._fold()
        if not self.reports:
            raise RunError("no report arrived, so there is no mean to estimate")
        return self._sum / self.reports

    def _count_waiting(self) -> None:
        if self._waiting:
            add_ones(self._waiting, self._ones)
            self._whole += len(self._waiting)
            self._waiting.clear()

    def _fold(self) -> None:
        self._count_waiting()
        self.reports += self._whole
        self._ones *= 2
        self._ones -= self._whole
        self._sum += self._scale * self._ones
        self._ones[:] = 0
        self._whole = 0


class BitMechanism(Mechanism):
    """A mechanism whose report is one bit for each coordinate, and so can be sent in pieces.

    A bit b estimates its coordinate by scale * (2 b - 1).
    """

    @property
    @abstractmethod
    def scale(self) -> float:
        """K: a bit stands for K or -K."""

    def payload_bits(self, size: int) -> int:
        """Return ``size``: one bit for each coordinate."""
        return size

    def aggregate(self, size: int) -> Counts:
        """Return an empty count of ones of reports of ``size`` coordinates."""
        return Counts(size, self.scale)

    def summing(self, size: int, most: int) -> Summing:
        """Return how ones are counted."""
        return counts_of_bits(size, most)


def stated_event(mechanism: Mechanism, size: int) -> Event:
    """Return the event that a mechanism states for ``size`` values, if it may state that event.

    Only an encoder, which decides what a mechanism is given and how often, knows whether a release
    reveals nothing, is drawn once, or costs less for one record. A mechanism that could state this
    would set its own price. So a mechanism may only state an event that counts all coordinates,
    that costs something, and whose class the table of accountants lists as one for mechanisms.

    Raises:
        UnfitEvent: the mechanism states any other event.
        ConfigError: the mechanism refuses this size, or its event has a field that is out of range.
    """
    cls = type(mechanism)
    what = f"mechanism = {cls.__module__}:{cls.__qualname__}: it states"
    try:
        event = mechanism.event(size)
    except ConfigError as error:
        if cls.__module__.startswith("fedldp."):
            raise
        raise ConfigError(f"{what} no valid event: {error}") from error
    found = ACCOUNTANTS.get(type(event))  # the exact class: a subclass may redefine anything
    if found is None or not found.by_mechanism:
        known = ", ".join(each.__name__ for each, row in ACCOUNTANTS.items() if row.by_mechanism)
        raise UnfitEvent(f"{what} {type(event).__name__} for a report; state one of {known}")
    try:
        event = replace(event)  # checks all fields again, in case they were changed
    except ConfigError as error:
        raise UnfitEvent(f"{what} an invalid {type(event).__name__}: {error}") from error
    counted = size if found.size is None else found.size(event)
    if counted != size:
        raise UnfitEvent(
            f"{what} {counted} coordinates for a report of {size}; count all, or state a PureReport"
        )
    free = any(cost(event, kind) == 0 for kind in UNITS)
    if free or (isinstance(loss := loss_of(event), Normal) and loss.mu(1) == 0):
        raise UnfitEvent(
            f"{what} that a report costs nothing ({event}); state what it costs, rounded up"
        )
    return event


def sends_category(kind: type[Mechanism]) -> bool:
    """Return whether mechanisms of a class state that each of their reports is one category."""
    return kind.category is not Mechanism.category


def stated_category(mechanism: Mechanism, size: int) -> SubsetResponse:
    """Return how a report of ``size`` values is drawn, for a shuffler of whole reports.

    Raises:
        UnfitEvent: the mechanism states no category, or one that costs less than its event.
        ConfigError: a shuffler cannot hide such a report.
    """
    event, found, cls = stated_event(mechanism, size), mechanism.category(size), type(mechanism)
    what = f"mechanism = {cls.__module__}:{cls.__qualname__}"
    if type(found) is not SubsetResponse:
        raise UnfitEvent(
            f"{what}: a report of {size} values is not one category, which a shuffler of "
            "whole reports requires; set channel = named"
        )
    found = replace(found)  # checks all fields again, in case they were changed
    if cost(found, "pure") < cost(event, "pure"):
        raise UnfitEvent(
            f"{what}: its category has epsilon {found.subset.epsilon!r}, less than its event "
            "says; state the weights by which the category is drawn"
        )
    return found


@cache  # every new configuration looks a name up
def mechanisms() -> Mapping[str, type[Mechanism]]:
    """Return every mechanism that the setting ``mechanism`` may name, by its name."""
    every = (*modules(__name__), *paper_modules("mechanism"))
    found = scan(Mechanism, every)  # type: ignore[type-abstract]
    return MappingProxyType(dict(sorted((m.name, m) for m in found if m.is_setting)))


def find_mechanism(name: str) -> type[Mechanism]:
    """Return the mechanism called ``name``: one of ``mechanisms()``, or the user's "module:Class".

    Raises:
        ConfigError: there is no such mechanism, or the class cannot be one: see ``Mechanism``.
    """
    if is_address(name):
        return _checked(load(name, "mechanism"), name)
    known = mechanisms()
    if name not in known:
        raise ConfigError(f'mechanism = {name}: choose {", ".join(known)} or "module:Class"')
    return known[name]


def _checked(found: object, name: str) -> type[Mechanism]:
    """Return the object at a user's address if it can be a mechanism; otherwise refuse it."""
    if not (isinstance(found, type) and issubclass(found, Mechanism)):
        raise ConfigError(
            f"mechanism = {name}: it is not a subclass of fedldp.mechanisms.Mechanism"
        )
    if not found.is_setting:  # its report alone is proven only for what a system hands it
        raise ConfigError(
            f"mechanism = {name}: it is a part of systems, which bound what it is given; choose a "
            "name that `fedldp list mechanisms` shows, or your own module:Class"
        )
    lacking = sorted(getattr(found, "__abstractmethods__", ()))
    if lacking:
        raise ConfigError(f"mechanism = {name}: it does not define {', '.join(lacking)}")
    # The class itself must be a frozen dataclass, so that its randomiser and its claim stay fixed
    # as one value.
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise ConfigError(f"mechanism = {name}: write @dataclass(frozen=True) above its class")
    if getattr(found, "epsilon_unit", None) not in get_args(EpsilonUnit):
        units = " or ".join(get_args(EpsilonUnit))
        raise ConfigError(f"mechanism = {name}: set its epsilon_unit to {units}")
    return found
