"""What leaves a client depends on its examples only through what a mechanism randomises.

This holds for every system that has a recipe on digits, except for what its event says is in clear.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import first_of_each
from subjects import configs

from fedldp.algorithms.config import RunConfig
from fedldp.core.bounding import LARGEST, LARGEST_WEIGHT, Ranges
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.mechanisms import Mechanism
from fedldp.protocol.roles import Batch, LocalUpdate, Update
from fedldp.protocol.wire import (
    Broadcast,
    Refusal,
    Report,
    Sensitive,
    read_reply,
    read_request,
)
from fedldp.testing.cases import Case, Conversation, FixedKeys, deploys, events_of, in_clear
from fedldp.training.tensors import one_thread

CONFIGS = configs()
every_config = pytest.mark.parametrize(
    "config", first_of_each(CONFIGS, lambda config: (config.system, config.model))
)


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


def answers_of(messages: list[bytes]) -> list[Report | Refusal]:
    return [read_reply(message)[2] for message in messages]


# With the mechanism's output held fixed, nothing that leaves depends on the examples


class Held:
    """Makes every mechanism randomise zeros after it has read its real input.

    Whether the mechanism refuses, and the length of its report, still depend on the real input.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self._inside = False
        for kind in _kinds(Mechanism):
            for name in ("encode", "encode_many", "randomise"):
                if name in vars(kind):
                    patch.setattr(kind, name, self._holding(vars(kind)[name]))

    def _holding(self, original: Any) -> Any:
        def held(mechanism: Any, values: Any, stream: Any) -> Any:
            if self._inside:  # a mechanism calls its own methods
                return original(mechanism, values, stream)
            self._inside = True
            try:
                self.calls.append((type(mechanism).__name__, np.shape(values)))
                aside: Any
                if isinstance(stream, Stream):
                    aside = Stream(bytes(32), simulated=stream.simulated)
                else:  # one stream for each of several clients
                    aside = [Stream(bytes(32), simulated=one.simulated) for one in stream]
                real = original(mechanism, values, aside)
                zeros = original(mechanism, np.zeros_like(values), stream)
            finally:
                self._inside = False
            assert np.shape(real) == np.shape(zeros)
            assert not isinstance(real, bytes) or len(real) == len(zeros)
            return zeros

        return held


def _kinds(base: type) -> Iterator[type]:
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
HUGE = np.float32(3e38)


def at_the_limits(broadcast: Broadcast) -> Broadcast:
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


def beyond_the_limits(broadcast: Broadcast) -> Broadcast:
    return replace(broadcast, weights=np.resize([HUGE, -HUGE], broadcast.weights.shape))


CHANGES: dict[str, Callable[[Broadcast], Broadcast]] = {
    "as it was told": lambda broadcast: broadcast,
    "at the limits": at_the_limits,
    "beyond the limits": beyond_the_limits,
}


def failing(broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
    raise RuntimeError("training failed")


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
        """Return the answers, the randomised values, and how often the local update randomised."""
        in_step = 0

        def watched(broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
            nonlocal in_step
            before = len(held.calls)
            found = (self.role.local_update if step is None else step)(broadcast, batch)
            in_step += len(held.calls) - before
            return found

        self.folder = self.folder / "next"
        with pytest.MonkeyPatch.context() as patch:
            held = Held(patch)
            # What is drawn once is drawn anew for other examples; here it must be the same.
            patch.setattr(Stream, "bound_to", lambda stream, digest: stream)
            runtime = self.case.start(
                self.talk.index,
                self.keys,
                self.folder,
                role=replace(self.role, local_update=watched),  # type: ignore[arg-type]
                examples=examples,
                failed=lambda error: None,
            )
            with np.errstate(all="ignore"):
                return [runtime.answer(message) for message in self.talk.requests], held, in_step


@pytest.mark.sampled(17)
@every_config
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_leaves_depends_on_examples_only_through_mechanisms(
    config: RunConfig, change: Callable[[Broadcast], Broadcast], tmp_path: Path
) -> None:
    case, events = Case.of(config), events_of(config)
    keys = FixedKeys(0, not deploys(config))
    talk = case.talk(lambda client: replace(keys, index=client), tmp_path / "talk", change)
    cleared = [in_clear(events[read_request(asked).phase]) for asked in talk.requests]
    watch = Watch(case, talk, tmp_path / "watch")
    base, held, in_step = watch.answers(watch.own)
    for make in OTHERS.values():
        examples = make(watch.own)
        another_number = len(examples) != len(watch.own)
        if another_number and watch.role.most_examples is not None:
            # What it sends is charged for a number of examples, so a real client has that number.
            if not keys.simulated:
                with pytest.raises(PrivacyError, match="charged for"):
                    watch.answers(examples)
            continue
        found, other, _ = watch.answers(examples)
        more = None
        if another_number and held.calls != other.calls:
            assert any(cleared)  # each example is randomised separately, and labels are in clear
            more = "payload"
        for clear, one, two in zip(cleared, base, found, strict=True):
            assert_equal_but_for_clear(one, two, clear, watch.own, examples, more)
    if in_step:  # a local update that randomises must not fail, and none of the above does
        return
    for step in (
        failing,
        spoiling(watch.role.local_update, np.nan),
        spoiling(watch.role.local_update, np.inf),
    ):
        found, _, _ = watch.answers(watch.own, step)
        for clear, one, two in zip(cleared, base, found, strict=True):
            assert_equal_but_for_clear(one, two, clear, watch.own, watch.own)


def spoiling(step: LocalUpdate, value: float) -> Any:
    """Return a local update whose results are not finite."""

    def spoilt(broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        found = step(broadcast, batch).open()
        aux = {name: np.full_like(array, value) for name, array in found.aux.items()}
        return Sensitive(Update(rows=np.full_like(found.rows, value), aux=aux))

    return spoilt


def assert_equal_but_for_clear(
    one: bytes, two: bytes, clear: str, own: Examples, other: Examples, *more: str | None
) -> None:
    """Check that two answers differ only in what their event says is in clear."""
    if one == two:
        return
    named = set(more)
    if re.search("weights|signs|which features", clear):
        named.add("payload")
    if "labels" in clear and not np.array_equal(own.labels, other.labels):
        named.add("payload")
    if "number of examples" in clear and len(own) != len(other):
        named.add("weight")
    first, second = answers_of([one, two])
    assert isinstance(first, Report)
    assert isinstance(second, Report)
    assert len(one) == len(two)
    for field in fields(Report):
        assert field.name in named or getattr(first, field.name) == getattr(second, field.name)
