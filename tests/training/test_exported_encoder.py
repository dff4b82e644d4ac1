"""Frozen encoders: a file is computed one example at a time, and runs no code of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_files import SHAPE, WEIGHT, exported, node, tensor

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data.folder import PublicFile
from fedldp.data.image_features import PublicMap
from fedldp.training.exported_encoder import exported_encoder

IMAGES = numbered_generator(3, 0).standard_normal((5, *SHAPE)).astype(np.float32)


def encoder(content: bytes, shape: tuple[int, ...] = SHAPE) -> PublicMap:
    return exported_encoder(
        PublicFile("net.pt2", content, hashlib.sha256(content).hexdigest()), shape
    )


def test_an_exported_encoder_computes_the_file_for_each_example_alone() -> None:
    mapping = encoder(exported())
    found = mapping(IMAGES)
    assert mapping.size == 2
    np.testing.assert_allclose(found, np.maximum(IMAGES.reshape(5, 4) @ WEIGHT.T, 0), rtol=1e-5)
    for index in range(5):
        assert mapping(IMAGES[index : index + 1]).tobytes() == found[index : index + 1].tobytes()
    assert mapping(IMAGES[:0]).shape == (0, 2)
    assert mapping.digest != encoder(exported() + b" ").digest


def test_an_exported_encoder_refuses_no_example() -> None:
    place = {"as_tensors": [{"name": "place"}]}
    by_index = [
        node("view.default", ["flat"], self=tensor("x"), size={"as_ints": [4]}),
        node("_to_copy.default", ["place"], self=tensor("flat"), dtype={"as_scalar_type": 5}),
        node("permute.default", ["turned"], self=tensor("w"), dims={"as_ints": [1, 0]}),
        node("index.Tensor", ["out"], self=tensor("turned"), indices=place),
    ]  # fmt: skip
    mapping = encoder(exported(nodes=by_index))
    images = np.zeros((3, *SHAPE), np.float32)
    images[0], images[1] = 1, 9  # there are four columns, so no tenth
    found = mapping(images)
    assert found[0].tolist() == WEIGHT[:, 1].tolist() * 4
    assert not found[1].any()
    odd = np.array([np.nan, np.inf, 3e38], np.float32)[:, None, None, None] * np.ones(SHAPE)
    assert np.isfinite(encoder(exported())(odd.astype(np.float32))).all()


def test_no_pickle_in_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encoder(exported())  # its sample input would run code if unpickled
    with pytest.raises(ConfigError, match="it holds a pickled tensor, which is code"):
        encoder(exported(pickled=True))
    assert not list(tmp_path.iterdir())


def called(target: str, **inputs: Any) -> dict[str, Any]:
    return {"nodes": [node(target, ["out"], **inputs)]}


FILE = {"filename": {"as_string": "secret.csv"}, "shared": {"as_bool": True}, "size": {"as_int": 9}}


@pytest.mark.parametrize(
    ("planted", "match"),
    [
        (called("from_file.default", **FILE), "calls .*from_file"),
        (called("empty.memory_format", size={"as_ints": [1, 9]}), "calls .*empty"),
        (called("relu_.default", self=tensor("x")), "calls .*relu_"),
        (called("rand.default", size={"as_ints": [1, 2]}), "calls .*rand"),
        (called("grid_sampler_2d.default", input=tensor("x")), "calls .*grid_sampler_2d"),
        (called("_embedding_bag.default", weight=tensor("w")), "calls .*_embedding_bag"),
        (called("embedding_dense_backward.default"), "calls .*embedding_dense_backward"),
        (called("nonzero.default", self=tensor("x")), "calls .*nonzero"),
        (called("div.Tensor_mode", rounding_mode={"as_string": "trunc"}), "trunc, not floor"),
        (called("no_such.default", self=tensor("x")), "calls .*no_such"),
        (called("__class__.default", self=tensor("x")), "calls .*__class__"),
        (called("relu.default", self={"as_graph": {}}), "as_graph"),
        ({"takes": (1, 1, 4, 1)}, r"takes a batch of \[1, 1, 4, 1\].* torch.zeros\(1, 1, 2, 2\)"),
        ({"major": 9}, "version 9 of torch's format"),
        ({"outputs": ("buffer_mutation", "user_output")}, "it returns buffer_mutation"),
    ],
)
def test_a_network_that_mixes_examples_is_refused(planted: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=rf"^features = encoder:net.pt2: .*{match}"):
        encoder(exported(**planted))


def normalised(count: int) -> list[dict[str, Any]]:
    """Return a batch normalisation of the rows of ``WEIGHT``, transposed, by ``count`` numbers."""
    sizes = {"as_ints": [count]}
    ones = node("full.default", ["ones"], size=sizes, fill_value={"as_float": 1.0})
    given = {name: tensor("ones") for name in ("weight", "bias", "running_mean", "running_var")}
    settings = {"momentum": {"as_float": 0.1}, "eps": {"as_float": 1e-5}}
    name = "_native_batch_norm_legit_no_training.default"
    view = node("view.default", ["flat"], self=tensor("x"), size={"as_ints": [1, 4]})
    return [
        view,
        ones,
        node(name, ["out", "mean", "rstd"], input=tensor("flat"), **given, **settings),
    ]


def test_a_normalisation_reads_no_memory_beyond_its_numbers() -> None:
    found = encoder(exported(nodes=normalised(4)))(IMAGES)
    np.testing.assert_allclose(found, IMAGES.reshape(5, 4), atol=1e-4)
    with pytest.raises(ConfigError, match="another number of channels"):
        encoder(
            exported(nodes=normalised(2))
        )  # torch computes this, with memory beyond the two numbers


def test_the_number_of_indexed_features_does_not_depend_on_the_example() -> None:
    nodes = [
        node("gt.Scalar", ["mask"], self=tensor("x"), other={"as_float": 0.5}),
        node("index.Tensor", ["out"], self=tensor("x"), indices={"as_tensors": [{"name": "mask"}]}),
    ]
    with pytest.raises(ConfigError, match="an index is a mask"):
        encoder(exported(nodes=nodes))


def test_a_target_that_is_not_an_operator_is_refused() -> None:
    nodes = [{**node("relu.default", ["out"]), "target": "torch.hub.load"}]
    with pytest.raises(ConfigError, match=r"calls torch.hub.load, which is not a core operator"):
        encoder(exported(nodes=nodes))


def test_a_network_that_keeps_something_of_an_example_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of zeros, most functions give the same numbers whatever they keep."""
    kept = [torch.zeros(1, *SHAPE)]

    def run(batch: torch.Tensor) -> torch.Tensor:
        kept[0] = kept[0] + batch
        return batch * kept[0]

    monkeypatch.setattr("fedldp.training.exported_encoder._network", lambda content, shape: run)
    with pytest.raises(ConfigError, match="different numbers when it is called again"):
        encoder(exported())


@pytest.mark.parametrize("content", [b"", b"no archive", exported()[:-30]])
def test_a_damaged_file_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(
        ConfigError, match=r"^features = encoder:net.pt2: it is not a file of"
    ) as error:
        encoder(content)
    assert "\n" not in str(error.value)


@pytest.mark.slow  # torch takes seconds to load its exporter
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_exported_encoder_computes_what_torch_exports(tmp_path: Path) -> None:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return nn.functional.normalize(self.layers(images[:, 0]).mean(1), dim=1)

    convolutions = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(),
        nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 5), nn.GELU(),
    )  # fmt: skip
    images = numbered_generator(4, 0).random((3, 1, 8, 8)).astype(np.float32)
    for network in (convolutions, Attention()):
        network.eval()
        program = torch.export.export(network, (torch.zeros(1, 1, 8, 8),)).run_decompositions()
        torch.export.save(program, tmp_path / "net.pt2")
        found = encoder((tmp_path / "net.pt2").read_bytes(), (1, 8, 8))(images)
        with torch.no_grad():
            known = network(torch.from_numpy(images)).numpy()
        np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-6)
