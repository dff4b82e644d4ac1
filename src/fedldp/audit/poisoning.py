"""The audit of lying clients: the accuracy that a share of them costs, and what one liar can do.

``byzantine_run`` says how liars work together, ``forged_reports`` what they send, and ``influence``
what one client can do at most. Privacy hides liars, too: a server that learns nothing about a
client cannot tell a forged report of bits from an honest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.algorithms.recipes import shared_settings
from fedldp.audit.byzantine_run import accuracy_of
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.influence import influence
from fedldp.audit.results import AttackResult, Audit, Estimate
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Source, declare
from fedldp.data import Dataset
from fedldp.protocol.keys import draws_of_seed
from fedldp.simulation.inputs import Inputs

declare(Source.RUN, "liars")


def mean_lost(rows: Iterable[AttackResult]) -> Mapping[tuple[str, str, float], float]:
    """Return the accuracy lost, by system, attack and share, as the mean over seeds."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        if row.kind == "poisoning" and row.attack is not None:
            key = row.subject, row.attack, row.figures["share"]
            found.setdefault(key, []).append(row.figures["lost"])
    return {key: mean(values) for key, values in found.items()}


def poisoning(
    config: RunConfig,
    dataset: Dataset | None = None,
    *,
    data_dir: Path | None = None,
    effort: Effort = QUICK,
    beside: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Audit[AttackResult]:
    """Run a configuration with a share of its clients lying.

    Args:
        config: the configuration; its seed is the first of the seeds.
        dataset: the data; None: loaded by ``config.dataset``.
        data_dir: the data folder.
        effort: how much to try: ``QUICK`` or ``FULL``.
        beside: whether to attack FedAvg with the same settings as well.
        tell: called with a progress line before each run.

    Returns:
        For each system what one client can do (game "influence"), and for each run its accuracy
        (game "poisoning"); the baseline is the accuracy of an honest run with the same seed.
        Figures: "share", the requested share of lying clients; "liars", their number, at least one
        if the share is above 0; "clients" and "seed" of the run; "rounds"; and the accuracy "lost".
        If a run did not reach its last round, ``note`` says why, and the accuracy is that of always
        answering the most frequent class.

    Raises:
        ConfigError: a share is invalid, or the configuration does not fit the data.
        FedldpError: the data cannot be loaded.
    """
    for share in effort.lying_shares:
        if not 0 < share < 1:
            raise ConfigError(f"share = {share}: give a number above 0 and below 1")
    rounds = min(config.rounds, effort.lying_rounds)
    configs = [_shortened(config, rounds)]
    if beside and not isinstance(config, fedavg):
        configs.append(_shortened(fedavg(**shared_settings(config)), rounds))
    influences: list[AttackResult] = []
    rows: list[AttackResult] = []
    for each in configs:
        for number in range(effort.lying_seeds):
            seeded = each.changed(seed=config.seed + number)
            inputs = Inputs.of(seeded, dataset, data_dir)
            if not number:
                influences.append(influence(seeded, inputs.problem))
            rows += _rows(seeded, inputs, effort, tell)
    return Audit(subject=config.name(), seed=config.seed, rows=(*influences, *rows))


def _shortened(config: RunConfig, rounds: int) -> RunConfig:
    return config.changed(rounds=rounds, client_budget=None, person_budget=None)


def _rows(
    config: RunConfig, inputs: Inputs, effort: Effort, tell: Callable[[str], None]
) -> Iterator[AttackResult]:
    tell(f"poisoning {config.name()}, seed {config.seed}: nobody lies")
    honest, stopped = accuracy_of(config, inputs, None, ())
    row = AttackResult(
        subject=config.name(),
        kind="poisoning",
        attack=None,
        measure="accuracy",
        measured=Estimate.exact(honest),
        baseline=honest,
        note=stopped,
        figures={
            "share": 0.0, "liars": 0, "clients": config.num_clients, "seed": config.seed,
            "lost": 0.0, "rounds": config.rounds,
        },
    )  # fmt: skip
    yield row
    order = draws_of_seed(config.seed)(0)("liars").generator().permutation(config.num_clients)
    for attack in effort.lying_attacks:
        for share in effort.lying_shares:
            liars = tuple(sorted(order[: max(1, round(share * config.num_clients))].tolist()))
            tell(f"poisoning {config.name()}, seed {config.seed}: {attack}, {len(liars)} lie")
            accuracy, stopped = accuracy_of(config, inputs, attack, liars)
            lost = {"share": share, "liars": len(liars), "lost": honest - accuracy}
            yield replace(
                row,
                attack=attack,
                measured=Estimate.exact(accuracy),
                note=stopped,
                figures={**row.figures, **lost},
            )
