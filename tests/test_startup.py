"""What a user waits for: no command imports what only training needs, and help next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("name", ["models", "data", "randomness", "registry", "wire", "mechanisms"])
def test_importing_a_part_does_not_import_what_training_needs(name: str) -> None:
    assert loaded_by(f"import fedldp.{name}") & TRAINING == set()


def test_importing_the_package_imports_nothing_else() -> None:
    assert (
        loaded_by("import fedldp; fedldp.FedldpError, dir(fedldp)") & (TRAINING | NUMBERS) == set()
    )
    assert "torch" in loaded_by("import fedldp; fedldp.Result")  # the test can see it


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("run", "--help"), ("account", "--help"), ("list", "--help"), ("data", "--help"),
     ("ledger", "show", "--help")],
    ids=" ".join,
)  # fmt: skip
def test_help_imports_nothing_that_computes(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments)) & (TRAINING | NUMBERS) == set()


@pytest.mark.parametrize(
    "arguments", [("data", "list"), ("list", "models"), ("list", "mechanisms")], ids=" ".join
)
def test_lists_import_nothing_that_trains(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments, "--json")) & TRAINING == set()


@pytest.mark.parametrize(
    "arguments",
    [("account", "quickstart", "--json"), ("run", "--print-config"), ("list", "--json")],
    ids=" ".join,
)
def test_what_trains_nothing_imports_nothing_for_training(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments)) & TRAINING == set()
