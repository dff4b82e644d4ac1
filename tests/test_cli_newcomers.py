"""Commands exactly as newcomers typed them in a trial."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import SHORT, document
from rich.console import Console

import fedldp
from fedldp.cli import run as cli_run
from fedldp.core.errors import ConfigError, DataMissing, RunError
from fedldp.data.download import fetch
from fedldp.data.sources import SOURCES
from fedldp.protocol.server_loop import Round
from fedldp.reporting.progress import RunProgress, duration
from fedldp.reporting.record import check_replaceable
from fedldp.reporting.text import run_title
from fedldp.simulation import engine
from fedldp.simulation.evaluating import predict


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLDP_DATA", raising=False)


DEEP = "[" * 100_000

SETTINGS = {
    "epsilom=1": "epsilom is not a setting of ldp_fl; did you mean epsilon? `fedldp show ldp_fl`",
    "a.b.c=1": "a is not a setting of ldp_fl",
    "local_update=solution": "local_update is not a setting of ldp_fl; only system = "
    "composed has closed forms: set it, or leave local_update out",
    "epsilon.x=1": "epsilon = {'x': 1}: give a number",
    ".epsilon=1": "set .epsilon=1: write it as KEY=VALUE",
    "target.unit.x=1": "target.unit = {'x': 1}: choose weight, record, person, client-round or cl",
    "target=1": "target = 1: this is a table of settings: give target.unit, target.epsilon",
    f"epsilon={DEEP}": "set epsilon: its value is nested too deeply",
    f"epsilon={'[' * 300}{']' * 300}": "give a number",
    f"seed={'9' * 5000}": "set seed: it has thousands of digits",
    f"seed=0x{'f' * 5000}": "seed = ",
    "epsilon=1,2,4": "for one run per value: fedldp sweep --grid epsilon=1,2,4",
    "shuffle=true,false": "fedldp sweep --grid shuffle=true,false",
    "epsilon=a,b": "epsilon = a,b: give a number",
    "rounds=1.5": "rounds = 1.5: give a whole number",
    "shuffle=maybe": "shuffle = maybe: give true or false",
    "model=3": "model = 3: give a text",
    "ranges=private": "ranges = private: choose fixed or adaptive",
    "system=fedavg": "system = fedavg: this recipe is for ldp_fl, .* with system = fedavg",
}


@pytest.mark.parametrize("given", SETTINGS, ids=[given[:20] for given in SETTINGS])
def test_an_impossible_setting_is_refused_in_our_words(fedldp_command: Any, given: str) -> None:
    line = fedldp_command("run", "--set", given).assert_refused()
    assert re.search(
        SETTINGS[given] if ".*" in SETTINGS[given] else re.escape(SETTINGS[given]), line
    )
    assert len(line) < 600
    assert list(Path().iterdir()) == []


def test_a_setting_is_a_value_or_a_table(fedldp_command: Any) -> None:
    given = ("--set", "target=1", "--set", "target.unit=weight")
    line = fedldp_command("account", *given).assert_refused()
    assert "set either target or target.unit" in line


def test_a_text_with_commas_is_a_text(fedldp_command: Any) -> None:
    given = ("--set", "dataset=a,b.csv", "--set", 'label_column="1,2"')
    assert fedldp_command("run", *given, "--print-config").status == 0


@pytest.mark.parametrize("text", [f"x = {DEEP}", f"x = {'9' * 5000}"], ids=["deep", "long"])
def test_a_deeply_nested_toml_file_is_refused_in_one_line(fedldp_command: Any, text: str) -> None:
    Path("it.toml").write_text(text)
    assert "recipe it.toml: " in fedldp_command("run", "it.toml").assert_refused()


def test_a_deeply_nested_run_folder_is_refused_in_one_line(fedldp_command: Any) -> None:
    Path("here").mkdir()
    Path("here/config.json").write_text(DEEP)
    assert "is damaged" in fedldp_command("run", "--resume", "here").assert_refused()


RECIPES = {
    "": "recipe '' is empty: give a recipe's name",
    " ": "recipe ' ' is empty",
    "mine.json": "recipe mine.json: the name of a settings file must end in .toml",
    "here": "recipe here: this is the folder of a run; continue the run with --resume here",
    "missing.toml": "recipe missing.toml: No such file",
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("command", ["run", "account"])
def test_a_name_that_is_not_a_recipe_is_reported_as_such(
    fedldp_command: Any, command: str, recipe: str
) -> None:
    Path("mine.json").write_text("{}")
    Path("here").mkdir()
    Path("here/config.json").write_text("{}")
    assert RECIPES[recipe] in fedldp_command(command, recipe).assert_refused()


@pytest.mark.parametrize("option", ["--out", "--resume", "--data-dir"])
def test_an_empty_folder_name_is_refused(fedldp_command: Any, option: str) -> None:
    assert "folder ''" in fedldp_command("run", option, "").assert_refused()
    assert list(Path().iterdir()) == []


# Help


@pytest.mark.parametrize("words", [(), ("run",), ("data",), ("data", "fetch")])
def test_help_has_a_short_option(fedldp_command: Any, words: tuple[str, ...]) -> None:
    short, long = (fedldp_command(*words, option) for option in ("-h", "--help"))
    assert short.status == 0
    assert short == long


def test_the_version_is_printed(fedldp_command: Any) -> None:
    assert fedldp_command("--version").out == f"fedldp {fedldp.__version__}\n"


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


def test_a_missing_extra_is_found_before_training(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "opacus" else find(name)
    )
    for more in ((), ("--device", "auto", "--workers", 2)):
        line = fedldp_command("run", "dp-sgd-digits", *more).assert_refused()
        assert "system dp_sgd needs opacus" in line
        assert "pip install 'fedldp[baselines]'" in line
    assert list(Path().iterdir()) == []
    assert fedldp_command("account", "dp-sgd-digits", "--json").status == 0  # it trains nothing
    rows = document(fedldp_command("list", "recipes", "--json").out)
    marked = {row["name"] for row in rows if "needs fedldp[baselines]" in row["description"]}
    assert marked == {row["name"] for row in rows if row["system"] == "dp_sgd"}


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

    with httpx.Client(transport=httpx.MockTransport(offline)) as client:
        with pytest.raises(DataMissing):
            fetch("mnist", Path("a/b"), client=client)
        assert list(Path().iterdir()) == []
        Path("a").mkdir()
        with pytest.raises(DataMissing):
            fetch("mnist", Path("a/b"), client=client)
    assert list(Path().rglob("*")) == [Path("a")]


@pytest.mark.parametrize("part", ["Population", "_executor", "_rounds"])
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


def test_verifying_a_folder_without_data_fails(fedldp_command: Any, tmp_path: Path) -> None:
    for words in ((), ("mnist",)):
        outcome = fedldp_command("data", "verify", *words, "--data-dir", tmp_path)
        assert outcome.status == 2
        assert outcome.err.startswith("error: no file of ")
        assert str(tmp_path) in outcome.err
    mnist = SOURCES["mnist"]
    place = tmp_path / mnist.folder
    place.mkdir()
    (place / mnist.files[0].name).write_bytes(b"")
    outcome = fedldp_command("data", "verify", "--data-dir", tmp_path)
    assert (outcome.status, "damaged" in outcome.err) == (2, True)


def test_verifying_an_incomplete_data_set_fails(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedldp.data import folder

    mnist = SOURCES["mnist"]
    (tmp_path / mnist.folder).mkdir()
    first = tmp_path / mnist.folder / mnist.files[0].name
    monkeypatch.setattr(
        folder, "checksum_status", lambda path, _: "ok" if path == first else "missing"
    )
    outcome = fedldp_command("data", "verify", "--data-dir", tmp_path)
    assert outcome.status == 2
    assert f"{mnist.files[1].name} is missing from {first.parent}" in outcome.err
    whole = {tmp_path / mnist.folder / file.name for file in mnist.files}
    monkeypatch.setattr(
        folder, "checksum_status", lambda path, _: "ok" if path in whole else "missing"
    )
    assert fedldp_command("data", "verify", "--data-dir", tmp_path).status == 0
    assert fedldp_command("data", "verify", "mnist", "--data-dir", tmp_path).status == 0


# What is shown


def record(number: int, seconds: float) -> Round:
    return Round(
        round=number, clients=5, accuracy=0.5, loss=1.0, uplink_bits_per_client=8.0,
        seconds=seconds,
    )  # fmt: skip


def test_the_time_left_is_estimated_without_the_first_round() -> None:
    text = io.StringIO()
    with RunProgress(4, Console(file=text, width=200)) as progress:
        for number, seconds in ((1, 60.0), (2, 2.0), (3, 4.0), (4, 3.0)):
            progress.show(record(number, seconds))
    first, second, third, last = text.getvalue().splitlines()
    assert first.endswith("estimating the time left")
    assert second.endswith("about 4 s left")
    assert third.endswith("about 3 s left")
    assert last.endswith("done")


def test_times_are_printed_for_people() -> None:
    given = (0.4, 99, 100, 59 * 60, 2 * 3600 + 300)
    assert [duration(t) for t in given] == ["0 s", "99 s", "2 min", "59 min", "2 h 5 min"]


@pytest.mark.parametrize("same_place", [True, False])
def test_a_statement_is_shown_once(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, same_place: bool
) -> None:
    monkeypatch.setattr(cli_run, "_one_place", lambda: same_place)
    outcome = fedldp_command("run", *SHORT)
    assert "client-run" in outcome.err
    assert ("client-run" in outcome.out) != same_place
    assert ("privacy    as stated above: epsilon 1 per weight" in outcome.out) == same_place


def test_another_statement_after_the_run_is_shown(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    what_holds = engine._what_holds

    def otherwise(*given: Any) -> dict[str, Any]:
        found = what_holds(*given)
        return {**found, "warnings": [*found["warnings"], engine.REFUSED]}

    monkeypatch.setattr(cli_run, "_one_place", lambda: True)
    monkeypatch.setattr(engine, "_what_holds", otherwise)
    outcome = fedldp_command("run", *SHORT)
    assert "client-run" in outcome.out
    assert "clients refused" in outcome.out


def test_one_place_is_distinguished_from_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with one.open("w") as a, one.open("a") as again, other.open("w") as b:
        for out, err, same in ((a, again, True), (a, b, False), (a, io.StringIO(), False)):
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", err)
            assert cli_run._one_place() is same


def test_a_report_on_own_data_is_titled_by_the_data() -> None:
    features = [[0.0], [0.1], [0.9], [1.0]] * 5
    labels = [0, 0, 1, 1] * 5
    fedldp.run("quickstart", dataset=(features, labels), rounds=1, num_clients=2, out="own")
    assert run_title("quickstart", {"dataset": "mine.csv"}) == "quickstart on mine.csv"
    assert run_title(None, {"dataset": "digits", "system": "fedavg"}) == "fedavg on digits"
    assert "<h1>quickstart on custom</h1>" in Path("own/report.html").read_text()


def test_a_file_that_is_not_a_ledger_is_reported_as_such(fedldp_command: Any) -> None:
    Path("notes.txt").write_text("this is a text that is longer than the header of a database" * 9)
    line = fedldp_command("ledger", "show", "notes.txt").assert_refused()
    assert "notes.txt: this is not a ledger; check the path" in line


# The user's own files


def test_an_empty_path_is_refused(fedldp_command: Any, tmp_path: Path) -> None:
    for arguments in (
        ("sweep", "--out", ""),
        ("sweep", "--resume", ""),
        ("sweep", "--csv", ""),
        ("report", ""),
        ("report", str(tmp_path), "--out", ""),
        ("evaluate", ""),
        ("predict", "", "--data", "new.csv"),
        ("predict", str(tmp_path), "--data", ""),
        ("predict", str(tmp_path), "--data", "new.csv", "--out", ""),
        ("reproduce", "ldp-fl-fig3", "--svg", ""),
    ):
        outcome = fedldp_command(*arguments)
        assert outcome.status == 2, arguments
        assert re.fullmatch(r"error: (file|folder) '': give the path of .*\n", outcome.err)
    with pytest.raises(ConfigError, match="out = '': give the path of a folder"):
        fedldp.sweep("quickstart", out="")


def test_data_files_are_never_replaced(fedldp_command: Any, tmp_path: Path) -> None:
    data = tmp_path / "patients.csv"
    data.write_text("age,ill\n50,1\n")
    outcome = fedldp_command("sweep", *SHORT[:2], "--csv", data, "--out", tmp_path / "sweep")
    assert (outcome.status, data.read_text()) == (2, "age,ill\n50,1\n")
    assert "it exists and is another kind of file" in outcome.err
    assert not (tmp_path / "sweep").exists()
    outcome = fedldp_command("sweep", "--csv", tmp_path / "no" / "runs.csv")
    assert outcome.err.startswith("error: cannot write")
    assert outcome.err.count("\n") == 1
    with pytest.raises(RunError, match="it exists and is another kind of file"):
        predict(None, data, data)  # type: ignore[arg-type] # it is refused before it is used
    older = tmp_path / "older.csv"
    older.write_text("row,class,probability of 0\n")
    check_replaceable(older, b"row,class")


def test_a_figure_goes_into_an_svg_file(fedldp_command: Any) -> None:
    line = fedldp_command("reproduce", "ldp-fl-fig3", "--svg", "data.csv").assert_refused()
    assert "svg = data.csv: the file's name must end in .svg" in line


def test_a_sweeps_folder_is_distinguished_from_a_runs(fedldp_command: Any, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    outcome = fedldp_command("report", tmp_path)
    says = f"error: {tmp_path}: it is the folder of a sweep; give the folders of its runs: "
    assert outcome.err == f"{says}{tmp_path}/*/\n"


def test_a_list_shows_which_extra_a_recipe_needs(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedldp.simulation.plan.is_installed", lambda extra: False)
    monkeypatch.setenv("COLUMNS", "200")
    assert "(needs fedldp[baselines])" in fedldp_command("list", "recipes").out


@pytest.mark.slow
def test_days_of_work_are_not_started_by_mistake(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    outcome = fedldp_command("reproduce", "--run", "--data-dir", tmp_path)
    assert outcome.status == 2
    assert re.search(r"error: --run: this would take about \d+ days; give a TARGET", outcome.err)
    outcome = fedldp_command(
        "reproduce", "ldp-fl-table1", "--run", "--budget", "1s", "--data-dir", tmp_path
    )
    assert "budget = 1s: no run fits into this time, so nothing is run" in outcome.err


def test_two_runs_within_a_second_get_different_folders(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20260101-000000")
    for _ in range(2):
        outcome = fedldp_command("run", "--rounds", 1, "--set", "num_examples=200")
        assert outcome.status == 0, outcome
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "quickstart-seed0-20260101-000000",
        "quickstart-seed0-20260101-000000-2",
    ]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            ["run", "--epsilon", "2"],
            "use --set epsilon=2, or --set target.epsilon=2 to calibrate the noise to it",
        ),
        (["run", "--clip", "2"], "--set clip=VALUE"),
        (["run", "dp-sgd-digits", "--set", "epsilon=1"], "set target.epsilon instead"),
        (
            ["list", "recipes", "mnist", "no-such-word"],
            "no entry has all these words; leave some out",
        ),
    ],
)
def test_newcomers_mistakes_are_answered_with_what_they_meant(
    fedldp_command: Any, arguments: list[str], remedy: str
) -> None:
    assert remedy in fedldp_command(*arguments).assert_refused()


def test_labels_that_start_at_one_are_refused_with_the_classes_to_declare(
    fedldp_command: Any, tmp_path: Path
) -> None:
    (tmp_path / "own.csv").write_text("age,label\n" + "1,1\n2,2\n3,10\n" * 20)
    own = ["--set", "dataset=own.csv", "--set", "model=logistic", "--set", "num_clients=2"]
    line = fedldp_command("account", *own).assert_refused()
    assert "integers from 1; give integers from 0, or list the classes" in line
    assert 'classes = ["1", "2", "10", ...]' in line


def test_a_command_without_set_says_how_to_give_settings(fedldp_command: Any) -> None:
    line = fedldp_command("audit", "quickstart", "--set", "epsilon=2").assert_refused()
    assert "takes settings from a file: write one with `fedldp run RECIPE --set KEY=VALUE" in line
    assert "--set set" not in line
