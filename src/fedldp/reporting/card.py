"""A run as two documents for publication: a privacy document (privacy.json) and a model card.

Every value comes from the run's folder. Values that a run cannot know are null, and are listed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedldp.accounting.guarantees import HOUSE, Guarantee
from fedldp.accounting.statement import Claim, Statement, scores_are_private
from fedldp.core.errors import RunError
from fedldp.core.facts import Fact
from fedldp.core.formatting import number
from fedldp.core.kinds import (
    AT_SITES,
    DISCRETE,
    HELD_OUT,
    IDEALISED,
    OTHER_SENT,
    SCORES,
    SENT_IN_CLEAR,
    SIMULATED,
    TAKES_PART,
)
from fedldp.core.locks import missing_folders, remove_empty
from fedldp.reporting import words
from fedldp.reporting.html import render
from fedldp.reporting.record import (
    MODEL,
    RunFolder,
    as_json,
    check_replaceable,
    replace_file,
)
from fedldp.reporting.runs import FinishedRun
from fedldp.reporting.scores import FIGURES
from fedldp.reporting.text import (
    MEANINGLESS,
    NO_CLAIM,
    area,
    claim_text,
    explain,
    guarantee_in_words,
    headline_first,
    percent,
    standing,
)

VERSION = 2
"""The privacy document's version; it increases if a field is removed or changes its meaning."""

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
    for name, begins in _BEGINS.items():
        if (place / name).exists():
            check_replaceable(place / name, begins)
    if weights is not None and (place / MODEL).exists() and not (place / _README).exists():
        raise RunError(f"out = {place}: it has another {MODEL}; choose another folder")
    made = missing_folders(place)
    try:
        place.mkdir(parents=True, exist_ok=True)
        replace_file(place / _PRIVACY, as_json(document))
        replace_file(place / _README, model_card(run, document).encode("utf-8", "replace"))
        if weights is not None:
            RunFolder(place).write_model(weights)
    except OSError as error:
        remove_empty(made)
        raise RunError(f"out = {place}: {error.strerror}; choose a writable folder") from error
    return place, document


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
        or any("score" in each.values["text"] for each in OTHER_SENT.among(sent))
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
    config, privacy = run.summary["config"], headline_first(run.privacy, run.asked)
    target = config.get("target") if run.asked is not None else None
    hidden, shown = _are_private(privacy) and not scores, words.document(privacy)
    document = {
        "document": "fedldp privacy document",
        "version": VERSION,
        "run": _run(run),
        "schema_version": shown["schema_version"],
        "claim": shown["claim"],
        "asked": None
        if target is None
        else {key: target.get(key, 0.0) for key in ("unit", "adversary", "epsilon", "delta")},
        "guarantees": shown["guarantees"],
        "warnings": shown["warnings"],
        "doubts": None if hidden else words.facts(run.doubts),
        "scores": None if hidden else _scores(run),
        "registry": _registry(run, privacy),
        "hazards": _hazards(run, privacy, hidden),
        "publisher": dict.fromkeys(
            ("contact", "legal_basis", "approved_by", "approved_on", "tuning", "collection")
        ),
    }
    return document | {"to_be_filled": {"note": TO_FILL, "fields": list(_unfilled(document))}}


def _run(run: FinishedRun) -> dict[str, Any]:
    summary, packages = run.summary, run.environment["packages"]
    config = summary["config"]
    digest = hashlib.sha256((run.path / "config.json").read_bytes()).hexdigest()
    return {
        "recipe": summary["recipe"],
        "system": summary["system"],
        "simulated": SIMULATED in run.privacy.warnings,
        "config_sha256": digest,
        "begun": run.environment["date"],
        "software": {"fedldp": packages.get("fedldp"), "torch": packages.get("torch"),
                     "python": run.environment["python"]},
        "clients": _whole(config.get("num_clients")),
        "rounds": len(summary["rounds"]),
        "refused": run.refused,
    }  # fmt: skip


def _scores(run: FinishedRun) -> dict[str, Any] | None:
    """Return the scores of the final model; None if the model was not tested."""
    final = run.summary["final"]
    if final["accuracy"] is None:
        return None
    names = ("accuracy", "most_frequent", "loss", *FIGURES)
    return {
        "tested_on": run.summary["tested_on"],
        **{name: final[name] for name in names},
        "classes": [
            {"class": name, **figures}
            for name, figures in zip(run.class_names, run.classes, strict=True)
        ],
    }


