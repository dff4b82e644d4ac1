"""What a site allows with its data: a TOML file that its operator writes.

    data = "examples.npz"          its examples: .npz (features, labels), .csv or .parquet
    key = "keys/site.key"          its identity, from `fedldp deploy keys`
    state = "state"                its folder, with site.db: its ledger, secrets and agreements
    channels = ["named", "sum"]    optional, like everything below
    witness = "/net/log/north"     one line per release; keep it out of all back-ups

    [[server]]                     a server's address and certificate authorities; repeatable
    url = "https://server.example.org:8443"
    ca = "ca.pem"

    [budget]                       the ledger's limit, across all runs
    kind = "zcdp"
    limit = 2.0

    [person_budget]                the same for each person, with [budget] or instead of it
    kind = "zcdp"
    limit = 0.5

    [own]                          the only epsilon with which the site answers; see ``own_budgets``
    epsilon = 2.0
    unit = "client-run"

    [[study]]                      what differs for the run of one invite; repeatable
    invite = "6c1f..."
    label_column = "relapse"

Paths are relative to the file's own folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, ValidationError

from fedldp.accounting.accountants import (
    PARTS,
    BudgetKind,
    Part,
    on_side,
    releases_nothing,
    sent_in_clear,
    sides_of,
)
from fedldp.algorithms.features import KINDS
from fedldp.algorithms.settings import WEIGHTS, of_client
from fedldp.algorithms.systems import systems
from fedldp.algorithms.validation import describe
from fedldp.core.errors import ConfigError, PrivacyError, os_errors
from fedldp.core.facts import Unprotected
from fedldp.core.frozen_config import FrozenConfig
from fedldp.core.registry import is_address
from fedldp.data import is_table
from fedldp.deployment.agreement import LISTED, Agreement, Channel, RunDocument, check_stated
from fedldp.deployment.certificates import fingerprints
from fedldp.deployment.documents import Hex
from fedldp.deployment.identity import public_of, read_keys
from fedldp.deployment.own_budgets import OwnBudget, stay_at_sites
from fedldp.ledgers.budget import Budget, each_of, total_of
from fedldp.ledgers.sqlite import Release
from fedldp.mechanisms import mechanisms
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.integer_gaussian import IntegerGaussian
from fedldp.models import models
from fedldp.reporting import words
from fedldp.simulation.settings import settings_in

URL = r"^https://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?$"
"""The pattern of a server's HTTPS address."""


class BudgetTable(FrozenConfig):
    """The limit of a site's ledger."""

    kind: BudgetKind = "pure"
    limit: Annotated[float, Field(ge=0)]
    """The most that all of the site's releases together may cost, in units of kind; with inf, the
    ledger counts the cost but sets no limit."""


class PersonBudgetTable(BudgetTable):
    """The limit of a site's ledger for each person or each record."""

    unit: Part = "person"


class ServerTable(FrozenConfig):
    """A server that the site connects to."""

    url: Annotated[str, Field(pattern=URL)]
    ca: Path
    """A PEM file with the certificate authorities that the site trusts to sign the server's
    certificate."""

    def is_named_in(self, agreement: Agreement) -> bool:
        """Return whether an agreement names all authorities of this server, or leaves them open."""
        named = agreement.server_ca
        return not named or set(fingerprints(self.ca)) <= {*named}


class StudyTable(FrozenConfig):
    """What differs for the run of one invite."""

    invite: Hex
    """The invite's digest."""
    label_column: str
    """As in the policy."""
    own: OwnBudget | None = None
    """As in the policy."""


