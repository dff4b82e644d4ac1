"""Facts become sentences in one place, and nothing is decided by a sentence."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import pytest

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError
from fedldp.core.facts import (
    KINDS,
    Assumption,
    Caveat,
    Doubt,
    Fact,
    Kind,
    Method,
    NoGuarantee,
    Unprotected,
)
from fedldp.core.kinds import (
    FRESH,
    GAUSSIAN,
    ONE_CLASS,
    OPTIMAL,
    OWN_NOTE,
    SIMULATED,
    SPENT,
    TAKES_PART,
    WEIGHTS,
)
from fedldp.core.registry import scan_papers
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import check_stated, parse_agreement
from fedldp.experiments.comparing.cells import GuaranteeKind
from fedldp.experiments.proving import proven
from fedldp.reporting import words
from fedldp.simulation.plan import plan, problem_of

SRC = Path(fedldp.__file__).parent
EXAMPLES: dict[type, Any] = {
    int: 3, float: 0.25, str: "some", bool: True, NoneType: None, Assumption: FRESH,
    Method: GAUSSIAN, Unprotected: WEIGHTS, Caveat: SIMULATED,
    Doubt: ONE_CLASS,
}  # fmt: skip


def example(wanted: Any) -> Any:
    if isinstance(wanted, UnionType):
        return example(get_args(wanted)[0])
    if get_origin(wanted) is tuple:
        return (example(get_args(wanted)[0]),) * 2
    return EXAMPLES[wanted]


def facts(kind: Kind[Any]) -> Iterator[Fact]:
    """Yield a fact for each form of a kind's words."""
    for form in words.templates()[kind.name].get("when", [{}]):
        values = {name: example(wanted) for name, wanted in kind.fields.items()}
        fixed = {name: None if v == "none" else v for name, v in form.items() if name != "line"}
        if kind.name in ("spent", "cannot-pay"):
            values |= {"unit": "person", "kind": "zcdp"}
        if kind.name == "epsilon-compared":
            values["unit"] = "person"
        if kind.name == "delta-for-so-many":
            values["of"] = "person"
        yield kind(**values | fixed)


@pytest.fixture(scope="module", autouse=True)
def kinds_of_papers_are_declared() -> None:
    scan_papers("preset", object)


def test_every_kind_has_words_and_all_words_have_a_kind() -> None:
    assert words.templates().keys() == KINDS.keys()


@pytest.mark.parametrize("form", [words.line, words.short])
def test_every_kind_is_rendered_with_all_its_values(form: Any) -> None:
    for kind in KINDS.values():
        if form is words.short and kind.family not in (Assumption, Caveat, Doubt):
            continue
        for fact in facts(kind):
            told = form(fact)
            assert told
            assert "{" not in told
            if form is words.short:
                assert len(words.templates()[kind.name].get("short", told)) <= 44, kind.name
            assert type(fact).from_json(json.loads(json.dumps(fact.to_json()))) == fact


def test_a_value_of_a_newer_version_is_shown_as_it_is() -> None:
    told = words.line(OPTIMAL(tight="newer"))
    assert told == 'optimal-composition: {"tight": "newer"}'
    assert "newer" in words.line(SPENT(unit="newer", kind="newer", spent=1.0))


