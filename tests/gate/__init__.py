"""The gate: records of what the package states, sends and keeps, so that no change goes unnoticed.

``python tests/gate`` shows how the current results differ from the records, and updates them.
"""
