"""Examples from torch and from tables in memory are read once, in an order without randomness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

import fedldp
from fedldp.core.errors import FedldpError
from fedldp.core.kinds import HELD_OUT
from fedldp.data.examples import as_dataset, checked_rows


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
    features = np.random.default_rng(seed).uniform(size=(count, 3)).astype(np.float32)
    return features, (features[:, 0] > 0.5).astype(np.int64)


def tensors(count: int, seed: int = 0) -> TensorDataset:
    return TensorDataset(*map(torch.from_numpy, rows(count, seed)))


class Listed(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Any:
        while True:
            yield torch.zeros(3), 0


def pairs(count: int) -> list[Any]:
    return list(zip(*map(torch.from_numpy, rows(count)), strict=True))


@pytest.mark.parametrize(
    "made",
    [
        lambda: tensors(20),
        lambda: Listed(pairs(20)),
        lambda: Listed([{"pixels": x, "labels": int(y)} for x, y in pairs(20)]),
        lambda: DataLoader(tensors(20), batch_size=3, shuffle=True, drop_last=True),
        lambda: DataLoader(tensors(20), batch_size=None),
        lambda: frame(20),
    ],
)
def test_every_source_gives_the_same_rows_and_draws_nothing(made: Any) -> None:
    source, state = made(), torch.get_rng_state()
    features, labels = rows(20)
    for _ in range(2):
        found = checked_rows(source, "it:")
        np.testing.assert_array_equal(found.features, features)
        np.testing.assert_array_equal(found.labels, labels)
    assert torch.equal(torch.get_rng_state(), state)


def frame(count: int) -> Any:
    pandas = pytest.importorskip("pandas")
    features, labels = rows(count)
    return pandas.DataFrame({"a": features[:, 0], "b": features[:, 1], "c": features[:, 2],
                             "label": labels})  # fmt: skip


def test_a_third_array_names_the_persons_of_rows() -> None:
    features, labels = map(torch.from_numpy, rows(4))
    found = checked_rows(TensorDataset(features, labels, torch.tensor([3, 3, 1, 9])), "it:")
    assert found.people is not None
    assert found.people.tolist() == [1, 1, 0, 2]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (Listed([]), "it is empty"),
        (DataLoader(Listed([])), "it is empty"),
        (Listed([(torch.rand(3), 0.5)]), "row 0 is '0.5', which is a number but not an integer"),
        (Listed([(torch.rand(3), 1j)]), "labels are of type complex128"),
        (Listed([(torch.rand(3), "ill")]), "row 0 is 'ill', which is a string, but other labels"),
        (Listed([(torch.rand(3), 0), (torch.rand(4), 1)]), "example 1 has parts of the shapes"),
        (Listed([(torch.rand(3), 0), (torch.rand(3), 1, 2)]), "a group to all or to none"),
        (Listed([torch.rand(3)]), "example 0: it is a Tensor; give pairs"),
        (Listed([{"x": torch.rand(3), "y": 1}]), "has the keys x, y; give the key label"),
        (DataLoader(Streamed(), batch_size=8), "it has no length, and may never end"),
        (Streamed(), "it has no length, and may never end"),
        (DataLoader(tensors(9), sampler=WeightedRandomSampler([1.0] * 9, 9)),
         "its sampler or its collate_fn decides which examples it yields"),
        (DataLoader(tensors(9), collate_fn=lambda items: items), "give a data set of these"),
        ("a.csv", "str holds no examples; give features and labels, a torch data set"),
        (np.zeros((3, 3)), "ndarray holds no examples"),
        ([tensors(3), tensors(3)], "it lists the examples of several"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_in_one_line_that_names_the_client(other: Any, line: str) -> None:
    with pytest.raises(FedldpError) as found:
        as_dataset([tensors(20), other])
    (said,) = str(found.value).splitlines()
    assert said.startswith("data set 'custom': client 1: ")
    assert line in said


def test_the_listed_clients_are_used() -> None:
    parts = [tensors(20), tensors(30, 1)]
    arrays = [rows(20), rows(30, 1)]
    loaders = [DataLoader(part, batch_size=4, shuffle=True) for part in parts]
    found = [as_dataset(each) for each in (arrays, parts, loaders)]
    for each in found:
        assert len(each.clients or ()) == 2
        np.testing.assert_array_equal(each.train.features, found[0].train.features)
        np.testing.assert_array_equal(each.owners, found[0].owners)
    settings: dict[str, Any] = {"rounds": 1, "local_epochs": 1}
    run = fedldp.run("quickstart", dataset=parts, **settings)
    assert run.config.num_clients == 2
    assert HELD_OUT in run.privacy.warnings
    tested = fedldp.run("quickstart", dataset=loaders, test=tensors(10, 2), **settings)
    assert HELD_OUT not in tested.privacy.warnings
    # A pair is not a list of clients, whatever container holds it.
    assert as_dataset(list(rows(20))).clients is None
    assert as_dataset((arrays[0][0].tolist(), arrays[0][1].tolist())).clients is None
    assert as_dataset(loaders[0], tensors(10)).clients is None
    with pytest.raises(FedldpError, match="it is a tuple of data sets; give clients as a list"):
        as_dataset(tuple(loaders))


# Tables


def table(**more: Any) -> dict[str, Any]:
    features, labels = rows(20)
    return {"age": features[:, 0], "dose": features[:, 1], "label": labels, **more}


def test_a_table_names_the_clients_and_persons_of_rows() -> None:
    site, person = np.repeat(["south", "north"], 10), np.repeat(np.arange(10), 2)
    data = fedldp.Dataset.from_table(
        table(site=site, who=person), client="site", person="who", test_share=0
    )
    assert data.features == ("age", "dose")
    assert data.clients is not None
    assert data.clients[0].tolist() == list(
        range(10, 20)
    )  # clients are in the order of their names
    assert data.num_people == 10
    by_arrays = fedldp.Dataset.from_arrays(
        data.train.features, data.train.labels, groups=person, clients=site, test_share=0
    )
    np.testing.assert_array_equal(by_arrays.owners, data.owners)
    np.testing.assert_array_equal(by_arrays.train.people, data.train.people)


def test_the_representation_of_data_shows_no_row() -> None:
    data = fedldp.Dataset.from_clients([rows(20), rows(30, 1)], test_share=0)
    assert repr(data) == (
        "<fedldp.Dataset custom: up to 50 rows for training and 0 for testing, of shape (3,), "
        "of 2 clients>"
    )
    assert repr(data.train) == "<fedldp.Examples: up to 50 rows of shape (3,)>"


# Without a test set


def test_a_run_may_go_untested(tmp_path: Path) -> None:
    data = fedldp.Dataset.from_clients([rows(20), rows(30, 1)], test_share=0)
    assert len(data.train) == 50
    made = fedldp.run("quickstart", dataset=data, rounds=1, out=tmp_path / "run")
    assert HELD_OUT not in made.privacy.warnings
    assert (made.confusion, made.doubts, made.rounds[-1].accuracy) == (None, (), None)
    assert "not tested" in repr(made)
    assert repr(fedldp.load(tmp_path / "run")) == repr(made)
    with pytest.raises(FedldpError, match="the run had no test set"):
        made.accuracy  # noqa: B018
    for comparing in (
        lambda: fedldp.sweep("quickstart", grid={"epsilon": [1]}, dataset=data),
        lambda: fedldp.evaluate(made, data),
    ):
        with pytest.raises(FedldpError, match=r"no test set|has no example"):
            comparing()


# The real libraries, if they are installed


def hugging_face(count: int) -> Any:
    library = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8), np.uint8)
    return library.Dataset.from_dict(
        {
            "image": [image.fromarray(each) for each in pixels],
            "label": [row % 3 for row in range(count)],
            "client": ["abc"[row % 3] for row in range(count)],
        },
        features=library.Features(
            image=library.Image(),
            label=library.ClassLabel(names=["cat", "dog", "fox"]),
            client=library.Value("string"),
        ),
    ), pixels


def test_a_hugging_face_table_has_clients_and_classes() -> None:
    given, pixels = hugging_face(30)
    data = fedldp.Dataset.from_table(given, client="client", test_share=0)
    np.testing.assert_array_equal(data.train.features[:, 0], pixels / np.float32(255))
    assert data.clients is not None
    assert data.clients.sizes.tolist() == [10, 10, 10]
    assert data.classes == ("cat", "dog", "fox")
    assert data.owners.tolist() == data.train.labels.tolist()
    plain = given.remove_columns("client")
    parts = [plain.select(range(10)), plain.select(range(10, 30))]
    listed = as_dataset(parts, plain)
    assert listed.classes == data.classes
    np.testing.assert_array_equal(listed.train.features, data.train.features)
    for other in (plain.with_format("torch"), plain.with_format("numpy")):
        np.testing.assert_array_equal(as_dataset(other, plain).train.features, data.train.features)
    with pytest.raises(FedldpError, match="client 1: column 'client' holds no numbers"):
        as_dataset([plain, given])
    library = pytest.importorskip("datasets")
    with pytest.raises(FedldpError, match="it has the splits train, test"):
        as_dataset(library.DatasetDict({"train": plain, "test": plain}))
