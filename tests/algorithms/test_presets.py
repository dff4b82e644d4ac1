"""A function from settings to parts becomes a configuration, also in a user's own module."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedldp.algorithms import preset
from fedldp.algorithms.recipes import find_recipe
from fedldp.algorithms.systems import find_system, own_code
from fedldp.core.errors import ConfigError

OWN = '''
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import MomentumSettings, NoiseMultiplier, NormBound, Offers
from fedldp.mechanisms.gaussian import Gaussian


class Noisy(Offers):
    clip: NormBound = 0.5
    noise: NoiseMultiplier


@preset(Noisy, MomentumSettings)
def noisy(settings: Settings) -> Composition:
    """Clipped changes with Gaussian noise."""
    return Composition(
        bound=InNorm(clip=settings.clip, send="update"),
        calibration=Fixed(every=Gaussian(settings.clip, settings.clip * settings.noise)),
    )


def nothing(settings):
    return None
'''
SHARED = {
    "dataset": "digits", "model": "logistic", "num_clients": 4, "rounds": 2, "learning_rate": 0.1,
}  # fmt: skip


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_preset.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_preset:noisy"
    __import__("sys").modules.pop("own_preset", None)


def test_a_users_preset_is_found_by_its_address(own: str) -> None:
    found = find_system(own)
    config = found(**SHARED, noise=1.0)
    assert config.system == own == found.name()
    assert own_code(config) == (own,)
    assert find_system(own).model_validate(config.model_dump()) == config
    own_settings = ["clip", "noise", "momentum"]
    assert [name for name in config.model_dump() if name in own_settings] == own_settings
    hashed = config.identity()["settings"]
    assert "noise" in hashed
    assert "server_optimizer" not in hashed  # left out at its default, but offered
    assert found(**SHARED, noise=1.0, server_optimizer="adam", server_rate=0.1)


def test_a_preset_refuses_like_every_configuration(own: str) -> None:
    with pytest.raises(ConfigError, match=r"^clip = -1.0: give a number of at least 1e-09$"):
        find_system(own)(**SHARED, noise=1.0, clip=-1.0)
    with pytest.raises(
        ConfigError, match="noises is not a setting of own_preset:noisy; did you mean"
    ):
        find_system(own)(**SHARED, noise=1.0, noises=1.0)
    with pytest.raises(ConfigError, match="untrusted_clients = 1: no line of own_preset:noisy"):
        find_system(own)(**SHARED, noise=1.0, untrusted_clients=1)
    with pytest.raises(ConfigError, match="own_preset:nothing: it is no"):
        find_system("own_preset:nothing")


def test_a_run_builds_its_parts_once(
    fedldp_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, build = [], preset.decided
    monkeypatch.setattr(preset, "decided", lambda *to: [built.append(to[1]), build(*to)][-1])
    changes = {"num_clients": 3, "rounds": 2}
    ran = fedldp_command("run", *(f"--set={name}={value}" for name, value in changes.items()))
    assert ran.status == 0, ran.err
    own = [each for each in built if changes.items() <= dict(each).items()]
    assert len(own) == 1


def test_a_copy_has_parts_of_its_own() -> None:
    config = find_recipe("quickstart").config
    for copied in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert copied == config
        assert copied.composition is not config.composition
    once = config.with_participation("once")
    assert once.composition.participation != config.composition.participation
