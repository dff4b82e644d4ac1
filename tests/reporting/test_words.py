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
from fedldp.accounting.guarantees import Unit
from fedldp.accounting.proven import Proven, Together
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
from fedldp.core.formatting import rows_named, with_class_name
from fedldp.core.kinds import (
    FRESH,
    GAUSSIAN,
    ONE_CLASS,
    OPTIMAL,
    OWN_CODE,
    OWN_NOTE,
    SIMULATED,
    SPENT,
    TAKES_PART,
    WEIGHTS,
)
from fedldp.core.registry import paper_modules
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, check_stated
from fedldp.experiments.proving import GuaranteeKind, proven
from fedldp.reporting import words
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping
from fedldp.training.answers import Answer, as_metrics

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
        fixed = {
            name: None if value == "none" else tuple(value) if isinstance(value, list) else value
            for name, value in form.items()
            if name != "line"
        }
        if kind.name in ("spent", "cannot-pay"):
            values |= {"unit": "person", "kind": "zcdp"}
        if kind.name == "epsilon-compared":
            values["unit"] = "person"
        if kind.name == "delta-for-so-many":
            values["of"] = "person"
        lists = {name: tuple(v) for name, v in fixed.items() if isinstance(v, list)}
        yield kind(**values | fixed | lists)


@pytest.fixture(scope="module", autouse=True)
def kinds_of_papers_are_declared() -> None:
    list(paper_modules("preset"))


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
    request: pytest.FixtureRequest,
) -> None:
    config = find_recipe("person-dp-sgd-digits").config.changed(num_clients=3)
    problem = problem_of(config, None)
    sites = {name: (name * 64)[:64] for name in "abc"}
    before = json.dumps(agree(config, problem, sites, channel="named", test_seed=0).document)
    request.getfixturevalue("other_words")
    privacy = plan(config, problem).privacy
    document = words.document(privacy)
    assert "in other words, " in document["guarantees"][0]["method"]["text"]
    assert Statement.from_json(json.loads(json.dumps(document))) == privacy
    line = privacy.guarantees[0]
    kind = GuaranteeKind(line.unit, line.adversary, line.delta)
    assert proven(privacy, kind).epsilon == line.epsilon
    agreed = agree(config, problem, sites, channel="named", test_seed=0)
    assert "in other words" not in json.dumps(agreed.document)
    check_stated(Agreement.parse(before.encode()))  # made before its words changed


NOT_RENDERING = {"templates", "names", "fits", "at", "facts", "shown", "document", "figure"}
READERS = {
    "startswith", "endswith", "find", "index", "count", "split", "partition", "rpartition",
    "removeprefix", "removesuffix", "match", "fullmatch", "search", "findall",
}  # fmt: skip


def compared(tree: ast.Module) -> list[int]:
    """Return the lines where something is decided by text that words rendered."""
    rendering = {
        name
        for name, each in vars(words).items()
        if getattr(each, "__module__", None) == words.__name__ and name not in NOT_RENDERING
    }

    def renders(node: ast.AST) -> bool:
        return any(
            isinstance(each, ast.Attribute)
            and each.attr in rendering
            and isinstance(each.value, ast.Name)
            and each.value.id == "words"
            for each in ast.walk(node)
        )

    return [
        node.lineno
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.Compare)
            and not all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
            and renders(node)
        )
        or (isinstance(node, ast.Match) and renders(node.subject))
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in READERS
            and renders(node)
        )
    ]


@pytest.mark.slow
def test_no_rendered_text_is_compared() -> None:
    found = [
        f"{path.relative_to(SRC)}:{line}"
        for path in sorted(SRC.rglob("*.py"))
        for line in compared(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "if words.line(fact) == told: pass",
        "found = 'scores' in words.size_of(line)",
        "is_own = words.standing(line).startswith('stated')",
        "re.search('proven', words.explain(privacy))",
    ],
)
def test_a_comparison_of_rendered_text_is_found(code: str) -> None:
    assert compared(ast.parse(code)) == [1]


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


def test_facts_of_several_rows_are_named_once_each_those_of_all_rows_first() -> None:
    both, one = (TAKES_PART(rounds=2), SIMULATED), OWN_CODE(of=("mine:A",))
    first, second = words.by_rows("condition", {"a": both, "b": (*both, one)})
    assert first == f"condition: {words.short(both[0])}; {words.short(SIMULATED)}"
    assert second == f"condition of b: {words.short(one)}"


