"""Plug-in discovery: to add a mechanism, system or recipe, add one file.

It also finds packages that are installed only with an extra, papers in other installed packages,
and a user's own code ("module:name").
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedldp.core.errors import ConfigError, FedldpError, first_line

T = TypeVar("T")


def module_names(package: str) -> list[str]:
    """Return the sorted names of the modules of ``package``, except those that begin with "_"."""
    return list(_names_in(tuple(importlib.import_module(package).__path__)))


@functools.cache  # every new configuration looks a name up, and folders do not change
def _names_in(path: tuple[str, ...]) -> tuple[str, ...]:
    names = (info.name for info in pkgutil.iter_modules(path))
    return tuple(sorted(name for name in names if not name.startswith("_")))


def modules(package: str) -> Iterator[ModuleType]:
    """Import and yield the modules of ``package`` by name, except those that begin with "_"."""
    for name in module_names(package):
        # Do not read sys.modules, where another thread may have only half imported the module.
        yield importlib.import_module(f"{package}.{name}")


PAPERS = "fedldp.papers"
"""The room whose folders are papers, and the group of entry points that bring more such folders.

Nothing but this scan looks into them.
"""


_READ = ("recipes/*.toml", "preset*.py", "mechanism*.py")
"""The files that are read of a paper in another package."""


@dataclass(frozen=True)
class InstalledPaper:
    """A paper in another package: a folder like those in ``PAPERS``. None of it is imported.

    Attributes:
        package: the name of the package that is the folder.
        places: the folder; a package without ``__init__.py`` may have several.
    """

    package: str
    places: tuple[Path, ...]

    def files(self, pattern: str) -> list[Path]:
        """Return the paper's files whose path below its folder matches a pattern."""
        return sorted(path for place in self.places for path in place.glob(pattern))


def installed_papers() -> tuple[list[InstalledPaper], list[str]]:
    """Return the papers that other packages bring, and a line for each that cannot be found."""
    from importlib.metadata import entry_points

    found, left_out = {}, []
    try:
        values = sorted({point.value for point in entry_points(group=PAPERS)})
    except Exception as error:  # files that other packages wrote may be damaged in any way
        return [], [f"entry points {PAPERS}: {type(error).__name__}: {first_line(error)}"]
    for package in values:
        try:
            paper = InstalledPaper(package, _places(package))
            if not any(paper.files(pattern) for pattern in _READ):
                raise ConfigError(
                    f"this package has none of {', '.join(_READ)}; name the one that is the paper"
                )
            found[package] = paper
        except Exception as error:  # as may what finds them
            why = str(error) if isinstance(error, ConfigError) else type(error).__name__
            left_out.append(f"entry point {PAPERS} = {package}: {why}")
    return list(found.values()), left_out


def _places(package: str) -> tuple[Path, ...]:
    """Return the folders of a package, without importing it or a package that it is in."""
    first, *rest = package.split(".")
    if first == PAPERS.split(".")[0]:
        raise ConfigError("this is a part of fedldp; give the name of a package of your own")
    spec = importlib.util.find_spec(first)
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or []]
    for part in rest:
        places = [place / part for place in places if (place / part).is_dir()]
    if not places or not all(part.isidentifier() for part in (first, *rest)):
        raise ConfigError("there is no such package; install it, or remove what names it")
    return tuple(places)


def paper_modules(start: str, user: str = "") -> Iterator[ModuleType]:
    """Import and yield the papers' modules whose names begin so.

    Args:
        start: what the names begin with.
        user: the name of a module. If it is in an installed paper, this paper is searched as well.
    """
    packages = [f"{PAPERS}.{paper}" for paper in module_names(PAPERS)]
    papers, _ = installed_papers() if user else ([], [])
    packages += [each.package for each in papers if user.startswith(f"{each.package}.")]
    for package in packages:
        for name in module_names(package):
            if name.startswith(start):
                yield importlib.import_module(f"{package}.{name}")


def paper_folders(name: str) -> list[str]:
    """Return the folders and files called ``name`` of fedldp's papers that have one."""
    above = importlib.import_module(PAPERS).__path__
    return sorted(str(path) for place in above for path in Path(place).glob(f"*/{name}"))


