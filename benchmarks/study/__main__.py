"""Measure, or show what was measured."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.study import __doc__ as described
from benchmarks.study.measuring import STUDY, cells
from fedldp.comparing import Results


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.study",
        description=described,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, help="the file of lines")
    parser.add_argument("--budget", type=float, default=60.0, help="minutes to measure")
    parser.add_argument("--only", default="", help="cells whose description has these words")
    parser.add_argument("--table", type=Path, help="a page whose tables are made anew")
    parser.add_argument("--plot", type=Path, help="a folder for the charts")
    options = parser.parse_args()
    results = Results(options.results)
    if options.table or options.plot:
        from benchmarks.study.pages import charts, updated

        if options.table:
            page = options.table.read_text(encoding="utf-8")
            options.table.write_text(updated(page, results.rows), encoding="utf-8")
        if options.plot:
            charts(results.rows, options.plot)
        return
    end = time.monotonic() + 60 * options.budget
    order = [cell for cell in cells() if options.only in str(cell)]
    STUDY.measure(
        results, order, lambda: time.monotonic() < end, lambda line: print(line, flush=True)
    )


if __name__ == "__main__":
    main()
