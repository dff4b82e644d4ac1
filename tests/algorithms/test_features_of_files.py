"""Features from a file that the user declares public, and by a function of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import own_features
import pytest
from exported_files import exported, node, tensor

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import file_of, rests_on
from fedldp.core.errors import RunError
from fedldp.core.kinds import MAPS_ALONE, PUBLIC_FILE, RESTS_ON
from fedldp.data.own_features import OwnFeatures
from fedldp.simulation.evaluating import evaluate
from fedldp.simulation.plan import plan, problem_of

SHORT: dict[str, Any] = {"rounds": 1, "num_clients": 10, "num_examples": 200, "local_epochs": 1}
AXES, ENCODER = "public-axes:axes.npy", "encoder:net.pt2"
DIGITS = [
    node("view.default", ["flat"], self=tensor("x"), size={"as_ints": [16, 4]}),
    node("permute.default", ["turned"], self=tensor("w"), dims={"as_ints": [1, 0]}),
    node("mm.default", ["product"], self=tensor("flat"), mat2=tensor("turned")),
    node("relu.default", ["out"], self=tensor("product")),
]
"""A network that maps the four pixels of each half row of a digit to two numbers."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("axes.npy", np.eye(64)[:, :12])
    (tmp_path / "net.pt2").write_bytes(exported(nodes=DIGITS, takes=(1, 1, 8, 8)))
    return tmp_path


def small(**changes: Any) -> RunConfig:
    settings = {**SHORT, "model": "logistic", "standardise": False, **changes}
    return fedldp.recipe("quickstart", **settings)


@pytest.mark.parametrize(("features", "weights"), [(AXES, 140), (ENCODER, 330)])
def test_a_run_trains_a_head_on_features_and_keeps_their_digest(
    folder: Path, features: str, weights: int
) -> None:
    result = fedldp.run(small(features=features), out=folder / "run")
    assert sum(each.size for each in result.weights.values()) == weights
    noted = json.loads((folder / "run" / "config.json").read_text())["features"]
    assert noted["name"] == features
    assert evaluate(folder / "run")["accuracy"] == pytest.approx(result.accuracy)
    np.save("axes.npy", 2 * np.eye(64)[:, :12])
    (folder / "net.pt2").write_bytes(exported(nodes=DIGITS, takes=(1, 1, 8, 8), major=8) + b" ")
    name = features.partition(":")[2]
    with pytest.raises(RunError, match=f"features = .*{name}.* in the run, .* use the same files"):
        evaluate(folder / "run")


@pytest.mark.parametrize(
    ("features", "said", "of"),
    [
        (AXES, PUBLIC_FILE(of=AXES), "file"),
        (ENCODER, PUBLIC_FILE(of=ENCODER), "file"),
        ("own_features:rows", MAPS_ALONE(of="own_features:rows"), "code"),
        ("soft-gradients", None, None),
    ],
)
def test_every_line_states_that_it_relies_on_a_file_or_on_own_code(
    features: str, said: Any, of: str | None
) -> None:
    made = small(features=features)
    found = plan(made, problem_of(made, None)).privacy
    assert any(line.kind != "none" for line in found.guarantees)
    if said is None:
        assert not RESTS_ON.is_in(found.warnings)
        return
    for line in found.guarantees:
        assert line.kind == "none" or said in line.assumptions
        assert line.stated_by == "fedldp"  # features state nothing about releases
    assert found.warnings[-1] == RESTS_ON(assumption=said, of=of)


def test_names_of_files_are_distinguished_from_functions_and_kinds() -> None:
    assert [rests_on(each) for each in ("pose", "public-axes:strokes", AXES, ENCODER, "a:b")] == [
        None, None, "file", "file", "code",
    ]  # fmt: skip
    assert file_of("public-axes:a:b.npy") == "a:b.npy"


@pytest.mark.parametrize(
    ("features", "size"), [("random-convolutions", 288), ("public-axes:strokes", 31), (AXES, 13)]
)
def test_features_have_their_size(features: str, size: int) -> None:
    made = small(features=features)
    assert made.algorithm(problem_of(made, None)).input_shape == (size,)


def test_a_run_is_not_resumed_with_another_file(folder: Path) -> None:
    class Stop(Exception):
        pass

    def stop(record: Any) -> None:
        raise Stop

    made = small(features=AXES, rounds=2)
    with pytest.raises(Stop):
        fedldp.run(made, out=folder / "run", after_round=stop)
    np.save("axes.npy", 2 * np.eye(64)[:, :12])
    with pytest.raises(RunError, match=r"axes\.npy.* use the same files"):
        fedldp.resume(folder / "run")
    np.save("axes.npy", np.eye(64)[:, :12])
    assert len(fedldp.resume(folder / "run").rounds) == 2


# A function of the user's


def test_a_function_is_given_one_example_at_a_time() -> None:
    images = np.random.default_rng(0).random((5, 2, 4, 3)).astype(np.float32)
    given = images.copy()
    mapping = OwnFeatures("own_features:rows", (2, 4, 3))
    own_features.calls.clear()
    found = mapping(images)
    assert own_features.calls == [(2, 4, 3)] * 5
    np.testing.assert_allclose(found, 2 * images.mean(axis=(1, 3)), rtol=1e-6)
    assert mapping(images[3:4]).tobytes() == found[3:4].tobytes()
    assert images.tobytes() == given.tobytes()


def test_no_example_is_refused_by_a_users_features() -> None:
    images = np.array([0, 9, -9, 1], np.float32).reshape(4, 1, 1, 1)
    found = OwnFeatures("own_features:brittle", (1, 1, 1))(images)
    assert found.tolist() == [[1, 0], [0, 0], [0, 0], [1, 1]]