# The registry of deployments, field by field


def _registry(run: FinishedRun, privacy: Statement) -> dict[str, Any]:
    """Return the "deployment" object of the registry's schema, with null for unknown values."""
    config, line = run.summary["config"], run.headline
    proven = line is not None and line.epsilon is not None
    assert line is not None or not proven
    simulated = SIMULATED in privacy.warnings
    nothing = "nothing is proven for the requested guarantee, or for all that a client sends"
    return {
        "basic": {
            "name": f"model of {run.name}",
            "data_curators": None,
            "intended_use": None,
            "data_product_type": "Machine learning model",
            "data_product_region": None,
            "data_product_sector": None,
            "description": _description(run),
            "publication_date": None,
        },
        "dp_variant": {
            "variant_name": _VARIANTS[line.kind] if line else None,
            "data_domain": _domain(run),
            "unprotected_quantities": _unprotected(run, privacy),
        },
        "privacy_loss": {
            "privacy_unit": _UNITS[line.unit] if line and proven else None,
            "privacy_unit_details": _neighbours(line) if line and proven else None,
            "privacy_parameters": {
                "epsilon": line.epsilon if line else None,
                "delta": line.delta if line and proven else None,
            },
            "privacy_parameters_details": explain(privacy),
        },
        "deployment_model": {
            "model_name": _model(line) if line and proven else None,
            "model_name_details": _WHO_SEES[line.adversary] if line and proven else nothing,
            "actors": _actors(config),
            "release_type": None,
            "release_type_details": "this document covers one run; another run on the same people "
            "adds to their privacy loss",
            "data_source_type": "Static" if simulated else None,
            "data_source_type_details": None,
            "access_type": "Non-interactive",
            "access_type_details": "the product is the trained model; nobody queries the data",
        },
        "accounting": {
            "post_processing": _post_processing(config),
            "composition": _composition(line),
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _preprocessing(config),
            "mechanisms": _mechanisms(run, line),
            "justification": None,
        },
        "administrative": {
            "sources": None if privacy.claim is None else privacy.claim.source,
            "notes": "; ".join(map(words.line, privacy.warnings)),
            "registry_authors": None,
        },
    }


_VARIANTS = {"pure": "Pure DP", "approximate": "Approximate DP", "none": None}

_UNITS = {
    "weight": "one weight of one report",
    "record": "one row",
    "person": "all rows of one person at one site",
    "client-round": "all that one client sends in one round",
    "client-run": "all that one client sends in the run",
}

_NEIGHBOURS = {
    "replace-client": "two inputs are adjacent if they differ in all the data of one client",
    "replace-person": "two data sets are adjacent if the rows of one person are replaced by those "
    "of another",
    "replace-record": "two data sets are adjacent if one row is replaced by another",
}

_WHO_SEES = {
    "server": "the server is not trusted: it sees every report and who sent it",
    "shuffled-server": "a shuffler is trusted: the server sees reports without their senders",
    "summing-server": "a secure sum is trusted: the server sees only sums of a round's reports",
    "downlink": "the server is trusted: the guarantee is against anyone who sees its broadcasts, "
    "or the model",
}


def _model(line: Guarantee) -> str:
    """Return the registry's name for the trust model of a line of the statement."""
    if line.adversary == "server":
        # A site that adds noise for its people is not itself a data subject.
        return "Federated" if line.unit in ("person", "record") else "Local"
    return {"shuffled-server": "Shuffle", "downlink": "Central"}.get(line.adversary, "Federated")


def _description(run: FinishedRun) -> str:
    config, rounds = run.summary["config"], len(run.summary["rounds"])
    clients = _whole(config.get("num_clients"))
    over = "" if clients is None else f" over {clients:,} clients"
    of = "" if run.finished else f" of {_word(config.get('rounds'))}"
    classes = "" if run.schema is None else f" for {run.schema.num_classes} classes"
    return (
        f"A classifier{classes} (model {_word(config.get('model'))}), trained by federated "
        f"learning{over} in {rounds:,}{of} {'round' if rounds == 1 else 'rounds'} with the system "
        f"{run.summary['system']}"
    )


def _domain(run: FinishedRun) -> str | None:
    known = run.schema
    if known is None:
        return None
    shape = " x ".join(map(str, known.input_shape))
    inputs = f"numbers of shape {shape}" if known.features is None else ", ".join(known.features)
    labels = ", ".join(known.class_name(label) for label in range(min(known.num_classes, 100)))
    count = "" if known.num_examples is None else f"{known.num_examples:,} "
    return f"{count}labelled examples; inputs: {inputs}; classes: {labels}"


