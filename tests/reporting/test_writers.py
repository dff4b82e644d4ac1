"""Every writer shows every condition of an epsilon and every doubt about a score."""

from __future__ import annotations

import ast
import html
import io
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_words import facts

import fedldp
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.proven import Proven, Together
from fedldp.accounting.statement import Statement
from fedldp.core.facts import KINDS, Assumption, Caveat, Doubt, Fact
from fedldp.core.kinds import GAUSSIAN
from fedldp.core.registry import paper_modules
from fedldp.experiments.advising.advice import Advice
from fedldp.experiments.advising.asking import read_request
from fedldp.experiments.advising.intervals import held_people
from fedldp.experiments.advising.plan import TRUSTS, unit_of
from fedldp.experiments.advising.running import page_of
from fedldp.experiments.comparing.compared import Compared
from fedldp.experiments.comparing.comparison import Line
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.sweeping.results import Combination, Sweep
from fedldp.experiments.sweeping.sweeps import shown_of
from fedldp.reporting import export, words
from fedldp.reporting.card import model_card, privacy_document
from fedldp.reporting.html import page
from fedldp.reporting.runs import FinishedRun, read_finished
from fedldp.reporting.scores import Figure
from fedldp.reporting.text import Displayed, Terminal
from fedldp.reporting.words import explain
from fedldp.simulation.result import Result

SRC = Path(fedldp.__file__).parent


def every(family: type[Fact]) -> list[Any]:
    return [next(facts(kind)) for kind in KINDS.values() if kind.family is family]


