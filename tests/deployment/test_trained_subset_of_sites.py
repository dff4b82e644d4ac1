"""A run that trains part of a model: parties freeze the same weights, or do not take part."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import partly_frozen
import pytest
from environments import bits, make_environment, write_policy
from safetensors.numpy import load_file, save_file

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.deployment.agreement import parse_agreement
from fedldp.simulation.engine import simulate

NORMED = "partly_frozen:normed"
SETTINGS = (f"model={NORMED}", "trainable=requires_grad")


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_sites_do_what_a_simulation_does_bit_for_bit(tmp_path: Path, channel: str) -> None:
    env = make_environment(tmp_path, *SETTINGS, channel=channel, policy={"models": [NORMED]})
    pipe = env.pipe()
    served, simulated = env.serve(pipe), simulate(env.config)
    assert bits(served) == bits(simulated)
    frozen = simulated.config.algorithm(env.inputs.problem).frozen()
    assert set(served.weights) == {*frozen, "head.weight", "head.bias"}
    passed = b"".join(body or b"" for _, asked, answer in pipe.seen for body in (asked, answer))
    assert frozen["encoder.1.weight"].tobytes()[:32] not in passed
    saved = load_file(env.folder / "server" / "model.safetensors")
    assert {name: each.tobytes() for name, each in saved.items()} == bits(served)
    noted = json.loads((env.folder / "server" / "config.json").read_text())
    assert noted["frozen"] == env.agreement.frozen


def test_a_site_with_another_encoder_does_not_take_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path, *SETTINGS, policy={"models": [NORMED]})
    document = env.agreement.document
    assert parse_agreement(json.dumps(document).encode()).digest == env.agreement.digest
    env.policies[0].check(env.agreement)
    monkeypatch.setattr(partly_frozen, "normed", partly_frozen.another_encoder)
    with pytest.raises(
        ConfigError, match=r"^trainable = requires_grad: the frozen parameters of model"
    ):
        env.policies[0].check(env.agreement)
    assert env.agent(0)._run(env.agreement.digest) is None
    with pytest.raises(ConfigError, match="was agreed on; give each party the same model"):
        env.server()
    without = replace(env.agreement, frozen=None)
    with pytest.raises(ConfigError, match="but None was agreed on"):
        without.check()


def test_a_site_reads_a_file_of_weights_only_if_its_policy_lists_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights: dict[str, Any] = {
        "1.weight": np.full((256, 64), 0.01, np.float32), "1.bias": np.zeros(256, np.float32),
    }  # fmt: skip
    save_file(weights, "encoder.safetensors")
    settings = ("model=mlp", "trainable=head", "initial=encoder.safetensors")
    listed = {"models": ["mlp", "encoder.safetensors"]}
    env = make_environment(tmp_path / "world", *settings, policy=listed)
    content, own = env.agreement.to_bytes(), env.policies[0].own_code
    assert parse_agreement(content, own=own).digest == env.agreement.digest
    env.policies[0].check(env.agreement)
    with pytest.raises(
        ConfigError,
        match="would read this file on your machine; to allow that, add it to models",
    ):
        parse_agreement(content)
    with pytest.raises(PrivacyError, match=r"the agreement has encoder.safetensors, which"):
        write_policy(tmp_path / "world" / "site-0").check(env.agreement)
    save_file({**weights, "1.bias": np.ones(256, np.float32)}, "encoder.safetensors")
    with pytest.raises(ConfigError, match=r"the frozen parameters of model = mlp have the digest"):
        env.policies[0].check(env.agreement)


def test_a_file_is_given_in_one_place_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the file as deploy invite --initial"):
        make_environment(tmp_path / "one", "model=mlp", "initial=encoder.safetensors")
    with pytest.raises(ConfigError, match="set initial to the file in the configuration"):
        make_environment(tmp_path / "two", "model=mlp", "trainable=head", initial="0" * 64)
