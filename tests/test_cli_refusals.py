"""Every mistake on the command line gives one line, exit status 2, and no run folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import SHORT, check_run, check_statement, document, run_folders

import fedldp
from fedldp.data.sources import SOURCES


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLDP_DATA", raising=False)


SETTINGS: dict[str, list[str]] = {
    "epsilon": ["0", "-1", "nan", "inf", "-inf", "1e9", "33", "1e-19", "text", "[1.0, 2.0]", "[]",
                "[0.0]", "''", "true"],
    "integer_bits": ["16", "0", "true", "63"],
    "range_radius": ["0", "-1", "nan", "inf", "1e30", "1e-30", "[0.1]", "[0.1, 0.1, 0.1]",
                     "[[0.1], [0.1]]", "[0.1, 0.0]", "text"],
    "range_center": ["inf", "nan", "1e30", "-1e30", "[0.0]", "[0.0, inf]", "1e5", "text"],
    "range_floor": ["0", "-1", "nan"],
    "ranges": ["private", "1"],
    "chunk": ["0", "-1", "651", "1000000", "1.5", "text"],
    "shuffle": ["maybe", "3"],
    "rounds": ["0", "-3", "1.5", "text", "[3]", "true"],
    "num_clients": ["0", "-1", "1438", "1000000000", "2.5"],
    "clients_per_round": ["0", "101", "-1", "text"],
    "local_epochs": ["0"],
    "batch_size": ["0"],
    "learning_rate": ["0", "-0.1", "nan", "inf", "1e39", "1e300"],
    "partition": ["nonsense", "dirichlet", "dirichlet:0", "dirichlet:nan", "shards:0",
                  "shards:1000", "iid:3", "''", "power-law:-1"],
    "model": ["nonsense", "nonsense:build", "fedldp.core.errors:nothing",
              "fedldp.core.errors:FedldpError",
              "cnn", "vgg:", ":x", ".x:y", "a:b:c", "''", "os:sep", "math:sqrt"],
    "dataset": ["nonsense", "''", "missing.csv", "missing.npz", "3"],
    "seed": ["-1", "1.5", "text"],
    "system": ["fedavg", "nonsense"],
    "delay_seconds": ["0", "-1", "inf"],
    "compute_seconds": ["-1", "nan"],
    "prediction_error": ["-1", "inf"],
    "no_such_setting": ["1"],
    "Epsilon": ["1"],
    "standardise": ["sure"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in SETTINGS.items() for value in values]
)
def test_a_wrong_setting_is_refused_in_one_line_and_leaves_nothing(
    fedldp_command: Any, tmp_path: Path, key: str, value: str
) -> None:
    line = fedldp_command("run", "--workers", 1, "--set", f"{key}={value}").assert_refused()
    assert key in line or value in line
    assert run_folders(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


OF_BOTH: list[tuple[str, str]] = [
    # Recipe and settings; the start of the message and part of its remedy.
    ("quickstart num_examples=10", "num_clients is 100, more than the 10 .* more examples$"),
    ("quickstart num_examples=100000", "num_examples = 100000: .* leave num_examples out"),
    ("central-dp-digits num_examples=10", "num_clients is 100, more than the 10 "),
    ("quickstart clients_per_round=101", "clients_per_round = 101: .* at most that many$"),
    ("quickstart partition=nonsense", "partition is 'nonsense'.* give iid"),
    ("fedavg-quickstart partition=dirichlet:nan", "partition is 'dirichlet:nan'"),
    ("quickstart partition=dirichlet:0", "partition is 'dirichlet:0'"),
    ("quickstart partition=shards:0", "partition is 'shards:0'"),
    ("quickstart partition=shards:15", "partition is 'shards:15'.* give fewer shards"),
    ("quickstart range_center=nan", "range_center = nan"),
    ("quickstart range_center=inf", "range_center = inf"),
    ("quickstart range_center=[]", "range_center has 0 .* one per tensor$"),
    ("quickstart range_center=[1]", "range_center has 1 .* one per tensor$"),
    ("quickstart range_center=[0,nan]", r"range_center\[1\] = nan"),
    ("quickstart epsilon=1e9", r"epsilon = 1000000000.0: give a number from 1e-12 to 32 "),
    ("quickstart mechanism=two_point_l1 epsilon=1e-20", "epsilon = 1e-20: .* a larger epsilon"),
    ("quickstart mechanism=laplace epsilon=1e9", "epsilon = 1000000000.0: give a number from"),
    ("quickstart mechanism=gaussian epsilon=1e-20", "epsilon = 1e-20 .* a larger epsilon$"),
    ("quickstart dataset=nothere.csv standardise=true", "there is no file nothere.csv; set data"),
    ("quickstart untrusted_clients=100", "untrusted_clients = 100: .* at most 99"),
    ("quickstart untrusted_clients=1000000000000000000000", "untrusted_clients = 1000000000000"),
    ("quickstart local_epochs=1000000000000000000000", "local_epochs = 10+: .* at most 100000"),
    ("quickstart batch_size=1000000000000000000000", "batch_size = 10+: .* at most"),
    ("quickstart learning_rate=1e38", r"learning_rate = 1e\+38: .* at most 1e\+30"),
    ("quickstart target.unit=client-run", "target.epsilon is not set, .* add target.epsilon"),
    ("quickstart target.epsilon=1 target.unit=client-run target.x=1", "target.x is not a setting"),
    ("quickstart target.epsilon=0 target.unit=client-run", "target.epsilon = 0: give a number"),
    ("quickstart delta=1e-320", "delta = 1e-320: give a number of at least 1e-300$"),
    ("quickstart rounds=", "rounds = None: "),
    ("nbafl-digits min_client_examples=1000", "min_client_examples = 1000: .* at most that many$"),
    ("ldpfl-sound-digits orientations=10000000", "orientations = 10000000: .* at most 360$"),
    ("ldpfl-digits encoder_channels=[100000]", r"encoder_channels\[0\] = 100000: .* at most 1024$"),
    ("ldpfl-digits encoder_channels=[1,1,1,1,1,1,1,1,1]", "encoder_channels = .* at most 8 items"),
    ("ldpfl-digits encoder_epochs=1000000000000000000000", "encoder_epochs = 10+: .* at most"),
    ("ldpfl-digits label_epsilon=1e-9", "label_epsilon = 1e-09: give a number of at least 1e-06$"),
    ("ldpfl-digits encoder=public public_dataset=nonsense", "public_dataset = nonsense: choose"),
    ("ldpfl-digits encoder=public public_dataset=mnist", "public_dataset = mnist: .* same shape$"),
    ("secure-aggregation-digits dropout=0.35", "dropout = 0.35: .* threshold = 7 .* at most 0.3,"),
    ("personalized-digits epsilon=1e-200", "epsilon = 1e-200: "),
    ("personalized-digits alpha=1e-300", "alpha = 1e-300: "),
]  # fmt: skip


WITHOUT_DATA: list[tuple[str, str]] = [  # ``run`` would first report the missing data
    ("quickstart dataset=covertype standardise=true", "standardise = true: .* = false$"),
    ("ldpfl-sound-digits dataset=covertype", "dataset = covertype: .* choose a data set of images"),
    ("ldpfl-digits dataset=covertype", "dataset = covertype: .* choose a data set of images"),
]


@pytest.mark.parametrize("command", ["account", "run"])
@pytest.mark.parametrize(("given", "line"), OF_BOTH, ids=[given for given, _ in OF_BOTH])
def test_account_refuses_what_run_refuses_with_the_settings_name_and_a_remedy(
    fedldp_command: Any, tmp_path: Path, command: str, given: str, line: str
) -> None:
    refused(fedldp_command, command, given, line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("given", "line"), WITHOUT_DATA)
def test_account_needs_no_data_to_refuse(fedldp_command: Any, given: str, line: str) -> None:
    refused(fedldp_command, "account", given, line)


def refused(fedldp_command: Any, command: str, given: str, line: str) -> None:
    recipe, *settings = given.split()
    assignments = [word for setting in settings for word in ("--set", setting)]
    assert re.match(
        "error: " + line, fedldp_command(command, recipe, *assignments).assert_refused()
    )


def test_a_partition_with_too_small_a_client_is_refused_before_training(
    fedldp_command: Any, tmp_path: Path
) -> None:
    for recipe in ("nbafl-digits", "priority-digits"):
        settings = ("--set", "partition=dirichlet:0.1", "--set", "min_client_examples=70")
        assert (
            fedldp_command("account", recipe, *settings).status == 0
        )  # it does not know the labels
        line = fedldp_command("run", recipe, *settings, "--workers", 1).assert_refused()
        assert re.match("error: min_client_examples = 70: .* smallest client has .* most", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("delta", ["1e-320", "1", "nan", "-1"])
def test_an_impossible_delta_is_refused(fedldp_command: Any, delta: str) -> None:
    line = fedldp_command("account", "nbafl-digits", "--delta", delta).assert_refused()
    assert re.match(
        f"error: delta = {float(delta)}: give 0, or a number that is at least 1e-300", line
    )


def test_the_smallest_delta_has_a_statement(fedldp_command: Any) -> None:
    for delta in ("0", "1e-300"):
        outcome = fedldp_command("account", "nbafl-digits", "--delta", delta, "--json")
        check_statement(document(outcome.out))


def test_an_optional_setting_can_be_unset(fedldp_command: Any) -> None:
    fixed, median = (
        document(fedldp_command("account", "central-dp-digits", *more, "--json").out)
        for more in ((), ("--set", "clip="))
    )
    assert fixed["claim"] is None
    assert median["claim"] is not None


def test_a_wrong_floor_of_adaptive_ranges_is_refused_by_its_name(fedldp_command: Any) -> None:
    line = fedldp_command(
        "run", "--workers", 1, "--set", "ranges=adaptive", "--set", "range_floor=1e-12"
    ).assert_refused()
    assert "range_floor" in line


TIMES = {"delay_seconds": ["1e308"], "compute_seconds": ["1e308"],
         "communication_seconds": ["1e308"], "latency_spread": ["1e6", "700"],
         "prediction_error": ["800"]}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in TIMES.items() for value in values]
)
def test_extreme_times_are_refused_or_accepted(fedldp_command: Any, key: str, value: str) -> None:
    outcome = fedldp_command("run", *SHORT, "--set", f"{key}={value}", "--json")
    if outcome.status == 0:
        check_run(document(outcome.out), 1)
        assert "Warning" not in outcome.err
    else:
        assert key in outcome.assert_refused()


def test_json_and_print_config_do_not_mix(fedldp_command: Any) -> None:
    outcome = fedldp_command("run", "--print-config", "--json")
    if outcome.status == 0:
        document(outcome.out)
    else:
        outcome.assert_refused()


COMMANDS: dict[str, list[Any]] = {
    "no command": [],
    "unknown command": ["train"],
    "unknown option": ["run", "--epochs", 3],
    "two recipes": ["run", "quickstart", "fedavg-quickstart"],
    "unknown recipe": ["run", "ldp-fl-nothing"],
    "missing toml": ["run", "missing.toml"],
    "set without value": ["run", "--set", "epsilon"],
    "set without key": ["run", "--set", "=3"],
    "rounds no number": ["run", "--rounds", "many"],
    "rounds zero": ["run", "--rounds", 0],
    "seed negative": ["run", "--seed", -1],
    "workers zero": ["run", "--workers", 0],
    "workers negative": ["run", "--workers", -2],
    "workers no number": ["run", "--workers", "two"],
    "unknown device": ["run", "--device", "tpu"],
    "empty device": ["run", "--device", ""],
    "resume nothing": ["run", "--resume", "nowhere"],
    "list nonsense": ["list", "nonsense"],
    "fetch nonsense": ["data", "fetch", "nonsense"],
    "verify nonsense": ["data", "verify", "nonsense"],
    "data nonsense": ["data", "nonsense"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_wrong_command_is_refused_in_one_line(
    fedldp_command: Any, tmp_path: Path, command: list[Any]
) -> None:
    fedldp_command(*command).assert_refused()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(fedldp_command: Any) -> None:
    assert "cuda" in fedldp_command("run", *SHORT, "--device", "cuda").assert_refused()


TOMLS = ["", "rounds = 3", 'system = "ldp_fl"', 'system = "nonsense"', "system = 3",
         'system = ["ldp_fl"]', "system = { a = 1 }", "x = [", "\x00", '"', "system = 2020-01-01",
         'system = "fedavg"\nrounds = "many"']  # fmt: skip


@pytest.mark.parametrize("text", TOMLS)
def test_a_wrong_toml_file_is_refused_in_one_line(fedldp_command: Any, text: str) -> None:
    Path("it.toml").write_text(text)
    fedldp_command("run", "it.toml").assert_refused()


def test_a_binary_toml_file_is_refused_in_one_line(fedldp_command: Any) -> None:
    Path("it.toml").write_bytes(b"\xff\xfe\x00")
    fedldp_command("run", "it.toml").assert_refused()
    Path("folder.toml").mkdir()
    fedldp_command("run", "folder.toml").assert_refused()


def test_a_misspelt_setting_is_refused_with_similar_names(fedldp_command: Any) -> None:
    line = fedldp_command("run", "--set", "epsilom=1").assert_refused()
    assert "epsilom" in line
    assert "epsilon" in line.replace("epsilom", "")


def test_a_setting_of_another_system_is_refused(fedldp_command: Any) -> None:
    line = fedldp_command("run", "fedavg-quickstart", "--set", "epsilon=1").assert_refused()
    assert "fedavg" in line


@pytest.mark.parametrize("name", ["mnist", "fmnist", "cifar10", "svhn", "covertype"])
def test_a_missing_data_set_names_file_folder_and_address(
    fedldp_command: Any, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "data"
    line = fedldp_command(
        "run", "fedavg-quickstart", "--set", f"dataset={name}", "--set", "standardise=false",
        "--data-dir", folder, "--workers", 1,
    ).assert_refused()  # fmt: skip
    source = SOURCES[name]
    assert str(folder / source.folder) in line
    assert any(file.name in line for file in source.files) or "archive" in line
    assert "http://" in line or "https://" in line
    assert f"fedldp data fetch {name}" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a,b,label\n1,2,0\nnan,4,1\n3,4,1\n5,6,0\n", "NaN"),
        ("a,b,label\n1,2,0\ninf,4,1\n3,4,1\n5,6,0\n", "infinite"),
        ("a,b,label\n1,2,0\n1e300,4,1\n3,4,1\n5,6,0\n", "float32"),
        ("a,b,label\n1,2,0\n,4,1\n", "line 3"),
        ("a,b,class\n1,2,0\n3,4,1\n", "label_column"),
        ("a,b,label\n1,2,0.5\n3,4,1\n", "integers"),
        ("a,b,label\n1,2,0\n3,4\n", "line 3"),
        ("a,b,label\n1,2,0\n3,4,0\n", "only one class"),
        ("", "empty"),
    ],
)
def test_a_damaged_csv_is_refused_in_one_line(
    fedldp_command: Any, tmp_path: Path, text: str, named: str
) -> None:
    (tmp_path / "mine.csv").write_text(text)
    line = fedldp_command(
        "run", *SHORT, "--set", "dataset=mine.csv", "--set", "standardise=false",
        "--set", "num_clients=1",
    ).assert_refused()  # fmt: skip
    assert named in line
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


@pytest.mark.parametrize("recipe", ["quickstart", "fedavg-quickstart"])
def test_a_users_own_csv_is_trained_on(fedldp_command: Any, tmp_path: Path, recipe: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    rows = [f"{a},{b},{c},{'yes' if a > 0 else 'no'}" for a, b, c in x]
    (tmp_path / "mine.csv").write_text("a,b,c,answer\n" + "\n".join(rows) + "\n")
    outcome = fedldp_command(
        "run", recipe, *SHORT, "--set", "dataset=mine.csv", "--set", "label_column=answer",
        "--set", "standardise=false", "--rounds", 3, "--json",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    check_run(document(outcome.out), 3)
    if recipe == "fedavg-quickstart":
        assert document(outcome.out)["final"]["accuracy"] > 0.6


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_place_that_cannot_be_written_to_is_refused_in_one_line(
    fedldp_command: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/run", "/proc/run", "/dev/null/run"):
        fedldp_command("run", *SHORT, "--out", place).assert_refused()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_python_interface_refuses_as_the_command_line_does() -> None:
    mistakes: list[Callable[[], object]] = [
        lambda: fedldp.recipe("nonsense"),
        lambda: fedldp.recipe("quickstart", epsilon=0),
        lambda: fedldp.recipe("quickstart", epsilon=None),
        lambda: fedldp.recipe("quickstart", epsilon="1; drop"),
        lambda: fedldp.recipe("quickstart", model=None),
        lambda: fedldp.run(fedldp.recipe("quickstart", chunk=1000)),
        lambda: fedldp.run(fedldp.recipe("quickstart"), workers=0),
        lambda: fedldp.run(fedldp.recipe("quickstart"), device="gpu"),
        lambda: fedldp.resume(Path("nowhere")),
    ]
    for mistake in mistakes:
        with pytest.raises(fedldp.FedldpError) as refusal:
            mistake()
        assert len(str(refusal.value).splitlines()) == 1
