"""What all parties agree on before a run begins: one document, identified by its SHA-256 digest.

It holds the configuration, public facts about the data, the roster of sites with their public keys,
the channel, how many sites must take part, and the run's name: 128 random bits, so that a ledger
never confuses two runs. By accepting the digest, a site agrees to answer the requests of this run
and of no other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, ValidationInfo

from fedldp.accounting.accountants import sent_in_clear
from fedldp.accounting.events import Event
from fedldp.accounting.guarantees import Unit
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import Statement, SumInPath
from fedldp.algorithms.asking import check_given
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import file_of, rests_on
from fedldp.algorithms.own_code import check_own_code
from fedldp.algorithms.participation import most_rounds
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import is_own
from fedldp.algorithms.systems import deployed, name_and_digest
from fedldp.core.errors import ConfigError
from fedldp.core.facts import KINDS, Caveat, Unprotected, alike
from fedldp.core.frozen_config import FrozenConfig
from fedldp.core.kinds import ANSWER_TIME
from fedldp.core.registry import is_address
from fedldp.deployment.deployable import check_system, check_told
from fedldp.deployment.documents import (
    SITE_NAME,
    Document,
    Hex,
    canonical,
    check_version,
    digest_of,
)
from fedldp.deployment.own_budgets import Joining, has_own_budgets, stay_at_sites
from fedldp.mechanisms.summing import Summing
from fedldp.protocol.keys import draws_of_secret, draws_of_seed
from fedldp.protocol.roles import Draws
from fedldp.protocol.wire import Layout
from fedldp.secure_sum.messages import SecureSum
from fedldp.simulation.participation import events_of_round, participants
from fedldp.simulation.settings import from_mapping

Channel = Literal["named", "sum"]
"""``named``: the server knows who sent each report. ``sum``: it sees only the sum of a round."""

_LONGEST = 1e7


class Site(FrozenConfig):
    """One site of the roster."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(pattern=SITE_NAME)]
    key: Hex


class Facts(FrozenConfig):
    """Public facts about the data across all sites, as they are stored in a document."""

    input_shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    num_classes: Annotated[int, Field(ge=1)]
    num_examples: Annotated[int, Field(ge=1)]
    features: tuple[str, ...] | None = None
    people: Annotated[int, Field(ge=1)] | None = None
    # Set only in a demo, which counts the private examples, as a simulation does.
    counted_in_private: bool = False

    @classmethod
    def document(cls, problem: Problem) -> dict[str, Any]:
        """Return the facts of a problem as JSON-ready values."""
        own = {name: getattr(problem, name) for name in cls.model_fields}
        return cls.model_validate(own).model_dump(mode="json", exclude_defaults=True)


def _config(given: Any, info: ValidationInfo) -> RunConfig:
    if isinstance(given, RunConfig):
        return given
    if not isinstance(given, dict) or info.context is None:
        raise ValueError("no settings")
    check_code(given, info.context["own"])
    return from_mapping(given)


def _problem(given: Any, info: ValidationInfo) -> Problem:
    if isinstance(given, Problem):
        return given
    facts = Facts.model_validate(given).model_dump()
    return Problem(**facts, data_dir=(info.context or {}).get("data_dir"))


def _deadline(given: Any) -> float:
    # Here, not in ``check``: a document with NaN has no digest.
    if not isinstance(given, int | float) or not 1 <= given <= _LONGEST:
        raise ConfigError(f"deadline_seconds = {given}: give a number from 1 to {_LONGEST:g}")
    return float(given)


