"""The client side of a composition, around the user's own training.

    weights of a round -> policy, ledger     may the node answer, and has it answered before?
                       -> training           the user's own code, sealed; NaN if it fails
                       -> bound, mechanism   those of the composition
                       -> ledger             charged, stored and synced
                       -> estimate           what the report says about the weights, as float32

This is the client runtime of a site, with a different local update. The estimate is computed only
from the report and the broadcast, so it is post-processing. If the server's estimate is a mean, it
equals the mean of the clients' estimates. A loop that averages plain arrays therefore does not need
to know about mechanisms.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.accounting.releases import Cohort, ReleaseHistory
from fedldp.algorithms.composition import Algorithm
from fedldp.core.bounding import LARGEST_WEIGHT, within_largest_weight
from fedldp.core.errors import (
    ConfigError,
    LedgerUnusable,
    PrivacyError,
    RunError,
    WireError,
    first_line,
)
from fedldp.core.facts import Caveat
from fedldp.core.kinds import EARLIER_RUNS, SPENT
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.integrations.loop import bound_to, composition, planned, stated_for
from fedldp.ledgers.budget import Budget, each_of
from fedldp.ledgers.sqlite import Release, SqliteLedger
from fedldp.models import ALL, layout_of_trained
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import LedgerStore
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.roles import Batch, ClientRole, LocalUpdate, State, Update
from fedldp.protocol.wire import (
    Broadcast,
    Layout,
    Refusal,
    Report,
    RoundRequest,
    Sensitive,
    Vector,
    pack_request,
    read_reply,
)
from fedldp.reporting.text import Displayed

if TYPE_CHECKING:
    from torch import nn

Arrays = Mapping[str, NDArray[Any]]
Train = Callable[[], Arrays]
"""Trains on the client's private examples, and returns the weights by name."""

_log = logging.getLogger(__name__)

_NOBODY = Examples(np.zeros((0, 1), np.float32), np.zeros(0, np.int64))
"""The runtime gets no examples, because the training code has them."""

_WORDS = {
    "malformed": "the request cannot be read",
    "wrong-round": "the composition has no such round",
    "out-of-range": "the weights, or the ranges that follow from them, are out of range",
    "asked-otherwise": "a different request was answered in this round",
    "over-budget": "the budget of this node's ledger does not cover another answer",
    "not-kept": "a later round was answered, and this round's answer is not stored",
    "ledger": "the ledger cannot be used",
    "policy": "the composition does not answer this request",
}
"""Why a node refuses: fixed words, which do not depend on any example."""

_NOTHING = "nothing was released"


@dataclass
class _Training(LocalUpdate):
    """The local update of one node, which calls the current training function."""

    layout: Layout
    train: Train | None = None
    failed: Callable[[str], None] | None = None

    def fails(self, error: Exception) -> None:
        """Tell a node's owner what went wrong at the node."""
        if self.failed is not None:
            self.failed(_told(error))

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        assert self.train is not None
        try:
            found = self.train()
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # otherwise the process would end, which others would see
            raise RunError(f"training ended with {type(error).__name__}") from error
        weights = joined(self.layout, found)
        if not np.isfinite(weights).all():  # the answer hides these, but the user must see them
            raise ConfigError("the arrays contain NaN or infinity; lower the learning rate")
        return Sensitive(Update.of_one(weights, self.layout.size))


@dataclass
class _Node:
    """The state of one node.

    Attributes:
        ledger: the node's own ledger, with its secret and all that it keeps for its runs.
        latest: the runtime of the latest run, and its training.
    """

    ledger: SqliteLedger
    latest: tuple[ClientRuntime, _Training] | None = None


