"""Well-known attacks on every system: results as JSON lines, pictures, and a table.

    FEDLDP_DATA=... python -m benchmarks.attacks run benchmarks/results/DATE-attacks.jsonl [NAME]
    FEDLDP_DATA=... python -m benchmarks.attacks pictures docs/

A recipe that the file already has is not run again. Systems are attacked at their recipe's
settings: its models, noise, ranges and clients. Each line says what is smaller: the attacked client
has at most 60 examples, and on MNIST the clients of whole runs have fewer than in the recipe.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.blocks import from_template, table
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe
from fedldp.audit.attacks import attack
from fedldp.audit.attacks.inversion import of_reports
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import FULL, Effort
from fedldp.audit.results import AttackResult
from fedldp.papers.ldpfl.attacks import attacks as of_codes

RESULTS = Path(__file__).parent / "results" / "2026-11-22-attacks.jsonl"
DIGITS = (
    "fedavg-digits", "central-dp-digits", "ldp-fl-digits", "ldpfl-digits", "ldpfl-digits-public",
    "ldpfl-sound-digits", "nbafl-digits", "priority-digits", "priority-public-digits",
    "personalized-digits", "personalized-sound-digits", "dp-sgd-digits", "cldp-fed-digits",
    "privunit-fl-digits", "secure-aggregation-digits", "distributed-gaussian-digits",
)  # fmt: skip
MNIST = (
    "fedavg-mnist", "ldp-fl-mnist", "nbafl-mnist", "priority-mnist-fig6-least20",
    "personalized-mnist-noniid",
)  # fmt: skip
SEED = 0

ON_MNIST = replace(
    FULL,
    attack_rounds=1,
    attack_visits=1e9,
    member_clients=64,
    member_runs=8,
    member_rounds=5,
    member_candidates=400,
    property_clients=100,
)
"""One round, because for a second one a hundred clients would have to train a CNN first."""

SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg, logistic": ("fedavg-mnist", {"model": "logistic"}),
    "FedAvg, CNN": ("fedavg-mnist", {}),
    "LDP-FL ε 1": ("ldp-fl-mnist", {}),
    "LDP-FL ε 1, logistic": ("ldp-fl-mnist", {"model": "logistic"}),
    "NbAFL ε 10": ("nbafl-mnist", {}),
    "priority ε 0.5/10": ("priority-mnist-fig6-least20", {}),
    "personalised, signs": ("personalized-mnist-noniid", {}),
    "LDPFL codes ε 0.5": ("ldpfl-mnist-public", {}),
}
IMAGES = 8


def effort_of(config: RunConfig) -> Effort:
    """Return the effort for a recipe."""
    return FULL if config.dataset == "digits" else ON_MNIST


def run(out: Path, names: list[str]) -> None:
    """Attack, and write a line for each attack."""
    done = {json.loads(line)["recipe"] for line in read(out)}
    for name in names or [*DIGITS, *MNIST]:
        if name in done:
            continue
        config = find_recipe(name).config
        started = time.process_time()
        found = attack(config, seed=SEED, effort=effort_of(config))
        seconds = time.process_time() - started
        with out.open("a", encoding="utf-8") as file:
            for each in (one for one in found if one.kind != "linkage"):  # see linkage.py
                file.write(json.dumps(line_of(name, config, each, seconds)) + "\n")
        print(f"{name}: {seconds:.0f} CPU seconds", flush=True)


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def line_of(name: str, config: RunConfig, found: AttackResult, seconds: float) -> dict[str, Any]:
    """Return what the file keeps of an attack; its curve has 40 points."""
    document = found.as_json()
    every = max(1, len(document["roc"]) // 40)
    document["roc"] = document["roc"][::every]
    head = {"recipe": name, "system": config.system, "seed": SEED, "cpu_seconds": round(seconds, 1)}
    return {**head, **rounded(document)}


def rounded(value: Any) -> Any:
    """Return a JSON document with its numbers rounded to four decimals."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def write_page(folder: Path) -> None:
    """Write the page of the committed results into a folder."""
    of: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, read(RESULTS)):
        of.setdefault(line["recipe"], []).append(line)
    made = {"membership": membership_table(of), "inversion": inversion_table(of)}
    (folder / "attacks.md").write_text(from_template("attacks", made), encoding="utf-8")