class RunDocument(Document):
    """What an invite and an agreement both say about a run.

    Attributes:
        version: the version of fedldp that made the document.
        config: the system's settings as sent to clients, including every value that is drawn before
            the run.
        problem: public facts about the data across all sites.
        channel: see ``Channel``.
        deadline_seconds: how long the server waits in each phase.
        initial: SHA-256 of the weights that the run begins with, 64 hexadecimal digits; see the
            module ``initial``. None: the server draws the weights.
        frozen: SHA-256 of the parameters that are not trained, 64 hexadecimal digits; they must be
            the same at every site. None: all parameters are trained.
    """

    version: Annotated[str, Field(pattern=r"^\d+\.\d+[A-Za-z0-9.+-]{0,48}$")]
    config: Annotated[
        RunConfig,
        PlainValidator(_config),
        PlainSerializer(lambda config: config.model_dump(mode="json")),
    ]
    problem: Annotated[Problem, PlainValidator(_problem), PlainSerializer(Facts.document)]
    channel: Channel
    deadline_seconds: Annotated[float, PlainValidator(_deadline)]
    initial: Hex | None = None
    frozen: Hex | None = None

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of its canonical bytes, with what its settings mean: 32 bytes."""
        return digest_of({**self.document, "config": self.config.identity()})


class Agreement(RunDocument):
    """The agreement on a run that real sites take part in.

    Attributes:
        run: the name of the run, 32 hexadecimal digits.
        sites: the roster; a site's index in the roster is its client number.
        quorum: how many sites must take part in a round and, if reports are summed, stay to the end
            of the sum. With committees, each committee needs this many sites; a smaller committee
            is left out, and a round needs at least one committee.
        untrusted_clients: how many clients in each sum may collude with the server.
        test_seed: the seed for all randomness, for the demo only: a run with a seed protects
            nothing.
        statement: what is protected if every round has only as many sites as the quorum requires,
            and each of them takes part in all rounds.
        server_ca: SHA-256 of the certificates (DER) of authorities; one of them must
            have signed the server's certificate. Empty: each site decides for itself which
            authorities it trusts.
        invite: the digest of the invite that the sites answered; None if there was none.
        answers: the sites' signed answers to it, if ``epsilon`` has a value for each site.
        features: the name and digest of the public features that every site computes, or None.
    """

    kind = "agreement"
    what = "agreement"

    run: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    sites: tuple[Site, ...]
    quorum: int
    untrusted_clients: int
    test_seed: Annotated[int, Field(ge=0)] | None = None
    statement: dict[str, Any] = Field(default_factory=dict)
    server_ca: tuple[Hex, ...] = ()
    invite: Hex | None = None
    answers: tuple[Joining, ...] = ()
    features: dict[str, str] | None = None

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse an agreement if the features that it names differ from those computed here."""
        if self.features != name_and_digest(self.config, self.problem):
            raise ConfigError(
                "the digest of its features differs from the digest computed here, so sites would "
                f"train on different features; {_same(self.config)}"
            )

    def check(self) -> None:
        """Import the model, and refuse an agreement that cannot be deployed or contradicts itself.

        Raises:
            ConfigError: the agreement is refused; the message says why.
        """
        check_version(self.version)
        _check_roster(self.sites)
        check_told(self.config)
        config, clients = self.config, len(self.sites)
        if config.num_clients != clients:
            raise ConfigError(
                f"num_clients = {config.num_clients}: the roster has {clients} "
                "sites; make them equal"
            )
        self._check_consent()
        self._check_schedule()
        check_system(config, self.problem)
        self._check_frozen()
        check_own_code(config.algorithm(self.problem))
        _check_features(self.problem)
        if not 1 <= self.quorum <= self.fewest_in_sum:
            of = "round" if config.committee is None else "committee"
            raise ConfigError(
                f"quorum = {self.quorum}: a {of} has {self.fewest_in_sum} sites; give a number "
                f"from 1 to {self.fewest_in_sum}"
            )
        own = getattr(config, "channel", None)
        if own not in (None, "named", self.channel):  # a sum shows less than named reports
            raise ConfigError(
                f"channel = {self.channel}: the configuration has channel = {own}; make them equal"
            )
        if self.channel == "sum":
            self.setup  # noqa: B018 (it refuses reports that cannot be summed)
            if config.untrusted_clients not in (0, self.untrusted_clients):
                raise ConfigError(
                    f"untrusted_clients = {self.untrusted_clients}: the configuration has "
                    f"{config.untrusted_clients}; make them equal"
                )
        elif self.untrusted_clients:
            raise ConfigError(
                f"untrusted_clients = {self.untrusted_clients}: with channel = named, no "
                "guarantee depends on this setting; leave it out"
            )
        elif config.composition.channel.kind == "sum":
            raise ConfigError(
                f"channel = named: {config.name()} is for a sum, in which nobody sees a single "
                "report; set channel = sum"
            )

    def _check_consent(self) -> None:
        """Refuse values that differ from site to site, except for budgets that the sites state.

        Raises:
            ConfigError: a site did not consent to showing its value to all.
        """
        for name in self.config.per_client:
            if is_own(getattr(self.config, name)) and name not in ("epsilon", "turns"):
                raise ConfigError(
                    f"{name} has a value for each client, and no site consented to show its value "
                    f"to all: a site can state its own budget, but not its {name}; give one value "
                    "for all sites"
                )
        if self.has_own_budgets and stay_at_sites(self.config):
            raise ConfigError(
                "epsilon has a value for each client, but in this sum nobody need know a site's "
                "own; give one value for all, of which each site may choose less"
            )
        epsilons = self.config.model_dump()["epsilon"] if self.has_own_budgets else ()
        said = {
            Site(name=each.name, key=each.key): each.own
            for each in self.answers
            if each.invite == self.invite and each.is_signed
        }
        for site, epsilon in zip(self.sites, epsilons, strict=False):
            if (own := said.get(site)) is None:
                raise ConfigError(
                    "epsilon has a value for each client, and all sites would see all values, but "
                    f"site {site.name} signed no answer to the invite that states its own; give "
                    "one value for all, or let each site state one (fedldp deploy join "
                    "--epsilon)"
                )
            own.check(self.config, epsilon)

    def _check_frozen(self) -> None:
        """Refuse a model whose frozen parameters differ from those agreed on."""
        config = self.config
        if config.trainable == "all" and config.initial is not None:
            raise ConfigError(
                f"initial = {config.initial}: no parameter is frozen, so only the server needs "
                "this file; leave the setting out, and give the file as deploy invite --initial"
            )
        if config.trainable != "all" and self.initial is not None:
            raise ConfigError(
                f"--initial and trainable = {config.trainable}: every site needs the file of the "
                "frozen parameters; leave --initial out, and set initial to the file in the "
                "configuration"
            )
        check_given(config, self.initial or config.initial, "deploy invite --initial RUN")
        found = config.algorithm(self.problem).frozen_digest()
        check_frozen(self.changed(frozen=found), self.frozen)

    def _check_schedule(self) -> None:
        """Refuse a schedule that differs from the server's selection of the sites."""
        told = self.config.composition.participation.told
        if any(getattr(self.config, name) is None for name in told):
            raise ConfigError(
                f"{told[0]} is not set: it must be drawn before the run, with the selection; make "
                "a new agreement"
            )
        if told:
            self.config.with_schedule(self.selecting(None))

    # Derived values

    @cached_property
    def has_own_budgets(self) -> bool:
        """Whether ``epsilon`` has a value for each site, in the roster's order, which all see."""
        return has_own_budgets(self.config)

    def selecting(self, secret: Draws | None) -> Draws:
        """Return the random draws with which the server selects the participants.

        If sites are told before the run how often they are selected, the draws are derived from the
        run's name, so that every site can check them; no guarantee needs them to be secret.

        Args:
            secret: the server's own draws.
        """
        if self.test_seed is not None:
            return draws_of_seed(self.test_seed)
        if secret is None or self.config.composition.participation.told:
            name = hashlib.sha256(b"who is selected " + self.run.encode()).digest()
            return draws_of_secret(name, self.run)
        return secret

    @property
    def fewest_in_sum(self) -> int:
        """How many sites a full round has; with committees, the size of the smallest committee."""
        participation = self.config.composition.participation
        if not participation.told:
            return self.config.fewest_in_sum
        draws, rounds = self.selecting(None), range(1, self.config.rounds + 1)
        return min(len(participants(self.config, round, draws)) for round in rounds)

    @cached_property
    def layout(self) -> Layout:
        """The position of each of the model's parameters in a broadcast."""
        return self.config.layout(self.problem)

    @cached_property
    def summing(self) -> Summing | None:
        """How reports are summed; None if each report comes with its sender."""
        if self.channel == "named":
            return None
        found = self.config.algorithm(self.problem).summing()
        if found is None:
            raise ConfigError(
                f"channel = sum: with these settings, the server of {self.config.name()} needs "
                "more than the sum of the reports; set channel = named"
            )
        return found

    @cached_property
    def setup(self) -> SecureSum:
        """The parameters of one secure sum in a round; the threshold of the sum is the quorum."""
        assert self.summing is not None
        config = self.config
        most = config.committees.most
        return SecureSum.of(self.summing, most, self.quorum, self.untrusted_clients)

    def is_enough(self, sites: Iterable[int]) -> bool:
        """Return whether a round can go on with these sites: at least one sum has its quorum."""
        counts = Counter(map(self.config.committees.of, sites))
        return max(counts.values(), default=0) >= self.quorum

    def answered_with(self, epsilon: float | None) -> Agreement:
        """Return the agreement as a site sees it that answers with an ``epsilon`` of its own.

        What all parties know stays: its document, its digest and its statement. With None, the site
        answers as they know it.
        """
        if epsilon is None:
            return self
        found = self.changed(config=self.config.changed(epsilon=epsilon))
        vars(found).update(document=self.document, digest=self.digest, planned=self.planned)
        return found

    def events_of(self, site: int, round: int = 1) -> list[Event]:
        """Return what a site releases in one round, except messages that depend on no data."""
        encoder = self.config.algorithm(self.problem).encoder(site)
        return events_of_round(encoder, self.config.composition.channel.phases, round)

    def releases_of(self, sites: Iterable[int], round: int) -> dict[Event, list[int]]:
        """Return which of some sites release each event if they take part in a round."""
        found, chosen = dict[Event, list[int]](), {*sites}
        for group in self.config.encoder_groups():  # the sites of a group release the same
            there = [site for site in map(int, group) if site in chosen]
            for event in self.events_of(int(group[0]), round) if there else ():
                found.setdefault(event, []).extend(there)
        return found

    @property
    def stages(self) -> tuple[range, ...]:
        """The rounds of each stage; a site releases the same in all rounds of a stage."""
        return self.config.composition.stages_of(self.config.rounds)

    @property
    def in_clear(self) -> list[Unprotected]:
        """What a site sends unprotected in one round; it is the same for all sites."""
        return [what for event in self.events_of(0) for what in sent_in_clear(event)]

    def rounds_of(self, site: int) -> int:
        """Return the largest number of rounds that a site can take part in."""
        return most_rounds(self.config.composition.participation, site, self.config.rounds)

    def epsilon_in_words(self) -> str | None:
        """Return in words what ``epsilon`` is and what it applies to.

        None if the quorum allows smaller sums than its noise is sized for: these protect less than
        the setting promises, as the statement says.
        """
        meaning, stated = self.config.composition.calibration.meaning, self.planned.guarantees
        if meaning is not None and meaning.adversary == "summing-server":
            epsilon = self.config.model_dump()["epsilon"]
            of_setting = [
                line.epsilon
                for line in stated
                if (line.unit, line.adversary) == (meaning.unit, meaning.adversary)
            ]
            if any(each is not None and each > epsilon for each in of_setting):
                return None
        return self.config.epsilon_in_words(stated)

    @cached_property
    def planned(self) -> Statement:
        """The statement that is computed here, which ``check_stated`` compares with the agreed."""
        return self.computed_statement()

    def computed_statement(self, delta: float | None = None) -> Statement:
        """Compute and return the statement, at ``delta`` or at the configuration's delta."""
        return self._stated(range(len(self.sites)), self.quorum, delta)

    def statement_of(self, site: int) -> Statement:
        """Return the statement for one site, which may have its own budget and its own rounds."""
        return self._stated([site], 1, None)

    def _stated(self, sites: Sequence[int], there: int, delta: float | None) -> Statement:
        """Return the statement for some of the sites.

        Args:
            sites: the protected sites.
            there: how many of these sites are assumed to take part in each round. This is ignored
                if sites have their own budgets: their numbers of rounds then differ too, so each
                site is assumed to take part in all of its rounds.
            delta: the delta for approximate guarantees. None: the configuration's delta.
        """
        participation = self.config.composition.participation
        rounds = {site: most_rounds(participation, site, self.config.rounds) for site in sites}
        asked = {
            round: [site for site in sites if round <= rounds[site]]
            for round in range(1, max(rounds.values()) + 1)
        }
        if not self.has_own_budgets:
            asked = {round: there_then[:there] for round, there_then in asked.items()}
        downlink = self.config.algorithm(self.problem).server().downlink
        parts = []
        for stage in self.stages:
            groups = self.releases_of(sites, stage[0])
            asked_then = {round: asked[round] for round in stage if round in asked}
            told = None if downlink is None else downlink(stage[0])
            parts.append(ReleaseHistory.planned(groups, asked_then, told))
        releases = ReleaseHistory.joined(parts)
        return self.statement_about(releases, {}, delta=delta)

    def statement_about(
        self,
        releases: ReleaseHistory,
        in_sum: Mapping[int, int],
        *,
        delta: float | None = None,
        searched: Unit | None = None,
    ) -> Statement:
        """Return the statement for what was or will be released in the run.

        Args:
            releases: who released what in which round.
            in_sum: how many clients were in the smallest sum of each round; in another round, as
                few as the quorum allows.
            delta: the delta for approximate guarantees. None: the configuration's delta.
            searched: see ``systems.deployed``.
        """
        fewest = dict.fromkeys(range(1, self.config.rounds + 1), self.quorum)
        summed = SumInPath(
            untrusted_clients=self.untrusted_clients,
            clients_in_sum={**fewest, **in_sum},
            committees=self.config.committee is not None,
        )
        return deployed(
            self.config,
            self.problem,
            releases,
            summed=summed if self.channel == "sum" else None,
            simulated=self.test_seed is not None,
            timed=ANSWER_TIME(at="site"),
            begins=self.initial,
            delta=delta,
            searched=searched,
        )


