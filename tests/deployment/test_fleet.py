"""Very many sites against one real server process; see ``benchmarks.fleet``."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from benchmarks.fleet import measured


@pytest.mark.slow
def test_a_fleet_answers_once_and_equals_its_simulation() -> None:
    """Twenty sites in one process, each with its own key, ledger and TLS connection.

    They form two cohorts, each of which answers in its own round.
    """
    settings = ["num_clients=20", "participation=once", "rounds=2"]
    found = measured("composed-digits-solution", settings, "named", hosts=1, seeded=True)
    assert found["equals_simulation"]
    assert (found["took_part"], found["answers"], found["asked_again"]) == ([10, 10], 20, 0)
    assert found["ledgers"] == {
        "sites_by_releases": {"1": 20},
        "rounds_are_the_server_s": True,
        "last_release_is_the_server_s": 20,
    }
    assert found["epsilon"]["client-run, server, pure"] == 8.0
    assert found["sent_bytes_per_site"] < 20_000


@pytest.mark.slow
def test_a_server_may_have_a_connection_for_each_site() -> None:
    """Many systems allow a process 1,024 files, and a fleet needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource as r; from fedldp.deployment.running import _allow_files as allow;"
        f"r.setrlimit(r.RLIMIT_NOFILE, (256, {hard})); allow();"
        f"assert r.getrlimit(r.RLIMIT_NOFILE)[0] == {hard}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
