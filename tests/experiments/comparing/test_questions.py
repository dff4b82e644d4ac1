"""The questions about a table: nothing of its rows is in the file, and answered it can be used."""

from __future__ import annotations

import csv
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedldp
from fedldp.core.errors import FedldpError, SeveralErrors
from fedldp.data import load_examples
from fedldp.data.columns import Columns
from fedldp.experiments.advising import draft
from fedldp.experiments.advising.asking import checked_data, read_request
from fedldp.experiments.advising.questions import OPEN

WORDS = st.text("abcdefghijklmnop", max_size=5).map("w".__add__)
CELLS = {
    "numbers": st.one_of(st.integers(-999, 99999), st.floats(-1e6, 1e6)).map(str),
    "truths": st.sampled_from(["true", "False"]),
    "strings": WORDS | st.from_regex(r"0[0-9]{1,4}", fullmatch=True),  # such as zip codes
    "dates": st.dates().map(str),
}
NAMES = st.one_of(WORDS, st.sampled_from(["Ärztin", "a b", 'q"uo.te', "", "Unnamed: 0", "[x]"]))
KINDS = st.dictionaries(NAMES, st.sampled_from(sorted(CELLS)), min_size=1, max_size=5)


def write(path: Path, columns: dict[str, list[str]]) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def filled(data: st.DataObject, kinds: dict[str, str]) -> dict[str, list[str]]:
    """Return rows of these kinds, some of whose cells are missing."""
    count = data.draw(st.integers(1, 12))
    found = {}
    for name, kind in kinds.items():
        first = data.draw(CELLS[kind])
        rest = st.lists(CELLS[kind] | st.just(""), min_size=count - 1, max_size=count - 1)
        found[name] = [first, *data.draw(rest)]
    return found