class SitePolicy(FrozenConfig):
    """A site's policy: immutable, and checked on creation."""

    data: Path
    """The site's examples: a .npz, .csv or .parquet file."""
    label_column: str = "label"
    """The label column of a table."""
    person_column: str | None = None
    """The column of a .csv or .parquet file that names the person of each row; if not set, the
    agreement's column."""
    leave_out_at_most: float = Field(0.05, ge=0, le=1)
    """The largest share of its rows that a run may leave out because they do not fit; if it would
    leave out more, no agreement is accepted and the operator learns why."""
    key: Path
    """The site's private key, written by `fedldp deploy keys`."""
    witness: Path | None = None
    """A file to which each release adds a line; create it once, empty, and exclude it from all
    back-ups."""
    state: Path
    """A folder for the site's ledger and secrets, used by this site only."""
    server: Annotated[tuple[ServerTable, ...], Field(min_length=1)]
    """The servers that the site connects to."""
    study: tuple[StudyTable, ...] = ()
    """What differs for the run of an invite."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """The device that the site trains on."""
    data_dir: Path | None = None
    """The folder with downloaded public data sets; if not set, fedldp's default folder."""
    channels: tuple[Channel, ...] = ("named", "sum")
    systems: tuple[str, ...] | None = None
    """The systems that the site allows; by default all built-in systems, but none of your own
    ("module:Class")."""
    mechanisms: tuple[str, ...] | None = None
    """The mechanisms that the site allows; by default all built-in mechanisms, but none of your own
    ("module:Class")."""
    features: tuple[str, ...] | None = None
    """The feature maps that the site allows; by default all built-in feature maps, but none of your
    own ("module:function") and none from files."""
    models: tuple[str, ...] | None = None
    """The models, losses and weight files that the site allows; by default all built-in models and
    losses, but none of your own ("module:name") and none from files."""
    allow_in_clear: bool = False
    """Whether values may leave the site unprotected; unprotected values have no finite cost."""
    answer_after_seconds: float = Field(0.0, ge=0, le=1e6)
    """The minimum time from a request to its answer, in seconds, which makes the timing reveal
    less; with 0, the site answers at once."""
    budget: BudgetTable | None = None
    """The ledger's limit for all of the site's data."""
    person_budget: PersonBudgetTable | None = None
    """The ledger's limit for each person or each record."""
    own: OwnBudget | None = None
    """The site's own budget for a run; the site answers with this epsilon only."""

    def for_run(self, server: ServerTable, study: StudyTable | None) -> Self:
        """Return the policy for one run: with its server only, and with what differs for it."""
        differs = {} if study is None else study.model_dump(exclude={"invite"})
        return self.changed(server=(server,), study=() if study is None else (study,), **differs)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of the site's ledger: at least one."""
        found = [] if self.budget is None else [Budget(self.budget.kind, self.budget.limit)]
        own = self.person_budget
        return each_of(found if own is None else [*found, Budget(own.kind, own.limit, own.unit)])

    @property
    def source(self) -> tuple[Path, str, str | None]:
        """The site's examples: their file, and its label and person columns if it is a table."""
        return self.data, self.label_column, self.person_column

    @property
    def ledger(self) -> Path:
        """The site's one file of state: its ledger, its secrets, and what it accepted."""
        return self.state / "site.db"

    @property
    def mark(self) -> Path:
        """The file beside the key that records that a ledger exists; see ``site_ledger``."""
        return self.key.with_name(f"{self.key.name}.ledger")

    @property
    def own_code(self) -> frozenset[str]:
        """The code and files from outside fedldp that the policy's lists allow fedldp to read."""
        lists = (self.systems, self.mechanisms, self.features, self.models)
        named = [name for each in lists for name in each or ()]
        return frozenset(name for name in named if is_address(name) or name.endswith(WEIGHTS))

    def costs(self, agreement: Agreement, budget: Budget | None = None) -> tuple[float, float]:
        """Return a run's costs to this site under one of its budgets; see ``costs_of``.

        A budget of None stands for the site's first budget.
        """
        return costs_of(agreement, budget or self.budgets[0], self.place_in(agreement))

    def place_in(self, agreement: Agreement) -> int:
        """Return the site's number if sites differ in what they release; otherwise 0.

        Raises:
            FedldpError: the site is not in the agreement, or its key cannot be read.
        """
        if not agreement.has_own_budgets:
            return 0
        return self.in_roster(agreement)[0]

    @property
    def public_keys(self) -> list[str]:
        """The site's present public key, then the earlier ones."""
        return [*map(public_of, read_keys(self.key))]

    def in_roster(self, agreement: Agreement) -> tuple[int, Ed25519PrivateKey]:
        """Return the site's number in the roster, and the newest of its keys that the roster has.

        Raises:
            FedldpError: the roster has none of its keys, or they cannot be read.
        """
        places = {site.key: index for index, site in enumerate(agreement.sites)}
        for key in read_keys(self.key):  # an earlier one may have answered in the site's name
            if (public := public_of(key)) in places:
                return places[public], key
        raise ConfigError(
            "key: it is not in the agreement's roster; put back the key that the site had then, or "
            "send the public half to the person who makes the agreement"
        )

    def own_here(self, agreement: Agreement) -> float | None:
        """Return the site's own epsilon for a run, if no other party need know it.

        Raises:
            ConfigError: the run states less for all sites, or another unit or delta.
        """
        if self.own is None or not stay_at_sites(agreement.config):
            return None
        self.own.check(agreement.config, self.own.epsilon)
        return self.own.epsilon

    def in_clear(self, agreement: Agreement) -> list[Unprotected]:
        """Return what a run sends unprotected about the site or people that the policy protects.

        A policy with only a [person_budget] protects people, so it ignores what a release reveals
        about the site as a whole.
        """
        return [
            what
            for budget in self.budgets
            for stage in agreement.stages
            for event in agreement.events_of(self.place_in(agreement), stage[0])
            for what in sent_in_clear(on_side(event, budget.unit))
        ]

    def check(self, agreement: Agreement) -> None:
        """Refuse an agreement that this policy does not allow.

        Raises:
            PrivacyError: the policy does not allow it; the message says what to change to allow it.
        """
        # Check these first, because the later checks import the model.
        for name, values in needed_for(agreement).items():
            listed = getattr(self, name)
            allowed = tuple(_BUILT_IN[name]()) if listed is None else listed
            for value in values:
                if value not in allowed:
                    raise PrivacyError(
                        f"{name} = {', '.join(allowed) or 'none'}: the agreement has {value}, "
                        f"which this site's policy does not allow; to allow it, add it to {name} "
                        "in the policy"
                    )
        system = agreement.config.name()
        agreement.check()
        check_stated(agreement)
        self._check_own(agreement)
        self._check_server(agreement)
        clear = self.in_clear(agreement)
        if clear and not self.allow_in_clear:
            what = words.line(clear[0])
            raise PrivacyError(
                f"allow_in_clear = false: {system} sends {what} unprotected; set it to true only "
                "if everybody may see those values; if it protects each person or record, give a "
                "[person_budget], with its unit, instead of [budget]"
            )
        for budget in self.budgets:
            _, run = self.costs(agreement, budget)
            if run == math.inf and budget.limit < math.inf:
                name = "budget" if budget.unit == "client" else "person_budget"
                raise PrivacyError(
                    f"{name}.kind = {budget.kind}: what {system} sends has no proven finite cost "
                    "of this kind, so no limit covers it; a site with a zcdp ledger may take part"
                )

    def _check_own(self, agreement: Agreement) -> None:
        """Refuse an agreement under which the site would not answer with its own epsilon.

        Raises:
            PrivacyError: the site would answer with another epsilon.
        """
        if self.own is None:
            if agreement.has_own_budgets:
                raise PrivacyError(
                    "own is not set: the agreement has a budget for each site; add a table [own] "
                    "with the epsilon that this site stated"
                )
            return
        epsilons: Any = agreement.config.model_dump().get("epsilon")
        epsilon = of_client(epsilons, self.place_in(agreement))
        try:
            self.own.check(agreement.config, epsilon)
        except ConfigError as error:
            raise PrivacyError(
                f"{error}; own.epsilon in this site's policy allows no other value"
            ) from error

    def _check_server(self, agreement: Agreement) -> None:
        """Refuse an agreement whose requests may come from another server."""
        for server in self.server:
            if not server.is_named_in(agreement):
                raise PrivacyError(
                    f"server.ca = {server.ca}: it contains an authority that the agreement does "
                    "not name, and that authority could sign another server's certificate; ask "
                    "for the file with the agreed authorities"
                )


