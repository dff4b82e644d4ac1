"""A local update on features of examples, which each client computes itself by a public map."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedldp.data.image_features import MapOnce
from fedldp.protocol.roles import Batch, Client, LocalUpdate, Update
from fedldp.protocol.wire import Broadcast, Sensitive


@dataclass(frozen=True, kw_only=True, eq=False)
class OnFeatures:
    """Maps examples inside the client, one by one, and then computes the update.

    Attributes:
        update: the update that is computed on the features.
        once: the public map.
    """

    update: LocalUpdate
    once: MapOnce

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``LocalUpdate``."""
        return self.update.group(most_examples)

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return a row for each client; see ``LocalUpdate``."""
        mapped = self.once(batch.examples)

        def alone(place: int) -> Client:
            return replace(batch.alone(place), examples=mapped.taken(batch.rows[place]))

        return self.update(broadcast, replace(batch, examples=mapped, alone=alone), group)
