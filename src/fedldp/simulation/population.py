"""All simulated clients: client runtimes with keys from the seed and ledgers in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.bounding import check_releasable
from fedldp.core.randomness import Stream
from fedldp.data import Dataset, DrawnShares, Shares
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol import roles
from fedldp.protocol.client_runtime import ClientRuntime, EncoderGroup, Policy, check_count, naming
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.keys import SimulationKeys
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.reporting.scores import OfClients, with_labels_like
from fedldp.simulation.participation import of_each_client
from fedldp.simulation.signal import Signal
from fedldp.training.local_sgd import PIECE, evaluate
from fedldp.training.tensors import load_weights

MANY, SMALL = 1 << 13, 1 << 13
"""From how many clients on, and up to how many weights, groups may be larger: processes must still
share the groups, and larger models gain nothing."""


@dataclass(eq=False)
class Population:
    """Simulated clients, and the test set on which the simulation measures the model.

    Attributes:
        config: the run's configuration.
        problem: the shape of the data.
        dataset: the data.
        members: for each client, the rows of its training examples.
        device: where models are trained and evaluated.
        folder: where clients keep what they need in later rounds.
        run: the run's name.
        signal: measures the round's signal, if that was asked for.
    """

    config: RunConfig
    problem: Problem
    dataset: Dataset
    members: Shares
    device: torch.device
    folder: Path
    run: str
    signal: Signal | None = None

    def __post_init__(self) -> None:
        config, problem = self.config, self.problem
        algorithm = config.algorithm(problem)
        self._parts = algorithm.parts
        self.layout = algorithm.layout
        self.policy = Policy(
            run=self.run,
            rounds=config.rounds,
            phases=algorithm.parts.channel.phases,
            trains_in=algorithm.parts.channel.trains_in,
            layout=algorithm.layout,
        )
        update = algorithm.local_update(self.device)
        self._of_equals = getattr(update, "group_of_equals", 1)
        self.local_update = Watched(update, self.signal)
        self.encoders = of_each_client(config, algorithm.encoder)
        self.most_examples = algorithm.most_examples()
        self._tester = algorithm.tester(self.device)
        self._prepared = algorithm.prepared()
        self._model = algorithm.untrained().to(self.device)

    def given(self) -> dict[str, Any]:
        """Return the arguments with which another process makes this population.

        They lack the data folder of this machine.
        """
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return found | {"problem": replace(self.problem, data_dir=None)}

    @property
    def clients_test(self) -> bool:
        """Whether the clients test the model; otherwise the simulation does, on the test set."""
        return self._tester is not None

    @property
    def accuracies(self) -> OfClients | None:
        """Returns how the accuracy at each client follows from the test, if data are public.

        Else it is None: whoever sees it learns about clients' labels. So it is if clients' examples
        are drawn again and again from all.
        """
        if not self.dataset.is_public:
            return None
        if self._tester is not None:
            return lambda scores, confusion: np.array(
                [score.right / score.total for score in scores if score.total]
            )
        if isinstance(self.members, DrawnShares):
            return None
        train = self.dataset.train
        counts = self.members.counts(train.labels, self.problem.num_classes)
        return lambda scores, confusion: with_labels_like(counts, confusion)

    @property
    def num_tests(self) -> int:
        """The number of test pieces: parts of the test set, or one per client that tests."""
        if self._tester is not None:
            return self.config.num_clients
        return -(-len(self.dataset.test) // PIECE)

    # The clients as their runtime sees them

    @property
    def indices(self) -> range:
        """The indices of all clients."""
        return range(self.config.num_clients)

    @property
    def simulated(self) -> bool:
        """True, because the clients' keys come from the seed."""
        return True

    @property
    def trains_in(self) -> int:
        """The phase of a round in which the clients train."""
        return self._parts.channel.trains_in

    @cached_property
    def group(self) -> int:
        """The smallest number of clients whose work can be split off without changing any bits."""
        if self._parts.channel.phases > 1:  # in an executed sum each client masks its report
            return 1
        group, sizes = self.local_update.group(self.members.largest), self.members.sizes
        fits = self.layout.size <= SMALL and self.device.type == "cpu" and group > 1
        equals = fits and len(sizes) >= MANY and (sizes == sizes[0]).all()
        return max(group, self._of_equals) if equals else group

    def runtime(self, ledger: MemoryLedger) -> ClientRuntime:
        """Return the runtime of all clients, whose ledgers are ``ledger``."""
        return ClientRuntime(members=self, policy=self.policy, ledgers=ledger, group=self.group)

    def check(self, policy: Policy) -> None:
        """Do nothing, because the plan has already checked the protection of simulated clients."""

    def encoder_groups(self, indices: Sequence[int]) -> list[EncoderGroup]:
        """Return clients grouped by encoder and by how many rounds each may answer."""
        found: dict[tuple[int, int | None], list[int]] = {}
        for place, index in enumerate(indices):
            most = self._parts.participation.max_rounds(int(index))
            found.setdefault((id(self.encoders[index]), most), []).append(place)
        return [
            EncoderGroup(self.encoders[indices[places[0]]], most, places)
            for (_, most), places in found.items()
        ]

    def batch(self, indices: Sequence[int], round: int) -> roles.Batch:
        """Return the batch of some clients for their local update, which runs once per round.

        Raises:
            PrivacyError: a client has more examples than the charges to its ledger assume.
        """
        rows = [self.members[index] for index in indices]
        if self.most_examples is not None:
            for index, own in zip(indices, rows, strict=True):
                with naming(round, int(index)):
                    check_count(len(own), self.most_examples)
        return roles.Batch(
            indices=indices,
            examples=self.dataset.train,
            rows=rows,
            fresh=partial(self.fresh, indices, round, 0),
            kept=partial(self.kept, indices),
            alone=lambda place: self.client(int(indices[place]), round),
        )

    def senders(self, indices: Sequence[int], round: int, phase: int) -> roles.Senders:
        """Return the senders of some clients for their encoder, in one phase of a round."""
        counts = self.members.sizes[np.asarray(indices)].astype(np.int64)
        return roles.Senders(
            indices=indices,
            num_examples=Sensitive(counts),
            fresh=partial(self.fresh, indices, round, phase),
            kept=partial(self.kept, indices),
            store=lambda place: self.store(int(indices[place])),
            phase=phase,
        )

    def fresh(self, indices: Sequence[int], round: int, phase: int, purpose: str) -> list[Stream]:
        """Return the stream of each client for a purpose; see ``Keys.fresh``."""
        seed = self.config.seed
        return [SimulationKeys(seed, index).fresh(round, phase, purpose) for index in indices]

    def kept(self, indices: Sequence[int], purpose: str) -> list[Stream]:
        """Return the kept stream of each client for a purpose; see ``Keys.kept``."""
        return [SimulationKeys(self.config.seed, index).kept(purpose) for index in indices]

    def score(self, broadcast: Broadcast, piece: int) -> roles.Score:
        """Return the score on one test piece."""
        test = self.dataset.test
        if self._tester is not None:
            return self._tester(broadcast, self.client(piece, broadcast.round), test)
        test = self._prepared(test)
        load_weights(self._model, self.layout, broadcast.weights)
        part = slice(piece * PIECE, (piece + 1) * PIECE)
        return evaluate(self._model, test.taken(part), self.device)

    def client(self, index: int, round: int) -> roles.Client:
        """Return one client, for code that handles clients one at a time."""
        keys = SimulationKeys(self.config.seed, index)
        return roles.Client(
            index=index,
            examples=self.dataset.train.taken(self.members[index]),
            fresh=partial(keys.fresh, round, 0),
            kept=keys.kept,
            store=self.store(index),
        )

    def role(self, index: int) -> roles.ClientRole:
        """Return the role of one client."""
        return roles.ClientRole(
            local_update=self.local_update,
            encoder=self.encoders[index],
            phases=self._parts.channel.phases,
            trains_in=self.trains_in,
            max_participations=self._parts.participation.max_rounds(index),
            most_examples=self.most_examples,
        )

    def store(self, index: int) -> FolderStore:
        """Return the store of client ``index``."""
        return FolderStore(self.folder / f"client-{index}", self.run)


@dataclass(frozen=True, eq=False)
class Watched:
    """The local update in a simulation; it raises an error if training yields NaN or infinity.

    At a real site such a failure is kept secret, and the encoder sends a public value instead; in a
    simulation the user should see the failure.

    Attributes:
        local_update: the local update that trains.
        signal: measures the round's signal, if that was asked for.
    """

    local_update: roles.LocalUpdate
    signal: Signal | None

    def group(self, most_examples: int) -> int:
        """Return how many clients train together; see ``LocalUpdate``."""
        return self.local_update.group(most_examples)

    def __call__(
        self, broadcast: Broadcast, batch: roles.Batch, group: int = 1
    ) -> Sensitive[roles.Update]:
        """Return a row for each client; see ``LocalUpdate``.

        Raises:
            PrivacyError: a row is not finite; the error names the round and the client.
        """
        update = self.local_update(broadcast, batch, group)
        rows = update.open().rows
        if not np.isfinite(rows).all():
            for index, row in zip(batch.indices, rows, strict=True):
                with naming(broadcast.round, int(index)):
                    check_releasable(row)
        if self.signal is not None:
            self.signal.add(update.open(), broadcast, batch)
        return update