class AnswerTime:
    """When answers leave a node: never before a fixed time after their requests came.

    Args:
        seconds: the minimum time from the arrival of a request to its answer. If it is longer than
            any training, it hides how long training took.

    Raises:
        ConfigError: it is out of range.
    """

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= 1e6:
            raise ConfigError(
                f"answer_after_seconds = {seconds}: give a number of seconds from 0 to 1000000"
            )
        self._seconds = float(seconds)

    def wait(self, came: float) -> None:
        """Wait until the answer to a request may leave that came at ``came``, monotonic time."""
        left = came + self._seconds - time.monotonic()
        if left > 0:
            time.sleep(left)
        elif self._seconds:
            _log.warning(
                "answer_after_seconds = %g: a reply took longer, and its timing revealed that; "
                "raise the setting",
                self._seconds,
            )


class PrivateClient:
    """The client side of a composition, around the user's own training.

    Guarantee: whatever ``answer`` returns is the composition's report of the arrays that training
    returned. It is charged to the node's ledger, at the price of its event, before it leaves. A
    request (run, round) to a node gets only one answer, even after a restart. Whether there is an
    answer does not depend on any example: if training fails or returns the wrong arrays, the answer
    is the same as after training that changed nothing. Everything else that training computes stays
    at the node.

    Args:
        model: a torch module, or the ``Layout`` of another kind of model. It defines what a message
            must contain: float32 parameters of given names and shapes. If a module has frozen
            parameters, messages contain only the parameters that the setting ``trainable`` selects,
            and the app keeps the rest.
        file: a TOML file with the settings of the composition; None if ``settings`` has them all.
            See ``loop.composition``.
        folder: the folder for the ledgers, with a subfolder for each node.
        budget: the budget of each node's ledger, for everything that the node ever releases; see
            ``Budget``.
        settings: settings by name, which replace those of the file.

    Raises:
        ConfigError: the model has buffers, the budget does not cover one round, or the composition
            cannot be used in such a loop; see ``loop.composition``.
    """

    def __init__(
        self,
        model: nn.Module | Layout,
        file: str | Path | None = None,
        *,
        folder: str | Path,
        budget: Budget | tuple[Budget, ...],
        **settings: Any,
    ) -> None:
        self.config = composition(file, settings)
        self.layout = _layout(model, self.config.trainable)
        if not isinstance(folder, str | Path) or not str(folder).strip():
            raise ConfigError(f"folder = {folder!r}: give the path of a folder for the ledgers")
        self.folder = Path(folder).expanduser().absolute()
        self.budgets = each_of(budget)
        if not self.budgets:
            raise ConfigError("budget: give the limit on everything that a node will ever release")
        self._nodes: dict[str, _Node] = {}
        self._lock = threading.RLock()
        event = self.event()
        for each in self.budgets:
            _check_covers(each, event, self.config.rounds)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; it reads the ledgers and keys from disk itself."""
        kept = ("layout", "config", "folder", "budgets")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _nodes={}, _lock=threading.RLock())

    @cached_property
    def _algorithm(self) -> Algorithm:
        return bound_to(self.config, self.layout)

    def event(self) -> Event:
        """Return the event for one answer; the ledger is charged for this event."""
        return self._algorithm.encoder(0).event()

    # Statements

    def statement(self, node: str | None = None, run: str | None = None) -> Displayed:
        """Return the guarantee for a node.

        Args:
            node: a node's name; the statement covers one run in the node's ledger. If there were
                other runs, a warning says what all runs together cost. None: the statement covers a
                node that answers in every round of a run.
            run: the server's name for the run; None: the latest.

        Raises:
            ConfigError: the node has no ledger.
        """
        if node is None:
            return Displayed.of(planned(self.config, self.layout))
        more: list[Caveat] = []
        ledger = self._ledger_of(node)
        entries = [each for each in ledger.releases() if not each.renews]
        if run is None:
            run = entries[-1].run if entries else ""
        if any(each.run != run for each in entries):
            costs = [
                SPENT(unit=budget.unit, kind=budget.kind, spent=spent)
                for budget, spent, *_ in ledger.accounts(entries)
            ]
            more.append(EARLIER_RUNS(costs=tuple(costs)))
        releases = _history([each for each in entries if each.run == run])
        return Displayed.of(stated_for(self.config, releases, *more))

    def ledgers(self) -> dict[str, SqliteLedger]:
        """Return the ledgers in the folder, by node."""
        found = sorted(path.parent.name for path in self.folder.glob("*/ledger.sqlite"))
        return {node: self._ledger_of(node) for node in found}

    def _ledger_of(self, node: str) -> SqliteLedger:
        path = self.folder / node / "ledger.sqlite"
        if not path.exists():
            raise ConfigError(f"node = {node}: {self.folder} has no ledger for this node")
        return SqliteLedger(path)

    # Answers

    def answer(
        self,
        *,
        node: str,
        run: str,
        round: int,
        asked: bytes,
        weights: Arrays,
        train: Train,
        failed: Callable[[str], None],
    ) -> dict[str, Vector]:
        """Return what a node sends in a round: arrays with the model's names and shapes.

        Args:
            node: the node whose ledger is charged, under a name that its owner chooses, never the
                server.
            run: the server's name for the run.
            round: the round of the run, from 1.
            asked: the digest of everything else in the request, 32 bytes.
            weights: the weights of the round, by name.
            train: is called at most once, and only if the node may answer.
            failed: is called with a line that says why training was treated as having changed
                nothing. The line is for the node's owner: it may depend on examples and must not
                leave the node.

        Raises:
            PrivacyError: the node refuses the request, or its ledger cannot be used; nothing was
                released. The words depend on no example.
        """
        state = State(round=round, weights=self._weights(weights))
        request = self._request(run, state, asked)
        with self._lock:
            try:
                runtime, training = self._runtime(self._node(node), run)
            except PrivacyError as error:  # only for the log: it has the node's paths and budgets
                _log.error("nothing was released: %s", error)
                raise PrivacyError(f"round {round}: {_WORDS['ledger']}; {_NOTHING}") from None
            training.train, training.failed = train, failed
            try:
                packed = runtime.answer(request)
            finally:
                training.train = training.failed = None
        _, _, content = read_reply(packed)
        if isinstance(content, Refusal):
            raise PrivacyError(f"round {round}: {_WORDS[content.reason.value]}; {_NOTHING}")
        return self._estimate(state, content)

    def _weights(self, weights: Arrays) -> Vector:
        try:
            found = joined(self.layout, weights)
        except ConfigError as error:
            raise PrivacyError(f"{error}; {_NOTHING}") from None
        if not within_largest_weight(found):
            raise PrivacyError(
                f"arrays: a weight is NaN or beyond {LARGEST_WEIGHT:g}, so training may fail for "
                "some examples only; nothing was released"
            )
        return found

    def _request(self, run: str, state: State, asked: bytes) -> bytes:
        """Return a request as a site would receive it, with ranges computed from the weights."""
        if not 1 <= state.round <= self.config.rounds:
            raise PrivacyError(f"round {state.round}: {_WORDS['wrong-round']}; {_NOTHING}")
        try:
            ranges = self._algorithm.release(0).bound.announce(state.weights)
            public = {"asked": np.frombuffer(asked, np.uint8)}
            told = Broadcast(round=state.round, weights=state.weights, ranges=ranges, public=public)
            return pack_request(RoundRequest(run=run, phase=0, broadcast=told))
        except (RunError, WireError) as error:
            raise PrivacyError(f"{first_line(error)}; {_NOTHING}") from None

    def _estimate(self, state: State, report: Report) -> dict[str, Vector]:
        """Return what a report says about the weights, computed only from what was released."""
        parts = self._algorithm.parts
        estimate = parts.estimate.reading(self._algorithm.release(0))
        found = estimate(state, [report], _no_draw)
        assert found.values is not None
        values = found.values if estimate.gives == "weights" else state.weights + found.values
        most = float(np.finfo(np.float32).max)
        return self.layout.split(np.clip(values, -most, most).astype(np.float32))

    def _node(self, node: str) -> _Node:
        if node not in self._nodes:
            folder = self.folder / node
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            ledger, begun = folder / "ledger.sqlite", folder / "begun"
            if begun.exists() and not ledger.exists():
                raise LedgerUnusable(
                    f"ledger {ledger}: this file existed but is gone; put it back, because a new "
                    "ledger would lack the earlier releases; nothing was released"
                )
            found = SqliteLedger(ledger, self.budgets)
            begun.touch()
            self._nodes[node] = _Node(found)
        return self._nodes[node]

    def _runtime(self, node: _Node, run: str) -> tuple[ClientRuntime, _Training]:
        if node.latest is None or node.latest[0].policy.run != run:
            algorithm, training = self._algorithm, _Training(self.layout)
            role = ClientRole(
                local_update=training,
                encoder=algorithm.encoder(0),
                max_participations=algorithm.parts.participation.max_rounds(0),
            )
            policy = Policy(run=run, rounds=self.config.rounds, phases=1, layout=algorithm.layout)
            runtime = ClientRuntime.of_one(
                index=0,
                examples=_NOBODY,
                role=role,
                policy=policy,
                keys=SecretKeys(node.ledger.secret, run),
                store=LedgerStore(node.ledger, run),
                ledgers=node.ledger,
                failed=training.fails,
            )
            node.latest = runtime, training
        return node.latest


def _layout(model: nn.Module | Layout, trainable: str) -> Layout:
    """Return the layout of the trained parameters of the loop's model."""
    if not isinstance(model, Layout):
        return layout_of_trained(model, trainable)
    if trainable != ALL:
        raise ConfigError(
            f"trainable = {trainable}: the model is a Layout, which has only trained parameters; "
            "leave trainable out, or give the torch module"
        )
    return model


