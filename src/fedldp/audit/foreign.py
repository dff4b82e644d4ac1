"""The audit of a foreign client: a function that maps arrays to what it would send.

The games for mechanisms attack it with their usual pairs of inputs, distinguishers and bounds, and
see everything that it returns, including its form. Two more games look for typical mistakes in
hand-written clients: answers that repeat, and noise that several numbers share. A third looks at
everything else that the function returns, such as scores. The function draws its own randomness, so
a seed repeats the audit's choices but not the function's draws; the audit assumes that trials are
independent.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event, InClear
from fedldp.accounting.guarantees import Unit
from fedldp.audit.bounds import epsilon_lower, probability_at_least
from fedldp.audit.efforts import Effort
from fedldp.audit.game import Planned
from fedldp.audit.inputs import FAR
from fedldp.audit.observations import AuditKeys
from fedldp.audit.report_games import ReportGame
from fedldp.audit.results import GameResult, Line
from fedldp.core.errors import ConfigError, RunError, first_line
from fedldp.core.numbers import check_delta, check_positive
from fedldp.core.randomness import Stream
from fedldp.core.registry import is_address, load
from fedldp.mechanisms import Aggregate, Mechanism, MechanismSettings

ArrayShape = tuple[int, ...]
SHAPES: tuple[ArrayShape, ...] = ((4, 3), (4,), (2, 4), (2,))
"""Shapes of a small model's arrays: several, to distinguish a clip of each array from a clip of all
arrays together."""

_NEAR = 1e-6
"""Numbers with a smaller relative difference have the same noise, up to rounding."""


@dataclass(frozen=True)
class ForeignClient(Mechanism):
    """A client played by a function: ``function(arrays)`` returns what it would send.

    Attributes:
        address: the address of the function, "module:name".
        shapes: the shapes of the float32 arrays that the function gets in a list.
        beside: whether to look only at what the function returns besides one array of each of these
            shapes.
    """

    name = "client"
    epsilon_unit = "client-round"
    is_setting = False

    address: str
    shapes: tuple[ArrayShape, ...] = SHAPES
    beside: bool = False

    def __repr__(self) -> str:
        return f"client {self.address}" + (", beside its arrays" if self.beside else "")

    @property
    def size(self) -> int:
        """The number of values that the function gets."""
        return sum(math.prod(shape) for shape in self.shapes)

    def answer(self, values: NDArray[np.floating]) -> Any:
        """Return what the function returns for numbers, shape (d,)."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        with np.errstate(over="ignore"):
            parts = np.split(values.astype(np.float32), ends)
        given = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return _function(self.address)(given)

    def split(self, answer: Any) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
        """Return an answer's form, the numbers in its arrays, and all its other numbers."""
        arrays: list[NDArray[np.float64]] = []
        others: list[NDArray[np.float64]] = []
        form: list[Any] = []
        for key, item in _items(answer):
            try:
                found = np.asarray("nothing" if item is None else item)
                numbers = np.ravel(found.astype(np.float64))
                form.append([key, str(found.dtype), found.shape])
            except (TypeError, ValueError):
                form.append([key, repr(item)])
                continue
            place = len(arrays)
            fits = place < len(self.shapes) and found.shape == self.shapes[place]
            (arrays if fits and not others else others).append(numbers)
        nothing = np.zeros(0)
        return (
            json.dumps(form),
            np.concatenate([nothing, *arrays]),
            np.concatenate([nothing, *others]),
        )

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return all that is observed in an answer; a user's own function ignores the stream."""
        form, arrays, others = self.split(self.answer(values))
        seen = others if self.beside else np.concatenate([arrays, others])
        return form.encode() + b"\0" + seen.tobytes()

    def aggregate(self, size: int) -> Aggregate:
        """Return an aggregate that reads the numbers of one answer."""
        return _Read(size)

    def event(self, size: int) -> Event:
        """Return an event without a guarantee: the audit's arguments state the claim."""
        return InClear(what="what a foreign function returns")

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> ForeignClient:
        """Refuse, because no run uses such a client."""
        raise ConfigError("client: only `fedldp audit --client` uses it")

    def payload_bits(self, size: int) -> int:
        """Return the number of bits in an answer's numbers."""
        return 64 * size

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the values unchanged: the function itself bounds them."""
        return values.astype(np.float64)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return NaN, because the variance is unknown."""
        return np.full(values.shape, np.nan)

    @classmethod
    def examples(cls) -> Sequence[Mechanism]:
        """Return no instances, because such clients are the users' own."""
        return []


