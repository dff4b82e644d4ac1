"""Train across real sites, with a server that is not trusted."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.cli._common import confirmed, on_stderr, one_place, say_settings
from fedldp.cli.options import Answer, DataDir, Group, Json, Positive, Settings, Yes
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.core.kinds import PUBLIC_BEGINNING
from fedldp.core.locks import alone
from fedldp.data import is_own_file
from fedldp.deployment import acceptance, certificates
from fedldp.deployment.acceptance import Acceptances, Payable, payable
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import check_host, write_server_keys
from fedldp.deployment.data_ledgers import note_others, other_ledgers
from fedldp.deployment.identity import make_identity, new_file, read_private, read_public
from fedldp.deployment.initial import agreed_initial, beside, digest_of_file, write_initial
from fedldp.deployment.key_changes import RECEIPTS, KeyChange, KnownKeys, change_key
from fedldp.deployment.policy import SitePolicy, read_policy
from fedldp.deployment.restored import charge_lost, moved_to
from fedldp.deployment.runs import Queue, ask_to_finish
from fedldp.deployment.site_ledger import SiteLedger
from fedldp.deployment.source import digest_of_data
from fedldp.deployment.status import status_of_server, status_of_site
from fedldp.deployment.words import WORDS, unknown_words, words_of
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.database import Database
from fedldp.ledgers.sqlite import times
from fedldp.protocol.server_loop import asked_of
from fedldp.reporting import words
from fedldp.reporting.html import render
from fedldp.reporting.text import Terminal, score_lines
from fedldp.simulation.plan import problem_of
from fedldp.simulation.settings import resolve

if TYPE_CHECKING:
    from fedldp.deployment.joining import Invite

app = Group(help=__doc__)

_DAYS = 365
_HEARD = "Did each site's operator read these words to you by telephone?"

Channel = Literal["named", "sum"]

Check = Annotated[
    bool, typer.Option("--check", help="check that everything is in order, report, and stop")
]


Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="serve a page, and metrics for Prometheus, at this address; without HOST, only this "
        "machine can reach them",
    ),
]


@app.command()
def keys(
    folder: Path,
    *,
    site: str | None = None,
    server: list[str] | None = None,
    rotate: bool = False,
) -> None:
    """Make the keys for a site, or the certificates for a server.

    Help:
        folder: the folder to write
        site: make an identity key for a site with this name, or for a network that vouches for
            sites
        server: make a server's certificate for this name or address, signed by the authority in
            this folder, which is made if there is none; repeatable
        rotate: give the site in this folder another key; it goes on with its runs and its ledger
    """
    if [site is not None, bool(server), rotate].count(True) != 1:
        raise ConfigError(
            "give --site NAME for a site's keys, or --server HOST for a server's, or --rotate for "
            "another key of the site in this folder: one of them alone"
        )
    if rotate:
        _change_key(folder)
        return
    if site is not None:
        make_identity(folder / f"{site}.key", folder / f"{site}.pub")
        typer.echo(
            f"{folder / site}.key is secret and stays here; send {site}.pub to the server's "
            "operator in a way that nobody can tamper with"
        )
        return
    ends = certificates.write_server_keys(folder, _hosts(server or []), _DAYS)
    typer.echo(
        f"wrote server.pem and server.key to {folder}, valid until {ends:%Y-%m-%d}; the "
        "same command renews them, and a server uses them from its next start on; move ca.key off "
        "this machine; send ca.pem to every site in a way that nobody can tamper with"
    )


@app.command()
def invite(
    recipe: str,
    *,
    out: Path,
    url: str,
    channel: Channel,
    quorum: int | None = None,
    deadline: float = 600.0,
    input_shape: str | None = None,
    classes: Annotated[int | None, typer.Option(min=2)] = None,
    examples: Positive = None,
    people: Positive = None,
    initial: Path | None = None,
    set_: Settings = None,
    data_dir: DataDir = None,
) -> None:
    """Write a file that invites sites to a run, and the server's keys if it has none.

    Help:
        recipe: a recipe's name or a .toml file
        out (-o --out): the invite to write; the server's keys go into the same folder
        url (https://HOST:PORT): the server's address for sites
        channel: the channel of reports
        quorum: number of sites that must take part in a round [default: the smallest number that
            the sum and its noise allow]
        deadline: how long to wait at most in each phase of a round, in seconds
        input_shape: the shape of one example, such as 1x8x8; for tables, the names of their
            features in order, such as age,sex=f,sex=m [default: those of the data set]
        classes: number of classes; labels are 0 to CLASSES - 1
        examples: approximate total number of examples across all sites; public
        people: approximate total number of people across all sites, needed if a person may have
            several rows; public
        initial: start from public weights: a run folder, or the model.safetensors in one
    """
    from fedldp.deployment.joining import Invite, host_of

    host, folder = host_of(url), out.parent
    if out.exists():
        raise ConfigError(f"{out} already exists; remove it, or choose another file")
    config = _resolved(recipe, channel, set_ or [])
    problem = _public_facts(config, input_shape, classes, examples, people, data_dir)
    found = Invite.new(
        config,
        problem,
        url,
        channel=channel,
        quorum=quorum,
        deadline_seconds=deadline,
        initial=None if initial is None else digest_of_file(initial, config.layout(problem)),
    )
    expected = found.expected()  # refuse now rather than after all sites have joined
    if (folder / "server.pem").exists():
        check_host(folder, host)
    else:
        write_server_keys(folder, _hosts([host]), _DAYS)
        typer.echo(
            f"wrote      ca.pem, server.pem and their keys to {folder}; server.pem is valid for "
            f"{_DAYS} days; move ca.key off this machine"
        )
    if initial is not None:
        write_initial(initial, out)
    new_file(out, found.vouched(folder / "ca.pem").to_bytes(), 0o644)
    told = f"{out}; send it to each site, which answers with: fedldp deploy join"
    _show(expected, found).say("wrote", told)


def _public_facts(
    config: RunConfig,
    input_shape: str | None,
    classes: int | None,
    examples: int | None,
    people: int | None,
    data_dir: Path | None,
) -> Problem:
    """Return the facts about the data, from the options or from the recipe's data set.

    All parties learn these facts, so facts that only a private table's rows reveal must be given as
    options.
    """
    numbers, own = config.label_range is not None, is_own_file(config.dataset)
    if numbers and classes is not None:
        raise ConfigError(
            f"classes = {classes} and label_range: labels are either classes or numbers; leave one "
            "of the two out"
        )
    counted = (config.person_column or config.rows_per_person) is not None
    unnamed = classes is None and config.classes is None and not numbers
    lacking = {
        "people": people is None and counted,
        "examples": examples is None and own,
        "classes": unnamed and own,
    }
    if lacks := [name for name, is_lacking in lacking.items() if is_lacking]:
        raise ConfigError(
            f"{', '.join(lacks)}: an agreement goes to all parties, and what only the rows reveal "
            f"is private; give {' and '.join(f'--{each} NUMBER' for each in lacks)}: public "
            "totals across all sites, approximate, or list the labels in the setting classes"
        )
    classes = 1 if numbers else classes
    shape, features = (None, None) if input_shape is None else input_of(input_shape)
    if shape is None or classes is None or examples is None:
        known = problem_of(config, data_dir)
        features = known.features if shape is None else features
        shape = shape or known.input_shape
        classes, examples = classes or known.num_classes, examples or known.num_examples
    return Problem(shape, classes, examples, data_dir, features=features, people=people)


def input_of(text: str) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
    """Return the shape of an example, and the names of its features if the string gives names.

    Raises:
        ConfigError: the string is malformed.
    """
    names = tuple(name.strip() for name in text.split(","))
    if len(names) > 1 and all(names):
        return (len(names),), names
    try:
        shape = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise ConfigError(
            f"input_shape = {text}: write it as 1x8x8, as 54 for a row of numbers, or as the "
            "names of a table's features, separated by commas"
        )
    return shape, None


@app.command()
def join(
    invite: Path,
    *,
    site: str,
    data: Path | None = None,
    budget: float | None = None,
    label_column: str | None = None,
    person_column: str | None = None,
    epsilon: float | None = None,
    folder: Path | None = None,
    second_ledger: bool = False,
    yes: Yes = False,
) -> None:
    """Make a site's keys and policy, or add to them, and the file that answers an invite.

    Help:
        invite: the invite's file
        site: this site's name
        data: this site's examples: a .csv, .parquet or .npz file
        budget (LIMIT): the limit on everything that the site ever releases about this data, or
            about each person if the run protects people; without this option, the command says what
            such a run costs
        label_column: the column with the labels [default: the invite's]
        person_column: the column that names each row's person [default: the invite's]
        epsilon: the site's own epsilon for a run, which all sites are told, except in a sum whose
            noise each site chooses
        folder: the site's folder for keys, policy and ledger [default: the site's name]
        second_ledger: declare another ledger, with a budget of its own, for data that have one
    """
    from fedldp.deployment.joining import POLICY, Terms
    from fedldp.deployment.joining import join as join_run

    def confirm(added: Sequence[str]) -> None:
        for each in added:
            typer.echo(f"adds       {each}")
        confirmed(yes, f"Add this to {place / POLICY}?")

    place = folder or Path(site)
    terms = Terms(data, budget, label_column, person_column, epsilon)
    joined = join_run(invite, site, terms, place, second_ledger=second_ledger, confirm=confirm)
    console = _show(joined.expected, joined.invite)
    can_pay = payable(joined.policy, joined.expected)
    _show_cost(console, joined.expected, joined.policy, can_pay, can_pay.of)
    if can_pay.paid < can_pay.of:
        console.say(
            "warning",
            f"what is left pays for only {can_pay.paid} of the {can_pay.of} rounds that "
            "this site takes part in; ask for a run that costs less, or change the limit in "
            f"{place / POLICY} before any agreement has been accepted",
        )
    if joined.policy.own is not None:
        told = "nobody else is told" if joined.joining.own is None else "all sites will be told"
        console.say("own", f"{joined.policy.own}, which {told}")
    if not joined.noted:
        console.say(
            "ledger", "nothing can be written beside the data, so no other folder notices it"
        )
    console.say("policy", f"{place / POLICY}: it says what may be done with the data; read it")
    console.say("words", f"{words_of(joined.joining.digest)}")
    console.say("wrote", f"{joined.file}; send it to the server's operator, and compare the words")


@app.command()
def admit(
    invite: Path,
    files: list[Path],
    *,
    signed_by: Path | None = None,
    yes: Yes = False,
) -> None:
    """Admit the sites that answered an invite, and write the agreement next to it.

    Once the agreement is made, admit other keys of its sites. They are valid in all runs whose
    folders are beside the invite.

    Help:
        invite: the invite's file
        files (NAME.join... | NAME.changed...): the sites' answers, or folders of them; or what
            sites wrote that changed their keys
        signed_by (NETWORK.pub): the public key of a network that signed the answers (fedldp deploy
            vouch), in place of words by telephone
    """
    from fedldp.deployment.joining import Invite
    from fedldp.deployment.joining import admit as admitted

    invited = Invite.read(invite, own=None)
    out = invite.with_suffix(".agreement")
    if out.exists():
        _admit_keys(out, files, yes)
        return
    network = None if signed_by is None else read_public(signed_by)
    joinings = admitted(invited, _in_folders(files), KnownKeys.of(invite.parent), network)
    for each in joinings:
        known = words_of(each.digest) if network is None else f"key {each.key[:16]}, signed"
        typer.echo(f"{each.name:<10} {known}")
    confirmed(yes or network is not None, _HEARD)
    agreement = invited.agreement(joinings)
    if agreement.initial is not None:
        agreed_initial(agreement, beside(out))
    new_file(out, agreement.to_bytes(), 0o644)
    _show(agreement).say(
        "wrote",
        f"{out}; start `fedldp deploy server` and read the words to each site, which accepts the "
        f"agreement with: fedldp deploy accept {words_of(agreement.digest)}",
    )


@app.command()
def vouch(key: Path, files: list[Path], *, out: Path, yes: Yes = False) -> None:
    """Sign sites' answers to an invite with the key of a network that knows the sites.

    Help:
        key (NETWORK.key): the network's secret key
        files (NAME.join...): the sites' answers, or folders
        out (-o --out): the folder for the signed answers
    """
    from fedldp.deployment.joining import Vouched
    from fedldp.deployment.own_budgets import Joining

    private = read_private(key)
    answers = [(file.name, Joining.read(file)) for file in _in_folders(files)]
    for _, each in answers:
        typer.echo(f"{each.name:<10} key {each.key[:16]}, invite {each.invite[:16]}")
    confirmed(yes, "Did each of these sites send you its file itself?")
    for name, each in answers:
        new_file(out / name, Vouched.signed(private, joining=each).to_bytes(), 0o644)
    typer.echo(
        f"wrote      {len(answers)} signed answers to {out}; the server's operator admits them "
        f"with: fedldp deploy admit INVITE {out.name} --signed-by {key.stem}.pub"
    )


@app.command()
def accept(
    agreement: list[str],
    *,
    policy: Path = Path("site.toml"),
    yes: Yes = False,
    new: bool = False,
    rounds: int | None = None,
    server: str | None = None,
) -> None:
    """Show what an agreement protects and what it costs this site; accept it.

    Help:
        agreement (FILE | WORDS | DIGEST): the agreement's file; or, to fetch it from the server,
            its ten words or its digest, as read out by the server's operator
        policy: this site's policy
        new: after a restore: state that this agreement has never been accepted here before
        rounds (N): how many rounds are enough, if the budget cannot pay for all [default: all in
            which this site takes part]
        server (URL): the run's server, a [[server]] of the policy [default: the one that the
            agreement was fetched from, or whose authorities it names]
    """
    from fedldp.deployment.checks import check_data, check_replaced
    from fedldp.deployment.joining import fetched_agreement

    terms = read_policy(policy)
    meant = _read_out(agreement)
    if meant is None:
        found = Agreement.read(Path(agreement[0]), terms.data_dir, own=terms.own_code)
    else:
        found, server = fetched_agreement(terms, partial(_check_meant, meant))
    if found.test_seed is not None:
        raise ConfigError(
            f"agreement {' '.join(agreement)}: all its random numbers come from a seed, so it "
            "protects nothing; only `fedldp deploy demo` may use such an agreement"
        )
    terms = acceptance.policy_for(terms, found, server)
    own = terms.own_here(found)
    here = found.answered_with(own)
    terms.check(here)
    known = acceptance.Acceptances(terms)
    known.check_beside(found)
    known.check_new(found, new=new)
    place, _ = terms.in_roster(found)
    data = digest_of_data(*terms.source)
    left_out = check_data(terms, found)
    changed = check_replaced(terms, found, data)
    can_pay = acceptance.payable(terms, here)
    enough = can_pay.check(rounds)
    console = _show(found)
    if found.has_own_budgets or own is not None:
        _show_own(console, here, terms, place)
    console.say("beside", f"{'; '.join(can_pay.others) or 'no other run that is accepted here'}")
    _show_cost(console, here, terms, can_pay, enough)
    if left_out:
        console.say("left out", f"{left_out}; nobody else is told")
    if changed:
        console.say(
            "data",
            "they differ from those with which this agreement was accepted: the rounds "
            "that are left use these, and what was released before stays; restart the agent",
        )
    console.say(
        "last here", f"{acceptance.last_release(terms)}; compare it with the release that you noted"
    )
    console.say("this site", f"{found.sites[place].name}, number {place} of {len(found.sites)}")
    person = terms.person_column or found.config.person_column
    people = "" if person is None else f", people in column {person}"
    console.say(
        "server", f"{terms.server[0].url}; labels are in column {terms.label_column}{people}"
    )
    for other in other_ledgers(terms.data, terms.public_keys):
        console.say("beside", f"another ledger counts these data too: {other}")
    console.say(
        "compare",
        "the words or the digest, and each site's key, with every site named above, "
        "over another channel than the one that delivered this file: an unknown site may be one "
        "that the server made up",
    )
    confirmed(yes, "Accept this agreement?")
    acceptance.accept(terms, found, data, rounds)  # this fixes the limits, so not before the answer
    note_others(terms.data, terms.public_keys, Database(terms.ledger))
    typer.echo(f"accepted: {found.digest.hex()}")


@app.command()
def site(
    policy: Path,
    *,
    check: Check = False,
    metrics: Metrics = None,
    test_keys: Annotated[bool, typer.Option("--test-keys", hidden=True)] = False,
) -> None:
    """Run the site agent, which answers only what accepted agreements allow.

    Help:
        policy: this site's policy
    """
    if check:
        from fedldp.deployment.checks import check_site

        _report(check_site(read_policy(policy)))
        return
    from fedldp.deployment.running import run_site

    run_site(policy, test_keys=test_keys, metrics=metrics)


@app.command()
def queue(home: Path, agreement: Path, *, test: str | None = None) -> None:
    """Queue a run at a server of several runs, or continue a stopped one.

    Help:
        home: the folder of a server of several runs
        agreement: the agreement of the run
        test: examples to test the model on: .npz, .csv, or a data set's name
    """
    run = Queue(home).add(agreement, test)
    typer.echo(f"queued     run {run}; fedldp deploy server {home} serves it")


@app.command()
def list_(home: Path) -> None:
    """List the runs of a server of several runs, in the order in which they were queued.

    Help:
        home: the folder of a server of several runs
    """
    for each in Queue(home).all():
        rounds = each.rounds()
        done = "" if rounds is None else f"  {rounds[0]} of {rounds[1]} rounds"
        why = "" if each.why is None else f"  {each.why}"
        typer.echo(f"{each.run}  {each.state:<8}{done}{why}")


@app.command()
def stop(home: Path, run: str) -> None:
    """Stop a run of a server of several runs; queue it again to continue it.

    Help:
        home: the folder of a server of several runs
        run: the run, or its first digits
    """
    Queue(home).stop(run)
    typer.echo("stopped    the run; nothing is lost: queue it again to continue it")


@app.command()
def finish(folder: Path, *, now: bool = False) -> None:
    """End a run where it is, and tell its sites.

    The server completes the round under way. Rounds that come after training and are paid for (the
    intercept, and the private evaluation) are still made, unless --now is given. The model and the
    statement are then those of the completed rounds.

    Help:
        folder: the folder of a server's run
        now: wait for nothing, and leave out what would be asked after training
    """
    ask_to_finish(folder, now=now)
    typer.echo(f"the run in {folder} ends while its server runs; its sites are told")


@app.command()
def restored(
    policy: Path,
    *,
    since: list[Path] | None = None,
    none_since: bool = False,
    restores: Annotated[int, typer.Option(min=1)] = 1,
    anew: bool = False,
    moved: str | None = None,
    yes: Yes = False,
) -> None:
    """Declare that the ledger was restored from an older copy; charge all that may be lost.

    With --moved: declare that the ledger was moved here and is complete.

    Help:
        policy: this site's policy
        since: an agreement that was accepted since the copy was made; repeatable
        none_since: no agreement has been accepted since the copy
        restores: how often the site was restored from this copy, including this restore
        anew: there is no copy: begin a new ledger; give --since for every agreement that was ever
            accepted
        moved (HASH): the site was moved and lost nothing; HASH is the hash of its last release, as
            noted before the move, or none if nothing was released [not with --since, --none-since,
            --restores, --anew]
    """
    if moved is not None:
        terms = read_policy(policy)
        with alone(terms.state / "lock", "agent"):
            moved_to(terms, moved)
        typer.echo(f"the ledger is marked here; its last release is {moved}")
        return
    if bool(since) == none_since:
        raise ConfigError(
            "--since, --none-since: the copy lacks agreements that were accepted after it was "
            "made; give --since for each of them, or --none-since if there were none"
        )
    terms = read_policy(policy)
    later = [Agreement.read(path, terms.data_dir, own=terms.own_code) for path in since or ()]
    confirmed(yes, "For every accepted agreement, charge every round that the ledger lacks?")
    with alone(terms.state / "lock", "agent"):
        for lost in charge_lost(terms, later, restores=restores, anew=anew):
            typer.echo(f"run {lost.run}: {lost.rounds} rounds charged as lost")
        ledger = SiteLedger(terms).ledger
    for budget, *_, left in ledger.accounts(ledger.releases()):
        if left < 0:
            typer.echo(
                f"all releases together may exceed the limit by {budget.amount(-left)}: nothing "
                "more is released, unless the owner of the data decides to renew its budget: "
                f"fedldp ledger renew {shlex.quote(str(terms.ledger))}"
            )
        else:
            typer.echo(f"{budget.amount(left, up=False)} is left")


@app.command()
def retire(digest: str, *, policy: Path = Path("site.toml")) -> None:
    """Stop loading an agreement whose run is over; to undo this, accept the agreement again.

    Help:
        digest: the digest of an accepted agreement, or its first digits
        policy: this site's policy
    """
    accepted = Acceptances(read_policy(policy))
    known = [each.digest.hex() for each in accepted.all()]
    meant = [each for each in known if each.startswith(digest.lower())]
    if len(meant) != 1 or len(digest) < 8:
        raise ConfigError(
            f"digest {digest}: give at least 8 digits of the digest of an agreement that has been "
            f"accepted here: {', '.join(known) or 'there is none'}"
        )
    accepted.retire(bytes.fromhex(meant[0]))
    typer.echo(f"retired: {meant[0]}")


@app.command()
def status(place: Path) -> Answer:
    """Show the state of a run at its server or at a site, even while it is not running.

    Help:
        place: a server's folder, or a site's policy
    """
    server = place.is_dir() or not place.exists()
    found = status_of_server(place) if server else status_of_site(read_policy(place))
    return Answer(found, lambda _: typer.echo(text_of(found), nl=False))


@app.command()
def server(
    folder: Path,
    agreement: Path | None = None,
    *,
    listen: str = "0.0.0.0:8443",
    certificate: Path | None = None,
    key: Path | None = None,
    test: str | None = None,
    data_dir: DataDir = None,
    runs: Annotated[int, typer.Option(min=1)] = 8,
    metrics: Metrics = None,
    check: Check = False,
    as_json: Json = False,
) -> Answer | None:
    """Run the server's rounds; run it again to continue after the last complete one.

    Without an agreement, serve the runs that `fedldp deploy queue` queued in the folder, until the
    process is stopped.

    Help:
        folder: the run's folder, in which an unfinished run is continued; without an agreement: the
            folder of a server of several runs
        agreement: the agreement's file [default: what is queued]
        listen (HOST:PORT): the address to listen on
        certificate: this server's certificate (PEM) [default: server.pem next to the agreement]
        key: the certificate's key (PEM) [default: server.key next to the agreement]
        test: examples to test the model on: .npz, .csv, or a data set's name [only with AGREEMENT]
        check: check that everything is in order, report, and stop [only with AGREEMENT]
        runs: without an agreement: serve this many runs at once
    """
    if agreement is None:
        from fedldp.deployment.running import OverHttps, run_servers

        reached = OverHttps(listen, *_tls_files(folder / "any", certificate, key))
        run_servers(folder, reached, runs, data_dir, metrics)
        return None
    if check:
        from fedldp.deployment.checks import check_server

        _report(check_server(folder, agreement, *_tls_files(agreement, certificate, key)))
        return None
    from fedldp.deployment.running import OverHttps, run_server

    reached = OverHttps(listen, *_tls_files(agreement, certificate, key))
    stderr = on_stderr()
    served = run_server(folder, agreement, reached, test, data_dir, stderr, metrics)
    summary, config, told = served.summary(), served.agreement.config, asked_of(served.rounds)
    stated = one_place() and served.released == served.agreement.planned

    def show(console: Terminal) -> None:
        classes = config.columns.classes or ()
        tested_on = "the server's test set"
        console.print_result(summary, tested_on, told, None, classes=classes, stated=stated)
        say_settings(console, config, told)

    return Answer(summary, show)


@app.command()
def demo(
    recipe: str = "quickstart",
    *,
    sites: int = 3,
    channel: Channel = "named",
    rounds: int = 3,
    kill: bool = False,
    set_: Settings = None,
    data_dir: DataDir = None,
) -> Answer:
    """Run a server and sites on this machine, and compare with the simulation.

    Help:
        recipe: a recipe's name or a .toml file
        sites: number of sites
        channel: the channel of reports
        rounds: number of rounds
        kill: kill processes during the run
    """
    from fedldp.deployment.demo import ROUNDING, run_demo

    more = [f"num_clients={sites}", f"rounds={rounds}"]
    found = run_demo(
        _resolved(recipe, channel, [*(set_ or []), *more]),
        channel=channel,
        kill=kill,
        data_dir=data_dir,
        say=lambda what: typer.echo(what, err=True),
    )
    apart = found.largest_difference

    def show(console: Terminal) -> None:
        console.print_statement(found.privacy)
        for name, entries, spent, budget in found.ledgers:
            of = f"{budget.kind}{budget.of_one}"
            typer.echo(f"{name}: {entries} releases, {number(spent)} ({of})")
        for label, text in score_lines(found.final, "the test set", f"after {found.rounds} rounds"):
            console.say(label, text)
        same = f"at most {apart:.2g} away from" if apart else "identical, bit for bit, to"
        console.say("weights", f"{same} the simulation's weights with this seed")

    differs = apart > ROUNDING or (apart == 0.0 and not found.equal_to_simulation)
    return Answer(found.document(), show, int(differs))


def _in_folders(paths: Sequence[Path]) -> list[Path]:
    """Return files, and in place of each folder the answers in it."""
    found = list[Path]()
    for path in paths:
        inside = sorted(path.glob("*.join"))
        if path.is_dir() and not inside:
            raise ConfigError(f"folder {path}: it has no .join file; check the path")
        found += inside if path.is_dir() else [path]
    return found


def _change_key(folder: Path) -> None:
    """Give another key to the site in a folder."""
    from fedldp.deployment.joining import POLICY

    terms = read_policy(folder / POLICY)
    with alone(terms.state / "lock", "agent"):
        change, file = change_key(terms)
    servers = " and of ".join(each.url for each in terms.server)
    old, key = change.keys[-2:]
    typer.echo(f"key        {key[:16]}, instead of {old[:16]}; runs and ledger go on")
    typer.echo(f"words      {words_of(change.digest)}")
    typer.echo(
        f"wrote      {file}; send it to the operator of {servers}, and compare the words; until "
        "it is admitted (fedldp deploy admit), the server knows the old key alone"
    )


def _admit_keys(agreement: Path, files: Sequence[Path], yes: bool) -> None:
    """Admit other keys of the sites of an agreement."""
    if not all(map(KeyChange.is_in, files)):
        raise ConfigError(f"{agreement} already exists; remove it, or make another invite")
    roster, home = Agreement.read(agreement, own=None).sites, agreement.parent
    begun = (each.read_bytes() for each in home.glob("*/agreement"))
    if agreement.read_bytes() not in begun:
        raise ConfigError(
            f"{home}: no server has a folder of this run here; give the invite in the folder of "
            "the server's runs, once it began the run"
        )
    with alone(home / RECEIPTS / "admitting", "admission of keys"):
        known, heard = KnownKeys.of(home), list[str]()
        for found in map(KeyChange.read, files):
            known, name = known.admitting(found, roster)
            heard.append(f"{name:<10} {words_of(found.digest)}")
        typer.echo("\n".join(heard))
        confirmed(yes, _HEARD)
        known.keep(home)
    typer.echo("admitted   a server that runs starts anew by itself; it refuses the old keys")


def _tls_files(agreement: Path, certificate: Path | None, key: Path | None) -> tuple[Path, Path]:
    """Return the given paths of a server's certificate and key, or those next to its agreement."""
    return certificate or agreement.with_name("server.pem"), key or agreement.with_name(
        "server.key"
    )


