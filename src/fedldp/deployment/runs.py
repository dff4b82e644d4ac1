"""What an operator asks of a server's runs, in files that the server looks for."""

from __future__ import annotations

import json
from pathlib import Path

from fedldp.core.errors import ConfigError, RunError
from fedldp.reporting.record import replace_file
from fedldp.simulation.recorded import is_finished

_FINISH = "finish"


def ask_to_finish(folder: Path, *, now: bool) -> None:
    """Note in a run's folder that its operator ends the run where it is.

    The server ends it after the round under way; the rounds that are paid and come after training
    (intercept, look, question) are still made.

    Args:
        folder: the run's folder.
        now: whether to wait for nothing and leave out all rounds.

    Raises:
        ConfigError: the folder is not that of a server's run, or the run is complete.
    """
    if not (folder / "agreement").exists():
        raise ConfigError(f"{folder}: this is not the folder of a server's run; check the path")
    if is_finished(folder):
        raise ConfigError(f"{folder}: its run has ended already")
    replace_file(folder / _FINISH, json.dumps({"now": now}).encode())


def asked_to_finish(folder: Path) -> bool | None:
    """Return whether a run is to end at once; None if its operator does not end it.

    Raises:
        RunError: the note is damaged.
    """
    try:
        return bool(json.loads((folder / _FINISH).read_text())["now"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / _FINISH} is damaged: run fedldp deploy finish again") from error
