"""The page of a run or of several: what it shows, and that nothing else gets into it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pages import Page

from fedldp.accounting.statement import Claim
from fedldp.reporting import charts, words
from fedldp.reporting.card import alone
from fedldp.reporting.html import page
from fedldp.reporting.runs import FinishedRun, command, twin_of
from fedldp.simulation.result import read_run
from fedldp.simulation.settings import resolve

SAFE_HREF = re.compile(r"#[\w-]+|data:,")


@pytest.fixture(scope="module")
def both(runs: dict[str, Path]) -> list[FinishedRun]:
    return [read_run(runs[name]) for name in ("quickstart", "fedavg-quickstart")]


@pytest.fixture(scope="module", params=[1, 2])
def made(request: pytest.FixtureRequest, both: list[FinishedRun]) -> str:
    return page(both[: request.param])


# One file, accessible to everyone


def assert_self_contained(document: str) -> Page:
    """Check that a page asks for nothing, runs nothing, and is well formed; return it."""
    read = Page(document)
    assert not {tag for tag, _ in read.elements} & {"script", "iframe", "object", "embed", "base",
                                                    "form", "img", "foreignobject"}  # fmt: skip
    for tag, attributes in read.elements:
        assert not {name for name in attributes if name.startswith("on")}, tag
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert SAFE_HREF.fullmatch(attributes.get(name) or "#a"), attributes
    assert not re.search(r"url\((?!#)|@import|https?:", document)
    return read


def test_a_page_is_one_small_file_without_scripts(made: str) -> None:
    assert_self_contained(made)
    assert len(made.encode()) < 1_000_000


def test_every_id_is_unique_and_every_link_leads_to_one(made: str) -> None:
    read = Page(made)
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"] for tag, a in read.elements if tag in ("a", "use") and "href" in a]
    assert {link[1:] for link in links if link} <= set(ids)


def test_pictures_have_a_description_in_words(made: str) -> None:
    read = Page(made)
    assert read.all("html")[0]["lang"] == "en"
    assert len(read.all("h1")) == 1
    assert all("scope" in header for header in read.all("th"))
    pictures = [a for _, a in read.elements if a.get("role") == "img"]
    assert len(pictures) == len(read.all("svg"))
    assert all("run 1: from" in p["aria-label"] or "claimed: " in p["aria-label"]
               for p in pictures if p["aria-label"] is not None)  # fmt: skip
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert all(b <= a + 1 for a, b in pairwise(levels))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2.1 defines it."""

    def luminance(colour: str) -> float:
        full = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(full[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_have_enough_contrast_in_light_dark_and_print(made: str) -> None:
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", part))
        for part in re.findall(r":root \{(.*?)\}", made, flags=re.DOTALL)
    ]
    assert len(schemes) == 3
    for scheme in schemes:
        for name in ("ink", "quiet", "link", "bad", *(f"series-{i}" for i in range(6))):
            assert contrast(scheme[name], scheme["paper"]) >= 4.5, name
        assert contrast(scheme["ink"], scheme["note"]) >= 4.5
        assert contrast(scheme["ink"], scheme["soft"]) >= 4.5


# Contents


def test_the_command_repeats_a_run_beside_its_folder(
    both: list[FinishedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = both[0]
    *start, file = shlex.split(command(run) or "")
    assert start == ["fedldp", "run"]
    monkeypatch.chdir(run.path.parent)
    assert resolve(file).model_dump(mode="json") == run.summary["config"]


def test_no_command_is_shown_for_a_run_it_would_not_repeat(both: list[FinishedRun]) -> None:
    def changed(own_data: Any = None, **summary: Any) -> FinishedRun:
        whole = both[0].summary | summary
        return replace(both[0], summary=whole, own_data=own_data)

    assert command(changed()) is not None
    assert command(changed(recipe=None)) is not None
    assert command(changed(own_data="digits: (5, 64), (5, 64)")) is None
    assert command(changed(seed=None)) is None  # real sites
    odd = command(replace(both[0], path=Path("--out=x; y"))) or ""
    assert shlex.split(odd)[2:] == ["./--out=x; y/config.json"]


def test_every_line_has_its_assumptions_and_method(both: list[FinishedRun]) -> None:
    text = Page(page(both[:1])).text()
    lines = both[0].privacy.guarantees
    assert len(lines) > 4
    for line in lines:
        assert words.method_of(line) in text
        assert all(assumption in text for assumption in words.assumptions_of(line))


def test_the_picture_has_different_marks_for_claim_proof_and_no_guarantee(
    both: list[FinishedRun],
) -> None:
    private, noiseless = (Page(page([run])).text("text", "tspan") for run in both)
    assert "claimed 1" in private
    assert "proven 1" in private
    assert "no guarantee" not in private
    assert noiseless.count("no guarantee") == 2
    assert "claimed" not in noiseless
    assert "beyond the dotted line, 20: practically no protection" in Page(page([both[1]])).text()


def test_a_claim_about_a_unit_without_a_line_is_still_drawn(both: list[FinishedRun]) -> None:
    claim = Claim(epsilon=0.0, delta=0.0, unit="record", source="somebody")
    text = Page(alone(charts.guarantees(replace(both[1].privacy, claim=claim)))).text(
        "text", "tspan"
    )
    assert "claimed 0" in text
    assert "nothing is stated" in text


@pytest.mark.parametrize("name", ["seed", "rounds", "learning_rate", "dataset", "class_weights"])
def test_a_run_with_different_training_is_not_a_twin(both: list[FinishedRun], name: str) -> None:
    config = both[1].summary["config"] | {name: 77}
    other = replace(both[1], summary=both[1].summary | {"config": config})
    assert twin_of(both[0], [both[0], other]) is None


# Charts

PATHS = re.compile(r"(?:[MLHVhvlmaz]|-?\d+(?:\.\d+)?[ ,]?)+")
MARKED = re.compile(r'translate\(([\d.]+) ([\d.]+)\)" style="fill:#000')


def marks_of(drawing: str) -> list[tuple[float, float]]:
    """Return the places of the marks above the legend of a chart of one series."""
    return [(float(x), float(y)) for x, y in MARKED.findall(drawing)]


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("values", [(1.0,), (0.0, 0.0), (3.0, -2.0, 1e6), (1e-9, 2e-9, 1.5e-9)])
def test_marks_are_where_the_ticks_say(values: tuple[float, ...], logarithmic: bool) -> None:
    """Whatever the numbers are, the axes lead from a mark back to its point."""
    points = [(2.0**n, value) for n, value in enumerate(values)]
    made = charts.lines([("a", points)], across="x", up="y", logarithmic=logarithmic)
    drawing = alone(made)
    assert all(PATHS.fullmatch(found) for found in re.findall(r' d="([^"]*)"', drawing))
    marks = marks_of(drawing)
    assert len(marks) == len(points)
    for axis, ticks in ((0, made["x_ticks"]), (1, made["y_ticks"])):
        assert 1 <= len(ticks) <= 8
        known = [(place, float(text.replace(",", ""))) for place, text in ticks]
        assert all(0 <= place <= 320 for place, _ in known)
        for mark, point in zip(marks, points, strict=True):
            value, scale = point[axis], (math.log if logarithmic and not axis else float)
            if len(known) > 1:
                (first, low), *_, (last, high) = known
                share = (mark[axis] - first) / (last - first)
                found = scale(low) + share * (scale(high) - scale(low))
                assert found == pytest.approx(scale(value), abs=0.005 * (scale(high) - scale(low)))


def test_bars_levels_and_the_legend_are_drawn() -> None:
    of_a = [(0.5, 0.6, 0.1), (2.0, 0.7, math.nan)]
    made = charts.lines([("a", of_a), ("b", [])], levels=[("none", 0.9)], across="x", up="y")
    assert [len(each.get("bars", ())) for each in made["series"]] == [1, 0, 0]
    drawing = alone(made)
    assert all(f">{label}</text>" in drawing for label in ("a", "b", "none"))
    assert "nan" not in drawing


def test_a_long_run_is_a_line_without_marks() -> None:
    points = [(float(n), n / 100) for n in range(300)]
    drawing = alone(charts.lines([("a", points)], across="round", up="accuracy"))
    assert marks_of(drawing) == []
    assert len(drawing) < 10_000


# Folders from other people

HOSTILE = "</text></svg><script>alert(1)</script>\"'><img src=x onerror=alert(2)>$\\frac{\ud800"
KEPT = ("unit", "adversary", "neighbours", "kind")
"""What a statement's reader refuses unless it knows it."""


def hostile(value: Any, text: str = HOSTILE) -> Any:
    """Return a document with every text replaced; who states or claims something is printable."""
    if isinstance(value, dict):
        return {
            (HOSTILE if key == "epsilon" and "mechanism" in value else key): one
            if key in KEPT
            else hostile(one, HOSTILE[:-1] if key in ("source", "stated_by") else text)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [hostile(one, text) for one in value]
    return text if isinstance(value, str) else value


def test_every_rounds_ranges_are_shown(
    own_copy: Callable[..., Path], both: list[FinishedRun]
) -> None:
    assert both[0].radii == [[0.2, 0.2]] * len(both[0].summary["rounds"])
    assert both[1].radii == []  # fedavg has none
    assert "radius of the ranges" not in page(both[1:])
    folder = own_copy()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[0]["radii"] = [0.125, 0.5]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert "0.125 to 0.5" in page([read_run(folder)])


@pytest.mark.slow
def test_text_from_a_folder_is_not_markup(
    own_copy: Callable[..., Path], both: list[FinishedRun]
) -> None:
    folder = own_copy(to="<b onclick=alert(3)>")
    for name in ("summary.json", "environment.json"):
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(hostile(document)))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["metrics"], line["refused"] = {HOSTILE: 1.0}, {HOSTILE: 2}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = read_run(folder)
    for shown in ([run], [run, *both]):
        read = assert_self_contained(page(shown))
        assert "<script>alert(1)</script>" in read.text()  # as text
        assert not {tag for tag, _ in read.elements} & {"script", "img"}
        page(shown).encode()


def test_classes_have_the_names_of_the_users_table(
    own_copy: Callable[..., Path], both: list[FinishedRun]
) -> None:
    folder = own_copy()
    assert f'<th scope="row">{len(both[0].classes) - 1}</th>' in page([read_run(folder)])
    found = json.loads((folder / "schema.json").read_text())
    found["classes"] = [f"<b>ill {k}" for k in range(found["num_classes"])]
    (folder / "schema.json").write_text(json.dumps(found))
    document = page([read_run(folder)])
    assert '<th scope="row">&lt;b&gt;ill 1</th>' in document
    assert '<th scope="col" class="n">&lt;b&gt;ill 1</th>' in document
