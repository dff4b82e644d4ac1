"""A paper of another package that is broken is refused in one line, before anything is trained."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import guides
import pytest

TOY = guides.paper_files()

PLACE = Path(__file__).with_name("broken_papers.toml")
BROKEN = {row["what"]: row for row in tomllib.loads(PLACE.read_text(encoding="utf-8"))["broken"]}
EVENT = BROKEN["a mechanism that states nothing"]["old"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "site"
    for name in [name for name in sys.modules if name.partition(".")[0] == "toypaper"]:
        del sys.modules[name]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_paper_is_one_line(what: str, site: Path, fedldp_command: Any) -> None:
    row = BROKEN[what]
    file, old = row["file"], row["old"]
    assert old in TOY[file]
    code = TOY[file].replace(old, row["new"])
    if "Claim(" in code:
        code = code.replace("from fedldp.algo", "from fedldp.accounting.statement import Claim\n"
                            "from fedldp.algo", 1)  # fmt: skip
    guides.install(site, "toypaper", {**TOY, file: code})
    loads = not row["says"].startswith("system = ") or "tried on public rows" in row["says"]
    for command in ("account", "run") if loads else ("show", "account", "run"):
        refused = fedldp_command(command, "toypaper-digits")
        assert (refused.status, refused.out) == (2, "")
        expected = re.escape(f"error: {row['says']}").replace(r"\#", r"\d+")
        assert re.match(expected, refused.err), refused.err
        assert refused.err.count("\n") == 1
    assert not (site.parent / "runs").exists()


def test_a_paper_without_anything_to_read_is_left_out(site: Path, fedldp_command: Any) -> None:
    guides.install(site, "toypaper", {"papers/preset.py": TOY["preset.py"]})
    listed = fedldp_command("list")
    assert listed.err == (
        "warning    entry point fedldp.papers = toypaper: this package has none of recipes/*.toml, "
        "preset*.py, mechanism*.py; name the one that is the paper\n"
    )


@pytest.mark.slow
def test_a_sweep_says_in_one_line_where_own_code_fails(site: Path, fedldp_command: Any) -> None:
    code = TOY["mechanism.py"].replace(EVENT, "return {}[size]")
    guides.install(site, "toypaper", {**TOY, "mechanism.py": code})
    swept = fedldp_command("sweep", "toypaper-digits", "--out", "swept")
    assert swept.status == 2
    assert re.search(r"failed: code of your own: KeyError: 170 \(toypaper\.mechanism, line \d+\); "
                     "correct it there$", swept.err, re.M)  # fmt: skip
    assert "Traceback" not in swept.err
