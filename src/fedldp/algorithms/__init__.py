"""Algorithms composed of parts: parts, presets that compose them, settings, and recipes.

The composition
    ``composition``      the slots, and what follows from their parts: encoder, local update, server
    ``matrix``           which parts do not go together, and why

Parts, by slot
    ``features``         the model's input for an example
    ``people``           gradients summed by person, with their calibration
    ``stages``           what else people are asked for in their first and last rounds
    ``asking``           what people are asked without a training
    ``evaluation``       what people are asked about a finished model, and what it tells
    ``fleet``            which composition did best among many clients in the study
    ``release``          a bound and a mechanism: what turns an update into a report
    ``bounds``           how an update is bounded before the mechanism
    ``calibration``      which mechanism a client gets for a budget
    ``channel``          how reports reach the server: named, shuffled, summed, central
    ``server_update``    the estimate from reports, and the step of the global weights
    ``participation``    who takes part in which round
    ``own_code``         trials of a user's own parts on public rows

Systems and their settings
    ``preset``           makes a system of a function from settings to parts; ``presets`` has them
    ``systems``          finds a system by its name
    ``config``           a run's configuration: the settings that all systems share, and checks
    ``settings``         types, limits and declarations that several of them share; own values
    ``problem``          the public facts about data that a system may know
    ``validation``       one-line messages for settings that are refused
    ``settings_docs``    what ``fedldp show`` and the reference say about settings
    ``recipes``          configurations with a name, in TOML files

It may use core, accounting, data, ledgers, protocol, mechanisms, models, secure_sum, training.
"""

__all__ = [
    "asking",
    "bounds",
    "calibration",
    "channel",
    "composition",
    "config",
    "evaluation",
    "features",
    "fleet",
    "own_code",
    "participation",
    "people",
    "preset",
    "presets",
    "problem",
    "recipes",
    "release",
    "server_update",
    "settings",
    "settings_docs",
    "stages",
    "systems",
    "validation",
]
