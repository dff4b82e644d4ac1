"""What leaves a client depends on its examples only through what a mechanism randomises.

A client answers the same requests with other examples while every mechanism randomises zeros in
place of what it is given. Whatever then differs has gone past the mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fedldp.core.bounding import LARGEST, LARGEST_WEIGHT, Ranges
from fedldp.core.errors import PrivacyError
from fedldp.core.locks import scratch
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.mechanisms import Mechanism
from fedldp.protocol.roles import Batch, Update
from fedldp.protocol.wire import Broadcast, Report, Sensitive, read_reply, read_request
from fedldp.testing.cases import Case, Conversation, FixedKeys, deploys, events_of, in_clear
from fedldp.training.tensors import one_thread

HUGE = np.float32(3e38)


@dataclass
class Held:
    """Makes every mechanism randomise zeros after it has read its real input.

    Whether a mechanism refuses, and how long its report is, still depends on the real input.

    Attributes:
        calls: what the mechanisms were given: their classes, and the shapes of the values.
        broken: what differs between the report of the real input and that of zeros.
    """

    calls: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    _inside: bool = False

    @contextmanager
    def on(self) -> Iterator[Held]:
        """Hold all mechanisms, and draw what is drawn once without a look at the examples."""
        with ExitStack() as patches:
            for kind in _kinds(Mechanism):
                for name in {"encode", "encode_many", "randomise"} & set(vars(kind)):
                    holding = self._holding(vars(kind)[name])
                    patches.enter_context(mock.patch.object(kind, name, holding))
            same = mock.patch.object(Stream, "bound_to", lambda stream, digest: stream)
            patches.enter_context(same)
            yield self

    def _holding(self, original: Any) -> Any:
        def held(mechanism: Any, values: Any, stream: Any) -> Any:
            if self._inside:  # a mechanism calls its own methods
                return original(mechanism, values, stream)
            self._inside = True
            try:
                self.calls.append((type(mechanism).__name__, np.shape(values)))
                many = not isinstance(stream, Stream)
                aside = [_aside(one) for one in stream] if many else _aside(stream)
                real = original(mechanism, values, aside)
                zeros = original(mechanism, np.zeros_like(values), stream)
            finally:
                self._inside = False
            if np.shape(real) != np.shape(zeros) or (
                isinstance(real, bytes) and len(real) != len(zeros)
            ):
                self.broken.append(f"the length of {type(mechanism).__name__}'s reports differs")
            return zeros

        return held


def _aside(stream: Stream) -> Stream:
    return Stream(bytes(32), simulated=stream.simulated)


def _kinds(base: type[Any]) -> Iterator[type[Any]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


OTHERS: dict[str, Callable[[Examples], Examples]] = {
    "other features": lambda own: Examples(-0.5 * own.features[..., ::-1], own.labels),
    "huge features": lambda own: Examples(
        np.where(own.features > own.features.mean(), HUGE, -HUGE), own.labels
    ),
    "blank features": lambda own: Examples(np.zeros_like(own.features), own.labels),
    "other labels": lambda own: Examples(own.features, (own.labels + 1) % 10),
    "one example": lambda own: Examples(own.features[:1], own.labels[:1]),
    "three times the examples": lambda own: Examples(
        np.concatenate([own.features] * 3), np.concatenate([own.labels] * 3)
    ),
}
"""Other examples that a client might have."""


def _at_the_limits(broadcast: Broadcast) -> Broadcast:
    """Return the worst broadcast that a policy allows: training on it overflows."""

    def worst(values: Any) -> Any:
        if not np.issubdtype(values.dtype, np.floating):
            return values
        signs = np.random.default_rng(0).choice([LARGEST_WEIGHT, -LARGEST_WEIGHT], values.shape)
        return np.asarray(signs, values.dtype)

    ranges = broadcast.ranges
    return replace(
        broadcast,
        weights=worst(broadcast.weights),
        ranges=ranges and Ranges.fixed(LARGEST, LARGEST, ranges.sizes),
        public={name: worst(values) for name, values in broadcast.public.items()},
    )


CHANGES: dict[str, Callable[[Broadcast], Broadcast]] = {
    "as it was told": lambda broadcast: broadcast,
    "at the limits": _at_the_limits,
    "beyond the limits": lambda broadcast: replace(
        broadcast, weights=np.resize([HUGE, -HUGE], broadcast.weights.shape)
    ),
}
"""What a server may make of a round's broadcast."""


