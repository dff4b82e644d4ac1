"""An addition takes as many edits as the guides say: one file and nothing else.

The files are those of the guides, unchanged.
"""

from __future__ import annotations

import importlib
import math
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import guides
import numpy as np
import pytest
import torch
from environments import allowed

import fedldp
from fedldp.accounting.accountants import ACCOUNTANTS
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import find_system, own_code
from fedldp.core.errors import ConfigError
from fedldp.deployment.demo import DemoEnvironment
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.server_loop import Loop, Round
from fedldp.simulation.executors import Executor, InProcess
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.population import Population
from fedldp.simulation.settings import to_toml

sys.path.append(str(Path(__file__).parent / "deployment"))

from environments import make_environment

OWN = {
    Path(file).stem: source
    for page in guides.OF_PARTS
    for file, source in guides.own_files(page).items()
}
SHARED = {
    "dataset": "digits", "model": "logistic", "num_clients": 6, "rounds": 3, "learning_rate": 0.1,
}  # fmt: skip
SYSTEMS: dict[str, dict[str, Any]] = {
    "own_update:few": {},
    "own_bound:halves": {"epsilon": 2.0},
    "own_calibration:even": {"epsilon": 300.0, "clip": 0.5},
    "own_estimate:bounded": {"clip": 0.5, "noise": 0.1, "most": 1.0},
    "own_participation:alternate": {"epsilon": 300.0, "clip": 0.5},
    "own_event:cited": {"epsilon": 100.0},
}
PRESET = "ldp_update:ldp_update"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder with the guides' files, and remove their entries in the table afterwards."""
    source = guides.files()["algorithms/presets", "ldp_update.py"]
    for module, text in {**OWN, "ldp_update": source}.items():
        (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = [*OWN, "ldp_update"]  # other tests have modules of the same name
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    before = dict(ACCOUNTANTS)
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)
    ACCOUNTANTS.clear()
    ACCOUNTANTS.update(before)


def config_of(address: str) -> RunConfig:
    if address == PRESET:
        recipe = tomllib.loads(guides.files()["algorithms/recipes", "ldp_update.toml"])
        given = {**recipe["recipe"][0]["settings"], "system": PRESET}
        return find_system(address).model_validate({**given, **SHARED})
    return find_system(address).model_validate({**SHARED, **SYSTEMS[address]})


def test_every_example_of_the_guides_is_tested_here() -> None:
    with_systems = {address.partition(":")[0] for address in SYSTEMS}
    assert with_systems == {name for name, source in OWN.items() if "@preset" in source}
    assert set(OWN) - with_systems == {"own_transport"}


@pytest.mark.slow
@pytest.mark.parametrize("address", [*SYSTEMS, PRESET])
def test_a_users_file_is_shown_accounted_run_and_deployed(
    address: str, folder: Path, fedldp_command: Callable[..., Any]
) -> None:
    config = config_of(address)
    assert own_code(config) == (address,)
    shown = fedldp_command("show", address)
    assert shown.status == 0, shown.err
    assert all(name in shown.out for name in SYSTEMS.get(address, {"range_radius": 0}))
    (folder / "mine.toml").write_text(to_toml(config))
    accounted = fedldp_command("account", "mine.toml")
    assert accounted.status == 0, accounted.err
    ran = fedldp_command("run", "mine.toml", "--out", "run", "--json")
    assert ran.status == 0, ran.err
    result = fedldp.run(config)
    planned = plan(config, problem_of(config, None))
    assert result.privacy == planned.privacy
    stated = [line for line in result.privacy.guarantees if line.kind != "none"]
    assert {line.stated_by for line in stated} == ({address} if stated else set())
    (run,) = (each["run"] for each in result.ledger.to_record()["runs"])
    assert result.ledger.releases(run) == planned.releases
    policy: dict[str, Any] = {"systems": [address]}
    if not stated:  # what they send is not protected
        policy |= {"allow_in_clear": True, "budget": {"kind": "zcdp", "limit": math.inf}}
    deployed(folder, "mine.toml", **policy)


def test_clients_that_differ_without_a_setting_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The statement would hold for the first of them alone."""
    monkeypatch.syspath_prepend(Path(__file__).with_name("testing"))
    config = find_system("planted_toy_systems:by_number").model_validate(SHARED)
    with pytest.raises(ConfigError, match="clients 0 and 5 state different events"):
        plan(config, problem_of(config, None))


def deployed(folder: Path, recipe: str, **policy: Any) -> None:
    """Run three sites and their server in this process, and check what they paid."""
    env = make_environment(folder / "world", recipe=recipe, policy=policy, quorum=1)
    served = env.serve()
    config, draws = env.config, draws_of_seed(env.config.seed)
    asked = {r: list(participants(config, r, draws)) for r in range(1, config.rounds + 1)}
    for site in range(3):
        assert env.releases(site) == [(r, 0) for r, sites in asked.items() if site in sites]
    assert all(np.isfinite(weights).all() for weights in served.weights.values())


@pytest.mark.parametrize(
    "changes",
    [{"system": PRESET}, {"system": "composed", "mechanism": "own_mechanism:OneByte"}],
)
def test_a_demos_sites_may_read_a_users_files(folder: Path, changes: dict[str, Any]) -> None:
    """Otherwise the sites would refuse every request, and the server would wait for them
    forever."""
    if "mechanism" in changes:
        source = guides.files()["mechanisms", "one_byte.py"]
        (folder / "own_mechanism.py").write_text(source)
    config = find_system(changes["system"]).model_validate(
        {**SHARED, "epsilon": 4.0, "num_clients": 3, **changes}
    )
    (folder / "demo").mkdir()
    made = DemoEnvironment.made(folder / "demo", config, "named", None)
    assert len(made.sites) == 3
    for policy in made.sites:
        assert allowed(policy, made.agreement.digest) == made.agreement


# A transport


def test_a_transport_is_one_class(folder: Path) -> None:
    lossy = importlib.import_module("own_transport").Lossy
    config = find_system("composed").model_validate(
        {**SHARED, "epsilon": 4.0, "participation": "all"}
    )
    inputs = Inputs.of(config, None, None)
    population = Population(
        config=config,
        problem=inputs.problem,
        dataset=inputs.dataset,
        members=inputs.members,
        device=torch.device("cpu"),
        folder=folder,
        run="run",
    )
    ledger, draws, found = MemoryLedger(), draws_of_seed(0), list[Round]()
    server = config.algorithm(inputs.problem).server()
    Loop(
        run="run",
        server=server,
        rounds=config.rounds,
        participants=lambda round: participants(config, round, draws),
        transport=lossy(InProcess(Executor(population, ledger).answers)),
        draws=draws,
        evaluate=lambda broadcast: None,
    ).go(server.initial(draws(0)), lambda state, record: found.append(record))
    assert [record.clients for record in found] == [4] * config.rounds
    # A client whose answer was lost has paid for it, because the answer left the client.
    assert ledger.releases("run") == plan(config, inputs.problem).releases