def budget_table(part: Part | None, limit: float) -> dict[str, dict[str, Any]]:
    """Return the budget of a policy that protects the whole site, or each of its parts.

    A ledger keeps its kind for ever, and only this one prices every study that has a price.
    """
    table = {"kind": "zcdp", "limit": limit}
    return {"budget": table} if part is None else {"person_budget": {**table, "unit": part}}


def prices_due(
    agreement: Agreement, budget: Budget, place: int = 0, of_run: Sequence[Release] = ()
) -> list[Fraction | float]:
    """Return what each round that a site may still answer costs, in the unit of a budget.

    What is randomised only once is charged only in the first round.

    Args:
        agreement: the run's agreement.
        budget: sets the unit of the costs; its limit is ignored.
        place: the site's index in the roster.
        of_run: the entries of the site's ledger for the run.
    """
    paid, answered = [entry.event for entry in of_run], rounds_answered(of_run)
    due = agreement.rounds_of(place) - len(answered)
    found: list[Fraction | float] = []
    for stage in agreement.stages:  # if there are several, a site answers all rounds
        events = agreement.events_of(place, stage[0])
        first = total_of(budget.price(event, paid) for event in events)
        later = total_of(budget.price(event, [*paid, *events]) for event in events)
        times = min(due - len(found), len(set(stage) - answered))
        found += [first, *[later] * (times - 1)][:times]
    return found


