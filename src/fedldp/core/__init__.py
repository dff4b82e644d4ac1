"""What all other rooms use.

``facts`` is what a statement, a score or a status says, as data; ``kinds`` has all kinds of facts.
``errors`` has every exception. ``randomness`` derives all streams. ``numbers`` and ``formatting``
check, round and print numbers, and ``bounding`` bounds vectors. ``registry`` finds plug-ins and a
user's own code. ``frozen_config`` is the base of settings. ``locks`` has folders that one process
takes, and files that are written whole. ``deferred`` has modules of scipy and torch, which are
imported once something is computed.

It may use nothing.
"""

__all__ = [
    "bounding",
    "deferred",
    "errors",
    "facts",
    "formatting",
    "frozen_config",
    "kinds",
    "locks",
    "numbers",
    "randomness",
    "registry",
]