def _check_covers(budget: Budget, event: Event, rounds: int) -> None:
    """Refuse a budget that does not cover the answer to one round.

    Raises:
        ConfigError: the budget does not cover it.
    """
    if not budget.may_cover(event):
        zcdp = Budget("zcdp", 0.0, budget.unit)
        raise ConfigError(
            f"budget = {budget}: a round's release has no proven finite cost under this budget, "
            "so no round would be answered; "
            + (
                "give a zcdp budget"
                if zcdp.may_cover(event)
                else "choose a mechanism that randomises, such as gaussian or two_point"
            )
        )
    price = budget.price(event)
    if price > budget.limit:
        raise ConfigError(
            f"budget = {budget}: a round costs {budget.amount(price)}, so no round would be "
            f"answered; give {budget.amount(budget.spent([price] * rounds))} for the {rounds} "
            "rounds of a run, or a smaller epsilon"
        )


def joined(layout: Layout, arrays: Arrays) -> Vector:
    """Return arrays as one vector, float32, shape (d,).

    Raises:
        ConfigError: the names, shapes or dtypes differ from those of the layout; the message
            contains no number from the arrays.
    """
    more = [name for name in arrays if name not in layout.names]
    less = [name for name in layout.names if name not in arrays]
    if more or less:
        what = f"{more[0]!a:.80} is not one of them" if more else f"{less[0]} is missing"
        raise ConfigError(
            f"arrays: give exactly the model's {len(layout.names)} trained parameters: {what}"
        )
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        found = np.asarray(arrays[name])
        if found.dtype != np.float32 or found.shape != shape:
            raise ConfigError(
                f"arrays: {name} is {found.dtype} of shape {found.shape}; give float32 of {shape}"
            )
    rows = [np.ravel(np.asarray(arrays[name])) for name in layout.names]
    return np.concatenate(rows).astype(np.float32)


def _history(entries: list[Release]) -> ReleaseHistory:
    """Return what one node has released in a run."""
    rounds: dict[Event, int] = {}
    for entry in entries:
        rounds[entry.event] = rounds.get(entry.event, 0) | 1 << entry.round
    nobody = np.zeros(1, np.int32)
    return ReleaseHistory({event: [Cohort(nobody, bits)] for event, bits in rounds.items()})


def _told(error: Exception) -> str:
    """Describe a training error for the node's owner: fedldp's own message, or just the type."""
    if isinstance(error, ConfigError | RunError):
        return first_line(error)
    return f"training failed with {type(error).__name__}"


def _no_draw(purpose: str) -> Stream:
    raise RunError("an estimate from one report draws no random numbers")