def _same(config: RunConfig) -> str:
    """Return in words what parties must do to compute the same features."""
    file = file_of(str(getattr(config, "features", "none")))
    return (
        "agree on one version of fedldp"
        if file is None
        else f"give each party the same file {file}"
    )


LISTED = {
    "system": "systems",
    "model": "models",
    "initial": "models",
    "loss": "models",
    "mechanism": "mechanisms",
    "features": "features",
}
"""Settings that may name code or a file from outside fedldp, each with the list in a site's policy
that can allow it."""


_READING = {
    "file": "checking the run would read this file on your machine",
    "code": "this code is not part of fedldp, and checking the run would run it",
}


def check_code(config: Mapping[str, Any], own: Container[str] | None) -> None:
    """Refuse code from outside fedldp and weight files, unless ``own`` lists them.

    Code is refused before it is imported, and a file before it is read. A site that joins has no
    list yet, or looks at the cost first, and nobody has compared the ten words at that time.
    """
    for name, listed in LISTED.items():
        value = config.get(name)
        if not isinstance(value, str) or own is None or value in own:
            continue
        kind = "code" if is_address(value) else None
        if name == "features":
            kind = rests_on(value)
        elif name == "initial":
            kind = "file"
        if kind is not None:
            raise ConfigError(
                f"{name} = {value}: {_READING[kind]}; to allow that, add it to {listed} in the "
                "site's policy"
            )