def test_what_epsilons_of_a_row_do_not_share_is_told_in_one_sentence() -> None:
    """Advice once had a line for each epsilon of each kind of trust; none of its facts is lost."""
    rounds = {at: TAKES_PART(rounds=round(10 * at)) for at in (4.0, 0.5, 2.0)}
    late = OWN_CODE(of=("mine:A",))
    rows: dict[str, list[Fact]] = {"no noise": [SIMULATED], "b at epsilon 4": [SIMULATED, late]}
    for at, each in rounds.items():
        rows[f"a at epsilon {at:g}"] = [SIMULATED, each, *([late] if at > 1 else [])]
    assert words.by_rows("condition", rows) == [
        f"condition: {words.short(SIMULATED)}",
        f"condition of a at epsilon 0.5: {words.short(rounds[0.5])}; at epsilon 2: "
        f"{words.short(rounds[2.0])}; at epsilon 2 and 4: {words.short(late)}; at epsilon 4: "
        f"{words.short(rounds[4.0])}",
        f"condition of b at epsilon 4: {words.short(late)}",
    ]
    shared = {"a at epsilon 1": [late, SIMULATED], "a at epsilon 2": [SIMULATED], "b": []}
    assert words.by_rows("condition", shared) == [
        f"condition of a: {words.short(SIMULATED)}; at epsilon 1: {words.short(late)}"
    ]
    rows["a"] = [late]
    assert f"condition of a, b at epsilon 4: {words.short(late)}" in words.by_rows(
        "condition", rows
    )


def test_runs_that_protect_nothing_are_counted_once_for_all_units() -> None:
    units: list[Unit] = ["record", "person"]
    bare = [
        Proven(epsilon=None, delta=0.0, unit=unit, adversary="server", conditions=())
        for unit in units
    ]
    nothing = [Together(proven=each, runs=0, unprotected=2) for each in bare]
    (line,) = words.together_lines(nothing, 0)
    assert line.startswith("2 runs on the same rows protect nothing")


def test_rows_are_named_once_with_their_epsilons_ascending() -> None:
    rows = [f"a at epsilon {each}" for each in ("2", "1", "10", "0.5", "1e-05")]
    assert rows_named([*rows, "b"]) == "a at epsilon 1e-05, 0.5, 1, 2 and 10, b"
    assert rows_named(["a at epsilon 4", "b at epsilon 2", "b at epsilon 1", "at epsilon x"]) == (
        "a at epsilon 4, b at epsilon 1 and 2, at epsilon x"
    )


def test_classes_are_told_by_their_names_where_these_are_known() -> None:
    classes = ("no", "yes")
    for question, told in {
        "share of class 1": "share of class yes",
        "observed share of class 0, sex=f": "observed share of class no, sex=f",
        "AUC of class 1, client 1": "AUC of class yes, client 1",
        "AUC, ward of class 1": "AUC, ward of class 1",
        "share of class 2": "share of class 2",
        "AUC": "AUC",
    }.items():
        assert with_class_name(question, classes) == told
        assert with_class_name(question, ("0", "1", "2")) == question
    metrics = as_metrics([Answer("share of class 1", 0.25, 0.01)])
    assert words.asked(metrics, classes) == ["share of class yes 0.25 ± 0.01"]


def test_an_interval_is_told_by_its_ends_if_these_are_unequally_far() -> None:
    metrics = as_metrics([Answer("median of x", 5.0, 2.0, below=1.0), Answer("q", None, 2.0)])
    assert words.asked(metrics, ()) == ["median of x 5 (4 to 7)", "q not seen ± 2"]


@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_what_leads_names_every_adversary_whom_the_budget_is_about(channel: str) -> None:
    config = from_mapping(
        {
            "system": "person_dp_sgd", "dataset": "digits", "epsilon": 4.0, "delta": 1e-5,
            "rounds": 3, "num_clients": 10, "model": "linear", "learning_rate": 1.0,
            "channel": channel,
        }
    )  # fmt: skip
    privacy = plan(config, problem_of(config, None)).privacy
    setting = config.epsilon_in_words(privacy.guarantees)
    assert setting is not None
    adversary = setting.split("against a ")[1].split()[0]
    told = words.lead(config.model_dump(), privacy)
    assert f"against the {adversary}" in told
    if channel == "sum":  # the stronger adversary stands first, as in the table
        assert told.index("against the server") < told.index("; 3.9998 against the summing-server")