@dataclass
class Watch:
    """The answers of one client to the same requests, with any examples.

    Attributes:
        case: the configuration.
        talk: gives the requests.
        folder: holds the stores, in a new folder for every data set.
    """

    case: Case
    talk: Conversation
    folder: Path

    def __post_init__(self) -> None:
        self.role = self.case.role(self.talk.index)
        self.own = self.case.own(self.talk.index)
        self.keys = FixedKeys(self.talk.index, not deploys(self.case.config))

    def answers(self, examples: Examples, step: Any = None) -> tuple[list[bytes], Held, int]:
        """Return the answers, what was held, and how often the local update randomised."""
        held, in_step = Held(), 0

        def watched(broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
            nonlocal in_step
            before = len(held.calls)
            found: Sensitive[Update] = (step or self.role.local_update)(broadcast, batch)
            in_step += len(held.calls) - before
            return found

        self.folder = self.folder / "next"
        with held.on(), np.errstate(all="ignore"), one_thread():
            runtime = self.case.start(
                self.talk.index,
                self.keys,
                self.folder,
                role=replace(self.role, local_update=watched),  # type: ignore[arg-type]
                examples=examples,
                failed=lambda error: None,
            )
            return [runtime.answer(message) for message in self.talk.requests], held, in_step

    def breaches(self) -> Iterator[str]:
        """Yield each way in which an answer shows what the examples are."""
        events = events_of(self.case.config)
        cleared = [in_clear(events[read_request(each).phase]) for each in self.talk.requests]
        base, held, in_step = self.answers(self.own)
        yield from held.broken
        for name, make in OTHERS.items():
            examples = make(self.own)
            another_number = len(examples) != len(self.own)
            if another_number and self.role.most_examples is not None:
                # What it sends is charged for a number of examples, so a client has that number.
                if not self.keys.simulated and not self._refuses(examples):
                    yield f"{name}: more examples than are charged for are not refused"
                continue
            found, other, _ = self.answers(examples)
            yield from other.broken
            more = ""
            if another_number and held.calls != other.calls:
                if not any(cleared):
                    yield f"{name}: the number of values that are randomised differs"
                more = "payload"  # each example is randomised, and labels are in the clear
            for clear, one, two in zip(cleared, base, found, strict=True):
                if told := _told(one, two, clear, self.own, examples, more):
                    yield f"{name}: {told}"
        if in_step:  # a local update that randomises must not fail, and none of the above does
            return
        for name, step in {
            "failing training": _failing,
            "NaN from training": _spoiling(self.role.local_update, np.nan),
            "infinity from training": _spoiling(self.role.local_update, np.inf),
        }.items():
            found, _, _ = self.answers(self.own, step)
            for clear, one, two in zip(cleared, base, found, strict=True):
                if told := _told(one, two, clear, self.own, self.own, ""):
                    yield f"{name}: {told}"

    def _refuses(self, examples: Examples) -> bool:
        try:
            self.answers(examples)
        except PrivacyError as refusal:
            return "charged for" in str(refusal)
        return False


def _failing(broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
    raise RuntimeError("training failed")


def _spoiling(step: Any, value: float) -> Any:
    """Return a local update whose results are not finite."""

    def spoilt(broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        found = step(broadcast, batch).open()
        aux = {name: np.full_like(array, value) for name, array in found.aux.items()}
        return Sensitive(Update(rows=np.full_like(found.rows, value), aux=aux))

    return spoilt


def _told(
    one: bytes, two: bytes, clear: set[str], own: Examples, other: Examples, more: str
) -> str:
    """Return in what two answers differ beyond what their event says is in the clear."""
    if one == two:
        return ""
    named = {more}
    if clear & {"weights", "clipped-weights", "signs-of-weights", "noisier-features"}:
        named.add("payload")
    if "labels" in clear and not np.array_equal(own.labels, other.labels):
        named.add("payload")
    if "number-of-examples" in clear and len(own) != len(other):
        named.add("weight")
    first, second = (read_reply(message)[2] for message in (one, two))
    if not (isinstance(first, Report) and isinstance(second, Report)):
        return "one is refused, the other is not"
    if len(one) != len(two):
        return "the answers have different lengths"
    differ = [
        each.name
        for each in fields(Report)
        if each.name not in named and getattr(first, each.name) != getattr(second, each.name)
    ]
    return f"the answers differ in {', '.join(differ)}" if differ else ""


def breaches(case: Case) -> Iterator[str]:
    """Yield each way in which a client's answers show its examples, for some broadcasts."""
    simulated = not deploys(case.config)
    for name, change in CHANGES.items():
        with scratch() as folder:
            talk = case.talk(lambda client: FixedKeys(client, simulated), folder / "talk", change)
            watch = Watch(case, talk, folder / "watch")
            yield from (f"{told} (broadcast {name})" for told in watch.breaches())
