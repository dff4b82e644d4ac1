"""Every mistake is refused in one line that names the setting, the value as given and a remedy.

The mistakes are data: each ``.toml`` file beside this test is a list of groups, and each group is a
list of rows that go through the same door. To add a row, find its group (or add one) and write

    {setting = "epsilon", values = ["0", "-1"], remedy = "give a number"}

- ``setting``: the name that the line must have.
- ``values``: each is a case of its own. The line must have ``SETTING = VALUE``, or ``says``, if
  the row has it, where ``{value}`` stands for the value.
- ``names``: what else the line must have, a list of texts.
- ``remedy``: how the line tells what to do instead, a text.
- ``extra``: a package without which the row is skipped.

A group's ``door`` says what is done with a value; a row may change any key of its group:

- ``settings``: the values are given to ``recipe`` by ``--set SETTING=VALUE``, after the settings
  ``with`` and ``also`` (lists), to each of the ``commands`` (``account`` and ``run``, which must
  agree).
- ``command``: ``given`` has the words after ``fedldp``, with ``{value}`` where the value goes.
- ``table``: as ``command``, for a table that may have other mistakes, which have lines of their
  own.
- ``call``: ``given`` is a Python expression, with the names of the module ``of`` (if any),
  ``fedldp``, ``np``, ``nan``, ``inf``; ``error`` is the exception, by default ``ConfigError``.
- ``policy``: the values, as TOML, are settings of a site's policy.

``files`` (a table of names and texts, where ``{value}`` stands for the value) lie in the current
folder. Nothing may be added to it.
"""

from __future__ import annotations

import importlib
import math
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import fedldp
from fedldp.core import errors
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.deployment.policy import read_policy

POLICY: dict[str, Any] = {
    "data": "data.npz", "key": "site.key", "state": "state",
    "server": [{"url": "https://127.0.0.1:9", "ca": "ca.pem"}],
    "budget": {"kind": "zcdp", "limit": 1.0},
}  # fmt: skip


def rows() -> Iterator[Any]:
    """Yield the case of each value: a row, with all keys of its group, and the value."""
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for group in tomllib.loads(path.read_text(encoding="utf-8"))["group"]:
            shared = {key: value for key, value in group.items() if key != "rows"}
            for row in group["rows"]:
                for value in row["values"]:
                    given = {**shared, **row}
                    where = given.get("given", given["setting"]).replace("{value}", "")
                    yield pytest.param(given, value, id=f"{path.stem}-{where[:40]}-{value[:30]}")


@pytest.mark.parametrize(("row", "value"), list(rows()))
def test_a_mistake_is_refused_in_one_line_with_its_remedy_and_leaves_nothing(
    row: dict[str, Any],
    value: str,
    fedldp_command: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "extra" in row:
        pytest.importorskip(row["extra"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLDP_DATA", raising=False)
    for name, text in row.get("files", {}).items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text.replace("{value}", value), encoding="utf-8")
    before = sorted(Path().rglob("*"))
    said = (row.get("says", "{setting} = {value}"), *row.get("names", ()), row["remedy"])
    for line in DOORS[row["door"]](row, value, fedldp_command):
        assert row["setting"].partition(".")[0] in line
        for part in said:
            forms = (part.replace("{setting}", row["setting"]).replace("{value}", form)
                     for form in forms_of(value))  # fmt: skip
            assert any(form in line for form in forms), (part, line)
        assert len(line.splitlines()) == 1
        assert len(line) < 700
    assert sorted(Path().rglob("*")) == before


def forms_of(value: str) -> list[str]:
    """Return how a line may show the value: as it was given, or as Python shows that number."""
    try:
        number = float(value)
    except ValueError:
        return [value]
    return [value, repr(number), f"{number:g}"]


def by_settings(row: dict[str, Any], value: str, fedldp_command: Any) -> Iterator[str]:
    settings = [*row.get("with", ()), *row.get("also", ()), f"{row['setting']}={value}"]
    given = [word for each in settings for word in ("--set", each)]
    for command in row.get("commands", ("account", "run")):
        yield fedldp_command(command, row["recipe"], *given).assert_refused()


def by_command(row: dict[str, Any], value: str, fedldp_command: Any) -> Iterator[str]:
    words = shlex.split(row["given"].replace("{value}", value))
    yield fedldp_command(*words).assert_refused()


def by_table(row: dict[str, Any], value: str, fedldp_command: Any) -> Iterator[str]:
    words = shlex.split(row["given"].replace("{value}", value))
    lines = fedldp_command(*words).assert_all_refused()
    assert len(lines) == len(set(lines))
    says = row["says"].replace("{value}", value)
    yield next((line for line in lines if says in line), "\n".join(lines))


def by_call(row: dict[str, Any], value: str, fedldp_command: Any) -> Iterator[str]:
    known = vars(importlib.import_module(row.get("of", "fedldp")))
    names = {**known, "fedldp": fedldp, "np": np, "nan": math.nan, "inf": math.inf}
    with pytest.raises(getattr(errors, row.get("error", "ConfigError"))) as refusal:
        eval(row["given"].replace("{value}", value), names)
    yield line_of(refusal.value)


def by_policy(row: dict[str, Any], value: str, fedldp_command: Any) -> Iterator[str]:
    changed = tomllib.loads(f"{row['setting']} = {value}")
    terms = {name: {**POLICY[name], **each} if isinstance(each, dict) and name in POLICY else each
             for name, each in changed.items()}  # fmt: skip
    Path("site.toml").write_text(tomli_w.dumps({**POLICY, **terms}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^policy .*site\.toml: ") as refusal:
        read_policy(Path("site.toml"))
    Path("site.toml").unlink()
    yield line_of(refusal.value)


def line_of(error: FedldpError) -> str:
    assert error.exit_status == 2
    return str(error)


DOORS = {
    "settings": by_settings,
    "command": by_command,
    "table": by_table,
    "call": by_call,
    "policy": by_policy,
}