@given(st.data(), KINDS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_with_the_same_columns_and_kinds_give_the_same_file(
    tmp_path: Path, data: st.DataObject, kinds: dict[str, str]
) -> None:
    texts = []
    for _ in range(2):
        table = write(tmp_path / "t.csv", filled(data, kinds))
        place = tmp_path / "t.toml"
        place.unlink(missing_ok=True)
        found = draft(table, place)
        assert [(each.name, each.kind) for each in found.columns] == list(kinds.items())
        texts.append(place.read_bytes())
    assert texts[0] == texts[1]
    questions = tomllib.loads(texts[0].decode())
    assert questions.pop("dataset") == "t.csv"
    left_out = questions.pop("ignore_columns")
    asked = {name for table in questions.values() if isinstance(table, dict) for name in table}
    assert asked | set(left_out) == set(kinds)
    for value in questions.values():
        assert value == OPEN or set(value.values()) == {OPEN}


def test_how_often_numbers_repeat_is_shown_to_the_owner_and_changes_no_file(tmp_path: Path) -> None:
    """Whether nearly all rows differ is read from the rows, as a range would be."""
    count = 200
    columns = {
        "case no": [str(70_000 + 13 * row - (row == 5) * 13) for row in range(count)],  # one twice
        "age": [str(20 + row % 70) for row in range(count)],
        "mg": [f"{row / 8}" for row in range(count)],
        "where": ["N", "S"] * (count // 2),
    }
    table = write(tmp_path / "t.csv", columns)
    found = draft(table, client="where")
    questions = tomllib.loads(found.text)
    assert not questions["ignore_columns"]
    assert list(questions["scale_columns"]) == ["case no", "age", "mg"]
    kinds = {each.name: each.kind for each in found.columns}
    assert kinds == {
        "case no": "identifiers", "age": "numbers", "mg": "numbers", "where": "strings"
    }  # fmt: skip
    assert draft(table, person="case no").text.count("case no") == 1
    for rows, repeat in ((200, 2), (20, 1)):
        other = {name: cells[:rows:repeat] * repeat for name, cells in columns.items()}
        told = draft(write(table, other), client="where")
        assert "identifiers" not in {each.kind for each in told.columns}
        assert told.text == found.text


@pytest.mark.parametrize("name", ["", "a b"])
def test_messages_name_every_column_also_one_without_a_name(tmp_path: Path, name: str) -> None:
    table = write(tmp_path / "t.csv", {"x": ["1"], name: ["2"]})
    shown = name if name.strip() else repr(name)
    with pytest.raises(FedldpError, match=f"its columns are x, {shown}$"):
        draft(table, person="who")
    with pytest.raises(FedldpError, match=f"its columns are x, {shown}$"):
        load_examples(table, columns=Columns(label="y"))


@pytest.mark.parametrize(
    ("label", "is_asked"),
    [("days", True), ("few", True), (None, True), ("ill", False), ("again", False)],
)
def test_a_range_is_asked_for_labels_of_the_kind_numbers_whatever_their_values(
    tmp_path: Path, label: str | None, is_asked: bool
) -> None:
    table = write(tmp_path / "t.csv", {
        "where": ["N", "S", "N"], "days": ["1.5", "12", "40"], "few": ["0", "1", "0"],
        "ill": ["yes", "no", "no"], "again": ["true", "false", "true"],
    })  # fmt: skip
    questions = tomllib.loads(draft(table, client="where", label=label).text)
    found = {
        name: questions[name] for name in ("label_range", "label_typical") if name in questions
    }
    assert found == (dict.fromkeys(("label_range", "label_typical"), OPEN) if is_asked else {})


def test_answers_about_numbers_reach_the_runs(tmp_path: Path) -> None:
    days = [str(each) for each in range(40)]
    write(tmp_path / "t.csv", {"where": ["N", "S"] * 20, "days": days, "sex": ["f", "m"] * 20})
    place = tmp_path / "t.toml"
    draft(tmp_path / "t.csv", place, client="where", label="days")
    answer(place, person_column="", label_range="[0, 30]", label_typical="4")
    answer(place, categories__sex='["f", "m"]')
    request = read_request(place, client=None, person=None, label=None, settings={})
    assert request.config.label_range == [0.0, 30.0]
    assert request.ruled["label_typical"] == 4
    with pytest.raises(FedldpError, match="only 32 rows to train on"):
        checked(place)


def visits(path: Path, people: int = 300) -> Path:
    draw = random.Random(3)
    rows: list[list[Any]] = []
    for person in range(people):
        age, sex = draw.randint(18, 95), draw.choice("fm")
        for visit in range(draw.choice([1, 1, 2])):
            ill = "yes" if draw.gauss((age - 60) / 10, 1) > 0 else "no"
            rows.append([len(rows), f"2024-05-{1 + visit:02d}", f"P{person}", "NS"[person % 2],
                         age if draw.random() > 0.05 else "n/a", sex, ill])  # fmt: skip
    names = ["", "day", "who", "where", "age", "sex", "again"]
    return write(path, {name: [str(row[at]) for row in rows] for at, name in enumerate(names)})


def answer(place: Path, **answers: str) -> None:
    """Replace open questions of a file; a name with an underscore before it removes its line."""
    lines = place.read_text().splitlines()
    for name, value in answers.items():
        table, _, key = name.rpartition("__")
        at = lines.index(f"[{table}]") if table else 0
        at += next(i for i, line in enumerate(lines[at:]) if line.startswith(f"{key} = "))
        lines[at] = f"{key} = {value}" if value else ""
    place.write_text("\n".join(lines) + "\n")


def checked(place: Path) -> Any:
    request = read_request(place, client=None, person=None, label=None, settings={})
    return request, checked_data(request, lambda: request.load(None), asked=True)


ANSWERS = {
    "scale_columns__age": "[0, 120]",
    "fill_columns__age": "50",
    "categories__sex": '["f", "m"]',
    "people": "50_000",
    "sites": "2",
}


def test_a_file_is_refused_until_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    visits(Path("t.csv"))
    found = draft("t.csv", "t.toml", client="where")
    assert "n/a" not in found.text
    assert "P1" not in repr(found)
    place = Path("t.toml")
    with pytest.raises(SeveralErrors) as refused:
        checked(place)
    assert [line.split(" = ")[0] for line in refused.value.lines] == [
        "person_column", "label_column",
    ]  # fmt: skip
    answer(place, person_column='"who"', label_column='"again"')
    with pytest.raises(SeveralErrors) as refused:
        checked(place)
    assert len(refused.value.lines) == 3  # the range of ages, their gaps, and the strings of sex
    answer(place, **ANSWERS)
    answer(place, class_shares="[0.5, 0.5]", by_columns='["sex"]')
    request, data = checked(place)
    assert request.by_columns == ("sex",)
    assert request.config.class_shares == [0.5, 0.5]
    assert data.classes == ("no", "yes")
    assert data.features == ("age", "age=missing", "sex=f", "sex=m")
    assert request.delta_for("person") == 2e-6  # 0.1 / 50,000
    assert "at most 0.1/50,000 for the declared people" in request.delta_in_words("person")
    kinds = request.comparison(lambda: data).contestants.values()
    assert {each.guarantee.delta for each in kinds} == {2e-6}
    with pytest.raises(FedldpError, match="it exists; choose another file"):
        draft("t.csv", place)


def test_columns_that_are_clear_already_are_answered_in_the_file(
    tmp_path: Path, fedldp_command: Any
) -> None:
    table = visits(tmp_path / "t.csv")
    named = ["--client", "where", "--person", "who", "--label", "again", "--by", "sex,where"]
    command = ["advise", str(table), *named, "--draft", str(tmp_path / "t.toml")]
    assert fedldp_command(*command).status == 0
    questions = tomllib.loads((tmp_path / "t.toml").read_text())
    assert questions["by_columns"] == ["sex", "where"]
    assert [questions[f"{role}_column"] for role in ("client", "person", "label")] == named[1:6:2]
    with pytest.raises(FedldpError, match=r"by_columns = ward: .* has no such column"):
        draft(table, by=["ward"])
    line = fedldp_command(*command, "--set", "people=300").assert_refused()
    assert "it does not go with --set" in line


def test_declared_facts_must_be_those_of_the_table(tmp_path: Path) -> None:
    visits(tmp_path / "t.csv")
    place = tmp_path / "t.toml"
    draft(tmp_path / "t.csv", place, client="where", person="who", label="again")
    answer(place, **{**ANSWERS, "people": "120", "sites": "3"})
    with pytest.raises(SeveralErrors) as refused:
        checked(place)
    assert [line.split(":")[0] for line in refused.value.lines] == ["sites = 3", "people = 120"]


@pytest.mark.parametrize(
    ("declared", "delta"),
    [({}, 1e-5), ({"people": 9000}, 1e-5), ({"people": 12_000}, 8e-6),
     ({"people": 12_000, "delta": 1e-6}, 1e-6)],
)  # fmt: skip
def test_delta_follows_from_declared_people_and_never_from_rows(
    tmp_path: Path, declared: dict[str, Any], delta: float
) -> None:
    visits(tmp_path / "t.csv")
    request = read_request(
        tmp_path / "t.csv", client="where", person="who", label="again", settings=declared
    )
    assert request.delta_for("person") == delta


@pytest.mark.slow
def test_an_answered_file_gives_a_page(tmp_path: Path) -> None:
    visits(tmp_path / "t.csv")
    place = tmp_path / "t.toml"
    fedldp.draft(tmp_path / "t.csv", place, client="where", person="who", label="again")
    answer(place, **ANSWERS)
    said: list[str] = []
    found = fedldp.advise(
        place, out=tmp_path / "out", epsilon=[8.0], seeds=[0], budget=1e-9, say=said.append
    )
    assert (tmp_path / "out" / "advice.html").exists()
    told = "delta is 2e-06: at most 1e-5, and at most 0.1/50,000 for the declared people"
    assert f"note: {told}" in said
    assert told in found.warnings
    assert "here 2e-06, for which" in (tmp_path / "out" / "advice.html").read_text()
    assert found.request.delta_for("person") == 2e-6
