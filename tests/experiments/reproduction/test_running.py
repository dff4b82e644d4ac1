"""A tiny target on digits is run, stored, read back, compared, drawn and printed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from folders import cut
from gate import statements

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Expected, Recipe, Source, find_recipe
from fedldp.cli import reproduce as command
from fedldp.core.errors import RunError
from fedldp.experiments.engine import Means
from fedldp.experiments.reproduction import __main__ as publishing
from fedldp.experiments.reproduction import comparison, results, targets
from fedldp.experiments.reproduction.__main__ import documents, text_of
from fedldp.experiments.reproduction.comparison import Reason, Row, compare, proven
from fedldp.experiments.reproduction.pages import committed, courses, markdown, write_page
from fedldp.experiments.reproduction.results import Measurement, Measurements, Missing, missing
from fedldp.experiments.reproduction.targets import PaperTarget
from fedldp.experiments.runs import Row as Run
from fedldp.experiments.store import RESULTS, RunStore
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of

DOCS = Path(__file__).parents[3] / "docs"
BASE = find_recipe("fedavg-digits").config.changed(num_clients=4, local_epochs=1)


def cell(name: str, config: RunConfig, accuracy: float | None = None) -> Recipe:
    return Recipe(
        name=name,
        config=config,
        summary="a cell of a test, of no paper at all",
        source=Source(paper="Nobody 2026", place="Table 9", row=name),
        expected=None if accuracy is None else Expected(accuracy=accuracy, tolerance=0.02),
    )


SHORT, LONG = cell("short", BASE.changed(rounds=1)), cell("long", BASE.changed(rounds=2), 0.5)
TINY = PaperTarget(name="tiny", paper="Nobody 2026", place="Table 9", cells=(SHORT, LONG))


def publish(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    """Let documents be those that are committed."""
    monkeypatch.setattr(results, "published", results.published.__wrapped__)
    for each in (results, publishing):
        monkeypatch.setattr(each, "published_documents", lambda: made)


@pytest.fixture
def own(tmp_path: Path) -> Measurements:
    folder = tmp_path / "kept" / "cpu"
    folder.mkdir(parents=True)
    (folder / "reproduce.json").write_text("{}")
    return Measurements(tmp_path / "kept", tmp_path)


def run(target: PaperTarget, own: Measurements, seeds: int = 2, **more: Any) -> list[Run]:
    return made_of(missing(target.cells, range(seeds), own), own, **more)


def made_of(todo: Missing, own: Measurements, **more: Any) -> list[Run]:
    """Make runs, and return those that were made, in order."""
    before = set(stored(own).rows)
    todo.make(Means(workers=1, **more))
    return [row for key, row in stored(own).rows.items() if key not in before]


def stored(own: Measurements) -> RunStore:
    assert own.folder is not None
    return RunStore(own.folder / RESULTS)


def rows_of(target: PaperTarget, own: Measurements) -> dict[str, Row]:
    return {row.row: row for row in compare(target, own)}


def measurement(row: Row) -> Measurement:
    assert row.ours is not None
    return row.ours


def keep(own: Measurements, recipe: Recipe, seed: int, *accuracies: float) -> None:
    store = stored(own)
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.add({
            "digest": f"{recipe.name} {seed}",
            "family": own.family(recipe.config),
            "recipe": recipe.name,
            "seed": seed,
            "rounds": len(accuracies),
            "accuracies": list(accuracies),
            "metrics": {},
            "device": own.device,
            "hardware": "a machine",
            "date": "2026-11-22",
            "seconds": 1.0,
    })  # fmt: skip
    own.read()


def test_a_target_is_run_once_and_its_longer_run_serves_the_shorter(
    own: Measurements, tmp_path: Path
) -> None:
    assert {row.verdict for row in compare(TINY, own)} == {"not measured"}
    measured = run(TINY, own)
    assert [(one["recipe"], one["seed"], one["rounds"]) for one in measured] == [
        ("long", 0, 2),
        ("long", 1, 2),
    ]
    assert missing(TINY.cells, range(2), own).runs == []
    found = rows_of(TINY, own)
    first = [one["accuracies"][0] for one in measured]
    short, long = (measurement(found[name]) for name in ("short", "long"))
    assert short.mean == pytest.approx(sum(first) / 2)
    assert short.seeds == long.seeds == [0, 1]
    plain = simulate(SHORT.config.changed(seed=1), data_dir=tmp_path)
    assert plain.accuracy == first[1]


def test_verdicts(own: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(own, LONG, 0, 0.1, 0.51)
    assert rows_of(TINY, own)["long"].verdict == "agrees"
    assert rows_of(TINY, own)["short"].verdict == "no number published"
    keep(own, LONG, 1, 0.1, 0.61)
    found = rows_of(TINY, own)["long"]
    assert (found.verdict, found.why) == ("differs", None)
    assert found.difference == pytest.approx(0.06)
    for start, verdict in (
        ("a test", "explained"),
        ("not known", "differs"),
        ("our test", "not comparable"),
    ):
        reason = Reason(f"{start}: it is a test")
        monkeypatch.setattr(comparison, "known", lambda reason=reason: {"long": reason})
        found = rows_of(TINY, own)["long"]
        assert (found.verdict, found.why) == (verdict, reason.text)


def test_devices_are_not_mixed(own: Measurements, tmp_path: Path) -> None:
    gpu = Measurements(tmp_path / "kept", tmp_path, "cuda")
    keep(own, LONG, 0, 0.1, 0.4)
    keep(gpu, LONG, 1, 0.1, 0.6)
    keep(gpu, LONG, 2, 0.1, 0.8)
    ours = measurement(rows_of(TINY, gpu)["long"])
    assert (ours.device, ours.seeds) == ("cuda", [1, 2])
    assert ours.mean == pytest.approx(0.7)
    assert "(GPU)" in markdown(compare(TINY, gpu))
    again = Measurements(tmp_path / "kept", tmp_path)
    only = measurement(rows_of(TINY, again)["long"])
    assert (only.mean, only.seeds) == (0.4, [0])


@pytest.mark.parametrize("name", ["fedavg-quickstart", "quickstart", "composed-digits"])
def test_a_longer_run_begins_with_the_shorter(name: str, tmp_path: Path) -> None:
    config = find_recipe(name).config
    assert config.longer_begins_with_shorter
    short, long = (simulate(config.changed(rounds=n), data_dir=tmp_path) for n in (1, 2))
    assert [short.rounds[0].accuracy] == [record.accuracy for record in long.rounds[:1]]


@pytest.mark.slow
def test_a_cell_may_show_another_figure_of_the_same_run(
    own: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = find_recipe("ldpfl-digits").config.changed(rounds=1, encoder_epochs=1, local_epochs=1)
    whole = cell("whole", config)
    source = Source(paper="Nobody 2026", place="Table 9", row="local", metric="local_accuracy")
    local = replace(whole, name="local", source=source)
    target = PaperTarget(name="tiny", paper="Nobody 2026", place="Table 9", cells=(whole, local))
    (made,) = run(target, own, seeds=1)
    result = simulate(config)
    rows = rows_of(target, own)
    assert measurement(rows["whole"]).mean == made["accuracies"][0] == result.rounds[0].accuracy
    assert measurement(rows["local"]).mean == result.rounds[0].metrics["local_accuracy"]
    made = documents([target], own)
    publish(monkeypatch, made)
    kept = rows_of(target, Measurements(tmp_path / "nothing", tmp_path))
    for name in ("whole", "local"):
        mean = measurement(rows[name]).mean
        assert measurement(kept[name]).mean == pytest.approx(mean, abs=1e-6)


def test_a_time_budget_starts_no_run_that_would_exceed_it(own: Measurements) -> None:
    told: list[str] = []
    apart = replace(TINY, cells=(LONG, cell("other", BASE.changed(rounds=1, batch_size=7))))
    todo = missing(apart.cells, range(1), own)
    long = Missing([todo.runs[0], (todo.runs[1][0], 1000.0)], own)
    assert len(made_of(long, own, end=time.monotonic() + 50.0, say=told.append)) == len(told) == 1
    assert len(run(apart, own, 1)) == 1  # the remaining one


def rounds_kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the number of rounds each time they are stored."""
    kept: list[int] = []
    write = RunFolder.write_round

    def count(folder: RunFolder, state: Any, rounds: Any, ledger: Any) -> None:
        kept.append(len(rounds))
        write(folder, state, rounds, ledger)

    monkeypatch.setattr(RunFolder, "write_round", count)
    return kept


