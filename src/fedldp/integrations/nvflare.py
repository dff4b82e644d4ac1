"""A filter for NVIDIA FLARE that bounds and randomises what a site's train task returns.

    task -> the job's executor -> PrivateFilter -> result

The filter is for jobs whose train task has the weights as one DXO, such as FedAvg's. Only three
things leave the site: the composition's report, as one DXO with the model's names and shapes; a
constant in place of the number of steps, which aggregators use as a weight; and what the site has
spent in the job, with its conditions, which depends on no example.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.proven import Proven
from fedldp.core.errors import ConfigError, PrivacyError, first_line
from fedldp.core.registry import import_extra, load
from fedldp.integrations.client import AnswerTime, PrivateClient
from fedldp.ledgers.budget import Budget
from fedldp.protocol.wire import Layout
from fedldp.reporting import words
from fedldp.reporting.text import Displayed

import_extra("nvflare", extra="nvflare")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable  # noqa: E402
from nvflare.apis.event_type import EventType  # noqa: E402
from nvflare.apis.filter import Filter  # noqa: E402
from nvflare.apis.fl_constant import FLContextKey, ReturnCode  # noqa: E402
from nvflare.apis.fl_context import FLContext  # noqa: E402
from nvflare.apis.shareable import Shareable  # noqa: E402
from nvflare.app_common.app_constant import AppConstants  # noqa: E402

__all__ = ["PrivateFilter"]

log = logging.getLogger("fedldp.nvflare")

_SITE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")

_KINDS = (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF)

CONDITIONS = "epsilon_conditions"
"""The meta data that tell, for each epsilon of a result, its conditions, each with its kind and
values, and who states it."""


@dataclass(frozen=True)
class _Asked:
    """What a train task asks for: the weights of a round, and a digest of the whole request."""

    round: int
    weights: Mapping[str, NDArray[Any]]
    digest: bytes


class PrivateFilter(Filter):  # type: ignore[misc]  # nvflare has no types
    """A filter of task results that adds the composition's bound and mechanism, and a ledger.

    Guarantee: the result of a train task is the composition's report of the weights that the
    executor returned, charged to the site's ledger before it leaves. A round of a job gets only one
    answer. The executor's metrics, numbers of steps, headers and other content stay at the site.
    Whether there is an answer does not depend on any example, and neither does anything in it
    except the report: an executor that returns an error, or weights that do not match the model, is
    treated like an executor that changed nothing. An executor must not raise: NVFLARE reports this
    before any filter is asked. Results of other tasks are refused.

    Once the budget does not cover another round, results are refused: the job halts. The metrics of
    each result are what the site has spent in the job, one for each line of its statement about the
    run and the server; see ``metric_of``. So a workflow can stop before (FedAvg:
    ``stop_cond="epsilon_client-run_server_delta_1e-05 >= 4"``).

    The site's ledger is in ``folder``, under the site's own name. All arguments are plain values,
    so that they can stand in a job's or a site's configuration file.

    Args:
        model: a mapping from the names of the trained parameters to their shapes, or the
            "module:Class" of a torch module; see ``PrivateClient``.
        folder: the folder for the ledgers.
        budget: the limit on everything that the site will ever release, as a mapping with the
            attributes of ``Budget``, such as {"kind": "zcdp", "limit": 1.5}; or a list of these.
        file: a TOML file with the settings of the composition, or None.
        settings: settings by name, which replace those of the file.
        sends: "WEIGHTS" or "WEIGHT_DIFF": what results contain, whatever the executor returns.
        task: the name of the train task.
        answer_after_seconds: the minimum time from a train task to its result; see ``AnswerTime``.

    Raises:
        ConfigError: nvflare is not installed, or an argument is wrong; for other reasons, see
            ``PrivateClient``.
    """

    def __init__(
        self,
        model: str | Mapping[str, list[int]],
        folder: str,
        budget: Mapping[str, Any] | list[Mapping[str, Any]],
        file: str | None = None,
        settings: Mapping[str, Any] | None = None,
        sends: str = DataKind.WEIGHTS,
        task: str = AppConstants.TASK_TRAIN,
        answer_after_seconds: float = 0.0,
    ) -> None:
        super().__init__()
        if sends not in _KINDS:
            raise ConfigError(f"sends = {sends}: choose {' or '.join(_KINDS)}")
        # NVFLARE writes a job's configuration from the attributes that are called like arguments.
        self.model, self.folder, self.budget = model, folder, budget
        self.file, self.settings, self.sends, self.task = file, settings, sends, task
        self.answer_after_seconds = answer_after_seconds
        self._time = AnswerTime(answer_after_seconds)
        limits = [budget] if isinstance(budget, Mapping) else budget
        self._client = PrivateClient(
            load(model, "model") if isinstance(model, str) else _layout(model),
            file,
            folder=folder,
            budget=tuple(Budget(**each) for each in limits),
            **(settings or {}),
        )
        self._asked: dict[str, _Asked | PrivacyError] = {}
        self._came = 0.0

    def statement(self, site: str | None = None) -> Displayed:
        """Return the guarantee for a site, or for each; see ``PrivateClient.statement``."""
        return self._client.statement(site)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep what a train task asks for, as the executor sees it."""
        if event_type != EventType.BEFORE_TASK_EXECUTION:
            return
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != self.task:
            return
        self._came = time.monotonic()
        try:
            asked: _Asked | PrivacyError = _asked(fl_ctx.get_prop(FLContextKey.TASK_DATA))
        except PrivacyError as error:
            asked = error
        self._asked = {fl_ctx.get_prop(FLContextKey.TASK_ID): asked}

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the protected result of a train task.

        Raises:
            PrivacyError: the task or its request is refused, for a reason that depends on no
                example; NVFLARE sends only a code, and the site's log has the reason.
        """
        try:
            return self._answered(shareable, fl_ctx)
        except PrivacyError as error:
            log.warning("refused: %s", first_line(error))
            raise
        except Exception as error:  # the error's message may depend on examples
            log.error("no result: %s", type(error).__name__)
            raise PrivacyError("the site cannot answer; nothing was released") from None
        finally:
            self._time.wait(self._came)

    def _answered(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        name = fl_ctx.get_prop(FLContextKey.TASK_NAME)
        if name != self.task:
            raise PrivacyError(
                f"task {name}: scores on a site's private examples, and models as they are, are "
                "releases that nothing here charges: test the model on the server"
            )
        asked = self._asked.pop(fl_ctx.get_prop(FLContextKey.TASK_ID), None)
        if asked is None:
            raise PrivacyError("the task was not seen before its result; nothing was released")
        if isinstance(asked, PrivacyError):
            raise asked
        site, run = fl_ctx.get_identity_name(), f"nvflare-{fl_ctx.get_job_id()}"
        if not _SITE.fullmatch(site):
            raise PrivacyError("the site's name is not one of letters, digits, '.', '_' and '-'")
        place = f"{site}, round {asked.round} of {run}"

        def failed(why: str) -> None:
            log.error("%s: answered as if training had changed nothing: %s", place, why)

        found = self._client.answer(
            node=site,
            run=run,
            round=asked.round,
            asked=asked.digest,
            weights=asked.weights,
            train=lambda: _returned(shareable, asked.weights),
            failed=failed,
        )
        if self.sends == DataKind.WEIGHT_DIFF:
            found = {key: each - asked.weights[key] for key, each in found.items()}
        meta: dict[str, Any] = {MetaKey.NUM_STEPS_CURRENT_ROUND: 1}
        if spent := self._spent(site, run):
            meta[MetaKey.INITIAL_METRICS] = {metric_of(line): line.size for line in spent}
            meta[CONDITIONS] = {metric_of(line): _conditions(line) for line in spent}
            log.info("%s: spent in this job: %s", place, "; ".join(map(words.size_of, spent)))
        result: Shareable = DXO(self.sends, data=found, meta=meta).to_shareable()
        result.set_return_code(ReturnCode.OK)
        result.set_header(AppConstants.CURRENT_ROUND, asked.round - 1)
        return result

    def _spent(self, site: str, run: str) -> list[Proven]:
        """Return the lines with a number about what a site has released to the server in a job."""
        stated = self._client.statement(site, run)
        return [
            Proven.of_line(line, stated)
            for line in stated.guarantees
            if (line.unit, line.adversary) == ("client-run", "server") and line.epsilon is not None
        ]


def metric_of(line: Proven) -> str:
    """Return the name of the metric that is a line's epsilon: NVFLARE's metrics are numbers."""
    return f"epsilon_{line.unit}_{line.adversary}_delta_{line.delta}"


def _conditions(line: Proven) -> dict[str, Any]:
    conditions = [each.to_json() for each in line.conditions]
    return {"conditions": conditions, "stated_by": line.stated_by}


def _layout(model: Mapping[str, list[int]]) -> Layout:
    return Layout(tuple(model), tuple(tuple(shape) for shape in model.values()))


def _asked(data: Shareable) -> _Asked:
    """Return what a train task asks for.

    Raises:
        PrivacyError: it has no round, or no weights that can be read.
    """
    round = data.get_header(AppConstants.CURRENT_ROUND)
    if type(round) is not int:
        raise PrivacyError("the task does not name its round; nothing was released")
    try:
        dxo = from_shareable(data)
        weights = {name: np.array(each) for name, each in dxo.data.items()}
        told = json.dumps([round, dxo.data_kind, dxo.meta], default=repr, sort_keys=True)
    except Exception:
        raise PrivacyError(
            "the task's data are not weights as NumPy arrays; nothing was released"
        ) from None
    digest = hashlib.sha256(told.encode())
    for name, each in sorted(weights.items()):
        digest.update(f"{name} {each.dtype} {each.shape}".encode())
        digest.update(np.ascontiguousarray(each).tobytes())
    return _Asked(round + 1, weights, digest.digest())


def _returned(shareable: Shareable, before: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the weights after training.

    Raises:
        ConfigError: the result has none; the message is for the site's owner only.
    """
    code = shareable.get_return_code()
    if code != ReturnCode.OK:
        raise ConfigError(f"the executor returned {code}")
    dxo = from_shareable(shareable)
    if dxo.data_kind not in _KINDS or not isinstance(dxo.data, dict):
        raise ConfigError(f"the executor returned {dxo.data_kind}; return {' or '.join(_KINDS)}")
    found = {name: np.asarray(each) for name, each in dxo.data.items()}
    if dxo.data_kind == DataKind.WEIGHTS or found.keys() != before.keys():
        return found
    return {name: before[name] + each for name, each in found.items()}
