"""What a user waits for: no command imports what only training needs, and help next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedldp
from fedldp.simulation.plan import plan, problem_of

TRAINING = {"torch", "sklearn", "matplotlib", "httpx", "jinja2", "safetensors"}
NUMBERS = {"numpy", "scipy", "cryptography"}  # typer itself imports pydantic


def loaded_by(program: str) -> set[str]:
    """Return the packages that a fresh process has loaded at the end of a program."""
    ending = "import sys; print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{ending}"], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def command(*arguments: str) -> str:
    """Return a program that is a command of the command line, as its script runs it."""
    return f"""import sys
from fedldp.cli import main
sys.argv = ["fedldp", *{arguments}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["models", "data", "core.randomness", "core.registry", "wire", "mechanisms"]
)
def test_importing_a_part_does_not_import_what_training_needs(name: str) -> None:
    assert loaded_by(f"import fedldp.{name}") & TRAINING == set()


def test_importing_the_package_imports_nothing_else() -> None:
    assert (
        loaded_by("import fedldp; fedldp.FedldpError, dir(fedldp)") & (TRAINING | NUMBERS) == set()
    )
    assert "torch" in loaded_by("import fedldp; fedldp.Result")  # the test can see it


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",), ("run", "--help"), ("sweep", "--help"),
        *(
            pytest.param((*words, "--help"), marks=pytest.mark.slow)
            for words in (
                ["account"], ["list"], ["data"], ["audit"], ["ledger", "show"], ["reproduce"]
            )
        ),
    ],
    ids=" ".join,
)  # fmt: skip
def test_help_imports_nothing_that_computes(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments)) & (TRAINING | NUMBERS) == set()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "arguments", [("data", "list"), ("list", "models"), ("list", "mechanisms")], ids=" ".join
)
def test_lists_import_nothing_that_trains(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments, "--json")) & TRAINING == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("account", "quickstart", "--json"),
        *(
            pytest.param(arguments, marks=pytest.mark.slow)
            for arguments in (
                ("run", "--print-config"),
                ("list", "--json"),
                ("reproduce", "ldp-fl-table1"),
            )
        ),
    ],
    ids=" ".join,
)
def test_what_trains_nothing_imports_nothing_for_training(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments)) & TRAINING == set()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_a_run_shows_its_plan_before_it_imports_what_trains(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Without torch, a run gets as far as that."""
    program = f"""import sys
class Absent:
    def find_spec(name, path, target=None):
        if name in ("torch", "sklearn"):
            raise ImportError(name + " is absent")
sys.meta_path.insert(0, Absent)
{command("run", "--out", str(tmp_path / "run"), *more)}"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, second, *_ = done.stderr.splitlines()
    assert first == "run        quickstart: ldp_fl on digits, 100 clients, 15 rounds, seed 0"
    assert second.startswith("claim      epsilon 1 per weight")
    assert "torch is absent" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("recipe", "settings", "small"),
    [
        ("quickstart", {}, True),
        ("ldp-fl-mnist", {}, False),
        ("ldp-fl-mnist", {"model": "logistic", "local_epochs": 1}, False),
        ("ldp-fl-mnist", {"model": "logistic", "local_epochs": 1, "rounds": 1}, True),
    ],
)
def test_a_small_run_starts_no_other_process(
    recipe: str, settings: dict[str, Any], small: bool
) -> None:
    config = fedldp.recipe(recipe, **settings)
    assert plan(config, problem_of(config, None)).is_small == small