def _unprotected(run: FinishedRun, privacy: Statement) -> str | None:
    """Return what the statement and these documents leave without protection."""
    open_lines = dict.fromkeys(
        f"{_UNITS[line.unit]}, against the {line.adversary}"
        for line in privacy.guarantees
        if line.epsilon is None
    )
    found = [f"nothing is proven for {what}" for what in open_lines]
    if scores_are_private(privacy.warnings):
        found.append(words.line(HELD_OUT))
    if run.own_data is not None:
        found.append(COUNTS)
    return "; ".join(found) or None


def _neighbours(line: Guarantee) -> str:
    sites = map(words.line, AT_SITES.among(line.assumptions))
    return "; ".join([_NEIGHBOURS.get(line.neighbours, line.neighbours), *sites])


def _actors(config: Mapping[str, Any]) -> str:
    clients = _whole(config.get("num_clients"))
    trusted = _whole(config.get("untrusted_clients"))
    told = "" if not trusted else f" (up to {trusted} may collude with the server or drop out)"
    count = "" if clients is None else f"{clients:,} "
    return (
        f"{count}clients{told}, which hold the rows; a server, which sends the model out and "
        "updates it; anyone who gets the model"
    )


def _post_processing(config: Mapping[str, Any]) -> str:
    steps = {
        "server_optimizer": "the server's optimiser",
        "average": "the share of the last rounds whose models are averaged",
    }
    known = [
        f"{step} {_word(config[key])}"
        for key, step in steps.items()
        if config.get(key) not in (None, "none", 0, 0.0)
    ]
    return "; ".join(["each model is computed only from what was released", *known])


def _composition(line: Guarantee | None) -> str | None:
    if line is None or line.epsilon is None:
        return None
    rounds = map(words.line, TAKES_PART.among(line.assumptions))
    return "; ".join([words.method_of(line), *rounds])


def _preprocessing(config: Mapping[str, Any]) -> str:
    declared = [
        key
        for key in ("scale_columns", "centre_columns", "fill_columns", "categories", "classes")
        if config.get(key)
    ]
    found = []
    if declared:
        found.append(f"declared, and not measured by the tool: {', '.join(declared)}")
    if config.get("features") not in (None, "none"):
        found.append(f"public features {_word(config['features'])}")
    if config.get("standardise"):
        found.append("standardised by constants of the published data set")
    found.append("the run does not record whether settings were chosen by scores")
    return "; ".join(found)


def _mechanisms(run: FinishedRun, line: Guarantee | None) -> str:
    config = run.summary["config"]
    parts = [f"fedldp {run.environment['packages'].get('fedldp', '')}".strip()]
    for key in ("mechanism", "noise", "channel", "bound", "clip"):
        if config.get(key) is not None:
            parts.append(f"{key} {_word(config[key])}")
    if line is not None and line.epsilon is not None:
        parts += [words.method_of(line), *words.assumptions_of(line)]
    return "; ".join(parts)


# The hazards of NIST SP 800-226


