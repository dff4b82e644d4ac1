"""A run that begins with the weights of another: agreed by digest, and refused if they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Environment, ask, bits, content, make_environment, request_of
from safetensors.numpy import save_file

from fedldp.core.errors import ConfigError
from fedldp.core.kinds import GIVEN_MODEL
from fedldp.deployment.initial import digest_of_file, write_initial
from fedldp.deployment.messages import read_message
from fedldp.protocol.wire import Layout, Reason, Refusal, Vector, read_request


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return make_environment(tmp_path_factory.mktemp("layout")).agreement.layout


def saved(file: Path, layout: Layout, weights: Vector) -> Path:
    save_file({name: each.copy() for name, each in layout.split(weights).items()}, file)
    return file


def begun_with(folder: Path, file: Path, layout: Layout, channel: str = "named") -> Environment:
    """Return an environment whose run begins with the weights in a file."""
    digest = digest_of_file(file, layout)
    env = make_environment(folder / "world", channel=channel, initial=digest)
    write_initial(file, env.folder / "run.agreement")
    return env


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_run_begins_with_the_weights_of_another(
    tmp_path: Path, layout: Layout, channel: str
) -> None:
    one = make_environment(tmp_path / "one", channel=channel)
    ended = one.serve()
    following = begun_with(tmp_path, one.folder / "server" / "model.safetensors", layout, channel)
    pipe = following.pipe()
    served = following.serve(pipe)
    told = []
    for _, asked, _ in pipe.seen:
        broadcast = read_request(read_message(asked).request).broadcast
        told += [broadcast.weights] if broadcast.round == 1 and broadcast.weights.size else []
    assert len(told) >= 3
    for vector in told:
        weights = layout.split(vector)
        assert {name: each.tobytes() for name, each in weights.items()} == bits(ended)
    assert bits(served) != bits(ended)
    given = GIVEN_MODEL(of=str(following.agreement.initial)[:16])
    for line in following.agreement.planned.guarantees:
        assert (given in line.assumptions) == (line.epsilon is not None)
        assert given not in one.agreement.planned.guarantees[0].assumptions


def test_a_site_refuses_other_first_weights_and_pays_nothing(
    tmp_path: Path, layout: Layout
) -> None:
    env = begun_with(
        tmp_path, saved(tmp_path / "w", layout, np.full(layout.size, 0.25, np.float32)), layout
    )
    agent, right = env.agent(0), np.full(env.agreement.layout.size, 0.25, np.float32)
    wrong = np.nextafter(right, np.float32(1))
    said = content(ask(agent, env, request_of(env, weights=wrong, ranges=None)))
    assert said == Refusal(1, Reason.OTHER_WEIGHTS)
    assert env.releases(0) == []
    assert not isinstance(content(ask(agent, env, request_of(env, weights=right))), Refusal)
    later = request_of(
        env, round=2, weights=wrong
    )  # weights of later rounds are the server's choice
    assert not isinstance(content(ask(agent, env, later)), Refusal)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda w: {**w, "more": np.zeros(2, np.float32)}, "but None in the run's model"),
        (lambda w: dict(list(w.items())[1:]), "has the shape None"),
        (lambda w: {n: a.reshape(-1, 1) for n, a in w.items()}, "in the run's model"),
        (lambda w: {n: a.astype(np.float64) for n, a in w.items()}, "not float32"),
        (lambda w: {n: np.full_like(a, np.nan) for n, a in w.items()}, "is not a number"),
    ],
)
def test_weights_of_another_model_are_refused_in_a_line(
    tmp_path: Path, layout: Layout, change: Any, part: str
) -> None:
    weights = {n: w.copy() for n, w in layout.split(np.zeros(layout.size, np.float32)).items()}
    file = tmp_path / "model.safetensors"
    save_file(change(weights), file)
    with pytest.raises(ConfigError, match=part) as found:
        digest_of_file(file, layout)
    assert "\n" not in str(found.value)
    file.write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"not the model\.safetensors"):
        digest_of_file(file, layout)
