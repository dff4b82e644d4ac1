"""What the tests of a deployment share: no pauses, and the weights that most runs must have."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import bits, make_environment, write_tls
from https_ends import Ends

from fedldp.deployment import server, sites
from fedldp.simulation.engine import simulate


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE", "_SEE"):
        monkeypatch.setattr(sites, name, 0.0)
    monkeypatch.setattr(server, "_FIRST_PAUSE", 0.01)


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    """Return both ends of a link, with the certificate that all tests share."""
    write_tls(tmp_path)
    return Ends(tmp_path, [Ed25519PrivateKey.generate() for _ in range(2)])


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the weights of the simulation of ``make_environment`` without settings."""
    return bits(simulate(make_environment(tmp_path_factory.mktemp("simulated")).config))
