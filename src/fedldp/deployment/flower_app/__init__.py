"""The app that Flower runs: two pipes, which carry bytes without interpreting them.

Flower sends its operator's app to every SuperNode and runs it there. So the app must not contain
anything that affects privacy: these files import only the standard library and flwr, not fedldp,
and touch neither data nor models. They are package data here; :func:`write` makes an app directory
of them.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fedldp.core.errors import ConfigError

TESTED = ("1.41", "1.42")
"""The oldest and the newest tested versions of Flower."""

_MAJOR, _MINOR = map(int, TESTED[1].split("."))
REQUIREMENT = f"flwr>={TESTED[0]},<{_MAJOR}.{_MINOR + 1}"
"""The range of tested versions, as an installer reads it; the extra ``flower`` in
``pyproject.toml`` has the same range."""

FILES = ("pyproject.toml", "server_app.py", "client_app.py")


def write(folder: Path) -> None:
    """Write an app directory that ``flwr run`` can run; files with the same names are replaced.

    Args:
        folder: the directory, created if missing.

    Raises:
        ConfigError: ``folder`` cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
            (folder / name).write_text(text.replace("FLOWER", REQUIREMENT), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the app's folder {folder} cannot be written: {error.strerror}; choose another folder"
        ) from error