def _hazards(run: FinishedRun, privacy: Statement, hidden: bool) -> dict[str, Any]:
    """Return what the run says about each hazard, and the basis for it."""
    config, line, warnings = run.summary["config"], run.headline, privacy.warnings
    proven = line is not None and line.epsilon is not None
    simulated = SIMULATED in warnings
    nothing = "nothing is proven"
    size = nothing
    if line and proven:
        delta = f", delta {line.delta!r}" if line.delta else ""
        size = f"epsilon {number(line.epsilon)}{delta}, {standing(line)}"
        if (line.epsilon or 0.0) > MEANINGLESS:
            size += f"; above {MEANINGLESS:g} there is practically no protection"
    found: dict[str, tuple[str | None, str]] = {
        "privacy_parameters": (size, "statement"),
        "comparing_guarantees": (
            "each line of the guarantees has its own unit, adversary, neighbours and delta; only "
            "lines that agree in these can be compared"
            + ("" if privacy.claim is None else "; the source's claim is listed beside them"),
            "statement",
        ),
        "unit_of_privacy": (_unit(line), "statement"),
        "bounded_contributions": (_bounds(config, line), "statement and configuration"),
        "algorithm_correctness": (_correctness(privacy), "statement"),
        "floating_point": (
            _arithmetic(line, simulated) if line and proven else nothing,
            "statement",
        ),
        "randomness": (
            words.line(SIMULATED)
            if simulated
            else "no fixed seed: each party draws fresh secret randomness",
            "statement",
        ),
        "side_channels": (
            "not covered: whether a client takes part or drops out, how long its training and its "
            "randomiser take, and what network traffic reveals",
            "software",
        ),
        "composition_and_budget": (
            f"the lines cover only this run of {len(run.summary['rounds']):,} rounds; other runs "
            "on the same people add to the privacy loss",
            "statement",
        ),
        "tuning_and_scores": (
            f"{words.line(HELD_OUT)}; the run does not record whether settings were chosen by them"
            if scores_are_private(warnings)
            else "the run does not record whether settings were chosen by private scores",
            "statement",
        ),
        "trust_model": (
            "; ".join([_WHO_SEES[line.adversary], *words.assumptions_of(line)])
            if line and proven
            else nothing,
            "statement",
        ),
        "data_collection_exposure": (
            "a simulation: all rows were in one place"
            if simulated
            else "rows stay with their clients; only reports leave a client",
            "statement" if simulated else "software",
        ),
        "access_control": (None, "unknown"),
        "public_inputs": (_public(config), "configuration"),
        "utility_and_bias": (_utility(run, hidden), "summary"),
    }
    return {key: {"finding": text, "basis": basis} for key, (text, basis) in found.items()}


def _unit(line: Guarantee | None) -> str:
    if line is None or line.epsilon is None:
        return "nothing is proven"
    text = f"{_UNITS[line.unit]}; {_neighbours(line)}"
    if line.unit in ("weight", "record", "client-round"):
        text += "; a person may have contributed more than this"
    return text


def _bounds(config: Mapping[str, Any], line: Guarantee | None) -> str:
    parts = [
        f"{key} {_word(config[key])}"
        for key in ("clip", "bound", "range_radius", "ranges", "rows_per_person")
        if config.get(key) is not None
    ]
    if line is not None:
        parts += map(words.line, AT_SITES.among(line.assumptions))
    return "; ".join(parts) or "no bound is set"


def _correctness(privacy: Statement) -> str:
    by = dict.fromkeys(line.stated_by for line in privacy.guarantees)
    own = [each for each in by if each != HOUSE]
    if own:
        return f"what {' and '.join(own)} states is an assumption; nothing here proves it"
    return (
        "every line names its method; fedldp computed the line from the releases that the code "
        "declares; the run does not record whether the code was audited"
    )


def _arithmetic(line: Guarantee, simulated: bool) -> str:
    if line.is_idealised:
        return (
            f"{words.line(IDEALISED)}: the line does not hold for the numbers that a computer sends"
        )
    grid = f"; {words.line(DISCRETE)}" if DISCRETE in line.assumptions else ""
    where = " in a deployment" if simulated else ""
    return f"the line holds for the numbers that are sent{where}{grid}"


def _public(config: Mapping[str, Any]) -> str:
    parts = [
        f"{key} {_word(config[key])}"
        for key in ("features", "initial", "trainable")
        if config.get(key) not in (None, "none", "all")
    ]
    return "; ".join(parts) or "the configuration names no weights file and no public features"


def _utility(run: FinishedRun, hidden: bool) -> str:
    final = run.summary["final"]
    if final["accuracy"] is None:
        return "the model was not tested"
    if hidden:
        return f"{CONFIDENTIAL}; {DOUBTFUL}"
    told = [f"accuracy {final['accuracy']:.4f}"]
    if final["most_frequent"] is not None:
        told.append(f"always predicting the most frequent class {final['most_frequent']:.4f}")
    told += [
        f"{name.replace('_', ' ')} {final[name]:.4f}" for name in FIGURES if final[name] is not None
    ]
    told.append("recall and precision of each class are in scores")
    return "; ".join([*told, *map(words.line, run.doubts)])


# The model card


def model_card(run: FinishedRun, document: Mapping[str, Any]) -> str:
    """Return a model card in Hugging Face's format: YAML, then text in Markdown.

    Args:
        run: the run.
        document: its privacy document.
    """
    privacy = headline_first(run.privacy, run.asked)
    scores = document["scores"]
    return render(
        "card.md",
        front=_yaml(_front_matter(run, scores)),
        run=run,
        document=document,
        scores=scores,
        figures=[] if scores is None else _figures(scores),
        explained=explain(privacy),
        claim=NO_CLAIM if privacy.claim is None else claim_text(privacy.claim),
        guarantee=guarantee_in_words(run.summary["config"], privacy),
        lines=[_line(each, privacy.claim) for each in privacy.guarantees],
        doubtful=DOUBTFUL,
        confidential=CONFIDENTIAL if _are_private(privacy) else None,
        settings=json.dumps(run.summary["config"], indent=2, ensure_ascii=False),
        md=escaped,
    )


