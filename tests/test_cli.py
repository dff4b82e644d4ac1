"""The command line as a user types it: its JSON, its files, its lists; mistakes are rows of
tests/refusals."""

from __future__ import annotations

import inspect
import re
import subprocess
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from documents import SHORT, check_run, check_statement, document, run_folders

import fedldp
from fedldp.algorithms.recipes import recipes
from fedldp.algorithms.systems import systems
from fedldp.cli import Later, app, list_
from fedldp.cli import run as cli_run
from fedldp.cli.options import _TOGETHER as TOGETHER
from fedldp.cli.options import described, parameters
from fedldp.core.errors import DataMissing, RunError
from fedldp.core.kinds import FEWER_THAN_PLANNED
from fedldp.core.registry import modules
from fedldp.data import folder as data_folder
from fedldp.data.download import fetch
from fedldp.data.sources import SOURCES
from fedldp.mechanisms import mechanisms
from fedldp.reporting import words
from fedldp.simulation import engine
from fedldp.simulation.settings import read_toml, resolve, to_toml

SCRIPT = Path(sysconfig.get_path("scripts")) / "fedldp"


pytestmark = pytest.mark.usefixtures("folder_of_its_own")


def test_the_json_of_a_run_keeps_to_the_contract(fedldp_command: Any, tmp_path: Path) -> None:
    outcome = fedldp_command("run", *SHORT, "--rounds", 2, "--seed", 7, "--json")
    assert outcome.status == 0
    found = document(outcome.out)
    check_run(found, 2)
    assert found["recipe"] == "quickstart"
    assert found["seed"] == found["config"]["seed"] == 7
    assert found["config"]["num_clients"] == 5
    assert found["system"] == found["config"]["system"]
    (folder,) = run_folders(tmp_path)
    assert (tmp_path / found["run_dir"]).resolve() == folder.resolve()
    assert document((folder / "summary.json").read_text()) == found
    assert document((folder / "privacy.json").read_text()) == found["privacy"]
    assert document((folder / "config.json").read_text())["config"] == found["config"]
    assert "torch" in document((folder / "environment.json").read_text())["packages"]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [document(line)["accuracy"] for line in lines] == [
        record["accuracy"] for record in found["rounds"]
    ]


@pytest.mark.slow
def test_the_installed_script_prints_one_document_and_nothing_else(tmp_path: Path) -> None:
    # The default recipe in a fresh process, with the default number of workers.
    done = subprocess.run(
        [SCRIPT, "run", "--rounds", "2", "--set", "num_clients=5", "--json", "--out", "here"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check_run(document(done.stdout), 2)
    assert "round 2/2" in done.stderr
    assert "Warning" not in done.stderr
    assert "Traceback" not in done.stderr


def test_without_json_a_run_prints_a_table_and_the_statement(fedldp_command: Any) -> None:
    outcome = fedldp_command("run", *SHORT, "--out", "here")
    assert outcome.status == 0
    assert "accuracy" in outcome.out
    assert "epsilon 1 per weight" in outcome.out
    assert "here" in outcome.out
    assert "protects nothing" in outcome.out
    assert "round 1/1" in outcome.err
    assert (Path("here") / "report.html").read_text().startswith("<!")


def test_resuming_prints_the_same_document(fedldp_command: Any) -> None:
    first = fedldp_command("run", *SHORT, "--rounds", 2, "--out", "here", "--json")
    again = fedldp_command("run", "--resume", "here", "--workers", 1, "--json")
    assert again.status == 0
    assert document(again.out) == document(first.out)


# Configurations


def test_a_printed_configuration_is_a_recipe(fedldp_command: Any) -> None:
    printed = fedldp_command("run", "quickstart", "--print-config")
    assert (printed.status, printed.err) == (0, "")
    Path("again.toml").write_text(printed.out)
    assert read_toml(Path("again.toml")) == recipes()["quickstart"].config
    found = document(fedldp_command("run", "--print-config", "--json").out)
    assert found == recipes()["quickstart"].config.model_dump(mode="json")
    assert fedldp_command("run", "again.toml", "--print-config") == printed
    assert run_folders(Path()) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": [1.0, 2.0, 0.25], "num_clients": 3, "range_radius": [0.1, 0.2]},
        {"dataset": 'a "quoted" \\ path\n.csv', "label_column": "größe"},
        {"learning_rate": 1e-7, "seed": 2**40, "clients_per_round": 1, "epsilon": 1 / 3},
        {"model": "mine:build", "partition": "dirichlet:1e-9", "channel": "shuffle", "chunk": 650},
    ],
)
def test_toml_keeps_every_setting(settings: dict[str, Any]) -> None:
    config = fedldp.recipe("quickstart", **settings)
    Path("it.toml").write_text(to_toml(config), encoding="utf-8")
    assert resolve("it.toml") == config
    assert resolve("it.toml", ["rounds=3"]) == config.changed(rounds=3)


