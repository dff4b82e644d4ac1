"""A run as two documents for publication: a privacy document (privacy.json) and a model card.

Every value comes from the run's folder. Values that a run cannot know are null, and are listed.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedldp.accounting.statement import Statement, scores_are_private
from fedldp.core.errors import RunError
from fedldp.core.facts import Caveat, Fact, in_order
from fedldp.core.kinds import (
    AT_SITES,
    DISCRETE,
    IDEALISED,
    OTHER_SENT,
    SCORES,
    SENT_IN_CLEAR,
    SIMULATED,
    TAKES_PART,
)
from fedldp.core.locks import missing_folders, remove_empty
from fedldp.protocol.server_loop import MODEL_SCORES
from fedldp.reporting import charts, words
from fedldp.reporting.html import phrases, render
from fedldp.reporting.lines import headline_first, own_words
from fedldp.reporting.record import (
    MODEL,
    RunFolder,
    as_json,
    check_replaceable,
    replace_file,
)
from fedldp.reporting.runs import FinishedRun
from fedldp.reporting.scores import FIGURES

VERSION = 2
"""The privacy document's version; it increases if a field is removed or changes its meaning."""

_DECLARED = ("scale_columns", "spread_columns", "centre_columns", "fill_columns", "categories",
             "other_columns", "fold_columns", "classes", "class_shares", "label_range",
             "label_typical", "edges")  # fmt: skip

TO_FILL = "to be filled by whoever publishes"

CONFIDENTIAL = (
    "the scores of this run are left out: they depend on the clients' private rows, and no "
    "epsilon covers them"
)
"""The text that replaces scores that are functions of private rows."""

DOUBTFUL = (
    "any doubts about the scores of this run depend on the scores, so they are "
    "left out too; they are in the run's summary.json"
)
"""The text does not depend on the scores, because it would then reveal something about them."""

COUNTS = "the numbers of examples and people, which are rounded up and which no guarantee covers"
"""The counts of the clients' own rows that config.json reveals, which is published beside."""

_README, _PRIVACY = FILES = ("README.md", "privacy.json")
_BEGINS = {_README: b"---\n# made by fedldp card\n", _PRIVACY: b'{\n  "document": "fedldp privacy'}


