from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_files import covertype_bytes, covertype_rows, idx_bytes, published

from fedldp.core.errors import DataError, DataMissing
from fedldp.data import Dataset, list_datasets, load_dataset
from fedldp.data.folder import is_present
from fedldp.data.sources import SOURCES, PublishedDataset

pytestmark = pytest.mark.usefixtures("no_network")

Install = Callable[[str], PublishedDataset]
SUBSET = SOURCES["covertype"].stand_in
assert SUBSET is not None
IMAGE_SETS = ["mnist", "fmnist", "cifar10", "cifar100", "svhn", "svhn-extra"]


def digest(data: Dataset) -> str:
    return hashlib.sha256(data.test.features.tobytes() + data.test.labels.tobytes()).hexdigest()


def check(data: Dataset) -> None:
    source = SOURCES.get(data.name, SUBSET)
    assert data.num_classes == source.num_classes
    assert data.input_shape == source.input_shape
    for part in (data.train, data.test):
        assert part.features.dtype == np.float32
        assert part.labels.dtype == np.int64
        assert part.features.flags.c_contiguous
        assert part.features.shape == (len(part), *source.input_shape)
        assert 0 <= part.features.min() < part.features.max() <= 1
        assert set(part.labels.tolist()) == set(range(source.num_classes))


def test_digits_split_is_part_of_the_benchmark() -> None:
    data = load_dataset("digits")
    check(data)
    assert (len(data.train), len(data.test)) == (1437, 360)
    shares = [np.bincount(part.labels) / len(part) for part in (data.train, data.test)]
    np.testing.assert_allclose(*shares, atol=0.002)
    assert digest(data) == digest(load_dataset("digits", seed=7))
    assert digest(data)[:16] == "8110e5c2c9d024b5"


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [("mnist", 30, 20), ("fmnist", 30, 20), ("cifar10", 50, 10), ("svhn", 20, 10),
     ("cifar100", 100, 100), ("svhn-extra", 30, 10), ("covertype", 56, 14), ("adult", 20, 6)],
)  # fmt: skip
def test_small_versions(install: Install, tmp_path: Path, name: str, train: int, test: int) -> None:
    install(name)
    data = load_dataset(name, data_dir=tmp_path)
    check(data)
    assert (data.name, len(data.train), len(data.test)) == (name, train, test)


def test_the_covertype_subset_is_used_under_its_own_name(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = covertype_bytes(covertype_rows(35))
    files = (published("subset.gz", content),)
    subset = PublishedDataset("covertype-subset-92962", "home", "free", 35, 28, (54,), 7,
                              "covertype", files)  # fmt: skip
    full = install("covertype")
    monkeypatch.setitem(
        SOURCES, "covertype", PublishedDataset(**{**vars(full), "stand_in": subset})
    )
    (tmp_path / "covertype" / "subset.gz").write_bytes(content)

    def info() -> tuple[int, bool]:
        (found,) = (i for i in list_datasets(tmp_path) if i["name"] == "covertype")
        return found["examples"], found["present"]

    assert load_dataset("covertype", data_dir=tmp_path).name == "covertype"
    assert info() == (581_012, True)
    (tmp_path / "covertype" / "covtype.data.gz").unlink()
    data = load_dataset("covertype", data_dir=tmp_path)
    assert (data.name, len(data.train), len(data.test)) == ("covertype-subset-92962", 28, 7)
    assert info() == (35, True)
    (tmp_path / "covertype" / "subset.gz").unlink()
    with pytest.raises(DataMissing, match=r"covtype\.data\.gz"):
        load_dataset("covertype", data_dir=tmp_path)
    assert info() == (581_012, False)


@pytest.mark.parametrize("name", [*IMAGE_SETS, "covertype", "adult"])
def test_missing_names_file_folder_address_and_command(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataMissing) as caught:
        load_dataset(name, data_dir=tmp_path)
    line, source = str(caught.value), SOURCES[name]
    assert "\n" not in line
    assert source.files[0].name in line
    assert str(tmp_path / source.folder) in line
    assert source.addresses(source.files[0])[0] in line
    assert line.endswith(f"fedldp data fetch {name} --data-dir {tmp_path}")


def test_truncated_file_is_named(install: Install, tmp_path: Path) -> None:
    source = install("mnist")
    path = tmp_path / "mnist" / source.files[2].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{path.name} .* is damaged: .*fetch mnist") as caught:
        load_dataset("mnist", data_dir=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "labels", [np.zeros(29, np.uint8), np.full(30, 10, np.uint8)], ids=["fewer", "too-large"]
)
def test_labels_that_do_not_fit_the_images(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: np.ndarray
) -> None:
    source = install("mnist")
    path = tmp_path / "mnist" / source.files[1].name
    path.write_bytes(idx_bytes(labels))
    files = (source.files[0], published(path.name, path.read_bytes()), *source.files[2:])
    monkeypatch.setitem(SOURCES, "mnist", PublishedDataset(**{**vars(source), "files": files}))
    with pytest.raises(DataError, match="mnist is damaged"):
        load_dataset("mnist", data_dir=tmp_path)


def test_list_datasets(install: Install, tmp_path: Path) -> None:
    install("mnist")
    infos = {info["name"]: info for info in list_datasets(tmp_path)}
    assert infos.keys() == SOURCES.keys()
    assert {name for name, info in infos.items() if info["present"]} == {"digits", "mnist"}
    assert infos["digits"]["folder"] is None
    assert infos["mnist"]["folder"] == str(tmp_path / "mnist")
    assert infos["svhn-extra"]["examples"] == 557_163
    assert infos["fmnist"]["license"] == "MIT"


REAL = {
    "mnist": ([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
              [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    "fmnist": ([6000] * 10, [1000] * 10),
    "cifar10": ([5000] * 10, [1000] * 10),
    "cifar100": ([500] * 100, [100] * 100),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_published_images(real_data: Path, name: str) -> None:
    if not is_present(SOURCES[name], real_data):
        pytest.skip(f"{name} is not in FEDLDP_DATA")
    data = load_dataset(name, data_dir=real_data)
    check(data)
    counts = [np.bincount(part.labels).tolist() for part in (data.train, data.test)]
    assert counts == list(REAL[name])


def test_published_covertype_subset(real_data: Path) -> None:
    if not is_present(SUBSET, real_data) or is_present(SOURCES["covertype"], real_data):
        pytest.skip("FEDLDP_DATA has not just the subset of Covertype")
    data = load_dataset("covertype", data_dir=real_data)
    check(data)
    counts = np.bincount(data.train.labels) + np.bincount(data.test.labels)
    assert counts.tolist() == [33894, 45328, 5721, 439, 1519, 2779, 3282]
    assert len(data.test) == 18_593
    for bits in (slice(10, 14), slice(14, 54)):  # one wilderness area, one soil type
        assert (data.train.features[:, bits].sum(axis=1) == 1).all()
    assert digest(data)[:16] == "91d76b064c07b465"
