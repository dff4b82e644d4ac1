"""The container files can be parsed, and start commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from test_docs import check_command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "containers"


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return found


def test_compose_starts_a_server_and_three_sites_with_commands_that_exist() -> None:
    services = compose()["services"]
    assert sorted(services) == ["north", "server", "south", "west"]
    for name, service in services.items():
        check_command(service["command"], name)
        build = service["build"]
        context = FOLDER / build["context"]
        assert context.resolve() == ROOT
        assert (context / build["dockerfile"]).resolve() == FOLDER / "Containerfile"
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["ulimits"]["core"] == 0
        assert f"./{name}:/site" in service["volumes"]
        if name != "server":
            assert service["restart"] == "unless-stopped"
            probe = service["healthcheck"]["test"]
            assert probe[:2] == ["CMD", "fedldp"]
            check_command(probe[2:], name)
            assert "ports" not in service


def test_the_image_installs_from_files_of_the_repository() -> None:
    text = (FOLDER / "Containerfile").read_text()
    (installed,) = re.findall(r"-c /build/fedldp/(\S+) \"/build/fedldp\[(\w+)\]\"", text)
    assert (ROOT / installed[0]).exists()
    assert f"\n{installed[1]} = [" in (ROOT / "pyproject.toml").read_text()
    assert re.search(r"^USER [1-9]", text, re.M)


def test_the_guides_commands_in_containers_exist() -> None:
    page = (ROOT / "docs" / "real_machines.md").read_text()
    services = compose()["services"]
    found = re.findall(r"^docker compose run --rm (\w+) (deploy .*)$", page, re.M)
    assert [words.split()[1] for _, words in found] == ["invite", "join", "admit", "accept"]
    for service, words in found:
        assert service in services
        check_command(shlex.split(words), words)
    assert set(re.findall(r"^docker compose up -d (\w+)$", page, re.M)) <= set(services)
