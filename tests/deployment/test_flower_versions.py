"""The supported versions of Flower are written in one place and agree everywhere."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from fedldp.deployment import flower_app

ROOT = Path(__file__).parents[2]


def minor(text: str) -> tuple[int, int]:
    first, second = text.split(".")[:2]
    return int(first), int(second)


def test_the_installed_version_was_tested(tmp_path: Path) -> None:
    oldest, newest = map(minor, flower_app.TESTED)
    assert f"flwr>={flower_app.TESTED[0]},<{newest[0]}.{newest[1] + 1}" == flower_app.REQUIREMENT
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"]["flower"] == [flower_app.REQUIREMENT]
    flower_app.write(tmp_path / "app")
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert app["project"]["dependencies"] == [flower_app.REQUIREMENT]
    pinned = re.search(r"^flwr==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert minor(pinned[1]) == newest
    try:
        assert oldest <= minor(version("flwr")) <= newest
    except PackageNotFoundError:
        pytest.skip("the flower extra is not installed")


def test_the_guide_installs_the_supported_versions_and_names_no_other() -> None:
    pages = [ROOT / "docs" / f"flower{each}.md" for each in ("", "_machines")]
    text = "".join(page.read_text() for page in pages)
    assert set(re.findall(r'"(flwr[^"]*)"', text)) == {flower_app.REQUIREMENT}
    named = set(re.findall(r"Flower (\d+\.\d+(?: and \d+\.\d+)?)", text))
    assert named == {" and ".join(flower_app.TESTED)}
