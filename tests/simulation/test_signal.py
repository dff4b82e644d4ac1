"""Signal and noise of a simulation: what the figures are, and where they must not be."""

import numpy as np
import pytest

import fedldp
from fedldp.simulation.noise import noise_of
from fedldp.simulation.plan import problem_of
from fedldp.simulation.settings import from_mapping, to_toml

CLIENTS = 40


def config_of(mechanism, **settings):
    bounded = {} if mechanism == "none" else {"epsilon": 4.0, "clip": 1.0}
    return from_mapping(
        {"system": "composed", "dataset": "digits", "model": "logistic", "num_clients": CLIENTS,
         "rounds": 1, "mechanism": mechanism, "learning_rate": 1e-3, "participation": "all",
         **bounded, **settings}
    )  # fmt: skip


def figures(config, **how):
    result = fedldp.run(config, signal=True, **how)
    return {each["metric"]: each["value"] for each in result.rounds[0].signal}


@pytest.mark.parametrize("name", ["gaussian", "k_closest", "laplace", "two_point"])
def test_the_noise_is_as_long_as_public_facts_say(name):
    """The variance of every mechanism is tried by its contract."""
    config = config_of(name, clip=1000.0, range_radius=1.0, send="weights")
    plain = fedldp.run(config)
    seen = fedldp.run(config, signal=True)
    assert all((seen.weights[each] == plain.weights[each]).all() for each in plain.weights)
    assert plain.rounds[0].signal == []
    found = {each["metric"]: each for each in seen.rounds[0].signal}
    assert {each["rows"] for each in found.values()} == {"uncovered"}
    release = config.algorithm(problem_of(config, None)).release(0)
    values = np.full(release.coordinates, 1e-3)
    expected = np.sqrt(release.mechanism.variance(values).sum() / CLIENTS)
    assert 0.5 < found["noise_norm"]["value"] / expected < 2
    assert plain.noise == noise_of(config, problem_of(config, None))
    assert plain.noise.values["reports"] == CLIENTS


def test_without_noise_both_means_are_one():
    found = figures(config_of("none"))
    assert found["cosine"] == pytest.approx(1)
    assert found["noise_norm"] < 1e-6 * found["signal_norm"]
    assert fedldp.run(config_of("none")).noise is None


@pytest.mark.parametrize("name", ["gaussian", "two_point_l1"])
def test_clients_are_clipped_by_a_small_bound_alone(name):
    small, large = (figures(config_of(name, clip=clip)) for clip in (0.01, 50.0))
    assert (small["clients_clipped"], large["clients_clipped"]) == (1, 0)
    assert small["bounded_norm"] < small["update_norm"] / 2
    assert large["bounded_norm"] == pytest.approx(large["update_norm"], rel=1e-2)


def test_signal_is_in_the_terminal_and_in_metrics_alone(fedldp_command, tmp_path):
    settings = tmp_path / "a.toml"
    settings.write_text(to_toml(config_of("gaussian")))
    outcome = fedldp_command("run", settings, "--signal", "--out", tmp_path / "run")
    cosine = f"{figures(config_of('gaussian'))['cosine']:.4g}"
    assert "publish none of them" in outcome.out
    assert cosine in outcome.out
    assert fedldp_command("card", tmp_path / "run").status == 0
    files = [each for each in (tmp_path / "run").rglob("*") if each.is_file()]
    has = {each.name for each in files if b"clients_clipped" in each.read_bytes()}
    assert has == {"metrics.jsonl"}
    pages = {each.name: each.read_text() for each in files if each.suffix in (".html", ".md")}
    assert len(pages) > 1
    assert not any(cosine in text for text in pages.values())
    assert "the longest vector that one client can send" in pages["report.html"]