def rounds_answered(of_run: Sequence[Release]) -> set[int]:
    """Return the rounds of a run in which a site released something, by its ledger's entries."""
    return {entry.round for entry in of_run if not releases_nothing(entry.event)}


def costs_of(agreement: Agreement, budget: Budget, place: int = 0) -> tuple[float, float]:
    """Return the most that one round and the whole run cost a site; see ``prices_due``."""
    prices = prices_due(agreement, budget, place)
    return budget.spent([max(prices)]), budget.spent(prices)


def protected_part(agreement: Agreement) -> Part | None:
    """Return the part of a site that a run protects, if it does not protect the whole site."""
    for part in reversed(PARTS):
        events = agreement.events_of(0)  # all sites have the same events, except for their budgets
        if any(part in sides_of(event) for event in events) and not any(
            sent_in_clear(on_side(event, part)) for event in events
        ):
            return part
    return None


def read_policy(path: Path) -> SitePolicy:
    """Return the policy in a TOML file.

    Raises:
        ConfigError: the file cannot be read, or is not a policy.
    """
    return checked_policy(settings_in(path, "policy"), path)


def checked_policy(found: dict[str, Any], path: Path) -> SitePolicy:
    """Return the policy with the settings that a file has, or will have; see ``read_policy``."""
    if isinstance(found.get("server"), dict):
        raise ConfigError(
            f"policy {path}: [server]: a site may have several servers; write [[server]], once for "
            "each of them"
        )
    try:
        policy = SitePolicy.model_validate(found)
    except ValidationError as error:
        what = describe(error, "a site's policy", SitePolicy.model_fields)
        raise ConfigError(f"policy {path}: {what}") from None
    if not policy.budgets:
        raise ConfigError(
            f"policy {path}: budget is not set; add a table [budget] (or [person_budget], for "
            "each person) with a limit for everything that the site ever releases"
        )
    of_people = any(budget.unit == "person" for budget in policy.budgets)
    if of_people and policy.person_column is None and is_table(policy.data.name):
        raise ConfigError(
            f"policy {path}: person_column is not set: one budget counts one kind of people, "
            "whatever a run calls a person; set it to the column of the people whom the "
            "[person_budget] protects"
        )
    if policy.allow_in_clear and policy.budgets[0].limit != math.inf:
        raise ConfigError(
            f"policy {path}: allow_in_clear = true: what leaves unprotected has no finite cost, "
            "so no budget covers it; set budget.limit = inf, which means that this ledger "
            "protects nothing"
        )
    here = path.absolute().parent
    places = ("data", "key", "witness", "state", "data_dir")
    given = {name: getattr(policy, name) for name in places}
    update: dict[str, Any] = {n: here / p.expanduser() for n, p in given.items() if p}
    update["server"] = [each.changed(ca=here / each.ca.expanduser()) for each in policy.server]
    return policy.changed(**update)


_BUILT_IN: dict[str, Callable[[], Iterable[str]]] = {
    "systems": systems,
    "mechanisms": lambda: (*mechanisms(), SharedGaussian.name, IntegerGaussian.name),
    "features": lambda: KINDS,
    "models": models,
}
"""What a policy allows by a list that it leaves out."""


def needed_for(document: RunDocument) -> dict[str, list[str]]:
    """Return what a policy's lists must have for a run, by their settings."""
    # Not the attributes, because some systems without such a setting have a method of that name.
    settings = document.config.model_dump() | {"system": document.config.name()}
    needed: dict[str, list[str]] = {"channels": [document.channel]}
    for setting, listed in LISTED.items():
        value = settings.get(setting)
        built_in = value == "none" if setting == "features" else setting == "loss"
        if value is not None and not (built_in and not is_address(value)):
            needed.setdefault(listed, []).append(value)
    return needed


def make_state(policy: SitePolicy) -> None:
    """Create the state folder, for its owner only.

    Raises:
        ConfigError: it cannot be created.
    """
    with os_errors(f"state {policy.state}", "check the folder"):
        policy.state.mkdir(parents=True, exist_ok=True, mode=0o700)
