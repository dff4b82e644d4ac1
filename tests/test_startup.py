"""Commands import no more than they need: only training loads torch, and the list of commands next
to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedldp
from fedldp.simulation.plan import plan, problem_of

TRAINING = {"torch", "sklearn", "matplotlib", "httpx", "jinja2", "safetensors"}
NUMBERS = {"numpy", "scipy", "cryptography"}  # typer itself imports pydantic


def command(*arguments: str) -> str:
    """Return a program that runs a command as the installed script does."""
    return f"""{COMMAND}
command(*{arguments})"""


LIGHT = ("accounting", "algorithms", "core", "ledgers", "mechanisms", "protocol")
"""The rooms with which clients and servers answer, and statements are made."""

LIGHT_IN_PAPERS = (
    "preset*", "parts", "mechanism*", "numerics", "encoding", "architecture", "bits", "importance",
)  # fmt: skip


def roles() -> list[str]:
    """Return the modules that do without torch: only training needs it."""
    source = Path(fedldp.__file__).parent
    paths = [path for room in LIGHT for path in source.glob(f"{room}/**/*.py")]
    paths += [path for name in LIGHT_IN_PAPERS for path in source.glob(f"papers/*/{name}.py")]
    names = [".".join(path.relative_to(source).with_suffix("").parts) for path in sorted(paths)]
    return [
        *(name.removesuffix(".__init__") for name in names),
        *(f"simulation.{name}" for name in ("plan", "participation", "settings")),
    ]


PARTS = ["models", "data", "core.randomness", "core.registry", "protocol.wire", "mechanisms"]
HELP = ["run", "sweep", "compare", "account", "list", "data", "audit", "ledger show", "reproduce"]
LISTS = ["list", "list datasets", "list models", "list mechanisms", "show quickstart"]
NO_TRAINING = [
    "account quickstart --json", "run --print-config", "list --json", "reproduce ldp-fl-table1"
]  # fmt: skip
SMALL = TRAINING | {"scipy"}

STEPS: list[tuple[str, set[str]]] = [
    ("import fedldp; fedldp.FedldpError, dir(fedldp)", TRAINING | NUMBERS),
    ("command('--help')", TRAINING | NUMBERS),
    *((f"import fedldp.{name}", SMALL) for name in PARTS),
    *((f"command(*{words.split()})", SMALL) for words in LISTS),
    *((f"command(*{[*words.split(), '--help']})", TRAINING) for words in HELP),
    *((f"command(*{words.split()})", TRAINING) for words in NO_TRAINING),
    ("repr(fedldp.account('quickstart'))", {"torch"}),
    *((f"import fedldp.{name}", {"torch"}) for name in roles()),
    ("command('run', '--set', 'rounds=1')", {"sklearn"}),  # on data that are built in
]
"""The steps of one process, and what is absent after each."""

COMMAND = """
def command(*arguments):
    from fedldp.cli import main
    sys.argv = ["fedldp", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
"""


@pytest.mark.slow
def test_nothing_is_imported_before_it_is_needed(tmp_path: Path) -> None:
    """In a fresh process, after each step; the last one, a run, needs torch."""
    lines = ["import json, sys", COMMAND]
    for step, _ in STEPS:
        lines.append(step)
        lines.append("names = sorted({name.partition('.')[0] for name in sys.modules})")
        lines.append("print('@', json.dumps(names), file=sys.stderr)")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    told = [line[1:] for line in done.stderr.splitlines() if line.startswith("@")]
    loaded = list(map(set, map(json.loads, told)))
    wrong = {
        step: names & absent
        for (step, absent), names in zip(STEPS, loaded, strict=True)
        if names & absent
    }
    assert wrong == {}
    assert "torch" in loaded[-1]


@pytest.mark.slow
def test_a_run_shows_its_plan_before_it_imports_what_trains(tmp_path: Path) -> None:
    """Even without torch, a run shows its plan."""
    program = f"""import sys
class Absent:
    def find_spec(name, path, target=None):
        if name in ("torch", "sklearn"):
            raise ImportError(name + " is absent")
sys.meta_path.insert(0, Absent)
{command("run", "--out", str(tmp_path / "run"))}"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, second, *_ = done.stderr.splitlines()
    assert first == "run        quickstart: ldp_fl on digits, 100 clients, 15 rounds, seed 0"
    assert second.startswith("claim      epsilon 1 per weight")
    assert "torch is absent" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
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


@pytest.mark.slow
def test_threads_may_ask_first_together() -> None:
    """While one thread imports a module, no other thread reads or keeps it half-imported."""
    program = """import threading, fedldp
gate, found = threading.Barrier(4), []
def ask():
    gate.wait()
    found.append(fedldp.account("quickstart").claim.epsilon)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(found)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[1.0, 1.0, 1.0, 1.0]\n", "")
