"""`fedldp compare`: equal guarantees, equal effort, resumed comparisons, and refusals."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import rows_in, write_rows

import fedldp
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import SIMULATED
from fedldp.data import load_dataset
from fedldp.experiments.comparing.compared import CompareExperiment
from fedldp.experiments.comparing.design import default_tries, design_of
from fedldp.experiments.engine import Means
from fedldp.experiments.held_out import held_out, with_clients
from fedldp.experiments.store import RunStore
from fedldp.reporting import words
from fedldp.reporting.scores import TestSet
from fedldp.simulation.plan import problem_of
from fedldp.simulation.settings import from_mapping, resolve
from fedldp.testing.toys import TOY_BITS

BOTH = ("privunit-fl-digits", "nbafl-digits")
SMALL: dict[str, Any] = {
    "guarantee": "client-run:server", "epsilon": [4, 16], "tries": 2, "seeds": [0, 1], "workers": 1,
    "num_clients": 12, "rounds": 1, "local_epochs": 1,
}  # fmt: skip
BARE: dict[str, Any] = {"try": {}, "settings": {}, "cpu_seconds": 0.0}
"""What any row of a comparison has besides its score."""

ON_DIGITS = TestSet(examples=360, classes=10, most_frequent=37 / 360)


def compared(out: Path | None = None, contestants: Any = BOTH, **others: Any) -> Any:
    return fedldp.compare(contestants, out=out, **{**SMALL, **others})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compared(tmp_path_factory.mktemp("made") / "out")


@pytest.mark.slow
def test_a_score_that_is_not_above_its_baseline_says_so(made: Any, tmp_path: Path) -> None:
    (best,) = {row["figure"]["baseline"] for row in made.summary()["rows"]}
    assert f"{100 * best:.2f}" == "10.28"  # always one class of the digits
    bad = [{**BARE, "accuracy": 0.0361}] * 2
    low = replace(made.groups[0], runs=bad, on=ON_DIGITS)
    found = replace(made, groups=[low])
    assert found.rows[0]["figure"]["baseline"] == best
    assert any("3.61 ± 0.00 % (not above 10.28 %)" in cell for cell in found.shown()[1][0])
    assert "not above 10.28 %" in found.to_text()
    assert "not above 10.28 \\%" in found.to_latex()
    found.plot(tmp_path / "chart.svg")
    chart = (tmp_path / "chart.svg").read_text()
    assert words.baseline(low.figure("accuracy")) in chart
    assert "means over 2 seeds" in chart
    replace(found, groups=[replace(low, runs=bad[:1])]).plot(tmp_path / "one.svg")
    assert "means over one seed" in (tmp_path / "one.svg").read_text()
    assert "not above" not in made.to_text().replace("AUC not above", "")


def test_runs_that_were_recorded_without_conditions_are_read(tmp_path: Path, made: Any) -> None:
    lines = rows_in(made.out)
    for line in lines:
        del line["privacy"]
    assert again(tmp_path / "old", made, lines).summary() == made.summary()
    del lines[0]["settings"]
    one_less = again(tmp_path / "less", made, lines)
    assert one_less.summary()["together"][0]["runs"] == 15
    assert words.together_lines([], 1)[0] in one_less.notes()


def again(out: Path, made: Any, lines: list[dict[str, Any]]) -> Any:
    """Return the comparison in a folder that already has these runs."""
    out.mkdir()
    (out / "compare.json").write_bytes((made.out / "compare.json").read_bytes())
    write_rows(out, lines)
    return compared(out)


def test_a_comparison_of_nothing_is_refused_also_with_settings() -> None:
    with pytest.raises(ConfigError, match="recipe: there are no contestants"):
        fedldp.compare([], guarantee="client-run:server", epsilon=1, rounds=2)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet:0.3", "shards:2"])
def test_whole_clients_of_the_partition_are_held_out(scheme: str) -> None:
    data = load_dataset("digits")
    divided = with_clients(data, scheme, 12, 600, seed=100)
    found = held_out(divided, 100)
    assert divided.clients is not None
    assert found.clients is not None
    assert len(found.clients) == 10

    def keys(examples: Any) -> list[bytes]:
        return sorted(each.tobytes() for each in examples)

    owned = [keys(divided.train.features[rows]) for rows in divided.clients]
    kept = [keys(found.train.features[rows]) for rows in found.clients]
    left = [each for each in owned if each not in kept]
    assert len(left) == 2
    assert keys(found.test.features) == sorted(left[0] + left[1])
    assert len(found.train) + len(found.test) == 600


def designed(contestants: Any, settings: dict[str, Any] | None = None, **given: Any) -> Any:
    """Return a design with the given options, and no others."""
    options: dict[str, Any] = dict.fromkeys(("guarantee", "delta", "metric", "tries", "seeds"))
    return design_of(contestants, settings or {}, **{**options, **given})


def test_if_a_row_is_the_unit_rows_of_each_site_are_held_out() -> None:
    settings = {"num_clients": 1, "num_examples": 300}
    alone = designed(
        ["person-dp-sgd-digits"], settings, guarantee="record:server", epsilon=4, tries=2
    )
    data = load_dataset("digits")
    comparison = alone.comparison(lambda: data)
    tried = comparison.maker.data_for(comparison.tries(alone.cells(comparison)[0])[0])
    assert len(tried.test) == len(data.train) // 6
    assert len(tried.train) + len(tried.test) == len(data.train)


def test_default_tries_begin_with_the_recipe_and_can_grow() -> None:
    config = resolve("privunit-fl-digits")
    problem = problem_of(config, None)
    whole = default_tries(config, problem, 27)
    assert whole[0] == {"learning_rate": 0.3, "clip": 1.0, "rounds": 15}
    assert len({json.dumps(each) for each in whole}) == 27
    for most in (2, 8, 11):
        assert default_tries(config, problem, most) == whole[:most]
    eight = whole[:8]
    assert all(len({each[name] for each in eight}) == 2 for name in whole[0])


def test_an_unused_setting_is_not_tried() -> None:
    for recipe, mechanism, names in (
        ("quickstart", "two_point", {"learning_rate", "range_radius", "rounds"}),
        ("quickstart", "two_point_l1", {"learning_rate", "range_radius", "rounds", "clip"}),
        ("composed-digits-solution", None, {"ridge", "rounds", "clip"}),
    ):
        config = resolve(recipe, [f"mechanism={mechanism}"] if mechanism else [])
        assert set(default_tries(config, problem_of(config, None), 3)[0]) == names


# Effort


FEWER = """
guarantee = "client-run:server"
epsilon = [16]
tries = 3
[set]
num_clients = 12
rounds = 1
[contestants.few]
recipe = "privunit-fl-digits"
grid = { clip = [1.0, 0.5] }
[contestants.enough]
system = "nbafl"
[contestants.enough.set]
dataset = "digits"
standardise = true
model = "logistic"
learning_rate = 0.1
clip = 2.0
[contestants.level]
recipe = "fedavg-digits"
reference = true
"""


def test_without_a_guarantee_option_that_of_the_targets_is_used() -> None:
    asked = {"unit": "client-run", "adversary": "server", "epsilon": 4.0, "delta": 1e-6}
    both = {
        name: fedldp.recipe("quickstart", mechanism=mechanism, target=asked)
        for name, mechanism in (("one", "two_point"), ("other", "two_point_l1"))
    }
    kind = designed(both, epsilon=2.0, tries=2).guarantee
    assert (kind.unit, kind.adversary, kind.delta) == ("client-run", "server", 1e-6)
    other = fedldp.recipe("quickstart", target={**asked, "unit": "client-round"})
    with pytest.raises(ConfigError, match="give the guarantee that all contestants must meet"):
        designed({**both, "third": other}, epsilon=2.0, tries=2)


@pytest.mark.slow
def test_contestants_with_fewer_tries_are_marked_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(FEWER)
    found = fedldp.compare("mine.toml", seeds=[0], workers=1, out="out", local_epochs=1)
    tries = {line.name: line.tries for line in found.groups}
    assert tries == {"few": 2, "enough": 3, "level": 3}
    assert "* fewer than 3 tries: few" in found.notes()
    head, rows = found.shown()
    shown = {row[0]: row[head.index("tries")] for row in rows}
    assert shown == {"few": "2 *", "enough": "3", "level": "3"}
    assert "^{*" in found.to_latex()
    (few,) = [row for row in csv.DictReader(found.to_csv().splitlines()) if row["name"] == "few"]
    assert (few["tries"], few["of_tries"]) == ("2", "3")
    (level,) = [row for row in found.rows if row["name"] == "level"]
    assert (level["epsilon"], level["proven"], level["refused"]) == (None, None, None)
    assert all(line.cpu_seconds > 0 for line in found.groups)


def test_seeds_are_three_and_ten_at_small_epsilons() -> None:
    design = designed(["privunit-fl-digits"], guarantee="client-run:server", epsilon=[16, 4, 1])
    comparison = design.comparison(lambda: load_dataset("digits"))
    cells = comparison.cells([100], design.epsilons)
    assert design.epsilons == (1.0, 4.0, 16.0)
    assert len(cells) == 3
    assert [len(comparison.seeds_of(cell)) for cell in cells] == [10, 3, 3]
    assert [cell.epsilon for cell in design.cells(comparison)] == [4.0, 1.0, 16.0]
    assert design.tries == 8


def test_a_users_code_is_never_called_proven(made: Any) -> None:
    own, *others = made.groups
    each = [replace(proven, stated_by=TOY_BITS) for proven in own.each]
    found = replace(made, groups=[replace(own, each=each), *others])
    mine, other, *_ = found.rows
    assert (mine["proven"], mine["stated_by"]) == (None, TOY_BITS)
    assert other["proven"] is not None
    assert f"what {TOY_BITS} states is an assumption that nothing here proves" in found.notes()


# Folders


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"local_epochs": 2}, "has different settings of privunit-fl-digits"),
        ({"delta": 1e-6}, "differs in its guarantee"),
        ({"contestants": BOTH[:1]}, "also has nbafl-digits"),
    ],
)
def test_a_folder_with_other_settings_is_refused(made: Any, change: Any, line: str) -> None:
    with pytest.raises(fedldp.FedldpError, match=line):
        compared(made.out, **change)


# Charts and warnings


def test_choosing_by_private_scores_is_reported(made: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(120, 4)).astype(np.float32)
    own = (features, (features[:, 0] > 0).astype(np.int64))
    said: list[str] = []
    found = compared(tmp_path / "out", ["nbafl-digits", "fedavg-digits"], dataset=own, epsilon=16,
                     seeds=[0], say=said.append)  # fmt: skip
    assert said[0].startswith("note: the progress lines and results.jsonl contain")
    assert all("which no epsilon covers" in row["note"] for row in rows_in(tmp_path / "out"))
    assert '"note"' not in (made.out / "results.jsonl").read_text()
    words = "choosing by scores is a release"
    assert any(note.startswith(words) for note in found.notes())
    assert words in found.to_text()
    assert words in found.to_csv()
    assert words in found.to_latex().lower()
    assert not any(words in note for note in made.notes())
    assert found.rows[1]["refused"] is not None  # it has no guarantee


def test_scores_through_clients_own_encoders_are_reported(made: Any, tmp_path: Path) -> None:
    """They are a release on any test set, for a contestant with a guarantee and for a reference."""
    configs = {
        "own": resolve("ldpfl-digits"),
        "public": resolve("ldpfl-sound-digits"),
        "heads": resolve("composed-digits-own-head"),
    }
    settings = {"num_clients": 12, "partition": "iid"}
    design = designed(configs, settings, guarantee="record:server", epsilon=4, tries=2, seeds=[0])
    none = RunStore(tmp_path / "results.jsonl")
    notes = CompareExperiment(design, None, Means()).view(none, None).notes()
    own, heads = [note for note in notes if "a separate release" in note]
    assert own.startswith("own: scores on own test examples, through an encoder trained on")
    assert heads.startswith("heads: scores of models whose last layers were trained on own")
    assert not any("a separate release" in note for note in made.notes())


# As a user types it


GIVEN = ("--guarantee", "client-run:server", "--epsilon", "16", "--tries", "2", "--seeds", "0")
LESS = ("--set", "rounds=1", "--set", "local_epochs=1")


def test_the_command_prints_a_table_and_leaves_files(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ("--set", "num_clients=12", *LESS, "--workers", "1", "--out", "out")
    outcome = fedldp_command("compare", *BOTH, "fedavg-digits", *GIVEN, *more)
    assert outcome.status == 2  # fedavg has nothing to calibrate
    assert "refused" in outcome.out
    assert "fedavg has no guarantee and no epsilon to solve for" in outcome.out
    names = {path.name for path in Path("out").iterdir()}
    assert {"table.txt", "table.csv", "table.tex", "results.json", "results.jsonl", "chart.pdf",
            "chart.svg", "compare.json"} <= names  # fmt: skip
    again = fedldp_command("compare", *BOTH, "fedavg-digits", *GIVEN, *more, "--json")
    assert json.loads(again.out) == json.loads(Path("out/results.json").read_text())


# Numbers


def of_numbers(**others: Any) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = 10 + x @ [4.0, -3.0, 1.0] + rng.normal(0, 2, len(x))
    data = fedldp.Dataset.from_arrays(
        x[:400], y[:400], label_range=(-10, 30), test=(x[400:], y[400:])
    )
    config = from_mapping({
        "system": "person_dp_sgd", "dataset": "own", "num_clients": 3, "model": "linear",
        "features": "unit-norm", "rounds": 20, "epsilon": 1.0, "clip": 1.0, "learning_rate": 1.0,
        "label_range": [-10, 30],
    })  # fmt: skip
    weak = config.changed(learning_rate=1e-6)
    return fedldp.compare(
        {"learns": config, "does not": weak}, guarantee="record:server", epsilon=50, seeds=[0, 1],
        workers=1, dataset=data, **{"tries": 2, **others},
    )  # fmt: skip


@pytest.mark.slow
def test_numbers_are_compared_by_r2_with_the_mean_as_the_baseline(tmp_path: Path) -> None:
    found = of_numbers(out=tmp_path / "out")
    good, bad = found.rows
    assert found.summary()["metric"] == "r2"
    assert [good["name"], bad["name"]] == ["learns", "does not"]
    assert good["mean"] > 0.5 > 0 > bad["mean"]
    assert good["figure"]["baseline"] == bad["figure"]["baseline"] == 0
    assert good["proven"] <= 50
    own = [row for row in rows_in(tmp_path / "out") if row["cell"]["contestant"] == "learns"]
    tries = {row["metrics"]["r2"]: row["try"] for row in own if row["purpose"] == "tried"}
    assert len(tries) == 2
    assert tries[max(tries)].items() <= good["settings"].items()
    text = found.to_text()
    assert "R2 is a mean over seeds" in text
    assert "always the mean: 0" in text
    assert "(not above 0)" in text


def test_a_metric_of_other_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match="metric = auc: for these labels, choose r2, loss"):
        of_numbers(metric="auc")
    with pytest.raises(ConfigError, match="metric = r2: for these labels, choose accuracy, loss"):
        compared(metric="r2")


def lines_of(made: Any, scores: dict[tuple[str, float], list[float]]) -> Any:
    """Return a comparison whose seeds 0, 1, ... have these accuracies, by name and epsilon."""
    return replace(
        made,
        groups=[
            replace(
                made.groups[0], name=name, epsilon=epsilon, seeds=len(values),
                runs=[{**BARE, "seed": k, "accuracy": value} for k, value in enumerate(values)],
            )
            for (name, epsilon), values in scores.items()
        ],
    )  # fmt: skip


def test_contestants_are_compared_with_the_best_by_the_same_seeds(made: Any) -> None:
    found = lines_of(
        made,
        {
            ("good", 4.0): [0.50, 0.60, 0.70],
            ("close", 4.0): [0.52, 0.57, 0.68],
            ("bad", 4.0): [0.48, 0.58, 0.68],  # always 2 points less, although its spread is 10
            ("one", 4.0): [0.2],
        },
    )
    rows = {row["name"]: row["behind"] for row in found.rows}
    assert rows["good"] is None
    assert rows["bad"]["difference"] == pytest.approx(-0.02)
    assert rows["bad"]["interval"] == pytest.approx((-0.02, -0.02))
    low, high = rows["close"]["interval"]
    # Student's t with 2 degrees of freedom: 4.302653 times the standard error.
    assert (high - low) / 2 == pytest.approx(4.302653 * np.std([2, -3, -2], ddof=1) / 3**0.5 / 100)
    assert (rows["one"]["seeds"], rows["one"]["interval"]) == (1, None)
    latex = found.to_latex()
    assert latex.count("\\mathbf") == 2  # the best, and what is not told apart from it
    assert "$-2.00$ $[-2.00, -2.00]$" in latex
    (one,) = (line for line in latex.splitlines() if line.startswith("one & $20.00"))
    assert "\\S" in one
    assert "fewer seeds (1) than the others (3)" in latex
    assert any("not told apart: close" in note for note in found.notes())
    loss = replace(found, metric="loss")
    assert all(row["behind"] is None for row in loss.rows)  # there are no losses


def test_one_try_measures_every_contestant_as_it_is(tmp_path: Path) -> None:
    found = compared(tmp_path / "out", BOTH[0], tries=1, epsilon=4, seeds=[0, 1], rounds=2)
    rows = rows_in(tmp_path / "out")
    assert [row["purpose"] for row in rows] == ["measured", "measured"]
    assert found.summary()["complete"]
    (row,) = found.rows
    assert row["as_it_is"]
    assert found.shown()[1][0][4] == "as it is"
    assert f"as it is, not tuned: {BOTH[0]}" in found.notes()
    assert all(" (as it is)" in name for _, name, _ in found.points())
    assert found.to_records()[0]["as_it_is"] is found.rows[0]["as_it_is"] is True
    assert "\\circ" in found.to_latex()
    assert [len(row["by_round"]["accuracy"]) for row in rows] == [2, 2]
    assert [row["by_round"]["accuracy"][-1] for row in rows] == pytest.approx(
        [row["accuracy"] for row in rows], abs=1e-4
    )
    found.plot_rounds(tmp_path / "rounds.svg")
    chart = (tmp_path / "rounds.svg").read_text()
    assert "epsilon 4" in chart
    assert words.short(SIMULATED) in chart


GRID = """
guarantee = "client-run:server"
epsilon = 4
[set]
dataset = "digits"
model = "logistic"
num_clients = 12
rounds = 1
[contestants.mine]
system = "composed"
set = {mechanism = "k_closest", bound = "norm"}
grid = {learning_rate = [0.1, 0.5], clip = [1.0, 2.0]}
"""


def test_settings_of_a_grid_need_not_stand_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GRID)
    entry = design_of(str(tmp_path / "mine.toml"), {}).entries["mine"]
    assert (entry.config.clip, entry.config.learning_rate) == (1.0, 0.1)
    assert len(entry.grid or ()) == 4
