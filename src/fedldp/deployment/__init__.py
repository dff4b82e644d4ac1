"""Runs with real sites: the agreement, the site's agent, the server, their link and the demo.

server's operator   agree -> run.agreement -> server: the round loop, behind a pipe
                                                 |
                                        HTTPS (bytes in, bytes out)
                                                 |
site's operator     accept -> site: the agent, with data, policy, client runtime and ledger

The agreement
    ``agreement``        what all parties agree on before a run, identified by its digest
    ``agreeing``         makes it from a configuration; ``deployable`` says what sites can run
    ``joining``          invite, join, admit: how sites join; their files are ``documents``
    ``words``            ten words to compare a digest by telephone
    ``identity``         a site's key, and ``key_changes`` another one
    ``data_ledgers``     which ledgers count what is released about a table
    ``own_budgets``      the budgets that sites state and sign beforehand
    ``initial``          initial weights that come from another run

A site
    ``site``             the agent, which alone sees examples
    ``policy``           what a site allows with its data
    ``acceptance``       what it has accepted
    ``source``           its data file, on disk and as examples
    ``site_ledger``      its ledger, and what shows that it was lost or set back
    ``restored``         what to charge after it was restored from an older copy

A server
    ``server``           the round loop's server: its folder, and what it may state
    ``sites``            the transport to the sites, with ``messages`` and the ``journal``
    ``runs``             its queue of runs, and what their operator asks: stop, finish
    ``channels``         the two roles as the channel uses them; a check of what sites send

Their link
    ``https``            both ends, authentication, limits of connections
    ``certificates``     keys and certificates for an authority and a server

Operating them
    ``running``          an agent or a server as a process
    ``checks``           whether everything is in order before a run
    ``status``           the state of a run, from files; ``watch`` and ``metrics`` while it runs
    ``demo``             all parties on one machine

It may use core, accounting, data, ledgers, protocol, mechanisms, models, secure_sum, training,
algorithms, reporting and simulation.
"""

__all__ = [
    "acceptance",
    "agreeing",
    "agreement",
    "certificates",
    "checks",
    "data_ledgers",
    "demo",
    "identity",
    "initial",
    "joining",
    "key_changes",
    "own_budgets",
    "policy",
    "restored",
    "running",
    "runs",
    "site_ledger",
    "source",
    "status",
    "words",
]
