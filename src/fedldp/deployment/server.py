"""The server of a run with real sites: the round loop, its folder, and what it may state.

The folder is a run folder like that of a simulation (see ``reporting.record``), and also contains

agreement          the agreement
secret             the server's secret, from which it draws the first weights and participants
journal            the requests of the current round (see ``journal``)
finish             that its operator ends the run; see ``runs``
sums.json          how many clients were in the (smallest) sum of each round
status.json        what the server knows about its sites (see ``watch``)

Beside the run folders is ``receipts``: the last receipt of each site in any run (see ``receipts``).

The folder holds no report of a complete round. A server that is started again on its folder
continues after the last complete round, and sends the same requests in the next round. Only the
journal and the checkpoint are synced in a round, so after a power cut metrics.jsonl and sums.json
may be of an earlier round until the server is started again. While a server runs, and after one
that was killed, the statement in privacy.json is that of all rounds; one that stops leaves the
statement of what was released.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.accounting.guarantees import Unit
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import Statement, spent_by_unit
from fedldp.algorithms.systems import noted_features
from fedldp.core.errors import ConfigError, Diverged, EndedForGood, FedldpError, RunError, os_errors
from fedldp.core.facts import Caveat, Doubt
from fedldp.core.kinds import COUNT_NOISE, COVERS_ALL_ROUNDS, ENDED, ENDED_EARLY, STAGE, STOPPED
from fedldp.data import Examples, standardised
from fedldp.deployment.agreement import Agreement, check_stated
from fedldp.deployment.channels import ReportChecker, server_role
from fedldp.deployment.initial import agreed_initial
from fedldp.deployment.journal import Journal
from fedldp.deployment.messages import KeptReceipts
from fedldp.deployment.runs import asked_to_finish
from fedldp.deployment.sites import BudgetsSpent, Finishes, QuorumMissed, Sites, Stopped
from fedldp.deployment.watch import ServerWatch
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Place
from fedldp.protocol.keys import draws_of_secret, draws_of_seed, read_secret
from fedldp.protocol.roles import Draws, State
from fedldp.protocol.server_loop import Evaluation, Loop, Round
from fedldp.protocol.wire import Broadcast
from fedldp.reporting import words
from fedldp.reporting.record import FILE as SCHEMA
from fedldp.reporting.record import RunFolder, Schema, check_new, replace_file
from fedldp.reporting.scores import (
    Figure,
    TestSet,
    asked_figures,
    counts_of,
    doubts,
    evaluation,
    figures,
    final_of,
    most_frequent,
)
from fedldp.secure_sum.client import Phase
from fedldp.secure_sum.server import SumOfRound
from fedldp.simulation.noise import noise_of
from fedldp.simulation.participation import participants
from fedldp.simulation.result import (
    TESTED_BY_SERVER,
    config_document,
    is_finished,
    result_document,
    write_report,
)
from fedldp.training.local_sgd import PIECE, evaluate
from fedldp.training.tensors import load_weights, one_thread

if TYPE_CHECKING:
    from fedldp.deployment.https.pipe import RunPipe

log = logging.getLogger("fedldp.server")

_CPU = torch.device("cpu")
_SUMS = "sums.json"
_LINES_TOGETHER = 16
"""How many lines of the metrics are synced together."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""The first and the longest pause, in seconds, before retrying a round with too few answers."""