def write_card(
    run: FinishedRun,
    out: Path | None = None,
    *,
    scores: bool = False,
    weights: Mapping[str, NDArray[Any]] | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Write the privacy document and the model card of a run.

    Args:
        run: the run, simulated or a server's.
        out: the folder to write into, created if missing; by default ``card`` in the run's folder.
        scores: whether to include scores that were measured on private rows.
        weights: the model to write beside the documents, for an unfinished run, whose folder does
            not have it in a file of its own.

    Returns:
        The folder of the documents, and the privacy document.

    Raises:
        RunError: a file to replace was not written by fedldp, or the folder cannot be written.
    """
    document = privacy_document(run, scores=scores)
    place = run.path / "card" if out is None else out
    if place.exists() and not place.is_dir():
        raise RunError(f"out = {place}: it is not a folder; choose another path")
    found = enumerate(charts.calibrations(run), 1)
    pictures = {f"calibration-{number}.svg": each for number, each in found}
    for name, begins in {**_BEGINS, **dict.fromkeys(pictures, b"<svg xmlns")}.items():
        if (place / name).exists():
            check_replaceable(place / name, begins)
    if weights is not None and (place / MODEL).exists() and not (place / _README).exists():
        raise RunError(f"out = {place}: it has another {MODEL}; choose another folder")
    made = missing_folders(place)
    try:
        place.mkdir(parents=True, exist_ok=True)
        replace_file(place / _PRIVACY, as_json(document))
        for name, (_, chart) in pictures.items():
            replace_file(place / name, alone(chart).encode())
        text = model_card(run, document, {name: what for name, (what, _) in pictures.items()})
        replace_file(place / _README, text.encode("utf-8", "replace"))
        if weights is not None:
            RunFolder(place).write_model(weights)
    except OSError as error:
        remove_empty(made)
        raise RunError(f"out = {place}: {error.strerror}; choose a writable folder") from error
    return place, document


def alone(chart: charts.Chart) -> str:
    """Return a chart as an SVG document of its own, with black for a page's colours."""
    drawn = str(phrases("chart.svg").drawing(chart)).strip()
    drawn = drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return re.sub(r"var\([^,]*,([^)]*)\)", r"\1", drawn)


def hides_scores(document: Mapping[str, Any]) -> bool:
    """Return whether scores were left out of a document because they reveal private rows."""
    return document["scores"] is None and _are_private(Statement.from_json(document))


def _are_private(privacy: Statement) -> bool:
    """Return whether scores come from clients' held-out rows, or were sent by clients in the clear.

    Clients that test the model themselves send their scores in the clear. If clients have their own
    encoders, scores on any test set reveal something about the rows that trained these encoders.
    """
    reasons = [line.reason for line in privacy.guarantees if line.reason is not None]
    sent = [each for reason in SENT_IN_CLEAR.among(reasons) for each in reason.values["what"]]
    return (
        scores_are_private(privacy.warnings)
        or SCORES.is_in(sent)
        or OTHER_SENT.is_in(sent)  # in words of own code, which may be about scores
        or any(map(_is_foreign, (*reasons, *sent)))
    )


def _is_foreign(fact: Fact) -> bool:
    """Return whether a fact is of a newer version. It may be about scores, so these are hidden."""
    return not fact.is_known and fact.kind not in words.templates()


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the privacy document."""
    text = files("fedldp.reporting").joinpath("privacy.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def privacy_document(run: FinishedRun, *, scores: bool = False) -> dict[str, Any]:
    """Return what a run protects, in the form of ``schema``; docs/card.md explains each field.

    Args:
        run: the run.
        scores: whether to include scores that were measured on private rows.
    """
    skeleton, values = dict(_skeleton()), _values(run, scores=scores)
    values |= _filled(skeleton.pop("parts"), values)
    found: dict[str, Any] = _filled(skeleton, values)
    return found | {"to_be_filled": {"note": TO_FILL, "fields": list(_unfilled(skeleton, found))}}


@cache
def _skeleton() -> dict[str, Any]:
    """Return the fields of a privacy document; ``card.toml`` says how they are filled."""
    return tomllib.loads(files("fedldp.reporting").joinpath("card.toml").read_text("utf-8"))


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        part = next(
            each
            for each in part
            if all(
                words.fits(words.at(values, n), fixed) for n, fixed in each.get("if", {}).items()
            )
        )
        part = part.get("text", part)
    if isinstance(part, dict):
        return {key: _filled(each, values) for key, each in part.items() if key != "if"}
    alone = re.fullmatch(r"\{([\w.]+)\}|\?([\w.]*)", part)
    if alone is None:
        return words.filled(part, values)
    return words.at(values, alone[1] or alone[2] or "never")


def _unfilled(part: Any, found: Any, place: str = "") -> Iterator[str]:
    """Yield the pointers (RFC 6901) to null values that only the publisher can fill."""
    if isinstance(part, dict):
        for key, each in part.items():
            yield from _unfilled(each, found[key], f"{place}/{key}")
    marks = [each.get("text") for each in part] if isinstance(part, list) else [part]
    if found is None and any(isinstance(mark, str) and mark.startswith("?") for mark in marks):
        yield place


def _scores(run: FinishedRun) -> dict[str, Any] | None:
    """Return the scores of the final model; None if the model was not tested."""
    final = run.summary["final"]
    if final["loss"] is None:
        return None
    more = [name for name in MODEL_SCORES if name in final]
    names = ("accuracy", "most_frequent", "loss", *FIGURES, *more)
    return {
        "tested_on": run.summary["tested_on"],
        **{name: final[name] for name in names},
        "classes": [
            {"class": name, **{key: figures[key] for key in ("examples", "recall", "precision")}}
            for name, figures in zip(run.class_names, run.classes, strict=True)
        ],
    }


def _values(run: FinishedRun, *, scores: bool) -> dict[str, Any]:
    """Return the values that ``card.toml`` names."""
    config, line, schema = run.summary["config"], run.headline, run.schema
    privacy = headline_first(run.privacy, run.asked)
    hidden = _are_private(privacy) and not scores
    target = config.get("target") if run.asked is not None else None
    proven = None if line is None or line.epsilon is None else line
    rests_on: Collection[Fact] = () if line is None else line.assumptions
    return {
        "run": run,
        "config": config,
        "digest": hashlib.sha256((run.path / "config.json").read_bytes()).hexdigest(),
        "version": VERSION,
        "shown": words.document(privacy),
        "asked": target
        and {key: target.get(key, 0.0) for key in ("unit", "adversary", "epsilon", "delta")},
        "doubts": None if hidden else words.facts(run.doubts),
        "scores": None if hidden else _scores(run),
        "asks": bool(config.get("ask")),
        "line": line,
        "proven": proven,
        "size": proven and words.amount(proven),
        "standing": proven and words.standing(proven),
        "method": proven and words.method_of(proven),
        "assumptions": in_order(rests_on),
        "sites": AT_SITES.among(rests_on),
        "taking_part": TAKES_PART.among(rests_on),
        "meaningless": proven is not None and proven.size > words.MEANINGLESS,
        "limit": words.MEANINGLESS,
        "is_discrete": DISCRETE in rests_on,
        "shape": " x ".join(map(str, schema.input_shape)),
        "classes": schema.class_names[:100],
        "unprotected": _unprotected(run, privacy),
        "explained": words.explain(privacy),
        "clients": _whole(config.get("num_clients")),
        "untrusted": _whole(config.get("untrusted_clients")),
        "simulated": SIMULATED in privacy.warnings,
        "steps": _named(config, "server_optimizer", "average"),
        "declared": [name for name in _DECLARED if config.get(name) not in (None, {}, [])],
        "features": _named(config, "features"),
        "mechanisms": _named(config, "mechanism", "noise", "channel", "bound", "clip"),
        "bounds": _named(config, "clip", "bound", "range_radius", "ranges", "rows_per_person"),
        "public": _named(config, "features", "initial", "trainable"),
        "claimed": privacy.claim is not None,
        "own": own_words(privacy),
        "rounds": len(run.summary["rounds"]),
        "private": scores_are_private(privacy.warnings),
        "hidden": hidden,
        "confidential": CONFIDENTIAL,
        "doubtful": DOUBTFUL,
        "figures": [f"{name} {value}" for name, value in words.scores(run.summary["final"])],
        "simulation": SIMULATED,
        "of_scores": _of_scores(privacy),
        "ideal": IDEALISED,
        "discrete": DISCRETE,
        "never": None,
    }


def _unprotected(run: FinishedRun, privacy: Statement) -> str | None:
    """Return what the statement and these documents leave without protection."""
    bare = (line for line in privacy.guarantees if line.epsilon is None)
    found = [
        f"nothing is proven for {what}"
        for what in dict.fromkeys(
            f"{words.names('part')[line.unit]}, against the {line.adversary}" for line in bare
        )
    ]
    found += map(words.line, _of_scores(privacy))
    if run.own_data is not None:
        found.append(COUNTS)
    return "; ".join(found) or None


def _of_scores(privacy: Statement) -> tuple[Caveat, ...]:
    """Return the warnings that scores reveal something about private rows."""
    return tuple(each for each in privacy.warnings if scores_are_private([each]))


def _named(config: Mapping[str, Any], *names: str) -> list[str]:
    """Return those of some settings that have an effect, with their values."""
    return [
        f"{name} {_word(config[name])}"
        for name in names
        if config.get(name) not in (None, "none", "all", 0)
    ]


# The model card


def model_card(
    run: FinishedRun, document: Mapping[str, Any], pictures: Mapping[str, str] | None = None
) -> str:
    """Return a model card in Hugging Face's format: YAML, then text in Markdown.

    Args:
        run: the run.
        document: its privacy document.
        pictures: what was observed by prediction, by the name of the file that shows it.
    """
    privacy = headline_first(run.privacy, run.asked)
    scores = document["scores"]
    return render(
        "card.md",
        asks=(asks := bool(run.summary["config"].get("ask"))),
        task=None if asks else _task(run),
        metrics=[
            {"type": _METRICS.get(name, name), "value": scores[name]}
            for name in ("accuracy", *FIGURES, *MODEL_SCORES)
            if scores and scores.get(name) is not None
        ],
        run=run,
        document=document,
        pictures=pictures or {},
        scores=scores,
        privacy=privacy,
        guarantee=words.lead(run.summary["config"], privacy),
        doubtful=DOUBTFUL,
        confidential=CONFIDENTIAL if _are_private(privacy) else None,
        settings=json.dumps(run.summary["config"], indent=2, ensure_ascii=False),
        md=escaped,
    )


_METRICS = {"auc": "roc_auc", "brier": "brier_score"}
"""Hugging Face's names for metrics that have another name here."""


def _task(run: FinishedRun) -> str | None:
    """Return the task, if it follows from the data: a table has columns, an image three axes."""
    data = str(run.summary["config"].get("dataset", ""))
    if data.endswith((".csv", ".parquet")) or run.schema.features:
        numbers = run.schema.num_classes == 1
        return "tabular-regression" if numbers else "tabular-classification"
    return "image-classification" if len(run.schema.input_shape) == 3 else None


def escaped(text: Any) -> str:
    """Return text from a run's folder as Markdown that shows it literally, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", " ".join(str(text).split()))


def _whole(value: Any) -> int | None:
    """Return a value of a configuration if it is an integer; the file may be from somebody else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
