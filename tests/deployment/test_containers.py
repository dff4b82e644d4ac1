"""The container files start commands that exist, and no image gets a table or a key."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from test_docs import check_command

from fedldp.deployment.watch import SiteWatch, beating

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "containers"
OUTSIDE = "${PARTIES:?name a folder outside the clone}"


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return found


def test_compose_starts_a_server_and_three_sites_with_commands_that_exist() -> None:
    services = compose()["services"]
    assert sorted(services) == ["north", "server", "site", "south", "west"]
    assert {
        name: each.get("profiles") for name, each in services.items() if "profiles" in each
    } == {"site": ["site"]}
    for name, service in services.items():
        check_command(service["command"], name)
        build = service["build"]
        context = FOLDER / build["context"]
        assert context.resolve() == ROOT
        assert (context / build["dockerfile"]).resolve() == FOLDER / "Containerfile"
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["ulimits"]["core"] == 0
        assert OUTSIDE + f"/{name}:/site" in service["volumes"]
        assert all(each.startswith((OUTSIDE, "/etc/")) for each in service["volumes"])
        if name != "server":
            assert service["restart"] == "unless-stopped"
            assert "ports" not in service


def test_a_service_is_healthy_while_its_process_gives_signs_of_life(tmp_path: Path) -> None:
    for name, service in compose()["services"].items():
        kind, probe = service["healthcheck"]["test"]
        assert kind == "CMD-SHELL"

        def is_healthy(probe: str = probe) -> bool:
            command = ["sh", "-c", probe.replace("$$", "$")]
            return subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0

        folder = tmp_path / ("run" if name == "server" else "state")
        shutil.rmtree(folder, ignore_errors=True)
        assert not is_healthy()
        folder.mkdir()
        with beating(SiteWatch(folder)):
            assert is_healthy()
        minute_ago = time.time() - 61
        os.utime(folder / "status.json", (minute_ago, minute_ago))
        assert not is_healthy()


# What a build is sent


OF_THE_BUILD = {"LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
DATA = "csv|npz|parquet|key|pem|join|invite|agreement|sqlite|db|pub"
PARTIES = ("north", "server", "site", "clinic")  # a reader may choose any name


def made_by_the_guides() -> set[str]:
    """Return the names of the tables, keys and states that a reader of the guides will have."""
    found = {"secret", "north.key.ledger"}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        found |= {name[0] for name in re.findall(rf"\b([\w-]+\.({DATA}))\b", text)}
    assert {"patients.csv", "visits.csv", "ca.key", "north.join", "site.db"} <= found
    return found


def plant(clone: Path) -> list[str]:
    """Lay data and keys into a clone wherever somebody may; return their paths."""
    planted = []
    places = ["", "data", "docs", "docs/containers", "examples", "state", "ledgers/partition-0"]
    for party in PARTIES:
        places += [party, f"{party}/state", f"docs/containers/{party}"]
    for name in made_by_the_guides():
        inside = ["src/fedldp", "src/fedldp/data"] if "." in name else []
        planted += [f"{place}/{name}".lstrip("/") for place in places + inside]
    for name in planted:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("private")
    return planted


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of what a build may need of the clone."""
    shutil.copytree(ROOT / "src", tmp_path / "src")
    for name in (*OF_THE_BUILD, ".dockerignore", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def package_files(clone: Path) -> set[str]:
    return {
        path.relative_to(clone).as_posix()
        for path in (clone / "src" / "fedldp").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def test_a_build_is_sent_the_package_and_no_table_or_key() -> None:
    """.dockerignore ignores all but a few names, and in the package all but some kinds of files.

    Of all lines that match a path or a folder above it, the last decides.
    """
    lines = [line.strip() for line in (ROOT / ".dockerignore").read_text().splitlines()]
    rules = [line for line in lines if line and not line.startswith("#")]
    inside = rules.index("src/fedldp/**/*.*")
    allowed = {f"!{name}" for name in (*OF_THE_BUILD, "src/fedldp")}
    assert (rules[0], set(rules[1:inside])) == ("*", allowed)
    kinds = {rule.removeprefix("!src/fedldp/**/*.") for rule in rules[inside + 1 :] if "*" in rule}
    named = {rule.removeprefix("!") for rule in rules[inside + 1 :] if "*" not in rule}
    assert not kinds & set(DATA.split("|"))
    assert {name for name in named if re.search(rf"\.({DATA})$", name)} == {
        "src/fedldp/data/digits.npz"
    }
    for name in package_files(ROOT):
        assert name in named or name.rpartition(".")[2] in kinds, name


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_adds_nothing_that_the_guides_make(clone: Path) -> None:
    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", *words], cwd=clone, check=True, capture_output=True, text=True
        )
        return [name for name in done.stdout.split("\0") if name]

    for name in plant(clone):
        if "." not in name and not name.startswith(PARTIES):
            (clone / name).unlink()  # a key without an ending, in a folder of the repository
    for name in ("mine.toml", "make.py", "statement.json", "runs/first/model.safetensors"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    git("init", "--quiet")
    added = git("ls-files", "-z", "--others", "--exclude-standard")
    assert set(added) == OF_THE_BUILD | package_files(ROOT) | {".dockerignore", ".gitignore"}


def test_the_guides_commands_in_containers_exist() -> None:
    page = (ROOT / "docs" / "real_machines.md").read_text()
    services = compose()["services"]
    found = re.findall(r"^docker compose run --rm (\w+) (deploy .*)$", page, re.M)
    assert [words.split()[1] for _, words in found] == ["invite", "join", "admit", "accept"]
    for service, words in found:
        assert service in services
        check_command(shlex.split(words), words)
    assert set(re.findall(r"^docker compose up -d (\w+)$", page, re.M)) <= set(services)
