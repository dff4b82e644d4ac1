"""A Flower mod that bounds and randomises what the train function of a ClientApp returns.

    message -> PrivateMod -> the app's train function -> PrivateMod -> reply

The mod is for apps that use the message API, with one ArrayRecord in each message. Only two things
leave the node in a reply: the composition's report, as one ArrayRecord with the model's names and
shapes, and a constant in place of the number of examples, which strategies use as a weight.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError, first_line
from fedldp.core.registry import import_extra
from fedldp.integrations.client import AnswerTime, PrivateClient
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.wire import Layout
from fedldp.reporting.text import Displayed

import_extra("flwr", extra="flower")

from flwr.app import (  # noqa: E402 (our own message says what is missing)
    Array,
    ArrayRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import ErrorCode  # noqa: E402

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Budget", "PrivateMod"]

log = logging.getLogger("fedldp.flower")

_ROUND = "server-round"
_PARTITION = "partition-id"
_WEIGHT = "num-examples"

_SCORES = (
    "scores on a node's private examples are a release that nothing here charges: test the model "
    "on the server, and set fraction_evaluate = 0"
)


class PrivateMod:
    """A client mod that adds the composition's bound and mechanism, and a ledger, to a ClientApp.

    Guarantee: a reply to a train message is the composition's report of the arrays that the app
    returned, charged to the node's ledger before it leaves. The same request (run, round, weights
    and everything else in it) gets the same reply, bit for bit. The app's metrics, numbers of
    examples, errors, other records and other arrays stay at the node. Whether there is a reply does
    not depend on any example, and neither does anything in it except the report: an app that fails,
    or returns arrays that do not match the model, is treated like an app that changed nothing.
    Messages of other kinds are refused without calling the app.

    A node's ledger is in ``folder``, under the ``partition-id`` of the node's own configuration if
    it has one. A name from the server is never used, because a new name would come with a new
    budget.

    Args:
        model: the model; see ``PrivateClient``.
        file: a TOML file with the settings of the composition, without data, model and training;
            None if ``settings`` has them all.
        folder: the folder for the ledgers.
        budget: the limit on everything that a node will ever release; see ``Budget``.
        answer_after_seconds: the minimum time from a train message to the reply; see
            ``AnswerTime``.
        settings: settings by name, which replace those of the file.

    Raises:
        ConfigError: flwr is not installed; for other reasons, see ``PrivateClient``.
    """

    def __init__(
        self,
        model: nn.Module | Layout,
        file: str | Path | None = None,
        *,
        folder: str | Path,
        budget: Budget | tuple[Budget, ...],
        answer_after_seconds: float = 0.0,
        **settings: Any,
    ) -> None:
        self._client = PrivateClient(model, file, folder=folder, budget=budget, **settings)
        self._time = AnswerTime(answer_after_seconds)

    def statement(self, node: str | None = None) -> Displayed:
        """Return the guarantee; see ``PrivateClient.statement``."""
        return self._client.statement(node)

    def ledgers(self) -> dict[str, SqliteLedger]:
        """Return the ledgers in the folder, by node."""
        return self._client.ledgers()

    def __call__(
        self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Return the node's reply to a message; ``call_next`` calls the app."""
        came = time.monotonic()
        # Make the reply now, so that its timestamps reveal when the message arrived, not when
        # training ended.
        reply = Message(RecordDict(), reply_to=message)
        refusal = Message(Error(ErrorCode.MOD_FAILED_PRECONDITION), reply_to=message)
        kind = message.metadata.message_type
        if kind.partition(".")[0] != "train":
            return _refused(refusal, f"{kind.partition('.')[0]}: {_SCORES}")
        try:
            return self._trained(message, context, call_next, reply)
        except PrivacyError as error:
            return _refused(refusal, first_line(error))
        except Exception as error:  # the error's message may depend on examples
            log.error("no reply: %s", type(error).__name__)
            return _refused(refusal, "the node cannot answer; the node's log says why")
        finally:
            self._time.wait(came)

    def _trained(
        self,
        message: Message,
        context: Context,
        call_next: Callable[[Message, Context], Message],
        reply: Message,
    ) -> Message:
        record, weights, round = _asked(message)
        node, run = _node(context), f"flower-{message.metadata.run_id}"
        place = f"{node}, round {round} of {run}"

        def train() -> dict[str, NDArray[Any]]:
            return _returned(call_next(message, context), place)

        def failed(why: str) -> None:
            log.error("%s: answered as if training had changed nothing: %s", place, why)

        found = self._client.answer(
            node=node,
            run=run,
            round=round,
            asked=_digest(message),
            weights=weights,
            train=train,
            failed=failed,
        )
        arrays = {name: Array(np.ascontiguousarray(each)) for name, each in found.items()}
        reply.content = RecordDict(
            {record: ArrayRecord(arrays), "metrics": MetricRecord({_WEIGHT: 1})}
        )
        return reply


