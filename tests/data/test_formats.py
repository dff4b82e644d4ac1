from __future__ import annotations

import contextlib
import gzip
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from small_files import (
    ADULT_ROW,
    cifar_bytes,
    covertype_bytes,
    covertype_rows,
    idx_bytes,
    malicious_pickle,
    svhn_file,
    zipped,
)

from fedldp.core.errors import DataError
from fedldp.data.datasets import read_adult, read_cifar_batch, read_covertype, read_idx, read_svhn

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)


def refused(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def read_images(path: Path) -> np.ndarray:
    return read_idx(path, 3)


def test_a_large_file_is_unzipped_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy beside it counts only while it is that of this file."""
    images = np.random.default_rng(0).integers(0, 256, (2000, 28, 28), dtype=np.uint8)
    path, kept = tmp_path / "images.gz", tmp_path / "images"
    path.write_bytes(idx_bytes(images))
    np.testing.assert_array_equal(read_images(path), images)
    assert kept.read_bytes() == gzip.decompress(path.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(gzip, "decompress", lambda content: pytest.fail("unzipped again"))
        np.testing.assert_array_equal(read_images(path), images)
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    np.testing.assert_array_equal(read_images(path), images)
    path.write_bytes(idx_bytes(images + 1))
    np.testing.assert_array_equal(read_images(path), images + 1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["images", "images.gz"]


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2000, 28, 28), dtype=np.uint8)
    path = tmp_path / "images.gz"
    path.write_bytes(idx_bytes(images))
    (tmp_path / "images").mkdir()  # as little can be written there, also by the superuser
    np.testing.assert_array_equal(read_images(path), images)
    assert len(list(tmp_path.iterdir())) == 2


def test_cifar_batch(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(cifar_bytes(PIXELS, [3, 1, 4, 1]))
    images, labels = read_cifar_batch(path)
    assert labels.tolist() == [3, 1, 4, 1]
    # Row 2 of image 1's green channel, by the published layout.
    np.testing.assert_array_equal(images[1, 1, 2], PIXELS[1, 1024 + 64 : 1024 + 96])


@pytest.mark.parametrize("kind", ["fine_labels", "coarse_labels"])
def test_labels_of_cifar100(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "train"
    path.write_bytes(cifar_bytes(PIXELS, [99, 1, 4, 1], key=kind.encode()))
    assert read_cifar_batch(path, kind)[1].tolist() == [99, 1, 4, 1]
    assert "KeyError" in refused(read_cifar_batch, path)


def test_cifar_pickle_cannot_run_code(tmp_path: Path) -> None:
    path, marker = tmp_path / "data_batch_1", tmp_path / "marker"
    path.write_bytes(malicious_pickle(marker))
    assert "refused" in refused(read_cifar_batch, path)
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists(), "the pickle is harmless, so the test above shows nothing"


def matlab(**variables: np.ndarray) -> bytes:
    content = io.BytesIO()
    scipy.io.savemat(content, variables)
    return content.getvalue()


def covertype_with(column: int, value: int) -> bytes:
    rows = covertype_rows(7)
    rows[3, column] = value
    return covertype_bytes(rows)


TWO = np.zeros((32, 32, 3, 2), np.uint8)
ONES = np.ones((2, 1), np.uint8)
MALFORMED: dict[Callable[[Path], object], list[bytes]] = {
    read_images: [
        b"",
        b"no gzip",
        idx_bytes(IMAGES)[:-9],
        zipped(b""),
        zipped(b"\x00\x00\x08\x03\x00"),
        zipped(gzip.decompress(idx_bytes(IMAGES))[:-1]),
        zipped(gzip.decompress(idx_bytes(IMAGES)) + b"x"),
        zipped(b"\x00\x00\x0d\x03" + gzip.decompress(idx_bytes(IMAGES))[4:]),
        zipped(b"\x00\x00\x08\x03" + b"\xff" * 12),
        idx_bytes(IMAGES[0]),
    ],
    read_cifar_batch: [
        b"",
        b"no pickle",
        cifar_bytes(PIXELS, [0, 1, 2, 3])[:-500],
        cifar_bytes(PIXELS, [0, 1, 2]),
        cifar_bytes(PIXELS[:, :-1], [0, 1, 2, 3]),
        cifar_bytes(PIXELS, [0, 1, 2, 3], module="numpy.lib.npyio"),
        pickle.dumps({"labels": [1]}),
        pickle.dumps([1, 2]),
    ],
    read_svhn: [
        matlab(X=TWO),
        matlab(X=TWO, y=np.ones((3, 1), np.uint8)),
        matlab(X=TWO.astype(float), y=ONES),
        matlab(X=np.zeros((2, 32, 32, 3), np.uint8), y=ONES),
        matlab(X=TWO, y=11 * ONES),
        matlab(X=TWO, y=0 * ONES),
    ],
    read_covertype: [
        b"no gzip",
        covertype_bytes(covertype_rows(7))[:-12],
        covertype_bytes(covertype_rows(7)[:, :54]),
        zipped(b"1,2,x\n"),
        zipped(b"1,2\n1\n"),
        *map(covertype_with, (0, 4, 10, 54, 54, 9), (3859, -174, 2, 0, 8, 10**12)),
    ],
}


@pytest.mark.parametrize("read", MALFORMED)
def test_a_malformed_file_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "data_batch_1"
    for content in MALFORMED[read]:
        path.write_bytes(content)
        refused(read, path)


@given(damage=st.binary(min_size=1, max_size=8), share=st.floats(0, 1))
def test_cifar_damaged_anywhere_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes, share: float
) -> None:
    whole = cifar_bytes(PIXELS[:1], [7])
    at = int(share * (len(whole) - 1))
    path = tmp_path_factory.mktemp("cifar") / "data_batch_1"
    path.write_bytes(whole[:at] + damage + whole[at + len(damage) :])
    with contextlib.suppress(DataError):
        images, labels = read_cifar_batch(path)
        assert images.shape == (len(labels), 3, 32, 32)


def test_svhn_layout_and_digit_zero(tmp_path: Path) -> None:
    path = tmp_path / "train_32x32.mat"
    svhn_file(path, 20, seed=0)
    images, labels = read_svhn(path)
    assert images.shape == (20, 3, 32, 32)
    assert labels.tolist() == [*range(1, 10), 0] * 2
    stored = scipy.io.loadmat(path)["X"]
    np.testing.assert_array_equal(images[5, 2], stored[:, :, 2, 5])


def test_covertype_scales_by_the_public_ranges(tmp_path: Path) -> None:
    path = tmp_path / "covtype.data.gz"
    rows = covertype_rows(14)
    rows[0, 0] = 2359  # a quarter of the way from 1859 to 3858, nearly
    path.write_bytes(covertype_bytes(rows))
    features, labels = read_covertype(path)
    assert features.dtype == np.float32
    assert features[0, 0] == pytest.approx(500 / 1999)
    assert (features[2::2, :10] == 0).all()
    assert (features[1::2, :10] == 1).all()
    np.testing.assert_array_equal(features[:, 10:], rows[:, 10:54])
    assert labels.tolist() == [*range(7)] * 2


def test_adult_has_a_feature_for_each_number_and_category(tmp_path: Path) -> None:
    path = tmp_path / "adult.data"
    row = ADULT_ROW.format("<=50K")
    unknown = row.replace("39, State-gov", "90, ?").replace("<=50K", ">50K.")
    path.write_text(f"|1x3 Cross validator\n{row}\n{unknown}\n\n")
    features, labels = read_adult(path)
    assert features.shape == (2, 108)
    assert labels.tolist() == [0, 1]
    assert features[:, 0].tolist() == pytest.approx([(39 - 17) / (90 - 17), 1])
    assert np.flatnonzero(features[0, 1:10]).tolist() == [6]  # "?", then adult.names' own order
    assert np.flatnonzero(features[1, 1:10]).tolist() == [0]
    assert (((features == 0) | (features == 1)).sum(1) >= 102).all()
    for column in ("State-gov", "13", ", White"):
        path.write_text(row.replace(column, "x") + "\n")
        refused(read_adult, path)
