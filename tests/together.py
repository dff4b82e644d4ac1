"""Processes that start at the same moment, forked by a program that has imported everything."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_PROGRAM = """
import importlib.util, json, os, sys, time
sys.path[:], file, name, folder, calls, delay = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("of_test", file)
module = importlib.util.module_from_spec(spec)
sys.modules["of_test"] = module
spec.loader.exec_module(module)
function = getattr(module, name)
getattr(function, "imports", lambda: None)()
os.chdir(folder)
start, children = time.time() + delay, []
for number, arguments in enumerate(calls):
    child = os.fork()
    if not child:
        out = os.open(f"said-{number}", os.O_CREAT | os.O_WRONLY)
        os.dup2(out, 1)
        os.dup2(out, 2)
        time.sleep(max(0, start - time.time()))
        status = 70
        try:
            status = function(*arguments) or 0
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
"""


def together(
    function: Callable[..., Any], calls: Sequence[Sequence[Any]], folder: Path, delay: float = 0.1
) -> list[tuple[int, str]]:
    """Call a function of a test module once with each arguments, each in a process of its own.

    The function is given plain values, works in ``folder``, and returns an exit status. Its
    attribute ``imports``, if any, is called before the processes are forked.

    Returns:
        for each call, the exit status (negative: the signal) and what it said.
    """
    file, name = inspect.getfile(function), function.__name__
    text = json.dumps([sys.path, file, name, str(folder), [list(each) for each in calls], delay])
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, text], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    statuses = json.loads(ended.stdout)
    return [(s, (folder / f"said-{number}").read_text()) for number, s in enumerate(statuses)]