class _Read(Aggregate):
    def __init__(self, size: int) -> None:
        self._found = np.zeros(size)

    def add(self, payload: bytes) -> None:
        numbers = np.frombuffer(payload.partition(b"\0")[2], np.float64)[: self._found.size]
        self._found[: numbers.size] = numbers

    def mean(self) -> NDArray[np.float64]:
        return self._found


def _items(answer: Any) -> list[tuple[str, Any]]:
    """Return an answer's items by name or index; a nested item's name begins with its parent's."""
    if isinstance(answer, Mapping):
        pairs = [(str(key), item) for key, item in answer.items()]
    elif isinstance(answer, list | tuple):
        pairs = [(str(place), item) for place, item in enumerate(answer)]
    else:
        return [("", answer)]
    found: list[tuple[str, Any]] = []
    for key, item in pairs:
        if isinstance(item, Mapping | list | tuple):
            found += [(f"{key}.{inner}", each) for inner, each in _items(item)]
        else:
            found.append((key, item))
    return found


@lru_cache(maxsize=1)
def _function(address: str) -> Callable[[list[NDArray[np.float32]]], Any]:
    found = load(address, "client")
    if not callable(found):
        raise ConfigError(f"client = {address}: it is not a function; name one that takes arrays")
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class _OfClient(Planned):
    """A game against a client that is not about whole reports.

    Attributes:
        client: the attacked client.
        effort: how many trials.
    """

    client: ForeignClient
    effort: Effort

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Play, and return the row."""
        (line,) = self.lines
        generator = keys.generator(line.subject, line.setting)
        count = trials or self.effort.mechanism_least
        lower, attack = self.found(generator, count, confidence)
        return [line.bounded(lower, attack, trials=count, confidence=confidence)]

    @abstractmethod
    def found(
        self, generator: np.random.Generator, count: int, confidence: float
    ) -> tuple[float, str]:
        """Return a lower bound on epsilon, and what was counted."""


class RepeatedAnswers(_OfClient):
    """Whether answers to one input are equal."""

    def found(
        self, generator: np.random.Generator, count: int, confidence: float
    ) -> tuple[float, str]:
        """Get two answers for each of many inputs.

        If all n first answers o_i differ, the probabilities that the second answers equal them add
        up to at most e^epsilon + n delta. Each of them is at most e^epsilon times the probability
        of o_i under one fixed input, plus delta.
        """
        inputs = generator.uniform(-1, 1, (count, self.client.size))
        first = [self._seen(each) for each in inputs]
        place = {answer: at for at, answer in enumerate(first)}
        others = sorted(place.values())
        hits = sum(self._seen(inputs[at]) == first[at] for at in others)
        share = probability_at_least(hits, len(others), 1 - confidence) - self.lines[0].delta
        lower = math.log(max(1.0, share * len(others)))
        return lower, f"{hits} of {len(others)} inputs are answered twice with the same bytes"

    def _seen(self, values: NDArray[np.float64]) -> bytes:
        try:
            return self.client.encode(values, Stream(bytes(32), simulated=True))
        except Exception:  # the adversary observes a failure, too
            return b""


class SharedNoise(_OfClient):
    """Whether numbers of one answer have equal noise."""

    def found(
        self, generator: np.random.Generator, count: int, confidence: float
    ) -> tuple[float, str]:
        """Compare numbers within one answer, for equal inputs and for opposite inputs."""
        size, at = self.client.size, np.arange(self.client.size - 1)
        alternating = FAR * (-1.0) ** np.arange(size)
        signs = FAR * np.repeat((-1.0) ** np.arange(len(self.client.shapes)), self._sizes)
        found: list[tuple[float, str]] = []
        patterns = (
            ("neighbours", alternating, np.stack([at, at + 1], 1)),
            ("two arrays", signs, self._heads),
        )
        for what, other, pairs in patterns:
            if not len(pairs):
                continue
            equal = partial(self._equal, pairs)
            hits, false_hits = (
                sum(equal(values) for _ in range(count)) for values in (np.zeros(size), other)
            )
            lower = epsilon_lower(
                hits, count, false_hits, count, delta=self.lines[0].delta,
                confidence=1 - (1 - confidence) / len(patterns),
            )  # fmt: skip
            found.append((lower, f"equal noise in {what}, {hits} against {false_hits} times"))
        return max(found, default=(0.0, "only one number"))

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.client.shapes]

    @property
    def _heads(self) -> NDArray[np.int64]:
        """The first two numbers of each array, paired with those of the previous array."""
        starts = np.cumsum([0, *self._sizes])[:-1]
        found = [
            (start + at, following + at)
            for start, following, size, other in zip(
                starts, starts[1:], self._sizes, self._sizes[1:], strict=False
            )
            for at in range(min(2, size, other))
        ]
        return np.array(found, np.int64).reshape(-1, 2)

    def _equal(self, pairs: NDArray[np.int64], values: NDArray[np.floating]) -> bool:
        try:
            _, arrays, _ = self.client.split(self.client.answer(values))
        except Exception:  # a refusal contains no numbers to compare
            return False
        if arrays.size != self.client.size:
            return False
        one, other = arrays[pairs[:, 0]], arrays[pairs[:, 1]]
        same = np.abs(one - other) <= _NEAR * np.maximum(np.abs(one), np.abs(other))
        return bool(np.all(same))


def planned_foreign_games(
    address: str,
    *,
    unit: str,
    epsilon: float,
    delta: float,
    shapes: Sequence[ArrayShape] = SHAPES,
    effort: Effort,
) -> list[Planned]:
    """Return the games against a function and its claimed guarantee.

    Args:
        address: "module:function".
        unit: the unit of the claim: "client-round", where all arrays are replaced; or "weight", one
            number.
        epsilon: the epsilon claimed for one answer.
        delta: the delta of the claim.
        shapes: the shapes of the arrays that the function gets.
        effort: how many trials.

    Raises:
        ConfigError: there is no such function, it fails on zeros, or the claim is invalid.
    """
    if not is_address(address):
        raise ConfigError(f"client = {address}: give module:function")
    known: dict[str, Unit] = {"client-round": "client-round", "weight": "weight"}
    if unit not in known:
        choices = " or ".join(known)
        raise ConfigError(f"unit = {unit}: the claim is for one answer; choose {choices}")
    check_positive("epsilon", epsilon)
    check_delta(delta)
    if not shapes or min(map(math.prod, shapes)) < 1:
        raise ConfigError("shape: give arrays that have numbers, such as 4x3")
    client = ForeignClient(address, tuple(shapes))
    try:
        _, arrays, others = client.split(client.answer(np.zeros(client.size)))
    except (ConfigError, RunError):
        raise
    except Exception as error:
        raise ConfigError(
            f"client = {address}: given {len(shapes)} arrays of zeros it failed with "
            f"{type(error).__name__}: {first_line(error)}; name a function that takes a list of "
            "float32 arrays"
        ) from error
    if arrays.size + others.size == 0:
        raise ConfigError(f"client = {address}: it returns no numbers; make it return arrays")
    of = known[unit]

    def lines(setting: str, unit: Unit = of, times: int = 1, seen: ForeignClient = client) -> Any:
        line = Line(
            subject=repr(seen),
            setting=setting,
            size=client.size,
            unit=unit,
            delta=min(times * delta, 0.999) if times > 1 else delta,
            proven=times * epsilon,
            stated_by=address,
        )
        return {"lines": (line,), "effort": effort, "key": setting}

    found: list[Planned] = [ReportGame(mechanism=client, **lines("whole reports"))]
    if of == "client-round":
        found += [
            RepeatedAnswers(client=client, **lines("repeats")),
            SharedNoise(client=client, **lines("shared noise")),
            ReportGame(mechanism=client, **lines("two reports", "client-run", times=2)),
        ]
    if others.size:
        beside = ForeignClient(address, client.shapes, beside=True)
        found.append(ReportGame(mechanism=beside, **lines("beside the arrays", seen=beside)))
    return found
