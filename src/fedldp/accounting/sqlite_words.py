"""What SQLite finds wrong with a ledger's file, with a remedy."""

from __future__ import annotations

import sqlite3

_WORDS = {
    "SQLITE_NOTADB": "this is no ledger; check the path",
    "SQLITE_ERROR": "this is no ledger, or not a whole one; check the path",
    "SQLITE_CORRUPT": "the file is damaged; an older copy in its place would lack releases",
    "SQLITE_BUSY": "another process holds it; try again once that has ended",
    "SQLITE_CANTOPEN": "it cannot be opened; check the path and who may read and write it",
    "SQLITE_READONLY": "it cannot be written; see who may write it and its folder",
    "SQLITE_FULL": "the disk is full; make room",
    "SQLITE_IOERR": "the disk cannot be read or written; see to it",
}


def in_words(error: sqlite3.Error) -> str:
    """Return what SQLite found, in words of ours before its own where there are some."""
    name = getattr(error, "sqlite_errorname", "")
    primary = "_".join(name.split("_")[:2])  # SQLITE_READONLY_DBMOVED is one of SQLITE_READONLY
    return f"{_WORDS[primary]} ({error})" if primary in _WORDS else str(error)
