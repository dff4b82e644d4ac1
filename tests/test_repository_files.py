"""The repository's other files agree with each other: workflows, templates, labels and versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ROOMS = sorted(path.parent.name for path in (ROOT / "src" / "fedldp").glob("*/__init__.py"))
LABELS = {"stable", "settling", "inside"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def supported() -> list[str]:
    return [
        line.removeprefix("Programming Language :: Python :: ")
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]


def test_workflows_test_the_versions_that_are_supported() -> None:
    matrix = read(WORKFLOWS[0])["jobs"]["default"]["strategy"]["matrix"]
    assert matrix["python"] == supported()
    assert {system.split("-")[0] for system in matrix["system"]} == {"ubuntu", "macos"}
    assert Version(supported()[0]) in SpecifierSet(PROJECT["requires-python"])
    assert Version("3.10") not in SpecifierSet(PROJECT["requires-python"])


def directly_needed(requirements: list[str]) -> list[Requirement]:
    """Return the direct requirements, including those of fedldp's own extras."""
    found = []
    for requirement in map(Requirement, requirements):
        if requirement.name == "fedldp":
            for extra in sorted(requirement.extras):
                found += directly_needed(PROJECT["optional-dependencies"][extra])
        else:
            found.append(requirement)
    return found


def constraints(file: str) -> dict[str, Version]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name: Version(version) for name, version in pairs}


def test_the_lowest_versions_are_the_stated_ones_and_no_newer_than_the_tested_ones() -> None:
    lowest, tested = constraints("constraints-lowest.txt"), constraints("constraints.txt")
    needed = directly_needed(["fedldp[test]", *PROJECT["dependencies"]])
    assert {requirement.name for requirement in needed} == set(lowest)
    for requirement in needed:
        (floor,) = (each.version for each in requirement.specifier if each.operator == ">=")
        assert lowest[requirement.name] in SpecifierSet(f"=={floor}.*"), requirement
        assert lowest[requirement.name] <= tested[requirement.name], requirement
        assert tested[requirement.name] in requirement.specifier, requirement


def test_flower_is_tested_in_an_environment_of_its_own() -> None:
    """It allows only older versions of packages that others use."""
    tested = constraints("constraints-flower.txt")
    for requirement in directly_needed(["fedldp[flower]", *PROJECT["dependencies"]]):
        assert tested[requirement.name] in requirement.specifier, requirement
    others = set(PROJECT["optional-dependencies"]) - {"flower"}
    needed = directly_needed([f"fedldp[{extra}]" for extra in sorted(others)])
    assert "flwr" not in {requirement.name for requirement in needed}


def test_every_room_has_one_label() -> None:
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.M)
    assert sorted(room for room, _ in rows) == ROOMS
    assert {label for _, label in rows} == LABELS


def test_the_version_is_the_same_everywhere() -> None:
    cited = read(ROOT / "CITATION.cff")["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert cited == PROJECT["version"]
    assert f"## [{cited}]" in changes
    assert changes.index("## [Unreleased]") < changes.index(f"## [{cited}]")