def _refused(refusal: Message, why: str) -> Message:
    """Return a refusal with its reason, in words that do not depend on any example."""
    log.warning("refused: %s", why)
    refusal.error = Error(ErrorCode.MOD_FAILED_PRECONDITION, f"fedldp: {why}")
    return refusal


def _asked(message: Message) -> tuple[str, dict[str, NDArray[Any]], int]:
    """Return the record's name, the weights and the round of a train message.

    Raises:
        PrivacyError: one of them is missing or occurs several times.
    """
    records, configs = message.content.array_records, message.content.config_records
    if len(records) != 1:
        raise PrivacyError(
            f"the message has {len(records)} array records: send one, with the model's weights; "
            "nothing was released"
        )
    ((name, record),) = records.items()
    rounds = [config[_ROUND] for config in configs.values() if _ROUND in config]
    if len(rounds) != 1 or type(rounds[0]) is not int:
        raise PrivacyError(
            f"the message has no round: send one integer {_ROUND} in its config, as strategies of "
            "the message API do; nothing was released"
        )
    try:
        return name, {key: array.numpy() for key, array in record.items()}, rounds[0]
    except Exception:
        raise PrivacyError("an array in the message cannot be read; nothing was released") from None


def _node(context: Context) -> str:
    """Return the name of the node's ledger, as set by the node's owner and never by a server.

    Raises:
        PrivacyError: the partition id is not an integer of at least 0.
    """
    partition = context.node_config.get(_PARTITION)
    if partition is None:
        return "node"
    if type(partition) is not int or not 0 <= partition < 1 << 63:
        raise PrivacyError(
            f"{_PARTITION}: the node's configuration must give an integer of at least 0"
        )
    return f"partition-{partition}"


def _digest(message: Message) -> bytes:
    """Return the SHA-256 of everything in a message that the app may read."""
    found = hashlib.sha256()

    def add(*parts: bytes) -> None:
        for part in parts:
            found.update(len(part).to_bytes(8, "big") + part)

    add(message.metadata.message_type.encode())
    for name, record in sorted(message.content.items()):
        add(type(record).__name__.encode(), name.encode())
        for key, value in sorted(record.items()):
            add(key.encode())
            if isinstance(value, Array):
                add(str((value.dtype, tuple(value.shape), value.stype)).encode(), value.data)
            else:
                add(json.dumps(value, default=lambda raw: {"bytes": raw.hex()}).encode())
    return found.digest()


def _returned(reply: Message, place: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an app's reply.

    Raises:
        ConfigError: the reply has no array record, or several; the message is for the node's owner
            only.
    """
    if reply.has_error():
        raise ConfigError("the app returned an error")
    records = reply.content.array_records
    if len(records) != 1:
        raise ConfigError(
            f"the app returned {len(records)} array records; return one, with the model's "
            "weights: nothing else can be protected"
        )
    stays = [
        f"{name}.{key}"
        for kind in (reply.content.metric_records, reply.content.config_records)
        for name, record in kind.items()
        for key in record
    ]
    if stays:
        log.info("%s: stays at the node: %s", place, ", ".join(stays))
    (record,) = records.values()
    return {key: array.numpy() for key, array in record.items()}