def _read_out(typed: Sequence[str]) -> str | None:
    """Return the words or the digest typed in place of an agreement's file; None for a file."""
    text = " ".join(typed).lower()
    if re.fullmatch(r"[0-9a-f]{64}", text):
        return text
    read = text.split()
    if len(read) < 2:
        return None
    unknown = unknown_words(read)
    if len(read) == WORDS and not unknown:
        return text
    wrong = f"{len(read)} words (unknown: {', '.join(unknown) or 'none'})"
    raise ConfigError(
        f"agreement {text:.200}: {wrong:.100}; give its file, the 64 digits of its digest, or its "
        f"{WORDS} words as they were read out to you"
    )


def _check_meant(text: str, digest: bytes) -> None:
    """Refuse an agreement whose words or digest were not the ones that were read out."""
    if text not in (words_of(digest), digest.hex()):
        # The message leaves out the server's words, because nobody should type those instead of the
        # words that were read out to them.
        raise ConfigError(
            f"agreement {text}: the server has another agreement; check that you typed the words "
            "as they were read out to you; if you did, accept nothing, and call the server's "
            "operator"
        )


def _resolved(recipe: str, channel: str, settings: list[str]) -> RunConfig:
    """Return the configuration of a recipe, which gets the agreement's channel if it needs it.

    A recipe that is valid without the channel keeps its own: if that is ``named``, each report has
    all the noise that it needs by itself, in a sum too.
    """
    try:
        return resolve(recipe, settings)
    except ConfigError:
        with suppress(ConfigError):
            return resolve(recipe, [f"channel={channel}", *settings])
        raise


