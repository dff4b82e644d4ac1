"""Runs with real sites: the agreement, the site's agent, the server, their link and the demo.

server's operator   agree -> run.agreement -> server: the round loop, behind a pipe
                                                 |
                                        HTTPS (bytes in, bytes out)
                                                 |
site's operator     accept -> site: the agent, with data, policy, client runtime and ledger

It may use core, accounting, data, ledgers, protocol, mechanisms, models, secure_sum, training,
algorithms, reporting and simulation.
"""

__all__ = [
    "agreeing",
    "agreement",
    "certificates",
    "checks",
    "demo",
    "identity",
    "initial",
    "joining",
    "key_changes",
    "own_budgets",
    "policy",
    "restored",
    "running",
    "site_ledger",
    "source",
    "statement",
    "status",
    "units",
    "words",
]