def agreed(statement: Statement) -> dict[str, Any]:
    """Return what an agreement holds of a statement: its claim, its lines, and what binds.

    How a number was proven, and warnings that only inform, are left out: a later release may find
    another proof of the same number, or warn more. The order of facts is not that of any output,
    which may change too.
    """
    found = statement.to_json()
    for line in found["guarantees"]:
        del line["method"]
        line["assumptions"].sort(key=canonical)
    binding = [each.to_json() for each in statement.warnings if _binds(each)]
    return found | {"warnings": sorted(binding, key=canonical)}


def _binds(warning: Caveat) -> bool:
    known = KINDS.get(warning.kind)
    return known is None or known.binds


def check_stated(agreement: Agreement) -> None:
    """Refuse an agreement that states something other than what is computed here.

    Raises:
        ConfigError: the statements differ.
    """
    said, here = agreement.statement, agreed(agreement.planned)
    if not alike(said, here):
        amiss = ", ".join(sorted(_kinds(said) ^ _kinds(here)))
        kinds = f" in {amiss}" if amiss else ""
        raise ConfigError(
            f"its statement differs{kinds} from the one computed here: it was written by another "
            "version of fedldp, or it is false; refuse the agreement, or agree on one version"
        )


def _kinds(statement: Mapping[str, Any]) -> set[str]:
    """Return the kinds of a statement's warnings, of those that have one."""
    found = statement.get("warnings")
    facts = found if isinstance(found, list) else []
    return {str(each.get("kind")) for each in facts if isinstance(each, dict)}


