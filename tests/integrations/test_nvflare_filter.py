"""The filter for NVIDIA FLARE: results, ledgers, refusals, and a job in its simulator."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guides import ROOT, own_files
from node_settings import SETTINGS
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.facts import in_order
from fedldp.core.kinds import EARLIER_RUNS, TAKES_PART
from fedldp.integrations.client import PrivateClient
from fedldp.integrations.loop import composition, planned
from fedldp.ledgers.budget import Budget
from fedldp.protocol.wire import Layout

pytest.importorskip("nvflare", reason="nvflare is not installed")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fedldp.integrations.nvflare import CONDITIONS, PrivateFilter

PAGE = ROOT / "docs" / "nvflare_filter.md"
START = {"weight": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
MODEL = {"weight": [2, 3]}
PURE = "epsilon_client-run_server_delta_0.0"


def private(folder: Path, limit: float = 1e6, **more: Any) -> PrivateFilter:
    budget = {"kind": "pure", "limit": limit}
    return PrivateFilter(MODEL, folder=str(folder), budget=budget, settings=SETTINGS, **more)


def answer(
    site: PrivateFilter,
    result: Shareable | None,
    *,
    round: Any = 0,
    name: str = "site-1",
    task: str = "train",
    start: dict[str, NDArray[Any]] = START,
    job: str = "job",
) -> Shareable:
    """Return what leaves the site of a task, as NVFLARE's client asks the filter for it."""
    data = DXO(DataKind.WEIGHTS, data=start).to_shareable()
    data.set_header(AppConstants.CURRENT_ROUND, round)
    context = FLContext()
    props = {FLContextKey.TASK_NAME: task, FLContextKey.TASK_ID: "7", FLContextKey.TASK_DATA: data,
             ReservedKey.IDENTITY_NAME: name, ReservedKey.RUN_NUM: job}  # fmt: skip
    for key, value in props.items():
        context.set_prop(key, value, private=True, sticky=False)
    site.handle_event(EventType.BEFORE_TASK_EXECUTION, context)
    return site.process(changed() if result is None else result, context)


def changed(kind: str = DataKind.WEIGHTS, by: float = 0.25, **more: Any) -> Shareable:
    start = START["weight"] if kind == DataKind.WEIGHTS else np.zeros_like(START["weight"])
    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: 17, MetaKey.INITIAL_METRICS: {"loss": 0.123}}
    found = DXO(kind, data={"weight": start + np.float32(by), **more}, meta=meta).to_shareable()
    found.set_header("examples", 17)
    assert isinstance(found, Shareable)
    return found


def sent(result: Shareable) -> NDArray[Any]:
    found: NDArray[Any] = from_shareable(result).data["weight"]
    return found


def epsilons(result: Shareable) -> dict[str, float]:
    found: dict[str, float] = from_shareable(result).meta[MetaKey.INITIAL_METRICS]
    return found


def test_a_result_has_the_report_a_constant_and_every_line_of_the_job(tmp_path: Path) -> None:
    site = private(tmp_path)
    result = answer(site, None)
    dxo = from_shareable(result)
    assert (dxo.data_kind, dxo.data["weight"].dtype) == (DataKind.WEIGHTS, np.float32)
    assert dxo.meta[MetaKey.NUM_STEPS_CURRENT_ROUND] == 1
    stated = site.statement("site-1")
    lines = [line for line in stated.guarantees if line.unit == "client-run"]
    assert epsilons(result) == {
        f"epsilon_client-run_server_delta_{line.delta}": line.epsilon for line in lines
    }
    assert {line.delta for line in lines} == {0.0, 1e-5}
    for line in lines:
        told = dxo.meta[CONDITIONS][f"epsilon_client-run_server_delta_{line.delta}"]
        assert told["stated_by"] == "fedldp"
        every = (*in_order(line.assumptions), *stated.warnings)
        assert told["conditions"] == [each.to_json() for each in every]
        assert TAKES_PART(rounds=1).to_json() in told["conditions"]  # with its number
    assert result.get_header("examples") is None
    moved = np.abs(sent(result) - START["weight"]).round(4)
    assert len(np.unique(moved)) == 1  # a bit for each weight