class Server:
    """A server in its folder, which is created if it does not exist.

    Args:
        folder: the folder of the run.
        agreement: the content of the agreement's file.
        test: labelled examples for testing the model, before standardisation. None: no tests.
        initial: the file of the agreed initial weights, if there are any.

    Attributes:
        agreement: the agreement of the run.
        rounds: one record for each complete round.
        watch: what the server knows about its sites.

    Raises:
        FedldpError: the agreement cannot be deployed, or the folder is damaged or belongs to
            another agreement.
    """

    def __init__(
        self, folder: Path, agreement: bytes, test: Examples | None, initial: Path | None = None
    ) -> None:
        self.agreement = Agreement.parse(agreement, own=None)
        self.agreement.check()
        check_stated(self.agreement)
        begun = (folder / "agreement").exists()
        self.folder = _folder(folder, self.agreement, agreement)
        self.folder.write_json(SCHEMA, _schema(self.agreement).to_document())
        secret = read_secret(folder / "secret")
        seed, run = self.agreement.test_seed, self.agreement.run
        self._draws: Draws = draws_of_secret(secret, run) if seed is None else draws_of_seed(seed)
        self._in_sum = _read_sums(folder / _SUMS)
        self._role = server_role(self.agreement, self._heard)
        self._test = _Test(self.agreement, test)
        self._journal = Journal(folder / "journal")
        self._receipts = KeptReceipts(folder, run, self.agreement.sites)
        self._receipts.restore(self._journal.receipts())
        saved = self.folder.read_checkpoint()
        if saved is None:
            saved = self._first(initial), [], MemoryLedger()
        self._state, self.rounds, self._ledger = saved
        names, rounds = [site.name for site in self.agreement.sites], self.agreement.config.rounds
        done = len(self.rounds) if begun else None
        self.watch = ServerWatch(folder, run, names, rounds, done)
        self._released: Callable[[], Statement] | None = None
        self._figures: dict[tuple[str, str], Figure] = {}
        for record in self.rounds:
            self._note(record)

    @property
    def released(self) -> Statement | None:
        """The statement about what may have been released so far; None before anything was asked.

        It is computed when it is first needed, in any thread, because it may take as long as the
        rest of a round.
        """
        return None if self._released is None else self._released()

    @property
    def privacy(self) -> Statement:
        """The statement about what may have been released; before round 1, the agreed statement.

        If the run is over and rounds were left out, the statement says so.
        """
        if self._journal.begun(self._state.round):
            return self._of_round_under_way(self._asked(self._state.round))
        if not self.rounds:
            return self.agreement.computed_statement()
        found, of = self._stated(self._ledger, self._in_sum), self.agreement.config.rounds
        if self._state.round <= of or len(self.rounds) == of:
            return found
        made = _without_left_out(found, self._ledger.releases(self.agreement.run))
        return made.warning(ENDED_EARLY(done=len(self.rounds), of=of))

    @property
    def weights(self) -> dict[str, NDArray[Any]]:
        """The model's parameters by name: the trained ones, float32, and the frozen ones."""
        agreement = self.agreement
        trained = agreement.layout.split(self._role.result(self._state))
        frozen = agreement.config.algorithm(agreement.problem).frozen()
        return {**{name: each.copy() for name, each in trained.items()}, **frozen}

    def summary(self) -> dict[str, Any]:
        """Return the document of a run that is over, which ``deploy server --json`` prints."""
        return result_document(
            self.agreement.config,
            self.rounds,
            self.released or self.privacy,
            recipe=None,
            seed=self.agreement.test_seed,
            run_dir=self.folder.path,
            tested_on=TESTED_BY_SERVER,
            most_frequent=self._test.most_frequent,
            confusion=self._test.confusion,
            doubts=self._test.doubts(self.rounds[-1]),
            noise=noise_of(self.agreement.config, self.agreement.problem),
        )

    @property
    def figures(self) -> list[Figure]:
        """The latest figures of the model, each with its doubts."""
        return list(self._figures.values())

    def _note(self, record: Round) -> None:
        """Note the figures of a round; those that it lacks are still the latest."""
        trained_on = not getattr(self.agreement.config, "ask", None)
        asked = asked_figures(record.metrics, trained_on=trained_on)
        for found in (*self._test.figures(record), *asked):
            self._figures[found.metric, found.rows] = found

    def _of_round_under_way(self, clients: Sequence[int]) -> Statement:
        """Return the statement that holds if these clients send a report in the next round.

        The server may die during the round and never restart. So until the round ends, all
        participants are assumed to have sent a report, and the sum is assumed to be as small as the
        quorum allows.
        """
        return self._stated(self._counted(self._ledger, self._state.round, clients), self._in_sum)

    def _stated(
        self, ledger: MemoryLedger, in_sum: Mapping[int, int], searched: Unit | None = None
    ) -> Statement:
        releases = ledger.releases(self.agreement.run)
        return self.agreement.statement_about(releases, in_sum, searched=searched)

    def serve(
        self,
        pipe: RunPipe,
        after_round: Callable[[Round], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the remaining rounds, and write the result into the folder.

        A round that too few sites answer is tried again, with the same request, so a site that
        answered before gives the same bytes and pays nothing.

        Args:
            pipe: the pipe to the sites' nodes.
            after_round: is called with every record, including those of earlier rounds.
            stopped: returns whether to stop where the run is.

        Raises:
            Stopped: ``stopped`` says so; the next server on the folder continues.
            EndedForGood: sites refuse and would refuse again, or the weights are unusable. Complete
                rounds are kept.
            RunError: something else ended the run.
        """
        config = self.agreement.config
        if self.rounds:  # after a crash, the last round may have only its checkpoint
            self.folder.write_metrics(self.rounds)
            if not self._journal.begun(self._state.round):
                self._journal.forget()
            released = self.privacy
            self._released = lambda: released
        if not is_finished(self.folder.path):
            self._write_privacy(self.agreement.planned.warning(COVERS_ALL_ROUNDS))
        for record in self.rounds:
            after_round(record)
        self.watch.complete(len(self.rounds))
        reports = ReportChecker(self.agreement, self._role, self._draws, self._state)

        def interrupt(unasked: bool) -> None:
            if stopped():
                raise Stopped("it was told to stop, and continues when it is started again")
            if self._finishes(unasked):
                raise Finishes("the operator ends the run")

        sites = Sites(
            self.agreement,
            pipe,
            self._journal,
            self._receipts,
            reports.check,
            self.watch,
            interrupt,
        )
        loop = Loop(
            run=self.agreement.run,
            server=self._role,
            rounds=config.rounds,
            participants=self._begin,
            transport=sites,
            draws=self._draws,
            evaluate=self._test,
            quorum=self.agreement.quorum,
            waited=lambda: sites.waited,
        )

        def keep(state: State, record: Round) -> None:
            reports.state = self._state = state
            reported = self._reported(sites)
            self._ledger = self._counted(self._ledger, record.round, reported)
            so_far = self._stated(self._ledger, self._in_sum, "client-run")
            spent = spent_by_unit(so_far.guarantees, self.agreement.planned.guarantees)
            record = replace(record, spent=spent)
            self.rounds.append(record)
            self.folder.write_round(state, self.rounds, self._ledger, together=_LINES_TOGETHER)
            self._released = cache(partial(self._stated, self._ledger, self._in_sum))
            self._note(record)
            self._journal.forget()
            self.watch.complete(len(self.rounds), record.seconds)
            after_round(record)
            interrupt(True)

        try:
            self._go(loop, keep, interrupt)
            self._finish()
            pipe.end(len(self.rounds))
            left_out = len(self.rounds) < config.rounds
            self.watch.is_over(f"ended {self._done}" if left_out else "the run is complete")
        except EndedForGood as error:
            if not self.rounds and asked_to_finish(self.folder.path) is not None:
                pipe.end(0)  # so that the sites do not keep a budget for it
            ended = self._ended_early(error, sites)
            self.watch.is_over(f"ended: {ended}", ENDED(why=str(ended)))
            raise ended from error
        except BaseException as error:
            if self._released is not None and not is_finished(self.folder.path):
                with suppress(FedldpError):  # the folder has the statement of all rounds
                    self._write_privacy(self._released())
            self.watch.is_over("stopped", STOPPED(why=str(error)) if str(error) else None)
            raise

    def _go(
        self,
        loop: Loop,
        keep: Callable[[State, Round], None],
        interrupt: Callable[[bool], None],
    ) -> None:
        """Run to the end; repeat rounds that too few sites answered."""
        round, missed = 0, 0
        self._skip(self._due())
        while True:
            try:
                self._state = loop.go(self._state, keep)
                return
            except Finishes:
                self._skip(self._due())
            except (BudgetsSpent, Diverged) as error:  # trying again would give the same
                # Under the operator's end, what is still due is made only if it can be.
                if not self.rounds or asked_to_finish(self.folder.path) is None:
                    raise EndedForGood(str(error)) from error
                log.warning("the rounds that were still due are not made: %s", error)
                self._skip(loop.rounds + 1)
            except QuorumMissed as error:
                missed = missed + 1 if self._state.round == round else 1
                round = self._state.round
                self.watch.missed()
                pause = min(_FIRST_PAUSE * 2.0 ** min(missed - 1, 30), _LONGEST_PAUSE)
                log.warning("%s; trying again in %g s", error, pause)
                self.watch.goes_on(f"tries again soon: {error}")
                until = time.monotonic() + pause
                with suppress(Finishes):
                    while time.monotonic() < until:
                        interrupt(True)
                        time.sleep(min(pause, 1.0))
                self._skip(self._due())

    def _due(self) -> int:
        """Return the first round that is not left out; 1 unless the operator ends the run."""
        now = asked_to_finish(self.folder.path)
        if now is None:
            return 1
        config = self.agreement.config
        over, trained = config.rounds + 1, config.composition.trained
        if now or trained is None or is_finished(self.folder.path):
            return over
        # Without a trained model there is nothing to ask people about.
        return over if self._state.round <= trained.start < trained.stop else trained.stop

    def _finishes(self, unasked: bool) -> bool:
        """Return whether the round under way is left out; otherwise only if no site is asked."""
        return self._state.round < self._due() and (
            unasked or bool(asked_to_finish(self.folder.path))
        )

    def _skip(self, due: int) -> None:
        """Leave out all rounds before ``due``.

        Raises:
            EndedForGood: the operator ends a run that has no complete round.
        """
        round = self._state.round
        if round >= due:
            return
        if not self.rounds:
            raise EndedForGood("its operator ended the run before its first round was complete")
        if self._journal.begun(round):
            # Some sites may have sent a report in a round that is not completed.
            self._ledger = self._counted(self._ledger, round, self._asked(round))
        self._state = self._role.skipped(self._state, due)
        log.info("the operator ends the run: rounds %d to %d are left out", round, due - 1)

    @property
    def _done(self) -> str:
        return f"after {len(self.rounds)} of {self.agreement.config.rounds} rounds"

    def _first(self, initial: Path | None) -> State:
        """Return the state before the first round.

        Raises:
            ConfigError: the agreement has initial weights, and they are missing.
        """
        drawn = self._role.initial(self._draws(0))
        if self.agreement.initial is None:
            return drawn
        if initial is None:
            raise ConfigError("initial is not set: give the file of the agreed weights")
        return replace(drawn, weights=agreed_initial(self.agreement, initial))

    def _begin(self, round: int) -> Sequence[int]:
        """Return a round's participants, after noting that they may release what it asks for."""
        asked = self._asked(round)
        ledger, in_sum = self._ledger, self._in_sum
        self._released = cache(lambda: self._stated(self._counted(ledger, round, asked), in_sum))
        return asked

    def _write_privacy(self, statement: Statement) -> None:
        self.folder.write_json("privacy.json", words.document(statement))

    def _asked(self, round: int) -> Sequence[int]:
        return participants(self.agreement.config, round, self.agreement.selecting(self._draws))

    def _heard(self, outcome: SumOfRound) -> None:
        self._in_sum = {**self._in_sum, outcome.round: outcome.fewest}
        if outcome.dropped:
            parts = (f"{count} {what}" for what, count in sorted(outcome.dropped.items()))
            log.warning("round %d: left out: %s", outcome.round, ", ".join(parts))

    def _reported(self, sites: Sites) -> Sequence[int]:
        """Return who sent a report in the round; store how many reports are in its sum."""
        if self.agreement.channel == "named":
            return sites.released(0)
        document = {str(each): count for each, count in sorted(self._in_sum.items())}
        self.folder.write_json(_SUMS, document, synced=False)
        return sites.released(Phase.MASKED_INPUT)

    def _counted(self, ledger: MemoryLedger, round: int, clients: Sequence[int]) -> MemoryLedger:
        """Return a ledger with what clients release in a round.

        The given one stays as it is: it may be read in another thread.
        """
        known = MemoryLedger.from_record(ledger.to_record())
        lost = hashlib.sha256(b"what the server saw").digest()
        place = Place(self.agreement.run, round, 0, lost)
        for event, sent in self.agreement.releases_of(clients, round).items():
            known.release(place, event, sent, lambda sent=sent: [b""] * len(sent))  # type: ignore[misc]
        if self._role.downlink is not None:
            known.count_downlink(self.agreement.run, round, self._role.downlink(round))
        return known

    def _ended_early(self, error: EndedForGood, sites: Sites) -> EndedForGood:
        """Store what was released and its report; return the error that says so.

        Sites may have released something in the last round, although it is not complete.
        """
        try:
            if not self.rounds:
                self._write_privacy(self.privacy)
                return error
            if released := self._reported(sites):
                self._write_privacy(self._of_round_under_way(released))
            else:
                self._write_privacy(self._stated(self._ledger, self._in_sum))
            write_report(self.folder.path)
        except FedldpError as amiss:  # privacy.json then still covers all that was asked for
            log.warning("the report was not written: %s", amiss)
        return EndedForGood(f"{error}; the model {self._done} is in {self.folder.path}")

    def _finish(self) -> None:
        """Write what a run that is over leaves in its folder."""
        self.folder.write_metrics(self.rounds)
        self.folder.write_model(self.weights)
        released = self.privacy
        self._released = lambda: released
        self._write_privacy(released)
        self.folder.write_json("summary.json", self.summary())
        write_report(self.folder.path)


def _folder(path: Path, agreement: Agreement, content: bytes) -> RunFolder:
    """Return a server's folder, created if it does not exist."""
    file = path / "agreement"
    if file.exists():
        if Agreement.parse(file.read_bytes(), own=None).digest != agreement.digest:
            raise EndedForGood(
                f"{path}: it belongs to another agreement; give that agreement, or another folder"
            )
        return RunFolder(path)
    return _begun(path, agreement, content)


def _begun(path: Path, agreement: Agreement, content: bytes) -> RunFolder:
    """Create a server's folder in one step: no server could continue with half of a folder."""
    check_new(path)
    partial = path.with_name(f"{path.name}.partial")
    features = noted_features(agreement.config, agreement.problem)
    document = config_document(
        agreement.config, recipe=None, own_data=None, features=features, frozen=agreement.frozen
    )
    with os_errors(str(path), "check the folder", RunError):
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True, mode=0o700)
        RunFolder.create(partial, document, words.document(agreement.planned))
        replace_file(partial / "agreement", content)
        partial.replace(path)
    return RunFolder(path)


def _read_sums(path: Path) -> dict[int, int]:
    """Return how many clients were in the sum of each round, as far as it is known.

    A round that a power cut removed from the file counts as one with the smallest permitted sum.
    """
    try:
        return {int(round): int(count) for round, count in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _schema(agreement: Agreement) -> Schema:
    """Return the public facts to store with the model; the server sees no private data."""
    problem, classes = agreement.problem, agreement.config.columns.classes
    return Schema(
        input_shape=problem.input_shape,
        num_classes=problem.num_classes,
        num_examples=None if problem.counted_in_private else problem.num_examples,
        classes=classes if classes is not None and len(classes) == problem.num_classes else None,
        features=problem.features,
    )


def _without_left_out(statement: Statement, releases: ReleaseHistory) -> Statement:
    """Return a run's statement without caveats about rounds in which nothing was released.

    Args:
        statement: the statement of a run of which rounds were left out.
        releases: who released what in which round.
    """

    def was_made(caveat: Caveat) -> bool:
        values: Mapping[str, Any] = caveat.values
        match caveat.kind:
            case STAGE.name:
                first, last = values["first"], values["last"]
            case COUNT_NOISE.name:
                first = last = values["round"]
            case _:
                return True
        return releases.before(first) != releases.before(last + 1)

    return replace(statement, warnings=tuple(filter(was_made, statement.warnings)))


class _Test:
    """Tests the model on the server's own examples, if that is possible.

    Attributes:
        counts: the number of examples of each class, shape (num_classes,); None if the model is not
            tested.
        confusion: the confusion matrix of the last test, in the form of ``Result``; None before the
            first test.
    """

    def __init__(self, agreement: Agreement, test: Examples | None) -> None:
        config, problem = agreement.config, agreement.problem
        self._agreement = agreement
        self.counts: NDArray[np.int64] | None = None
        self.confusion: NDArray[np.int64] | None = None
        if test is None or config.algorithm(problem).tester(_CPU) is not None:
            return
        if test.features.shape[1:] != problem.input_shape:
            raise ConfigError(
                f"test: an example has the shape {test.features.shape[1:]}, but the agreement "
                f"says {problem.input_shape}; give examples of that shape"
            )
        if config.standardise:
            test = standardised(test, config.dataset)
        algorithm = config.algorithm(problem)
        self._examples = algorithm.prepared()(test)
        self._model = algorithm.untrained()
        self.counts = counts_of(test.labels, problem.num_classes)

    def __call__(self, broadcast: Broadcast) -> Evaluation | None:
        """Return the metrics of the broadcast weights."""
        if self.counts is None:
            return None
        load_weights(self._model, self._agreement.layout, broadcast.weights)
        total = len(self._examples)
        parts = [slice(start, start + PIECE) for start in range(0, total, PIECE)]
        with one_thread():
            found, self.confusion = evaluation(
                (evaluate(self._model, self._examples.taken(part), _CPU) for part in parts),
                self._agreement.config.columns.label_range,
            )
        return found

    @property
    def most_frequent(self) -> float | None:
        """The share of the test set's most frequent class, 0 to 1; None if nothing has classes."""
        if self.counts is None or self.counts.size == 1:
            return None
        return most_frequent(self.counts)

    def figures(self, last: Round) -> list[Figure]:
        """Return the metrics of the last round with their doubts."""
        if self.counts is None or last.loss is None:
            return []
        tested = final_of(last, self.most_frequent)
        return figures(tested, TestSet.of(self.counts, is_private=False), self.doubts(last))

    def doubts(self, last: Round) -> list[Doubt]:
        """Return reasons, in words, to doubt the metrics of the last round."""
        if self.counts is None or last.loss is None:
            return []
        tested = final_of(last, self.most_frequent)
        return doubts(tested, self.confusion, self.counts, _schema(self._agreement))