@dataclass
class Made:
    """Results with every kind of condition and doubt, for each writer."""

    folder: Path
    into: Path

    @cached_property
    def doubts(self) -> list[Doubt]:
        return every(Doubt)

    @cached_property
    def statement(self) -> Statement:
        line = Guarantee(
            unit="client-run",
            adversary="server",
            epsilon=1.0,
            delta=1e-5,
            method=GAUSSIAN,
            assumptions=frozenset(every(Assumption)),
        )
        return Statement(claim=None, guarantees=(line,), warnings=tuple(every(Caveat)))

    @cached_property
    def proven(self) -> Proven:
        return Proven.of(self.statement, "client-run", "server")

    @cached_property
    def together(self) -> Together:
        return Together(proven=self.proven, runs=2, unprotected=1)

    @cached_property
    def run(self) -> FinishedRun:
        found = read_finished(self.folder)
        told = {"privacy": words.document(self.statement), "doubts": words.facts(self.doubts)}
        return replace(found, summary={**found.summary, **told})

    @cached_property
    def result(self) -> Result:
        found = fedldp.load(self.folder)
        return replace(found, privacy=Displayed.of(self.statement), doubts=tuple(self.doubts))

    @cached_property
    def figure(self) -> Figure:
        return Figure(metric="accuracy", value=0.0361, baseline=0.1028, doubts=tuple(self.doubts))

    @cached_property
    def sweep(self) -> Sweep:
        run = {
            "settings": {"recipe": "quickstart"}, "seed": 0, "accuracy": 0.5, "seconds": 1.0,
            "metrics": {"loss": 1.0}, "doubts": [each.to_json() for each in self.doubts],
        }  # fmt: skip
        proven = shown_of(self.statement)
        group = Combination(
            name="each run", settings=run["settings"], runs=[run], each=[proven],
        )  # fmt: skip
        return Sweep(groups=[group], together=[self.together])

    @cached_property
    def compared(self) -> Compared:
        run = {"accuracy": 0.0361, "doubts": [each.to_json() for each in self.doubts],
               "try": {}, "settings": {}, "cpu_seconds": 1.0}  # fmt: skip
        line = Line(
            name="one", epsilon=1.0, runs=[run], each=[self.proven], seeds=1, of_tries=1,
            as_it_is=True,
        )  # fmt: skip
        kind = GuaranteeKind("client-run", "server", 1e-5)
        return Compared(guarantee=kind, metric="accuracy", groups=[line], together=[self.together])

    @cached_property
    def advice(self) -> Advice:
        path = self.into / "t.csv"
        rows = (f"s{k % 3},p{k},{k % 7},{k % 2}" for k in range(300))
        path.write_text("\n".join(["site,person,age,ill", *rows]) + "\n", encoding="utf-8")
        request = read_request(
            path, client="site", person="person", label="ill",
            settings={"scale_columns.age": [0, 10]},
        )  # fmt: skip
        data = request.load(None)
        comparison = request.comparison(lambda: data)
        row = {"seed": 0, "metrics": {"auc": 0.4, "accuracy": 0.4, "balanced_accuracy": 0.4},
               "doubts": [each.to_json() for each in self.doubts],
               "try": comparison.contestants[TRUSTS["none"][0]].tries[0]}  # fmt: skip
        figures = {}
        for cell in request.cells(comparison, 3):
            epsilon = cell.epsilon or None
            figures[cell.contestant, epsilon] = Line(
                name=cell.contestant, epsilon=epsilon, runs=[row], seeds=1, each=[self.proven],
            )  # fmt: skip
        assert unit_of(data) == "person"
        people = held_people(request, data)
        return Advice(request, data, comparison, figures, people, None, 1.0, [self.together])

    def picture(self, of: Any) -> str:
        of.plot(self.into / "chart.svg")
        return (self.into / "chart.svg").read_text(encoding="utf-8")

    def printed(self, write: Callable[[Terminal], None]) -> str:
        console = Terminal(file=io.StringIO(), width=200)
        write(console)
        return console.file.getvalue()  # type: ignore[attr-defined]

    def boards(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Return what is written for TensorBoard."""
        told: list[str] = []

        class Writer:
            def __init__(self, *_: Any, **__: Any) -> None: ...
            def __enter__(self) -> Writer:
                return self

            def __exit__(self, *_: Any) -> None: ...
            def close(self) -> None: ...
            def add_scalar(self, *_: Any, **__: Any) -> None: ...
            def add_text(self, name: str, text: str, *_: Any) -> None:
                told.append(text)

        module = types.SimpleNamespace(SummaryWriter=Writer)
        monkeypatch.setattr(export, "import_extra", lambda *_, **__: module)
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)  # type: ignore[arg-type]
        export.to_tensorboard([self.run], self.into / "board")
        return "\n".join(told)


BOTH, STATEMENT = (Assumption, Caveat, Doubt), (Assumption, Caveat)
"""What a writer of a run, or of a statement alone, shows."""

Writer = Callable[[Made, pytest.MonkeyPatch], Any]

WRITERS: dict[str, tuple[tuple[type[Fact], ...], Writer]] = {
    "reporting/card.py:privacy_document": (
        BOTH, lambda made, _: privacy_document(made.run, scores=True)),
    "reporting/card.py:model_card": (BOTH, lambda made, _: model_card(
        made.run, privacy_document(made.run, scores=True))),
    "reporting/export.py:to_tensorboard": (BOTH, lambda made, patch: made.boards(patch)),
    "reporting/html.py:page": (BOTH, lambda made, _: page([made.run])),
    "reporting/text.py:Terminal.print_statement": (STATEMENT, lambda made, _: made.printed(
        lambda console: console.print_statement(made.statement))),
    "reporting/words.py:explain": ((Assumption,), lambda made, _: explain(made.statement)),
    "reporting/text.py:Terminal.print_result": (BOTH, lambda made, _: made.printed(
        lambda console: console.print_result(made.result.summary(), "all", {}, None))),
    "reporting/text.py:Displayed._repr_html_": (
        STATEMENT, lambda made, _: Displayed.of(made.statement)._repr_html_()),
    "reporting/words.py:together_document": (
        STATEMENT, lambda made, _: words.together_document(made.together)),
    "reporting/words.py:figure": ((Doubt,), lambda made, _: words.figure(made.figure)),
    "simulation/result.py:result_document": (BOTH, lambda made, _: made.result.summary()),
    "reporting/words.py:document": (STATEMENT, lambda made, _: words.document(made.statement)),
    "simulation/result.py:Result.summary": (BOTH, lambda made, _: made.result.summary()),
    "simulation/result.py:Result._repr_html_": (BOTH, lambda made, _: made.result._repr_html_()),
    "experiments/sweeping/results.py:Sweep.summary": (BOTH, lambda made, _: made.sweep.summary()),
    "experiments/sweeping/results.py:Sweep.notes": (BOTH, lambda made, _: made.sweep.notes()),
    "experiments/table.py:RunTable.to_csv": (BOTH, lambda made, _: made.sweep.to_csv()),
    "experiments/sweeping/results.py:Sweep.to_records": (
        BOTH, lambda made, _: "\n".join(map(str, made.sweep.to_records()[0].values()))),
    "experiments/table.py:RunTable.plot": (BOTH, lambda made, _: made.picture(made.sweep)),
    "experiments/comparing/compared.py:Compared.summary": (
        BOTH, lambda made, _: made.compared.summary()),
    "experiments/comparing/compared.py:Compared.notes": (
        BOTH, lambda made, _: made.compared.notes()),
    "experiments/table.py:RunTable.to_text": (BOTH, lambda made, _: made.compared.to_text()),
    "experiments/comparing/compared.py:Compared.to_latex": (
        BOTH, lambda made, _: made.compared.to_latex()),
    "experiments/table.py:RunTable._repr_html_": (BOTH, lambda made, _: made.sweep._repr_html_()),
    "experiments/advising/advice.py:Advice.summary": (BOTH, lambda made, _: made.advice.summary()),
    "experiments/advising/running.py:page_of": (BOTH, lambda made, _: page_of(made.advice)),
}  # fmt: skip

WITHOUT_FACTS = {
    "reporting/record.py:Schema.to_document", "simulation/result.py:config_document",
    "reporting/text.py:Terminal.print_table", "reporting/text.py:Terminal.print_signal",
    "reporting/words.py:shown",
    "simulation/settings.py:to_toml",
    "experiments/sweeping/results.py:shown",
    "experiments/sweeping/results.py:Sweep.write",
    "experiments/sweeping/results.py:Sweep.shown", "experiments/advising/advice.py:shown",
    "experiments/advising/advice.py:Advice.write",
    "experiments/advising/questions.py:Draft.shown",
    "experiments/comparing/compared.py:Compared.shown",
    *(f"experiments/comparing/means.py:MeanTable.{each}" for each in (
        "document", "shown", "notes")),
    "experiments/comparing/compared.py:Compared.write",
    "experiments/comparing/compared.py:Compared.to_records",
    *(f"experiments/table.py:{each}" for each in (
        "Group.figure", "Group.shown", "RunTable.shown", "RunTable.notes", "RunTable.to_records")),
    "experiments/advising/advice.py:Advice.figure",
}  # fmt: skip
"""What writes no epsilon and no score, or only beside the notes of a writer above, or in rounds."""

MANY = ("advising", "comparing", "sweeping")
NAMED = re.compile(
    r"(to_(?!json)\w+|summary|_repr_html_|notes|shown|plot|page\w*|print_\w+|model_card|"
    r"\w+_document|document|explain|figure|write)"
)


def writers() -> Iterator[str]:
    paths = [SRC / "experiments" / "table.py"]
    for room in ("reporting", "simulation", *(f"experiments/{each}" for each in MANY)):
        paths += sorted((SRC / room).rglob("*.py"))
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in (tree, *(each for each in tree.body if isinstance(each, ast.ClassDef))):
            owner = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
            for each in scope.body:
                if isinstance(each, ast.FunctionDef) and NAMED.fullmatch(each.name):
                    yield f"{path.relative_to(SRC).as_posix()}:{owner}{each.name}"


def test_every_writer_is_listed() -> None:
    assert set(writers()) == {*WRITERS, *WITHOUT_FACTS}


def strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        for each in found.values():
            yield from strings(each)
    elif isinstance(found, list | tuple):
        for each in found:
            yield from strings(each)


def plain(text: str) -> str:
    """Return a text without markup, escapes, capitals and white space."""
    text = html.unescape(re.sub(r"<[^>]*>|\\text\w+\{\}|[|]", "", text))
    return re.sub(r"[\s\\`*#$^~]", "", text).lower()


@pytest.fixture(scope="module")
def made(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Made:
    list(paper_modules("preset"))
    return Made(runs["quickstart"], tmp_path_factory.mktemp("made"))


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_shows_every_condition_and_every_doubt(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    families, write = WRITERS[name]
    told = plain("\n".join(strings(write(made, monkeypatch))))
    missing = [
        fact.kind
        for family in families
        for fact in every(family)
        if not any(plain(form(fact)) in told for form in (words.line, words.short))
    ]
    assert missing == []


def test_the_estimator_warns_of_every_doubt(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedldp import FederatedClassifier

    rng = np.random.default_rng(0)
    model = FederatedClassifier("quickstart", num_clients=10, settings={"rounds": 1})
    monkeypatch.setattr(
        "fedldp.estimator.run",
        lambda *given, **named: replace(fedldp.run(*given, **named), doubts=tuple(made.doubts)),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rng.normal(size=(200, 4)), rng.integers(0, 2, 200))
    told = plain("\n".join(str(each.message) for each in caught))
    assert all(plain(words.line(each)) in told for each in made.doubts)
