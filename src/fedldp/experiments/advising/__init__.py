"""Advice on a table: who can be protected, from whom, and at what cost.

``questions`` asks what only the owner of a table knows, ``asking`` refuses unsuitable input,
``plan`` determines the runs, with settings by the ``rule``; ``advice`` judges them and words the
verdicts, and ``running`` makes the runs, and the page for a data-protection officer.
"""

from fedldp.experiments.advising.advice import Advice
from fedldp.experiments.advising.plan import MANY, starting_point
from fedldp.experiments.advising.questions import Draft, draft
from fedldp.experiments.advising.running import advise

__all__ = [
    "MANY",
    "Advice",
    "Draft",
    "advise",
    "asking",
    "draft",
    "rule",
    "running",
    "starting_point",
]