def test_set_reads_values_as_toml_or_text(fedldp_command: Any) -> None:
    printed = fedldp_command(
        "run", "--set", "num_clients = 2", "--set", "epsilon=[0.5, 4]", "--set", "channel=named",
        "--set", "model=mlp", "--set", 'partition="shards:2"', "--set", "seed=3", "--seed", 4,
        "--rounds", 9, "--print-config",
    )  # fmt: skip
    assert printed.status == 0
    Path("it.toml").write_text(printed.out)
    found = read_toml(Path("it.toml")).model_dump()
    expected = {"num_clients": 2, "epsilon": [0.5, 4.0], "channel": "named", "model": "mlp",
                "partition": "shards:2", "seed": 4, "rounds": 9}  # fmt: skip
    assert {key: found[key] for key in expected} == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(fedldp_command: Any) -> None:
    assert "cuda" in fedldp_command("run", *SHORT, "--device", "cuda").assert_refused()


def test_what_is_no_toml_file_is_refused_in_one_line(fedldp_command: Any) -> None:
    Path("it.toml").write_bytes(b"\xff\xfe\x00")
    fedldp_command("run", "it.toml").assert_refused()
    Path("folder.toml").mkdir()
    fedldp_command("run", "folder.toml").assert_refused()


@pytest.mark.parametrize("delta", ["0", "1e-300"])
def test_delta_may_be_at_its_limits(fedldp_command: Any, delta: str) -> None:
    outcome = fedldp_command("account", "nbafl-digits", "--delta", delta, "--json")
    check_statement(document(outcome.out))


# Lists


@pytest.mark.parametrize("kind", ["recipes", "systems", "mechanisms", "datasets", "models"])
def test_lists_are_named_and_described(fedldp_command: Any, kind: str) -> None:
    outcome = fedldp_command("list", kind, "--json")
    assert (outcome.status, outcome.err) == (0, "")
    rows = document(outcome.out)
    assert rows
    for row in rows:
        assert row["name"]
        assert row["description"].strip()
        assert len(row["description"].splitlines()) == 1
    assert len({row["name"] for row in rows}) == len(rows)
    everything = document(fedldp_command("list", "--json").out)
    assert everything[kind] == rows
    printed = fedldp_command("list", kind).out.replace("\n", "")
    for row in rows:
        assert row["name"] in printed


def test_the_help_of_list_names_every_kind() -> None:
    assert described(list_.list_)["kind"] == ("", f"one of: {', '.join(list_._KINDS)}")


def test_lists_are_complete(fedldp_command: Any) -> None:
    found = document(fedldp_command("list", "--json").out)
    names = {kind: {row["name"] for row in rows} for kind, rows in found.items()}
    assert {"cnn", "mlp", "logistic", "vgg"} <= names.pop("models")
    assert names == {
        "recipes": set(recipes()),
        "systems": set(systems()),
        "mechanisms": set(mechanisms()),
        "datasets": set(SOURCES),
    }
    assert {row["name"] for row in found["datasets"] if row["present"]} == {"digits"}


# Help and tables


