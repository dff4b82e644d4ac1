"""Public features in a deployment: every site computes those that the agreement names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from environments import make_environment, write_policy

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.deployment.agreement import parse_agreement
from fedldp.simulation.engine import simulate

SETTINGS = ("features=oriented-gradients", "model=logistic", "rounds=2")


def test_sites_compute_what_a_simulation_computes(tmp_path: Path) -> None:
    env = make_environment(tmp_path, *SETTINGS)
    served = env.serve()
    simulated = simulate(env.config, device="cpu")
    for name, weights in served.weights.items():
        assert weights.tobytes() == simulated.weights[name].tobytes()
    assert served.rounds[-1].accuracy == pytest.approx(simulated.accuracy)


def test_an_agreement_names_features_with_their_digest(tmp_path: Path) -> None:
    document = make_environment(tmp_path, *SETTINGS).agreement.document
    assert document["features"]["name"] == "oriented-gradients"
    assert parse_agreement(json.dumps(document).encode()).document == document
    other = {**document["features"], "digest": "0" * 64}
    without = {name: value for name, value in document.items() if name != "features"}
    for wrong in ({**document, "features": other}, without):
        with pytest.raises(ConfigError, match="digest of its features differs"):
            parse_agreement(json.dumps(wrong).encode())
    assert "features" not in make_environment(tmp_path / "plain").agreement.document


def test_a_site_imports_a_function_only_if_its_policy_lists_it(tmp_path: Path) -> None:
    own = "own_features:rows"
    settings = (*SETTINGS[1:], f"features={own}")
    env = make_environment(tmp_path, *settings, policy={"features": [own]})
    content = env.agreement.to_bytes()
    assert parse_agreement(content, own=env.policies[0].own_code).digest == env.agreement.digest
    with pytest.raises(ConfigError, match="add it to features in the site's policy"):
        parse_agreement(content)
    assert env.serve().weights.keys() == simulate(env.config, device="cpu").weights.keys()
    env.policies[0].check(env.agreement)
    other = write_policy(tmp_path / "site-0", features=["pose"])
    with pytest.raises(PrivacyError, match="features = pose: the agreement has own_features:rows"):
        other.check(env.agreement)


def test_a_site_reads_a_file_only_if_its_policy_lists_it_and_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("axes.npy", np.eye(64)[:, :12])
    of_file = "public-axes:axes.npy"
    settings = (*SETTINGS[1:], f"features={of_file}")
    env = make_environment(tmp_path, *settings, policy={"features": [of_file]})
    content, own = env.agreement.to_bytes(), env.policies[0].own_code
    assert parse_agreement(content, own=own).digest == env.agreement.digest
    assert env.serve().weights.keys() == simulate(env.config, device="cpu").weights.keys()
    with pytest.raises(
        ConfigError, match="would read this file on your machine; to allow that, add it to feat"
    ):
        parse_agreement(content)
    with pytest.raises(PrivacyError, match=f"the agreement has {of_file}, which"):
        write_policy(tmp_path / "site-0").check(env.agreement)
    np.save("axes.npy", 2 * np.eye(64)[:, :12])
    with pytest.raises(
        ConfigError,
        match=r"the digest of its features differs .* give each party the same file axes.npy",
    ):
        parse_agreement(content, own=own)
    Path("axes.npy").unlink()
    with pytest.raises(ConfigError, match=r"there is no file axes\.npy in the current folder"):
        parse_agreement(content, own=own)
