"""The records of runs and their presentation: folders, text, HTML, charts, tables for other tools.

``record`` writes a run's folder and the names of its model's inputs and outputs, and ``runs`` reads
folders. ``scores`` computes what is shown of a model, and ``lines`` which lines of a statement come
first. ``words`` puts facts into words, and nothing else does. ``text`` and ``progress`` are for the
terminal, ``html``, ``card`` and ``charts`` for pages, ``export`` for other tools.

It may use core, data, accounting, ledgers, protocol, training, algorithms.
"""

__all__ = [
    "card",
    "charts",
    "export",
    "html",
    "lines",
    "progress",
    "record",
    "runs",
    "scores",
    "text",
    "words",
]