def test_an_epsilon_is_that_of_its_own_job(tmp_path: Path) -> None:
    """Of two jobs at a site, the one that answered last has spent less."""
    site = private(tmp_path)
    first = epsilons(answer(site, None))[PURE]
    result = answer(site, None, round=1)
    assert epsilons(result)[PURE] == pytest.approx(2 * first)
    assert epsilons(answer(site, None, job="other"))[PURE] == first
    again = answer(site, changed(by=-0.25), round=1)  # the same answer, from the ledger
    assert epsilons(again) == epsilons(result)
    np.testing.assert_array_equal(sent(again), sent(result))
    conditions = from_shareable(again).meta[CONDITIONS][PURE]["conditions"]
    (earlier,) = [each for each in conditions if each["kind"] == EARLIER_RUNS.name]
    (cost,) = earlier["values"]["costs"]
    assert cost["values"]["spent"] == pytest.approx(3 * first)


def test_weights_and_differences_are_the_same_report(tmp_path: Path) -> None:
    """The two forms, in and out, differ by the weights of the round alone."""
    seen = []
    for kind in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
        site = private(tmp_path / kind, sends=kind)
        found = sent(answer(site, changed(kind, by=1e3)))
        seen.append(found if kind == DataKind.WEIGHT_DIFF else found - START["weight"])
    np.testing.assert_allclose(np.abs(seen[0]), np.abs(seen[1]), rtol=1e-5)


@pytest.mark.parametrize(
    "result",
    [
        make_reply(ReturnCode.EXECUTION_EXCEPTION),
        changed(by=np.nan),
        changed(more=np.zeros(1, np.float32)),
        DXO(DataKind.METRICS, data={"loss": 1.0}).to_shareable(),
        Shareable(),
    ],
)
def test_a_failure_is_answered_like_a_round_that_changed_nothing(
    result: Shareable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = private(tmp_path)
    found = answer(site, result)
    assert found.get_return_code() == ReturnCode.OK
    assert len(np.unique(np.abs(sent(found) - START["weight"]).round(4))) == 1
    assert "answered as if training had changed nothing" in caplog.text
    (ledger,) = site._client.ledgers().values()
    assert len(ledger.releases()) == 1


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"task": "validate"}, "test the model on the server"),
        ({"round": 4}, "no such round"),
        ({"round": None}, "does not name its round"),
        ({"name": "../site-2"}, "the site's name"),
        ({"start": {"weight": START["weight"] * np.float32(np.nan)}}, "a weight is NaN"),
        ({"start": {"bias": START["weight"]}}, "exactly the model's 1 trained"),
    ],
)
def test_refusals_charge_nothing(how: dict[str, Any], why: str, tmp_path: Path) -> None:
    site = private(tmp_path)
    with pytest.raises(PrivacyError, match=why):
        answer(site, None, **how)
    assert not any(each.releases() for each in site._client.ledgers().values())


def test_the_budget_ends_the_job(tmp_path: Path) -> None:
    price = Budget("pure", 1e6).price(private(tmp_path / "a")._client.event())
    site = private(tmp_path / "b", limit=2 * price)
    for round in (0, 1):
        answer(site, None, round=round)
    with pytest.raises(PrivacyError, match="the budget of this node's ledger"):
        answer(site, None, round=2)


def test_results_are_delayed_if_so_configured(tmp_path: Path) -> None:
    site = private(tmp_path, answer_after_seconds=0.3)
    begun = time.monotonic()
    answer(site, None)
    assert time.monotonic() - begun >= 0.3


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sends = COLLECTION: choose WEIGHTS or WEIGHT_DIFF"):
        private(tmp_path, sends="COLLECTION")
    with pytest.raises(ConfigError, match="answer_after_seconds = -1"):
        private(tmp_path, answer_after_seconds=-1)


@pytest.mark.slow
def test_the_pages_job_in_nvflares_simulator(tmp_path: Path) -> None:
    """Two sites stop at the target; ledgers and statements agree with ``account``."""
    for name, text in own_files(PAGE).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert (
        "Early stop condition satisfied: epsilon_client-run_server_delta_1e-05 >= 5"
        in done.stdout + done.stderr
    )
    config = composition(tmp_path / "private.toml", {"rounds": 2})
    ours = planned(config, Layout(("0",), ((650,),)))
    client = PrivateClient(
        Layout(("numpy_key",), ((65, 10),)), tmp_path / "private.toml",
        folder=tmp_path / "ledgers", budget=Budget("zcdp", 1.5),
    )  # fmt: skip
    assert sorted(client.ledgers()) == ["site-1", "site-2"]
    for site, ledger in client.ledgers().items():
        assert ledger.spent() == pytest.approx(2 * 0.42774828198162146)
        assert client.statement(site).guarantees == ours.guarantees
