"""The gate: what the package states, sends and keeps, recorded, so that nothing moves unseen.

``python tests/gate`` shows how what is found differs from what is recorded, and records it.
"""