@pytest.mark.parametrize("group", [(), ("data",), ("ledger",), ("deploy",)])
def test_help_cuts_no_sentence(
    fedldp_command: Any, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = fedldp_command(*group, "--help").out
    assert "..." not in told.partition("Commands:")[2]
    assert max(map(len, told.splitlines())) <= 80


def test_help_says_what_every_argument_and_option_is() -> None:
    def check(command: Any) -> None:
        for each in getattr(command, "commands", {}).values():
            check(each.load() if isinstance(each, Later) else each)
        assert [each.name for each in command.params if not (each.help or each.hidden)] == []
        known = {"other settings", *(name for each in command.params for name in each.opts)}
        for each in command.params:
            for _, names in TOGETHER.findall(each.help or ""):
                assert known >= {name.lower() if name.isupper() else name
                                 for name in names.split(", ")}, each.name  # fmt: skip

    check(typer.main.get_command(app))
    for module in modules("fedldp.cli"):
        for each in filter(inspect.isfunction, vars(module).values()):
            if told := described(each):
                assert told.keys() <= {one.name for one in parameters(each, {})}, each


@pytest.mark.parametrize(
    "command",
    [("account",), ("account", "ldpfl-digits"), ("show", "quickstart"), ("run", *SHORT),
     ("list", "recipes"), ("list", "systems")],
)  # fmt: skip
def test_what_goes_into_a_pipe_is_not_broken_into_lines(
    fedldp_command: Any, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing depends on the width of a terminal, and a cell's text is not cut."""
    told = []
    for columns in ("40", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        more = ("--out", str(tmp_path / columns)) if command[0] == "run" else ()
        printed = fedldp_command(*command, *more).out.replace(str(tmp_path / columns), "FOLDER")
        told.append(re.sub(r"\d", "#", printed))  # a run's seconds differ
    assert told[0] == told[1] != ""


def test_a_list_of_no_kind_is_a_summary(fedldp_command: Any) -> None:
    told = fedldp_command("list").out
    everything = document(fedldp_command("list", "--json").out)
    assert len(told.splitlines()) < 50
    for kind, rows in everything.items():
        assert re.search(rf"^{kind} +{len(rows)}: fedldp list {kind} ", told, re.M)
        assert all(row["name"] in told for row in rows if kind != "recipes")
    assert all(f"│ {row['system']} " in told for row in everything["recipes"])


# As newcomers typed them in a trial

DEEP = "[" * 100_000


def test_a_text_with_commas_is_a_text(fedldp_command: Any) -> None:
    given = ("--set", "dataset=a,b.csv", "--set", 'label_column="1,2"')
    assert fedldp_command("run", *given, "--print-config").status == 0


def test_deeply_nested_and_very_long_values_are_refused_in_one_line(fedldp_command: Any) -> None:
    for given, says in (
        (f"epsilon={DEEP}", "set epsilon: its value is nested too deeply"),
        (f"epsilon={'[' * 300}{']' * 300}", "give a number"),
        (f"seed={'9' * 5000}", "or has thousands of digits"),
        (f"seed=0x{'f' * 5000}", "seed = "),
    ):
        line = fedldp_command("run", "--set", given).assert_refused()
        assert says in line
        assert len(line) < 600
    for text in (f"x = {DEEP}", f"x = {'9' * 5000}"):
        Path("it.toml").write_text(text)
        assert "recipe it.toml: " in fedldp_command("run", "it.toml").assert_refused()
    Path("here").mkdir()
    Path("here/config.json").write_text(DEEP)
    assert "is damaged" in fedldp_command("run", "--resume", "here").assert_refused()


# Help


def test_shells_can_complete(fedldp_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--install-completion" in fedldp_command("--help").out
    monkeypatch.setenv("_FEDLDP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fedldp acc")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert fedldp_command().out.split() == ["account"]
    monkeypatch.setenv("COMP_WORDS", "fedldp run quick")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert fedldp_command().out.split() == ["quickstart"]


# Before training


def test_no_more_workers_than_cores(fedldp_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    outcome = fedldp_command("run", *SHORT, "--workers", 100_000, "--json")
    assert outcome.status == 0
    assert outcome.err.startswith("workers    1 instead of 100,000: this machine has no more cores")
    assert "in place of" not in fedldp_command("run", *SHORT, "--workers", 1).err


def test_the_remedy_for_missing_data_names_the_folder(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = fedldp_command("run", "fedavg-mnist", "--data-dir", "my data").assert_refused()
    assert line.endswith("with: fedldp data fetch mnist --data-dir 'my data'")
    monkeypatch.setenv("FEDLDP_DATA", "my data")
    line = fedldp_command("run", "fedavg-mnist").assert_refused()
    assert line.endswith("with: fedldp data fetch mnist")


# What is left behind


def test_a_failed_fetch_leaves_no_folder_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def offline(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("offline")

    client = httpx.Client(transport=httpx.MockTransport(offline))
    monkeypatch.setattr(httpx, "Client", lambda **how: client)
    with pytest.raises(DataMissing):
        fetch("mnist", Path("a/b"))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("part", ["Population", "_pool", "Loop"])
def test_a_failed_run_leaves_no_folder_behind(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunError("it was not to be")

    monkeypatch.setattr(engine, part, fail)
    assert fedldp_command("run", *SHORT).err.endswith("error: it was not to be\n")
    assert list(Path().iterdir()) == []
    Path("out").mkdir()
    assert fedldp_command("run", *SHORT, "--out", "out/a/b").status == 2
    assert list(Path().rglob("*")) == [Path("out")]


def test_verifying_an_incomplete_data_set_fails(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mnist = SOURCES["mnist"]
    where = tmp_path / mnist.folder
    where.mkdir()
    first, second, *others = (where / file.name for file in mnist.files)
    there = {first}
    monkeypatch.setattr(
        data_folder, "checksum_status", lambda path, _: "ok" if path in there else "missing"
    )
    outcome = fedldp_command("data", "verify", "--data-dir", tmp_path)
    assert outcome.status == 2
    assert f"{second} is missing: fetch it with `fedldp data fetch NAME`" in outcome.err
    there |= {second, *others}
    assert fedldp_command("data", "verify", "--data-dir", tmp_path).status == 0


# What is shown


@pytest.mark.parametrize("same_place", [True, False])
def test_a_statement_is_shown_once_unless_another_one_holds(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, same_place: bool
) -> None:
    monkeypatch.setattr(cli_run, "one_place", lambda: same_place)
    outcome = fedldp_command("run", *SHORT)
    assert "client-run" in outcome.err
    assert ("client-run" in outcome.out) != same_place
    assert ("privacy    as stated above\n" in outcome.out) == same_place
    assert ("uplink bits per" in outcome.out) != same_place  # its rounds were shown line by line
    assert outcome.out.count("\nsetting    epsilon 1 per weight against a server") == 1
    shown = engine.Displayed.of
    fewer = SimpleNamespace(of=lambda holds: shown(holds.warning(FEWER_THAN_PLANNED)))
    monkeypatch.setattr(engine, "Displayed", fewer)
    assert words.line(FEWER_THAN_PLANNED) in " ".join(fedldp_command("run", *SHORT).out.split())
