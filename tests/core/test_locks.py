"""Locks and temporary folders, by processes that start together, are killed, and look on."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from together import together

from fedldp.core import locks
from fedldp.core.errors import RunError
from fedldp.core.locks import LOCK, Held, alone, is_held, owned, owned_new, scratch

MANY = 8
HELD = 3


def check_empty(path: Path) -> None:
    if path.exists() and any(entry.name != LOCK for entry in path.iterdir()):
        raise RunError(f"{path} is not empty")


def wait_for(number: int, kind: str) -> None:
    """Wait until this many processes have said that they are ready."""
    Path(f"{kind}-{os.getpid()}").touch()
    until = time.monotonic() + 30
    while len(list(Path().glob(f"{kind}-*"))) < number:
        assert time.monotonic() < until, "some processes have ended"
        time.sleep(0.01)


# Processes that start together


def own(name: str) -> int:
    try:
        with owned(Path(name), "out", "run", check_empty) as folder:
            (folder.path / "results").touch()
            print(os.getpid())
            wait_for(MANY, "tried")
    except Held as error:
        print(error)
        wait_for(MANY, "tried")
        return HELD
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("before", ["missing", "empty", "of a killed process"])
def test_of_processes_that_start_together_exactly_one_owns_a_folder(
    tmp_path: Path, before: str
) -> None:
    if before != "missing":
        (tmp_path / "run").mkdir()
    if before == "of a killed process":
        (tmp_path / "run" / LOCK).write_text("process 1 on another machine")
    ended = together(own, [["run"]] * MANY, tmp_path)
    assert sorted(status for status, _ in ended) == [0] + [HELD] * (MANY - 1)
    (owner,) = (said.strip() for status, said in ended if not status)
    for status, said in ended:
        if status:
            assert len(said.splitlines()) == 1
            assert "out = run" in said
            assert f"process {owner} on " in said
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["results"]


def test_a_folder_in_which_another_has_just_begun_is_held(tmp_path: Path) -> None:
    """Else what the other has written so far would be refused, in place of naming the other."""
    with ExitStack() as other:

        def check(path: Path) -> None:
            other.enter_context(owned(path, "out", "run"))
            raise RunError(f"{path} is not empty")

        held = pytest.raises(Held, match="another process is working on this run")
        with held, owned(tmp_path / "run", "out", "run", check):
            pass


def own_new(name: str) -> int:
    with owned_new(Path("runs") / name, "out") as folder:
        print(folder)
        (folder.path / f"results-{os.getpid()}").touch()
        wait_for(MANY, "owns")
    return 0


@pytest.mark.slow
def test_processes_that_start_together_own_folders_with_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a-2").mkdir(parents=True)  # another's, even if it is empty
    ended = together(own_new, [["a"]] * MANY, tmp_path)
    assert [status for status, _ in ended] == [0] * MANY
    names = sorted(said.strip() for _, said in ended)
    assert names == sorted(f"runs/a{end}" for end in ["", *(f"-{n}" for n in range(3, MANY + 2))])
    for name in names:
        assert len(list((tmp_path / name).iterdir())) == 1


def own_again_and_again(name: str, times: int) -> int:
    """Own a folder many times, waiting for the others; nobody else may be in it meanwhile."""
    while times:
        try:
            with owned(Path(name), "out", "run", check_empty) as folder:
                inside = folder.path / "inside"
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                inside.unlink()  # so that the folder is removed as well
                times -= 1
        except RunError:  # somebody owns it, or is inside as this process looks
            continue
    return 0


def test_a_folder_that_is_released_is_owned_by_one_process_at_a_time(tmp_path: Path) -> None:
    ended = together(own_again_and_again, [["deep/run", 25]] * 4, tmp_path)
    assert ended == [(0, "")] * 4
    assert [path for path in (tmp_path / "deep").rglob("*") if path.is_file()] == []


# Processes that end


def be_killed(name: str, kind: str) -> int:
    where = {
        "owned": lambda: owned(Path(name), "out", "run"),
        "owned_new": lambda: owned_new(Path(name), "out"),
        "alone": lambda: alone(Path(name) / LOCK, "agent"),
    }[kind]()
    with where:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["owned", "owned_new", "alone"])
def test_what_a_killed_process_held_is_free(tmp_path: Path, kind: str) -> None:
    assert together(be_killed, [["run", kind]], tmp_path) == [(-signal.SIGKILL, "")]
    assert (tmp_path / "run" / LOCK).exists()
    assert not is_held(tmp_path / "run" / LOCK)
    with owned(tmp_path / "run", "out", "run", check_empty):
        assert is_held(tmp_path / "run" / LOCK)
        assert f"process {os.getpid()} on " in (tmp_path / "run" / LOCK).read_text()
    assert not (tmp_path / "run" / LOCK).exists()


def test_only_what_was_made_and_stayed_empty_is_removed(tmp_path: Path) -> None:
    with owned(tmp_path / "new" / "run", "out", "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    with owned_new(tmp_path / "new" / "run", "out"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    with owned(tmp_path / "old", "out", "run"):
        pass
    assert (tmp_path / "old").is_dir()
    with owned(tmp_path / "kept", "out", "run") as folder:
        (folder.path / "results").touch()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["results"]


def test_a_thread_of_the_same_process_is_another_owner(tmp_path: Path) -> None:
    refused: list[str] = []

    def own_too() -> None:
        try:
            with owned(tmp_path / "run", "resume", "run"):
                pass
        except Held as error:
            refused.append(str(error))

    with owned(tmp_path / "run", "out", "run") as folder:
        thread = threading.Thread(target=own_too)
        thread.start()
        thread.join()
        with owned(folder, "out", "run") as same:  # given by its owner
            assert same == folder
        assert is_held(folder.path / LOCK)
    assert len(refused) == 1
    assert f"resume = {tmp_path / 'run'}: " in refused[0]


def test_a_folder_with_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("a key")
    (tmp_path / "patients.csv").write_text("age\n40\n")
    with pytest.raises(RunError, match="not empty"), owned(tmp_path, "out", "run", check_empty):
        pass
    assert (tmp_path / LOCK).read_text() == "a key"


def test_a_release_leaves_the_lock_of_another_owner(tmp_path: Path) -> None:
    """Somebody removes a folder by hand while a process works in it, and begins anew."""
    with owned(tmp_path / "run", "out", "run"):
        (tmp_path / "run" / LOCK).unlink()
        with owned(tmp_path / "run", "out", "run"):
            pass
        new = tmp_path / "run" / LOCK
        new.write_text("of another")
    assert new.read_text() == "of another"


# Temporary folders


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def use_scratch(times: int, ends: str) -> int:
    tempfile.tempdir = "."
    for _ in range(times):
        with scratch() as folder:
            (folder / "rows").write_text("private")
            time.sleep(0.001)
            assert (folder / "rows").read_text() == "private"
            assert folder.stat().st_mode & 0o077 == 0
            if ends == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scratch", "owned", "owned_new"])
def test_temporary_folders_of_killed_processes_are_removed_and_others_stay(
    temporary: Path, kind: str
) -> None:
    def folders() -> set[Path]:
        return set(temporary.glob("fedldp-*"))

    ended = together(use_scratch, [[1, "killed"]] * 3, temporary)
    assert [status for status, _ in ended] == [-signal.SIGKILL] * 3
    left = folders()
    # As many as were killed, less those that another one removed as it started.
    assert 1 <= len(left) <= 3
    starts: dict[str, Any] = {
        "scratch": scratch,
        "owned": lambda: owned(temporary / "run", "out", "run"),
        "owned_new": lambda: owned_new(temporary / "run", "out"),
    }
    with starts[kind]():
        assert not left & folders()
        living = folders()
        with scratch() as another:
            assert folders() == {*living, another}
    assert folders() == set()


@pytest.mark.slow
def test_nobody_loses_a_temporary_folder_to_others_that_start(temporary: Path) -> None:
    ended = together(use_scratch, [[25, "well"]] * MANY, temporary)
    assert ended == [(0, "")] * MANY
    assert list(temporary.glob("fedldp-*")) == []


def test_what_is_not_an_own_folder_is_not_removed(temporary: Path) -> None:
    with scratch() as folder:
        name = folder.name
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "rows").touch()
    (temporary / f"{name}a").symlink_to(temporary / "elsewhere")
    (temporary / f"{name}b").touch()
    before = sorted(temporary.rglob("*"))
    with scratch():
        pass
    assert sorted(temporary.rglob("*")) == before


def test_a_temporary_folder_that_another_user_makes_in_between_is_not_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = locks._try, []

    def after_others(file: Path, mode: int) -> int | None:
        if len(removed) < 2:
            removed.append(file.parent.rename(file.parent.with_name(f"removed-{len(removed)}")))
            if len(removed) == 2:  # at first, nobody makes another
                file.parent.mkdir()
                file.parent.chmod(0o777)
        return real(file, mode)

    monkeypatch.setattr(locks, "_try", after_others)
    with scratch() as folder:
        assert len(removed) == 2
        assert folder.stat().st_mode & 0o077 == 0


def test_a_lock_that_is_a_link_changes_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("private")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "rows")
    with pytest.raises(RunError), owned(tmp_path / "run", "out", "run"):
        pass
    assert (tmp_path / "rows").read_text() == "private"


def test_without_a_temporary_folder_there_is_one_line(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(RunError, match="TMPDIR"), scratch():
        pass
