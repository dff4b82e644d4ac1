"""The audit against clients that lie: accuracy lost to a share of them, and what one can do.

``crowd`` has how they lie together, ``forging`` what they send, ``influence`` what one client can
do at most. Privacy hides liars, too: a server that learns nothing of a client cannot tell its
forged report of bits from an honest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.audit.crowd import accuracy_of
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.forging import Attack
from fedldp.audit.influence import Influence, influence
from fedldp.data import Dataset
from fedldp.errors import ConfigError
from fedldp.recipes import shared_settings
from fedldp.server.keys import draws_of_seed
from fedldp.simulation.inputs import Inputs


@dataclass(frozen=True, kw_only=True)
class Poisoned:
    """One run.

    Attributes:
        system: that was attacked.
        attack: what the liars did; None where there were none.
        share: of the clients that lie, as asked for.
        liars: how many that is, at least one where the share is above 0.
        clients: of the run.
        seed: of the run.
        accuracy: at the end, 0 to 1.
        lost: how much more an honest run with this seed had.
        stopped: why the run did not reach its last round; nothing where it did. The accuracy is
            then that of always answering the most frequent class.
    """

    system: str
    attack: Attack | None
    share: float
    liars: int
    clients: int
    seed: int
    accuracy: float
    lost: float
    stopped: str


@dataclass(frozen=True, kw_only=True)
class Poisoning:
    """What came of the attacks on a system, and of the same on FedAvg beside it."""

    system: str
    rounds: int
    influences: tuple[Influence, ...]
    rows: tuple[Poisoned, ...]

    def mean_lost(self) -> Mapping[tuple[str, Attack, float], float]:
        """Return the accuracy lost, by system, attack and share, as the mean over seeds."""
        found: dict[tuple[str, Attack, float], list[float]] = {}
        for row in self.rows:
            if row.attack is not None:
                found.setdefault((row.system, row.attack, row.share), []).append(row.lost)
        return {key: mean(values) for key, values in found.items()}

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "system": self.system,
            "rounds": self.rounds,
            "influences": [asdict(one) for one in self.influences],
            "rows": [asdict(row) for row in self.rows],
        }


def poisoning(
    config: RunConfig,
    dataset: Dataset | None = None,
    *,
    data_dir: Path | None = None,
    effort: Effort = QUICK,
    beside: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Poisoning:
    """Let a share of a configuration's clients lie.

    Args:
        config: the configuration; its seed is the first.
        dataset: the data; loaded by ``config.dataset`` where it is not given.
        data_dir: the data folder.
        effort: what is tried: ``QUICK`` or ``FULL``.
        beside: also attack FedAvg with the same settings.
        tell: called with a line of progress before each run.

    Raises:
        ConfigError: a share is none, or the configuration does not fit the data.
        FedldpError: the data cannot be had.
    """
    for share in effort.lying_shares:
        if not 0 < share < 1:
            raise ConfigError(f"share = {share}: give a number above 0 and below 1")
    rounds = min(config.rounds, effort.lying_rounds)
    configs = [_shortened(config, rounds)]
    if beside and not isinstance(config, fedavg):
        configs.append(_shortened(fedavg(**shared_settings(config)), rounds))
    rows: list[Poisoned] = []
    influences = []
    for each in configs:
        for number in range(effort.lying_seeds):
            seeded = each.changed(seed=config.seed + number)
            inputs = Inputs.of(seeded, dataset, data_dir)
            if not number:
                influences.append(influence(seeded, inputs.problem))
            rows += _rows(seeded, inputs, effort, tell)
    return Poisoning(
        system=config.name(), rounds=rounds, influences=tuple(influences), rows=tuple(rows)
    )


def _shortened(config: RunConfig, rounds: int) -> RunConfig:
    return config.changed(rounds=rounds, client_budget=None)


def _rows(
    config: RunConfig, inputs: Inputs, effort: Effort, tell: Callable[[str], None]
) -> Iterator[Poisoned]:
    tell(f"poisoning {config.name()}, seed {config.seed}: nobody lies")
    honest, stopped = accuracy_of(config, inputs, None, ())
    row = Poisoned(
        system=config.name(), attack=None, share=0.0, liars=0, clients=config.num_clients,
        seed=config.seed, accuracy=honest, lost=0.0, stopped=stopped,
    )  # fmt: skip
    yield row
    order = draws_of_seed(config.seed)(0)("liars").generator().permutation(config.num_clients)
    for attack in effort.lying_attacks:
        for share in effort.lying_shares:
            liars = tuple(sorted(order[: max(1, round(share * config.num_clients))].tolist()))
            tell(f"poisoning {config.name()}, seed {config.seed}: {attack}, {len(liars)} lie")
            accuracy, stopped = accuracy_of(config, inputs, attack, liars)
            yield replace(
                row, attack=attack, share=share, liars=len(liars), accuracy=accuracy,
                lost=honest - accuracy, stopped=stopped,
            )  # fmt: skip
