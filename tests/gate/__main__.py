"""Run by ``python tests/gate``."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from gate.record import main  # noqa: E402

sys.exit(main())
