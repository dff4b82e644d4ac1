"""The sdist has the whole repository and nothing else, and the wheel runs elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed"),
]

LITTER = (
    "build/src", "dist/docs", "docs/.ipynb_checkpoints", "env/lib/torch/tests",
    "runs/quickstart/docs", "site/docs", "src/fedldp/__pycache__", "tests/.hypothesis",
)  # fmt: skip


def call(*command: object, folder: Path, first: Path | None = None) -> str:
    """Run a command in a folder and return its output; Python looks in ``first`` first."""
    places = [*([] if first is None else [str(first)]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(source: Path, kind: str, into: Path) -> Path:
    """Build a wheel or an sdist with the backend itself, without a network or another
    environment."""
    call(sys.executable, "-m", "hatchling", "build", "-d", into, "-t", kind, folder=source)
    (built,) = into.iterdir()
    return built


def names_in(sdist: Path) -> set[str]:
    """Return the files of an sdist, without the name of its top folder."""
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked sdist, with stray files added that belong in neither archive."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    for place in LITTER:
        (tree / place).mkdir(parents=True)
        (tree / place / "litter.txt").touch()
    return tree


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(unpacked, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with nothing but fedldp installed; its dependencies come from this
    environment."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    call(*pip, "--target", folder, wheel, folder=folder)
    return folder


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no clone: what is tracked is not known")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_sdist_has_every_file_of_the_repository(sdist: Path) -> None:
    tracked = {
        name
        for name in call("git", "ls-files", "-z", folder=ROOT).split("\0")
        if name and (ROOT / name).exists()
    }
    assert tracked - names_in(sdist) == set()


def test_the_sdist_has_no_other_file(sdist: Path, unpacked: Path, tmp_path: Path) -> None:
    again = build(unpacked, "sdist", tmp_path)
    assert names_in(again) == names_in(sdist)


def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "src" / "fedldp"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def test_the_wheel_runs_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    def fedldp(*arguments: str) -> str:
        return call(installed / "bin" / "fedldp", *arguments, folder=tmp_path, first=installed)

    where = (sys.executable, "-c", "import fedldp; print(fedldp.__file__)")
    found = Path(call(*where, folder=tmp_path, first=installed))
    assert found.is_relative_to(installed)
    assert fedldp("--version").startswith("fedldp ")
    assert json.loads(fedldp("account", "--json"))["claim"]["epsilon"] == 1
    # Each of these commands reads a file of the package that is not a module.
    assert any(row["measured"] for row in json.loads(fedldp("reproduce", "--json"))["targets"])
    fedldp("run", "--rounds", "1", "--out", "run")
    assert "quickstart" in (tmp_path / "run" / "report.html").read_text()
