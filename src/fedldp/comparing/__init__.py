"""Compare systems at an equal guarantee and with equal effort spent on their hyperparameters.

The rule: every contestant is calibrated to the same epsilon, and the statement of each of its runs
is read to check that epsilon. Every contestant has the same number of tries, that is, of candidate
hyperparameters. Tries are scored with a separate seed, on examples that no client has or on clients
that do not take part. The test set plays no part in the choice. The chosen try is then measured
with other seeds, with all clients, on the test set.

If the held-out examples are private, choosing by scores on them is itself a release. No epsilon
here covers that release.

Two recipes, at epsilon 4 for everything that a client sends, with two tries each:

>>> import statistics, tempfile
>>> from pathlib import Path
>>> from fedldp.comparing import Comparison, Contestant, GuaranteeKind, Results, Task
>>> from fedldp.data import load_dataset
>>> from fedldp.simulation.settings import resolve
>>> kind = GuaranteeKind("client-run", "server", 1e-5)
>>> tries = ({"rounds": 1, "clip": 1.0}, {"rounds": 2, "clip": 0.5})
>>> digits = {"dataset": "digits", "model": "logistic", "local_epochs": 1}
>>> comparison = Comparison(
...     [
...         Contestant.of("bits", resolve("quickstart"), tries, kind),
...         Contestant.of("gaussian", resolve("quickstart", ["mechanism=gaussian"]), tries, kind),
...     ],
...     [Task("digits", lambda: load_dataset("digits"), digits)],
...     seeds=[0, 1],
... )
>>> results = Results(Path(tempfile.mkdtemp()) / "results.jsonl")
>>> comparison.measure(results, comparison.cells([20], [4.0]))
>>> for cell, runs in comparison.standing(results.rows).items():
...     accuracy = statistics.mean(run["accuracy"] for run in runs)
...     print(cell.contestant, len(runs), max(run["proven"]["epsilon"] for run in runs) <= 4)
bits 2 True
gaussian 2 True

It may use everything up to ``simulation``. It does not depend on any data set, list of systems or
page: its callers supply these.

It may use core, accounting, data, protocol, algorithms, reporting, simulation.
"""

from fedldp.comparing.advising import Advice, advise
from fedldp.comparing.cells import Cell, Contestant, GuaranteeKind, Role, Settings, Task, Try
from fedldp.comparing.compared import Compared, Line
from fedldp.comparing.comparison import Comparison, Purpose
from fedldp.comparing.held_out import held_out
from fedldp.comparing.proving import ComparisonError, Proven, checked, proven
from fedldp.comparing.results import Results, Row, choose
from fedldp.comparing.running import compare

__all__ = [
    "Advice",
    "Cell",
    "Compared",
    "Comparison",
    "ComparisonError",
    "Contestant",
    "GuaranteeKind",
    "Line",
    "Proven",
    "Purpose",
    "Results",
    "Role",
    "Row",
    "Settings",
    "Task",
    "Try",
    "advise",
    "advising",
    "checked",
    "choose",
    "compare",
    "held_out",
    "proven",
    "running",
]
