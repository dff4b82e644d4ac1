"""The repository's other files agree with each other: workflows, templates, labels and versions."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from benchmarks import tracked

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(set((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")))
ROOMS = sorted(path.parent.name for path in (ROOT / "src" / "fedldp").glob("*/__init__.py"))
LABELS = {"stable", "settling", "inside"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.stem}/{name}", job)
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
    ]


def runs(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def supported() -> list[str]:
    return [
        line.removeprefix("Programming Language :: Python :: ")
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]


def test_every_job_of_a_workflow_is_complete() -> None:
    assert {path.stem for path in WORKFLOWS} == {"tests", "weekly"}
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {"contents": "read"}
    for name, job in jobs():
        assert 0 < job["timeout-minutes"] <= 360, name
        assert job["steps"][0]["uses"].startswith("actions/checkout@"), name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), name


def test_workflows_test_the_versions_that_are_supported() -> None:
    matrix = read(WORKFLOWS[0])["jobs"]["default"]["strategy"]["matrix"]
    assert matrix["python"] == supported()
    assert {system.split("-")[0] for system in matrix["system"]} == {"ubuntu", "macos"}
    assert Version(supported()[0]) in SpecifierSet(PROJECT["requires-python"])
    assert Version("3.10") not in SpecifierSet(PROJECT["requires-python"])


def test_files_that_workflows_name_exist() -> None:
    for name, job in jobs():
        for constraints in re.findall(r"-c (\S+)", runs(job)):
            assert (ROOT / constraints).exists(), name
        for extras in re.findall(r"\.\[([\w,]+)\]", runs(job)):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), name
        for module in re.findall(r"python -m (benchmarks\.\w+)", runs(job)):
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), name
        for folder in re.findall(r" (tests/\w+)", runs(job)):
            assert (ROOT / folder).exists(), name


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


def test_the_lowest_versions_are_allowed_and_no_newer_than_the_tested_ones() -> None:
    lowest, tested = constraints("constraints-lowest.txt"), constraints("constraints.txt")
    needed = directly_needed(["fedldp[test]", *PROJECT["dependencies"]])
    assert {requirement.name for requirement in needed} == set(lowest)
    for requirement in needed:
        assert lowest[requirement.name] in requirement.specifier, requirement
        assert lowest[requirement.name] <= tested[requirement.name], requirement
        assert tested[requirement.name] in requirement.specifier, requirement


def test_every_issue_form_has_questions() -> None:
    assert {form.stem for form in FORMS} == {"bug", "config", "false_claim", "new_mechanism"}
    for form in FORMS:
        if form.stem == "config":
            continue
        document = read(form)
        assert document["name"]
        assert document["description"]
        asked = [field for field in document["body"] if field["type"] != "markdown"]
        names = [field["id"] for field in asked]
        assert len(names) == len(set(names)) > 0
        assert any(field.get("validations", {}).get("required") for field in asked)
        for field in asked:
            assert field["type"] in {"textarea", "input", "dropdown", "checkboxes"}
            assert field["attributes"]["label"]


def test_pre_commit_runs_what_check_runs() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    commands = {hook["entry"].removesuffix(" .") for hook in repository["hooks"]}
    checks = (ROOT / "check").read_text(encoding="utf-8").splitlines()[4:]
    assert {line.removesuffix(" .") for line in checks} <= commands
    for hook in repository["hooks"]:
        for named in re.findall(r"tests/\S+", hook["entry"]):
            assert (ROOT / named).exists()


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


def test_tracked_benchmarks_are_shown_next_to_earlier_ones() -> None:
    def line(date: str, figure: float) -> dict[str, Any]:
        return {"date": date, "commit": "c", "figures": {"f": figure}}

    shown = tracked.table([line("1", 2.0), line("2", 4.0), line("3", 3.0)])
    assert shown.splitlines()[2:] == [
        "| 1 | c | 2 |", "| 2 | c | 4 (2.00 times) |", "| 3 | c | 3 (1.00 times) |",
    ]  # fmt: skip
    kept = ROOT / "benchmarks" / "results" / "tracked.jsonl"
    lines = [json.loads(text) for text in kept.read_text(encoding="utf-8").splitlines()]
    assert len(lines[0]["figures"]) == 1 + len(tracked.COMMANDS)
    assert tracked.table(lines).count("\n") == 1 + len(lines)


def test_no_property_has_a_deadline() -> None:
    """It would fail on a busy machine, so the profile of ``conftest.py`` has none."""
    assert settings.default is not None
    assert settings.default.deadline is None
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("settings"):
                assert "deadline" not in {each.arg for each in node.keywords}, path
