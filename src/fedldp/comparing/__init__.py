"""Compare systems at an equal guarantee and with equal effort spent on their hyperparameters.

The rule: every contestant is calibrated to the same epsilon, and the statement of each of its runs
is read to check that epsilon. Every contestant has the same number of tries, that is, of candidate
hyperparameters. Tries are scored with a separate seed, on examples that no client has or on clients
that do not take part. The test set plays no part in the choice. The chosen try is then measured
with other seeds, with all clients, on the test set.

If the held-out examples are private, choosing by scores on them is itself a release. No epsilon
here covers that release.

It may use everything up to ``simulation``. It does not depend on any data set, list of systems or
page: its callers supply these.

It may use core, accounting, data, protocol, algorithms, reporting, simulation.
"""

from fedldp.comparing.advising import Advice, advise
from fedldp.comparing.cells import Cell, Contestant, GuaranteeKind, Role, Settings, Task, Try
from fedldp.comparing.compared import Compared, Line
from fedldp.comparing.comparison import Comparison, Purpose
from fedldp.comparing.held_out import held_out
from fedldp.comparing.proving import ComparisonError, checked, proven
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