@pytest.mark.parametrize("damage", ["", "checkpoint", "config.json", "a full disk"])
def test_an_interrupted_run_continues(
    own: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Also if it was continued once before and failed then."""
    todo = missing((LONG,), range(1), own)
    [(planned, _)] = todo.runs
    assert planned.config is not None
    cut(planned.config, stored(own).place(planned), 1, recipe=None, data_dir=own.root)
    [place] = (tmp_path / "kept" / "cpu" / "work").glob("*/")
    if damage == "checkpoint":
        (place / damage).write_bytes(b"?")
    elif damage == "config.json":  # with other settings
        (place / damage).write_text('{"recipe": null, "own_data": null, "config": {}}')
    elif damage:
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "write_round", Mock(side_effect=RunError("the disk is full")))
            with pytest.raises(RunError, match="the disk is full"):
                made_of(todo, own)
    kept = rounds_kept(monkeypatch)
    [measured] = made_of(todo, own)
    assert kept == ([2] if damage in ("", "a full disk") else [1, 2])
    whole = simulate(planned.config, data_dir=tmp_path)
    assert measured["accuracies"] == [record.accuracy for record in whole.rounds]
    assert not place.exists()
    assert missing((LONG,), range(1), own).runs == []


@pytest.mark.slow
def test_the_proven_epsilon_is_that_of_the_statement(tmp_path: Path) -> None:
    target = {"unit": "client-run", "epsilon": 50.0}
    config = find_recipe("quickstart").config.changed(target=target)
    found = [
        (line.epsilon, line.delta)
        for line in plan(config, problem_of(config, None)).privacy.guarantees
        if (line.unit, line.adversary) == ("client-run", "server")
    ]
    best = proven(config, tmp_path)
    assert best is not None
    assert (best.epsilon, best.delta) == min(found)
    assert proven(BASE, tmp_path) is None


def test_a_reason_explains_committed_results_only(own: Measurements, tmp_path: Path) -> None:
    printed = find_recipe("ldp-fl-fmnist")
    target = replace(TINY, cells=(printed,))
    assert compare(target, own)[0].verdict == "explained"
    for seed in range(1 + len(results.published()[printed.name].seeds)):  # one more than committed
        keep(own, printed, seed, *[0.1] * 15)
    [row] = compare(target, own)
    assert measurement(row).mean == pytest.approx(0.1)
    assert (row.verdict, row.why) == ("differs", None)


# The command


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "targets", lambda: {"tiny": TINY})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_the_command_runs_what_it_is_told_to_and_checks_what_was_measured(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # so that no row's name wraps
    (listed,) = json.loads(fedldp_command("reproduce", "--json").out)["targets"]
    assert (listed["target"], listed["cells"], listed["measured"]) == ("tiny", 2, 0)
    assert fedldp_command("reproduce", "--check").status == 0
    document = json.loads(fedldp_command("reproduce", "tiny", "--run", "--seeds", 1, "--json").out)
    assert (document["target"], document["source"]) == ("tiny", "Nobody 2026, Table 9")
    keys = [
        "row",
        "column",
        "recipe",
        "paper",
        "mean",
        "deviation",
        "seeds",
        "difference",
        "verdict",
    ]
    assert all(row.keys() >= {*keys} for row in document["cells"])
    assert [row["seeds"] for row in document["cells"]] == [[0], [0]]
    assert json.loads(fedldp_command("reproduce", "tiny", "--json").out) == document
    assert "0 runs are missing" in fedldp_command("reproduce", "--run", "--seeds", 1).err
    shown = fedldp_command("reproduce", "tiny")
    assert (shown.status, shown.err) == (0, "")
    assert "long" in shown.out
    done = fedldp_command("reproduce", "--check")
    assert done.status == 1
    assert "differs: long, accuracy (long)" in done.err
    assert fedldp_command("reproduce", "short", "--check").status == 0  # one recipe of the target


# The pages and the committed results


def long_of(made: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    [row] = [row for row in made["Nobody 2026"]["cells"] if row["recipe"] == "long"]
    return row


def test_results_with_more_seeds_are_published_and_read_back(
    own: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(own, LONG, 0, 0.1, 0.5)
    keep(own, LONG, 1, 0.3, 0.7)
    both = documents([TINY], own)
    assert all(json.loads(text_of(each)) == each for each in both.values())
    before, empty = rows_of(TINY, own), Measurements(tmp_path / "nothing", tmp_path)
    publish(monkeypatch, both)
    after = rows_of(TINY, empty)
    for name in ("long", "short"):
        found, made = measurement(after[name]), measurement(before[name])
        assert (found.published, found.seeds) == (True, made.seeds)
        assert (found.mean, found.deviation) == pytest.approx((made.mean, made.deviation), abs=1e-6)
    row = long_of(both)
    assert (row["seeds"], row["mean"]) == ([0, 1], 0.6)
    assert row["after"]["1"] == [0.2, pytest.approx(0.141421, abs=1e-6)]
    keep(empty, LONG, 2, 0.1, 0.9)  # fewer seeds than the committed ones
    assert long_of(documents([TINY], empty))["seeds"] == [0, 1]
    assert measurement(rows_of(TINY, empty)["long"]).seeds == [0, 1]
    assert len(missing([LONG], (0, 1), empty).runs) == 2


def test_publishing_nothing_new_changes_no_file(own: Measurements, tmp_path: Path) -> None:
    made = documents([], own)
    found = {
        name: paper.folder / "published.json"
        for name, paper in targets.papers_with_targets().items()
    }
    assert set(made) == set(found)
    for name, file in found.items():
        assert text_of(made[name]) == file.read_text(encoding="utf-8"), file
    names = [row["recipe"] for each in made.values() for row in each["cells"]]
    assert len(set(names)) == len(names) > 200


def test_a_result_of_two_papers_is_kept_once(
    own: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(own, LONG, 0, 0.1, 0.5)
    made = documents([TINY], own)
    publish(monkeypatch, made)
    keep(own, LONG, 1, 0.1, 0.7)
    source = Source(paper="Somebody 2027", place="Table 1", row="again")
    second = replace(LONG, name="second", same_as="long", source=source)
    other = PaperTarget(name="other", paper=source.paper, place=source.place, cells=(second,))
    again = documents([other], own)
    assert "Somebody 2027" not in again
    assert long_of(again)["seeds"] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ldp-fl-fig3", "ldpfl-fig2"])
def test_a_page_has_its_text_its_table_and_a_chart_where_rounds_are_known(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "stated_without_shuffler", statements.recorded_statement)
    target = targets.targets()[name]
    write_page(target, tmp_path)
    text = (tmp_path / f"reproduction_{name}.md").read_text(encoding="utf-8")
    assert target.title in text.partition("\n")[0]
    assert target.text in text
    assert markdown(committed(target)) in text
    has_chart = bool(courses(committed(target, prove=False)))
    assert (f"(reproduction_{name}.svg)" in text) == has_chart
    assert (tmp_path / f"reproduction_{name}.svg").exists() == has_chart
    assert has_chart == (name == "ldp-fl-fig3")


def test_texts_are_those_of_targets_and_each_note_has_its_place() -> None:
    known = targets.targets()
    for paper in targets.papers_with_targets().values():
        assert known.keys() >= paper.about.keys()
        said = "".join(about.text for about in paper.about.values())
        assert all(f"{{{name}}}" in said for name in paper.notes)
        assert (DOCS / paper.page).exists()
