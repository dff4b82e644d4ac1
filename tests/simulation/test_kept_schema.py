"""What is kept with a model is the same for neighbouring data sets, whatever the unit."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

import fedldp
from fedldp.data import Dataset
from fedldp.reporting.record import Schema
from fedldp.simulation.inputs import Inputs

Person = list[int]
"""The labels of one person's rows."""

BEFORE: list[list[Person]] = [[[0], [1, 0]], [[0, 1], [1], [0] * 12], [[1] * 9, [0]]]
"""The people of each client."""

NEIGHBOURS: dict[str, list[Callable[[list[list[Person]]], None]]] = {
    "record": [lambda data: data[0][1].__setitem__(0, 0)],
    "person": [
        lambda data: data[0].__setitem__(1, [1]),
        lambda data: data[0].__setitem__(1, [0, 1] * 40),
        lambda data: data[2].__setitem__(0, [1] * 10),
    ],
    "client-run": [
        lambda data: data.__setitem__(0, [[1]]),
        lambda data: data.__setitem__(0, [[0, 1]] * 60),
        lambda data: data.__setitem__(2, [[0] * 700]),
    ],
}


def kept(clients: list[list[Person]]) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema and the doubts that a run of some people's rows keeps."""
    owners = [number for number, people in enumerate(clients) for who in people for _ in who]
    everybody = [who for people in clients for who in people]
    whose = [number for number, who in enumerate(everybody) for _ in who]
    labels = np.array([label for who in everybody for label in who])
    features = np.stack([labels, np.arange(len(labels))], 1).astype(np.float32)
    data = Dataset.from_arrays(features, labels, clients=owners, groups=whose,
                               test=(features[:2], [0, 1], [1000, 1001]))  # fmt: skip
    config = fedldp.recipe("person-dp-sgd-digits", dataset="custom", standardise=False,
                           model="logistic", features="none", num_clients=len(clients))  # fmt: skip
    inputs = Inputs.of(config, data, None)
    return inputs.schema, inputs.doubts(None, None)


@pytest.mark.parametrize(("unit", "change"), [(u, c) for u in NEIGHBOURS for c in NEIGHBOURS[u]])
def test_it_is_equal_for_neighbouring_data_sets(
    unit: str, change: Callable[[list[list[Person]]], None]
) -> None:
    after = copy.deepcopy(BEFORE)
    change(after)
    assert after != BEFORE
    assert kept(after) == kept(BEFORE), unit