def test_a_kind_of_a_newer_version_is_kept_and_shown() -> None:
    found = Caveat.from_json({"kind": "newer", "values": {"of": [1, "b"]}, "text": "never read"})
    assert found.values == {"of": (1, "b")}
    assert words.line(found) == 'newer: {"of": [1, "b"]}'


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change every sentence, as a patch release may."""

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(each) for each in value]
        return {
            key: f"in other words, {text}"
            if key in ("line", "short", "if")
            else changed(text)
            if isinstance(text, list)
            else text
            for key, text in value.items()
        }

    found = {kind: changed(entry) for kind, entry in words.templates().items()}
    monkeypatch.setattr(words, "templates", lambda: found)


def test_other_words_change_no_statement_agreement_or_decision(
    other_words: None, tmp_path: Path
) -> None:
    config = find_recipe("person-dp-sgd-digits").config
    privacy = plan(config, problem_of(config, None)).privacy
    document = words.document(privacy)
    assert "in other words, " in document["guarantees"][0]["method"]["text"]
    assert Statement.from_json(json.loads(json.dumps(document))) == privacy
    line = privacy.guarantees[0]
    kind = GuaranteeKind(line.unit, line.adversary, line.delta)
    assert proven(privacy, kind).epsilon == line.epsilon
    sites = {name: (name * 64)[:64] for name in "abc"}
    agreed = agree(
        config.changed(num_clients=3), problem_of(config, None), sites, channel="named", test_seed=0
    )
    assert "in other words" not in json.dumps(agreed.document)


def test_an_agreement_holds_after_its_words_have_changed(
    request: pytest.FixtureRequest,
) -> None:
    config = find_recipe("person-dp-sgd-digits").config.changed(num_clients=3)
    sites = {name: (name * 64)[:64] for name in "abc"}
    made = agree(config, problem_of(config, None), sites, channel="named", test_seed=0)
    content = json.dumps(made.document).encode()
    request.getfixturevalue("other_words")
    check_stated(parse_agreement(content))


def test_no_rendered_text_is_compared() -> None:
    rendering = {"line", "short", "method_of", "assumptions_of", "size_of"}

    def renders(node: ast.AST) -> bool:
        return any(
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in rendering
            and isinstance(each.func.value, ast.Name)
            and each.func.value.id == "words"
            for each in ast.walk(node)
        )

    found = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and renders(node)
    ]
    assert found == []


def test_values_are_checked() -> None:
    for wrong in ({"rounds": True}, {"rounds": 1.0}, {}, {"rounds": 1, "more": 2}):
        with pytest.raises(ConfigError, match="takes-part-at-most"):
            TAKES_PART(**wrong)
    with pytest.raises(ConfigError):
        NoGuarantee.from_json(FRESH.to_json())


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        ("delta", 2.0),
        ("delta", 1e-5),  # of a pure line
        ("lower", 1e9),
        ("kind", "approximate"),
        ("neighbours", "replace-record"),
        ("epsilon", -1.0),
        ("assumptions", {}),
        ("assumptions", "none"),
        ("stated_by", "\x1b[2J"),
    ],
)
def test_a_line_that_was_tampered_with_is_refused(at: str, wrong: Any) -> None:
    config = fedldp.recipe("quickstart")
    found = json.loads(json.dumps(words.document(plan(config, problem_of(config, None)).privacy)))
    assert Statement.from_json(found).guarantees
    found["guarantees"][0][at] = wrong
    with pytest.raises(ConfigError, match=at):
        Statement.from_json(found)
    with pytest.raises(ConfigError, match="warnings"):
        Statement.from_json({**found, "guarantees": [], "warnings": {}})
    claim = {"epsilon": 1.0, "delta": 1.5, "unit": "weight", "source": "a paper"}
    with pytest.raises(ConfigError, match="delta"):
        Statement.from_json({**found, "guarantees": [], "claim": claim})


def test_a_value_that_fits_no_template_is_shown_as_it_is() -> None:
    # A paper's kind: while its module is not loaded, its values are not checked.
    fact = Unprotected("labels", (("bits_epsilon", "much"),))
    assert "much" in words.line(fact)


def test_no_control_character_of_a_note_reaches_a_terminal() -> None:
    note = OWN_NOTE(of="own", text="red \x1b[31m, \x9b1m and\r\u2028\u202etext é")
    for told in (words.line(note), words.short(note)):
        assert told.isprintable()
        assert r"red \x1b[31m, \x9b1m and\r\u2028\u202etext é" in told
    assert words.line(Caveat("new\x1b", (("of", "\x1b"),))).isprintable()