def _figures(scores: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a table's rows of scores; those meaningful for any class balance come first."""
    found = [
        ("AUC", area(scores["auc"]) or "not defined"),
        ("balanced accuracy", percent(scores["balanced_accuracy"])),
        ("average precision", area(scores["average_precision"]) or "not defined"),
        ("accuracy", percent(scores["accuracy"])),
        ("accuracy of always predicting the most frequent class", percent(scores["most_frequent"])),
        ("calibration error", area(scores["calibration_error"])),
        ("Brier score", area(scores["brier"])),
    ]
    return [(name, value or "not known") for name, value in found]


def _line(line: Guarantee, claim: Claim | None) -> dict[str, str]:
    proven = line.epsilon is not None
    return {
        "claimed": number(claim.epsilon) if claim and claim.unit == line.unit else "",
        "unit": line.unit + (" (idealised)" if line.is_idealised else ""),
        "adversary": line.adversary,
        "epsilon": number(line.epsilon) if proven else "no guarantee",
        "delta": repr(line.delta) if line.delta else "0",
        "standing": standing(line) if proven else "",
    }


def _front_matter(run: FinishedRun, scores: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata, under the names of Hugging Face's model cards."""
    config = run.summary["config"]
    found: dict[str, Any] = {
        "library_name": "fedldp",
        "tags": ["federated-learning", "differential-privacy", run.summary["system"]],
    }
    task = _task(run)
    if task is not None:
        found["pipeline_tag"] = task
    if scores is not None:
        data = _word(config.get("dataset", "the clients' own data"))
        figures = {
            _METRICS.get(name, name): scores[name]
            for name in ("accuracy", *FIGURES)
            if scores[name] is not None
        }
        found["metrics"] = list(figures)
        found["model-index"] = [
            {
                "name": run.name,
                "results": [
                    {
                        "task": {"type": task or "other"},
                        "dataset": {"name": data, "type": "custom"},
                        "metrics": [
                            {"type": name, "value": value, "name": name.replace("_", " ")}
                            for name, value in figures.items()
                        ],
                    }
                ],
            }
        ]
    return found


_METRICS = {"auc": "roc_auc", "brier": "brier_score"}
"""Hugging Face's names for metrics that have another name here."""


def _task(run: FinishedRun) -> str | None:
    """Return the task, if it follows from the data: a table has columns, an image three axes."""
    data = str(run.summary["config"].get("dataset", ""))
    if data.endswith((".csv", ".parquet")) or (run.schema and run.schema.features):
        return "tabular-classification"
    return "image-classification" if run.schema and len(run.schema.input_shape) == 3 else None


def _yaml(document: Mapping[str, Any]) -> str:
    """Return YAML with a line for each key; the values are JSON, which is a subset of YAML."""
    return "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in document.items()
    )


def escaped(text: Any) -> str:
    """Return text from a run's folder as Markdown that shows it literally, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", " ".join(str(text).split()))


def _unfilled(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pointers (RFC 6901) to null values that only the publisher can fill."""
    for place in _PUBLISHERS:
        found: Any = document
        for part in place.split("/")[1:]:
            found = found[part]
        if found is None:
            yield place


_PUBLISHERS = (
    "/registry/basic/data_curators",
    "/registry/basic/intended_use",
    "/registry/basic/data_product_region",
    "/registry/basic/data_product_sector",
    "/registry/basic/publication_date",
    "/registry/deployment_model/release_type",
    "/registry/deployment_model/data_source_type",
    "/registry/implementation/justification",
    "/registry/administrative/sources",
    "/registry/administrative/registry_authors",
    "/hazards/access_control/finding",
    "/publisher/contact",
    "/publisher/legal_basis",
    "/publisher/approved_by",
    "/publisher/approved_on",
    "/publisher/tuning",
    "/publisher/collection",
)
"""Pointers to the fields of the document that a run cannot know."""


def _whole(value: Any) -> int | None:
    """Return a value of a configuration if it is an integer; the file may be from somebody else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