def scan(base: type[T], found: Iterable[ModuleType]) -> list[type[T]]:
    """Return the concrete subclasses of ``base`` that modules define."""
    return [
        member
        for module in found
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, base)
        and member.__module__ == module.__name__
        and not inspect.isabstract(member)
    ]


def is_address(name: str) -> bool:
    """Return whether ``name`` is an address, "module:name", which names code outside fedldp."""
    return ":" in name


def address_of(found: object) -> str | None:
    """Return the address of a module's class or function; None for an object without an address."""
    name = getattr(found, "__qualname__", type(found).__name__)
    module = getattr(found, "__module__", None)
    named = module and getattr(sys.modules.get(module), name, None) is found
    return f"{module}:{name}" if named else None


def load(address: str, setting: str) -> Any:
    """Return the object that an address, "module:name", names. This runs the module's code.

    Python's own search path comes first and the current folder last, so a file in that folder never
    replaces an installed module.

    Args:
        address: the address, as the user gave it.
        setting: the setting that holds the address.

    Raises:
        ConfigError: the module cannot be imported, or lacks that name.
    """
    owner, _, name = address.partition(":")
    note_own(owner)
    _look_here()
    try:
        return getattr(importlib.import_module(owner), name)
    except FedldpError as error:
        raise ConfigError(f"{setting} = {address}: {first_line(error)}") from error
    except (Exception, SystemExit) as error:  # a user's own module may raise any exception
        said = fault(error) or (
            f"{type(error).__name__}: {first_line(error)}; check the name; modules are looked for "
            "in PYTHONPATH and in the current folder"
        )
        raise ConfigError(f"{setting} = {address}: {said}") from error


_OWN: set[str] = set()
"""The top packages of modules with a user's own code; see ``note_own``."""


def note_own(module: str) -> None:
    """Remember that a module holds a user's own code, unless it is one of fedldp's."""
    _OWN.add(module.partition(".")[0])
    _OWN.discard(PAPERS.partition(".")[0])


@contextlib.contextmanager
def naming_own_code() -> Iterator[None]:
    """Say in one line what went wrong in a user's own code, and where.

    Raises:
        ConfigError: that code, or what it called, raised an error that is not one of fedldp's.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        said = fault(error)
        if said is None:
            raise
        raise ConfigError(f"code of your own: {said}") from error


def fault(error: BaseException) -> str | None:
    """Return what went wrong in a user's own code, and where; None if nothing did.

    An error of fedldp says by itself what to do.
    """
    if isinstance(error, FedldpError):
        return None
    where = "" if isinstance(error, SyntaxError) else _own_line(error)  # its text has the place
    if where is None:
        return None
    return f"{type(error).__name__}: {first_line(error)}{where}; correct it there"


def _own_line(error: BaseException) -> str | None:
    """Return the innermost line of a user's own code in an error's traceback; None without any."""
    trace, found = error.__traceback__, None
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] in _OWN:
            found = f" ({module}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def file_of_module(address: str) -> Path | None:
    """Return the file of the module that an address names; None if there is none.

    The module itself is not run, only the packages that it is in, so the file is the same before
    it is loaded and after.
    """
    owner = address.partition(":")[0]
    loaded = sys.modules.get(owner)
    if loaded is None:
        _look_here()
        with contextlib.suppress(ImportError, ValueError):
            found = importlib.util.find_spec(owner)
            return None if found is None or not found.has_location else Path(str(found.origin))
    place = getattr(loaded, "__file__", None)
    return None if place is None else Path(place)


def _look_here() -> None:
    """Look for modules in the current folder, after Python's own search path."""
    here = os.getcwd()
    if here not in sys.path:  # it stays, because the module may import its neighbours later
        sys.path.append(here)
    importlib.invalidate_caches()


def import_extra(name: str, *, extra: str) -> ModuleType:
    """Import and return the module ``name``, which an extra of fedldp installs.

    Raises:
        ConfigError: the module is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"{error}: install it with pip install 'fedldp[{extra}]'") from error


def is_installed(name: str) -> bool:
    """Return whether a package is installed, without importing anything."""
    return importlib.util.find_spec(name) is not None