def _hosts(names: Sequence[str]) -> list[str]:
    """Return a server's names, and the names under which programs on its own machine reach it."""
    return list(dict.fromkeys([*names, "localhost", "127.0.0.1"]))


def _show(agreement: Agreement, invite: Invite | None = None) -> Terminal:
    """Print an agreement, or the one that is expected of an invite; return where it is printed."""
    config, console = agreement.config, Terminal()
    tell = console.say
    what = f"{config.name()}, model {config.model}, {config.rounds} rounds"
    if invite is not None:
        tell("server", invite.url)
        tell("run", what)
        tell("sites", f"{config.num_clients} are expected")
    else:
        sums = f", of which {agreement.quorum} must be in every sum" if agreement.summing else ""
        sites = ", ".join(f"{s.name} (key {s.key[:16]})" for s in agreement.sites)
        tell("run", f"{agreement.run}: {what}")
        tell("sites", sites + sums)
    tell("channel", agreement.channel)
    of = "" if config.committee is None else f" in each of {config.committees.number} committees"
    answer = f"{agreement.deadline_seconds:g} s to answer"
    tell("quorum", f"{agreement.quorum} sites a round{of}, {answer}")
    if agreement.initial is not None:
        tell("begins", words.line(PUBLIC_BEGINNING(digest=agreement.initial)))
    if agreement.frozen is not None:
        frozen = f"digest {agreement.frozen[:16]}, public, and the same at every site"
        tell("trains", f"{config.trainable}; frozen: {frozen}")
    if invite is None:
        tell("digest", agreement.digest.hex())
        tell("words", words_of(agreement.digest))
    console.print_statement(agreement.planned, agreement.epsilon_in_words())
    return console


