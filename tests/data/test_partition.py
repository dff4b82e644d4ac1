from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.errors import ConfigError
from fedldp.data import check_partition, partition
from fedldp.data.partition import examples_of_all

SCHEMES = ["iid", "dirichlet:0.5", "dirichlet:1e-9", "dirichlet:1e6", "shards:1", "shards:2",
           "power-law:1.5", "power-law:1e6"]  # fmt: skip
BALANCED = np.repeat(np.arange(10), 100)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def sizes(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    scheme=st.sampled_from(SCHEMES),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_every_example_goes_to_one_client_and_every_client_has_one(
    labels: list[int], scheme: str, seed: int, data: st.DataObject
) -> None:
    most = len(labels) // 2 if scheme == "shards:2" else len(labels)
    if most == 0:
        return
    num_clients = data.draw(st.integers(1, most))
    parts = partition(np.array(labels), num_clients, scheme, rng(seed))
    assert len(parts) == num_clients
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert min(sizes(parts)) >= 1
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_generator_determines_the_partition(scheme: str) -> None:
    one, same, other = (partition(BALANCED, 7, scheme, rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(num_examples=st.integers(1, 200), data=st.data())
def test_iid_sizes_differ_by_at_most_one(num_examples: int, data: st.DataObject) -> None:
    num_clients = data.draw(st.integers(1, num_examples))
    found = sizes(partition(np.zeros(num_examples, np.int64), num_clients, "iid", rng(0)))
    assert max(found) - min(found) <= 1


def test_dirichlet_shares_have_the_distributions_variance() -> None:
    # A client's share of a label has mean 1/n and variance (1/n)(1 - 1/n) / (n A + 1).
    num_clients, concentration = 5, 0.8
    labels = np.repeat(np.arange(400), 200)
    parts = partition(labels, num_clients, f"dirichlet:{concentration}", rng(0))
    shares = np.array([np.bincount(labels[part], minlength=400) for part in parts]) / 200
    assert shares.mean() == pytest.approx(1 / num_clients)
    expected = (1 / num_clients) * (1 - 1 / num_clients) / (num_clients * concentration + 1)
    assert shares.var() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_bound_the_labels_of_a_client(shards: int) -> None:
    # As in McMahan et al., shards have one label each if their size divides each label's examples.
    parts = partition(BALANCED, 20, f"shards:{shards}", rng(0))
    assert sizes(parts) == [50] * 20
    labels = [len(np.unique(BALANCED[part])) for part in parts]
    assert max(labels) <= shards
    assert shards == 1 or max(labels) > 1


def test_power_law_sizes() -> None:
    found = sorted(sizes(partition(np.zeros(100_000, np.int64), 50, "power-law:1.5", rng(0))))
    largest = np.array(found[::-1], dtype=float)
    np.testing.assert_allclose(largest[1:10] / largest[0], np.arange(2, 11) ** -1.5, rtol=0.01)
    assert found[0] >= 1


def test_drawn_examples_are_always_the_same() -> None:
    shares = partition(BALANCED, 5000, "drawn:6", rng(0))
    assert len(shares) == 5000
    assert shares.sizes.shape == (5000,)
    rows = np.stack(list(shares))
    assert rows.shape == (5000, 6)
    assert rows.dtype == np.int64
    assert (np.diff(rows, axis=1) > 0).all()  # none twice
    assert 0 <= rows.min() <= rows.max() < len(BALANCED)
    other = partition(BALANCED, 5000, "drawn:6", rng(0))
    for client in (4999, 0, 1023, 1024, 17):
        np.testing.assert_array_equal(other[client], rows[client])
    assert not np.array_equal(np.stack(list(partition(BALANCED, 5000, "drawn:6", rng(1)))), rows)
    counts = np.bincount(rows.reshape(-1), minlength=len(BALANCED))
    assert abs(counts.std() - np.sqrt(30)) < 2  # of nearly Poisson draws with the mean 30
    many = np.stack(list(partition(BALANCED, 40, "drawn:900", rng(0))))
    assert (np.diff(many, axis=1) > 0).all()


def test_drawn_examples_are_counted_for_each_client() -> None:
    assert examples_of_all(1000, 20, "iid") == 1000
    assert examples_of_all(1000, 5000, "drawn:6") == 30_000
    check_partition(6, 5000, "drawn:6")
    with pytest.raises(ConfigError, match="only 5 examples to draw from"):
        check_partition(5, 5000, "drawn:6")
