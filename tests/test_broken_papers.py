"""A paper of another package that is broken is refused in one line, before anything is trained."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import guides
import pytest

TOY = guides.paper_files()

OFFER = "    range_radius: Radius = 0.05"
EVENT = "return self.bits.event(size)"
CHECK = "        check_releasable(values)"
STARTS = "    return Composition("
PRESET = "system = toypaper.preset:toy: "
CLAIM = 'claim=Claim(epsilon={}, delta=0.0, unit="{}", source="Nobody 2026"),\n        calibration='

BROKEN = {
    "a part that is missing": (
        ("preset.py", "from toypaper.parts", "from toypaper.part"),
        PRESET + "ModuleNotFoundError: No module named 'toypaper.part' (toypaper.preset, line #); "
        "correct it there",
    ),
    "a preset that is missing": (
        ("recipes/toypaper.toml", "preset:toy", "preset:gone"),
        "system = toypaper.preset:gone: AttributeError: module 'toypaper.preset' has no attribute "
        "'gone'; check the name; modules are looked for in PYTHONPATH and in the current folder",
    ),
    "a syntax error": (
        ("parts.py", "def prepare(self, model)", "def prepare(self, model, )) "),
        PRESET + "SyntaxError: unmatched ')' (parts.py, line #); correct it there",
    ),
    "an exit": (
        ("preset.py", "\n\n@preset", "\n\nraise SystemExit(3)\n\n\n@preset"),
        PRESET + "SystemExit: 3 (toypaper.preset, line #); correct it there",
    ),
    "a setting that every run has": (
        ("preset.py", OFFER, "    rounds: Radius = 0.05"),
        PRESET + "setting rounds: every run has this setting, with values of another type; choose "
        "another name",
    ),
    "a setting that is offered twice": (
        ("preset.py", "@preset(Toy)", "@preset(Toy, Toy)"),
        PRESET + "setting epsilon: this preset offers it twice; leave one out",
    ),
    "a setting called like a method": (
        ("preset.py", OFFER, "    identity: Radius = 0.05"),
        PRESET + "setting identity: every configuration has something else of this name; choose "
        "another name",
    ),
    "a setting that is not offered": (
        ("preset.py", "settings.range_radius", "settings.radius"),
        "code of your own: AttributeError: 'toy' object has no attribute 'radius' "
        "(toypaper.preset, line #); correct it there",
    ),
    "a preset that fails": (
        ("preset.py", STARTS, "    1 / 0\n" + STARTS),
        "code of your own: ZeroDivisionError: division by zero (toypaper.preset, line #); "
        "correct it there",
    ),
    "a preset without parts": (
        ("preset.py", STARTS, "    return dict("),
        PRESET + "its function returns dict; return a Composition",
    ),
    "a mechanism that states nothing": (
        ("mechanism.py", EVENT, "return None"),
        "mechanism = toypaper.mechanism:Sign: it states NoneType for a report; state one of ",
    ),
    "a mechanism without an event": (
        ("mechanism.py", "def event(", "def evnt("),
        "code of your own: TypeError: Can't instantiate abstract class Sign with",
    ),
    "a mechanism whose event fails": (
        ("mechanism.py", EVENT, "return {}[size]"),
        "code of your own: KeyError: 170 (toypaper.mechanism, line #",
    ),
    "an event with a number of NumPy": (
        ("mechanism.py", EVENT, "return type(self.bits.event(size))(epsilon=np.float32(1), "
         "coordinates=size)"),
        "mechanism = toypaper.mechanism:Sign: it states no valid event: epsilon = a value of type "
        "float32: give a plain finite number of at least 0",
    ),
    "a mechanism that cannot encode": (
        ("mechanism.py", "self.expected(values), stream", "self.expcted(values), stream"),
        PRESET + "tried on public rows before the run: AttributeError: 'Sign' object has no "
        "attribute 'expcted' (toypaper.mechanism, line #); correct it there",
    ),
    "a report of another length": (
        ("mechanism.py", "self.expected(values), stream)", "self.expected(values), stream) + b'0'"),
        PRESET + "tried on public rows before the run: encode returns 23 bytes, but payload_bits "
        "says 170 bits; mend one",
    ),
    "a mean of another shape": (
        ("mechanism.py", "    def event", "    def aggregate(self, size):\n        return "
         "super().aggregate(size - 8)\n\n    def event"),
        PRESET + "tried on public rows before the run: ",
    ),
    "a part that fails": (
        ("parts.py", "from torch.nn.functional import avg_pool2d", "from torch import pool"),
        "",
    ),
    "a claim for an unknown unit": (
        ("preset.py", "calibration=", CLAIM.format("1.0", "wight")),
        "claim: unit = 'wight': there is no such unit; choose weight, record, ",
    ),
    "a claim below zero": (
        ("preset.py", "calibration=", CLAIM.format("-1.0", "weight")),
        "claim: epsilon = -1.0: give a plain finite number of at least 0",
    ),
    "a budget for an unknown unit": (
        ("preset.py", 'EpsilonMeaning("weight"', 'EpsilonMeaning("wight"'),
        "meaning of epsilon: unit = 'wight': choose weight, record, ",
    ),
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "site"
    for name in [name for name in sys.modules if name.partition(".")[0] == "toypaper"]:
        del sys.modules[name]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_paper_is_one_line(what: str, site: Path, fedldp_command: Any) -> None:
    (file, old, new), says = BROKEN[what]
    assert old in TOY[file]
    code = TOY[file].replace(old, new)
    if "Claim(" in code:
        code = code.replace("from fedldp.algo", "from fedldp.accounting.statement import Claim\n"
                            "from fedldp.algo", 1)  # fmt: skip
    guides.install(site, "toypaper", {**TOY, file: code})
    for command in ("account", "run"):
        refused = fedldp_command(command, "toypaper-digits")
        assert (refused.status, refused.out) == (2, "")
        expected = re.escape(f"error: {says}").replace(r"\#", r"\d+")
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
