"""Makes all speed measurements, one after the other, and writes one dated file.

    FEDLDP_DATA=... python -m benchmarks.measure --environments DIR [--out FILE.md]
        [--cells FILE.jsonl] [--chart FILE.svg] [--skip NAME]...

The machine should be idle. The peers' environments are created in DIR. Cells of the peers that FILE
already has are not run again, so the long part can be stopped and started again. The chart needs
Matplotlib.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
PARTS = {
    "mnist": (["round", "ldp-fl-mnist", "3"], "A round of ldp-fl-mnist beside a plain loop"),
    "cifar10": (
        ["round", "ldp-fl-cifar10", "3", "20"],
        "20 clients of ldp-fl-cifar10 beside a plain loop",
    ),
    "kernels": (["kernels"], "Encoding and counting, one thread"),
    "startup": (["startup", "5"], "Start-up"),
    "scale": (["scale"], "Memory and time against the number of clients, one process"),
}


def hardware() -> str:
    """Return a description of this machine."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    model = f"{told.get('model name', platform.processor())} (family {told.get('cpu family', '?')})"
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "fedldp"))
    return (
        f"{os.cpu_count()} cores of an {model}, {platform.system()}, Python "
        f"{platform.python_version()}, {packages}; load before: {os.getloadavg()[0]:.1f}"
    )


def output_of(*command: str) -> str:
    """Run a module or script of the repository, show its output, and return it."""
    print("$", *command, flush=True)
    lines = []
    with subprocess.Popen(
        [sys.executable, *command], cwd=HERE.parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        lines.append(f"(ended with status {process.returncode})\n")
    return "".join(lines)


def main() -> None:
    """Measure, and write the file after each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    today = time.strftime("%Y-%m-%d")
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "results" / f"{today}-speed.md")
    parser.add_argument("--cells", type=Path, default=HERE / "results" / f"peers-{today}.jsonl")
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--skip", action="append", default=[], choices=[*PARTS, "peers"])
    given = parser.parse_args()
    out, cells = given.out.resolve(), given.cells.resolve()
    text = [f"# Speed, {today}\n", hardware(), "", "Made by `python -m benchmarks.measure`.\n"]
    for name, (command, title) in PARTS.items():
        if name not in given.skip:
            module, *options = command
            found = output_of("-m", f"benchmarks.{module}", *options)
            fence = "" if found.startswith("|") else "```\n"
            text += [f"## {title}\n", f"`{' '.join(command)}`\n", f"{fence}{found}{fence}"]
            out.write_text("\n".join(text))
    if "peers" not in given.skip:
        environments = str(given.environments.resolve())
        limit = ["--limit-seconds", "900"]
        output_of(f"{PEERS}/run.py", "--environments", environments, "--out", str(cells), *limit)
        chart = [] if given.chart is None else ["--chart", str(given.chart.resolve())]
        text += ["## Beside others\n", output_of(f"{PEERS}/table.py", str(cells), *chart)]
        out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