def _show_own(console: Terminal, agreement: Agreement, policy: SitePolicy, place: int) -> None:
    """Show the statement for one site that has its own budget."""
    most = f"for this site only, in at most {agreement.rounds_of(place)} rounds:"
    told = "all sites are told" if agreement.has_own_budgets else "nobody else is told"
    console.say("own budget", f"{policy.own}, which {told}; {most}")
    console.print_statement(agreement.statement_of(place))


def _show_cost(
    console: Terminal, agreement: Agreement, policy: SitePolicy, can_pay: Payable, rounds: int
) -> None:
    """Show what so many rounds of a run cost a site under each of its budgets."""
    what = "the run" if rounds == can_pay.of else f"{rounds} of its {can_pay.of} rounds"
    for budget, left, run in zip(policy.budgets, can_pay.left, can_pay.cost(rounds), strict=True):
        release, _ = policy.costs(agreement, budget)
        costs = f"{budget.amount(release)} per round, at most {number(run)} for {what}"
        console.say("cost here", f"{costs}; {number(left, up=False)} is left")


def _report(found: list[Any]) -> None:
    """Print the results of the checks; exit with 2 if any check failed."""
    for what in found:
        typer.echo(f"{'ok' if what.ok else 'NOT OK':<7}{what.what}")
    if not all(what.ok for what in found):
        raise typer.Exit(2)


# The state of a run


def text_of(found: dict[str, Any]) -> str:
    """Return what is printed of a state, by the template status.txt."""

    def of_budget(of: dict[str, Any]) -> str:
        limit = math.inf if of["limit"] is None else of["limit"]
        return str(Budget(of["kind"], limit, of["unit"]))

    return render("status.txt", it=found, of_budget=of_budget, times=times, inf=math.inf)