def membership_table(of: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return a table of membership by reports and by models, for each recipe."""
    rows = []
    for name, lines in of.items():
        members = [each for each in lines if each["kind"] == "membership"]
        reports = [each for each in members if "report" in each["against"]]
        best = max(reports, key=lambda each: each["result"]["value"])
        models = [each for each in members if "model" in each["against"] and each["result"]]
        model = max(models, key=lambda each: each["result"]["value"], default=None)
        rates = [shown(best["tpr_at"][level]) for level in ("0.001", "0.01")]
        cells = [f"`{name}`", best["against"], best["name"], shown(best["result"]), *rates]
        rows.append([*cells, "-" if model is None else shown(model["result"])])
    head = "recipe, the server sees, attack, AUC, TPR at 0.1 %, TPR at 1 %, of the model"
    return table(head.split(", "), rows)


def inversion_table(of: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return a table of inversion and property inference, for each recipe."""
    rows = []
    for name, lines in of.items():
        (prop,) = [each for each in lines if each["kind"] == "property"]
        told = [shown(prop[at] if at == "result" else prop["more"][at])
                for at in ("result", "accuracy", "base rate")]  # fmt: skip
        for each in [each for each in lines if each["kind"] == "inversion"]:
            alone = each["more"].get("of who knows the class alone")
            method = each["name"] if each["result"] else "-"
            rows.append([f"`{name}`", method, shown(each["result"]), shown(alone), *told])
    head = "recipe, inversion, error, who knows the class, share: AUC, accuracy, base rate"
    return table(head.split(", "), rows)


def shown(estimate: dict[str, float] | None) -> str:
    """Return a figure with its interval."""
    if estimate is None:
        return "-"
    return f"{estimate['value']:.3f} ({estimate['low']:.3f} to {estimate['high']:.3f})"


def pictures(folder: Path) -> None:
    """Draw original images, and below them the images that each system's attack recovered."""
    from matplotlib.figure import Figure

    rows: list[tuple[str, list[Any], list[Any]]] = []
    for title, (name, changes) in SHOWN.items():
        config = find_recipe(name).config.changed(**changes)
        scenario = AttackScenario.of(
            config, None, seed=SEED, most_examples=60, rounds=1, visits=1e9
        )
        effort = replace(FULL, image_count=IMAGES, image_matched=IMAGES)
        codes = name.startswith("ldpfl")
        (found,) = of_codes(scenario, effort) if codes else of_reports(scenario, effort)
        print(f"{title}: {found.attack}, error {found.measured}", flush=True)
        assert found.measured is not None
        label = f"{title}\nerror {found.measured.value:.2f}"
        rows.append(
            (label, [p.original for p in found.pictures], [p.recovered for p in found.pictures])
        )
    figure = Figure(figsize=(1.6 + 0.62 * IMAGES, 1.3 * len(rows)), layout="constrained")
    axes = figure.subplots(2 * len(rows), IMAGES)
    for at, (label, *both) in enumerate(rows):
        low, high = float(np.min(both[0])), float(np.max(both[0]))
        for part, images in enumerate(both):
            for axis, image in zip(axes[2 * at + part], images, strict=True):
                axis.imshow(image[0], cmap="gray_r", vmin=low, vmax=high)
                axis.set(xticks=[], yticks=[])
                for spine in axis.spines.values():
                    spine.set_visible(False)
        axes[2 * at][0].set_ylabel("original", rotation=0, ha="right", va="center", fontsize=8)
        axes[2 * at + 1][0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(folder / "attacks.png", dpi=80, metadata={"Software": None})
    shrink(folder / "attacks.png")


def shrink(path: Path) -> None:
    """Write a grey picture again with 16 shades, to make it small."""
    from PIL import Image

    Image.open(path).convert("L").quantize(16).save(path, optimize=True)


def main() -> None:
    """Run what the command line names."""
    what, path, *names = sys.argv[1:]
    if what == "run":
        run(Path(path), names)
    else:
        pictures(Path(path))


if __name__ == "__main__":
    main()