def check_frozen(agreement: Agreement, agreed: str | None) -> None:
    """Refuse a model whose frozen parameters differ from those agreed on.

    Args:
        agreement: the agreement, with the digest ``frozen`` as computed here.
        agreed: the digest in the agreement as it was made; None if all parameters are trained.

    Raises:
        ConfigError: the parameters differ.
    """
    if agreement.frozen != agreed:
        config = agreement.config
        raise ConfigError(
            f"trainable = {config.trainable}: the frozen parameters of model = {config.model} "
            f"have the digest {str(agreement.frozen)[:16]} here, but {str(agreed)[:16]} was "
            "agreed on; give each party the same model, and the same file of weights as initial"
        )


def _check_features(problem: Problem) -> None:
    names = problem.features
    if names is not None and (len(set(names)), *problem.input_shape) != (len(names), len(names)):
        raise ConfigError(
            f"features: there are {len(set(names))} different names, but an example has the shape "
            f"{problem.input_shape}; give one name for each number of an example"
        )


def _check_roster(sites: Sequence[Site]) -> None:
    if not sites:
        raise ConfigError("sites: the roster is empty; give at least one")
    for what in ("name", "key"):
        values = [getattr(site, what) for site in sites]
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            raise ConfigError(
                f"sites: two sites have the {what} {twice[0]}; give each site its own"
            )
