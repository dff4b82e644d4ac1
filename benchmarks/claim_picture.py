"""Draw the README's picture: what LDP-FL claims for MNIST beside what is proven, as a file.

python benchmarks/claim_picture.py docs/claim.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import fedldp
from fedldp.reporting import charts

STYLE = """<style>
svg { background: #fff; color: #1c1f23; font-family: sans-serif; --grid: #d5d9de; --bad: #b3261e;
  --series-0: #0b57a4; --series-1: #b04a00; }
</style>"""


def main() -> None:
    chart = charts.guarantees("claim", fedldp.account("ldp-fl-mnist"))
    head, _, rest = chart.partition(">")
    Path(sys.argv[1]).write_text(
        f'{head} xmlns="http://www.w3.org/2000/svg" width="720">{STYLE}{rest}\n', encoding="utf-8"
    )


main()
