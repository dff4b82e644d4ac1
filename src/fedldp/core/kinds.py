"""The kinds of facts that statements, scores and events use: a vocabulary without sentences.

A paper inside the package declares its own kinds in its folder. A kind's name and values never
change, because agreements, ledgers and documents hold them; its words may change in any release.
"""

from __future__ import annotations

from types import NoneType

from fedldp.core.facts import (
    Assumption,
    Caveat,
    Doubt,
    Kind,
    Method,
    NoGuarantee,
    Note,
    Status,
    Unprotected,
)

_OF_LINE = {"unit": str, "adversary": str}
_SIZED = {**_OF_LINE, "epsilon": float, "delta": float}
_TESTED_ON = {"examples": int, "rounded": bool}

# Assumptions. Their values are whole numbers or names, never floats, so that sets compare exactly.

FRESH = Kind("randomised-at-client", Assumption, {})()
FOLLOWS_SUM = Kind("follows-sum-protocol", Assumption, {})()
CERTIFIED_ROSTER = Kind("certified-roster", Assumption, {})()
AT_MOST_UNTRUSTED = Kind("at-most-untrusted", Assumption, {"clients": int, "among": str})
HONEST_SUMMANDS = Kind("honest-summands", Assumption, {"clients": int, "among": str})
SHUFFLER = Kind("shuffler", Assumption, {"of": str})
HONEST_PARTICIPANTS = Kind("honest-participants", Assumption, {"clients": int})
HONEST_CATEGORIES = Kind(
    "honest-categories", Assumption, {"reports": int, "categories": int, "closest": int}
)
FRESH_SEEDS = Kind("fresh-seeds", Assumption, {})()
SENDING_INDEPENDENT = Kind("sending-independent-of-data", Assumption, {"of": str})
DISCRETE = Kind("discrete-noise", Assumption, {})()
IDEALISED = Kind("real-arithmetic", Assumption, {})()
OWN_SHARES = Kind("own-shares-of-noise", Assumption, {"shares": int})
ONCE = Kind("drawn-once", Assumption, {})()
TAKES_PART = Kind("takes-part-at-most", Assumption, {"rounds": int})
AS_DRAWN = Kind("as-drawn", Assumption, {})()
SECRET_SAMPLE = Kind("secret-sample", Assumption, {"of": str})
AT_SITES = Kind("at-no-more-sites", Assumption, {"sites": int})
SERVER_TRUSTED = Kind("server-trusted", Assumption, {})()
OWN_CODE = Kind("own-code", Assumption, {"of": tuple[str, ...]})
MAPS_ALONE = Kind("maps-each-example-alone", Assumption, {"of": str})
PUBLIC_FILE = Kind("public-file", Assumption, {"of": str})
KEEPS_NOTHING = Kind("keeps-nothing", Assumption, {"setting": str, "of": str})
BEGINS_PUBLIC = Kind("begins-public", Assumption, {"of": str})
GIVEN_MODEL = Kind("given-model", Assumption, {"of": str})
FROZEN_PUBLIC = Kind("frozen-public", Assumption, {"of": str})
DECLARED_PUBLIC = Kind("declared-public", Assumption, {"of": tuple[str, ...]})
NOT_COUNTED = Kind("weights-not-counted", Assumption, {})()

# Methods

OF_SUM_OF_BITS = Kind("sum-of-bits", Method, {"of": Method})
PART_OF_CLIENT = Kind("part-of-client", Method, {"of": Method, "part": str})
SEVERAL_SITES = Kind("several-sites", Method, {"of": Method, "sites": int, "by": str})
PURE_SUM = Kind("pure-sum", Method, {"over": str})
OPTIMAL = Kind("optimal-composition", Method, {"tight": str})
GAUSSIAN = Kind("gaussian", Method, {})()
ZCDP = Kind("zcdp", Method, {})()
RENYI = Kind("renyi", Method, {"order": float})
PROFILES = Kind("privacy-profiles", Method, {})()
ONE_COORDINATE = Kind("one-coordinate", Method, {"tight": str})
SHUFFLED_COORDINATE = Kind("shuffled-coordinate", Method, {"tight": str})
SHUFFLED_MESSAGES = Kind(
    "shuffled-messages", Method, {"messages": int, "chunk": int, "lower": str | NoneType}
)
SHUFFLED_REPORTS = Kind("shuffled-reports", Method, {"reports": int})
SHUFFLED_CATEGORIES = Kind("shuffled-categories", Method, {"reports": int})
AS_WITHOUT_SHUFFLER = Kind("as-without-shuffler", Method, {})()
SUM_OF_SHARES = Kind("sum-of-shares", Method, {"shares": int})
SAMPLED_SHARES = Kind("sampled-shares", Method, {"steps": int, "shares": int})
SAMPLED = Kind("sampled", Method, {"releases": int, "of": str})
NOTHING_SENT = Kind("nothing-sent", Method, {})()

# Reasons why nothing is proven

SENT_IN_CLEAR = Kind("sent-in-clear", NoGuarantee, {"what": tuple[Unprotected, ...]})
NOT_PURE = Kind("gaussian-is-not-pure", NoGuarantee, {})()

RENYI_NOT_PURE = Kind("renyi-is-not-pure", NoGuarantee, {})()
RENYI_OF_ONE = Kind("renyi-of-one", NoGuarantee, {})()
PROFILE_OF_ONE = Kind("profile-of-one", NoGuarantee, {})()

# What is sent in clear

WEIGHTS = Kind("weights", Unprotected, {})()
SIGNS_OF_WEIGHTS = Kind("signs-of-weights", Unprotected, {})()
CLIPPED_WEIGHTS = Kind("clipped-weights", Unprotected, {})()
CLIPPED_UPDATES = Kind("clipped-updates", Unprotected, {})()
STATISTICS = Kind("statistics", Unprotected, {})()
WHOLE_NUMBERS = Kind("whole-numbers", Unprotected, {})()
EXACT_SUM = Kind("exact-sum", Unprotected, {"of": str})
NUMBER_OF_EXAMPLES = Kind("number-of-examples", Unprotected, {})()
PRIVATE_SUMS = Kind("sum-of-private-noise", Unprotected, {"of": str})
WEIGHTS_OF_PRIVATE_RECORDS = Kind("weights-of-private-records", Unprotected, {})()
SCORES = Kind("scores", Unprotected, {"on": str, "encoder": str})
NOISE_SCALE = Kind("noise-scale", Unprotected, {})()
OTHER_SENT = Kind("other", Unprotected, {"text": str})

# Caveats of a statement

SIMULATED = Kind("simulated", Caveat, {}, binds=False)()
UNEVEN = Kind("uneven", Caveat, {"epsilon": float, "delta": float})
RESTS_ON = Kind("rests-on", Caveat, {"assumption": Assumption, "of": str})
ARRIVAL_TIMES = Kind("arrival-times", Caveat, {"prediction_error": float})
SMALLEST_COMMITTEE = Kind("smallest-committee", Caveat, {})()
HELD_OUT = Kind("scores-on-private-rows", Caveat, {}, binds=False)()
OWN_HEADS = Kind("scores-of-own-heads", Caveat, {}, binds=False)()
BOUND = Kind("bound-over-draws", Caveat, _SIZED, binds=False)
AS_DRAWN_HERE = Kind("counts-as-drawn", Caveat, {"bounds": tuple[Caveat, ...]}, binds=False)
SHARED_EXAMPLES = Kind("shared-examples", Caveat, {})()
ROWS_DRAWN = Kind("rows-drawn-of-a-person", Caveat, {"rows": int})
FEWER_THAN_PLANNED = Kind("fewer-than-planned", Caveat, {}, binds=False)()
NOT_FINISHED = Kind("not-finished", Caveat, {"done": int, "of": int}, binds=False)
COVERS_ALL_ROUNDS = Kind("covers-all-rounds", Caveat, {}, binds=False)()
ENDED_EARLY = Kind("ended-early", Caveat, {"done": int, "of": int}, binds=False)
LARGE_DELTA = Kind(
    "delta-for-so-many", Caveat, {"of": str, "count": int, "delta": float}, binds=False
)
ANSWER_TIME = Kind("answer-time", Caveat, {"at": str})
EARLIER_RUNS = Kind("earlier-runs", Caveat, {"costs": tuple[Caveat, ...]}, binds=False)
SPENT = Kind("spent", Caveat, {"unit": str, "kind": str, "spent": float}, binds=False)
FROZEN_WEIGHTS_PUBLIC = Kind("frozen-weights-public", Caveat, {}, binds=False)()
CODE_OF_THE_NODE = Kind("code-of-the-node", Caveat, {}, binds=False)()
CLASS_COUNT_NOISE = Kind(
    "noise-of-class-counts", Caveat, {"half_width": float, "least": float}, binds=False
)
COUNT_NOISE = Kind(
    "noise-of-counts", Caveat, {"round": int, "half_width": float, "of": int}, binds=False
)
CLASSES_FROM_ROWS = Kind("classes-from-rows", Caveat, {"classes": int}, binds=False)
STAGE = Kind("stage", Caveat, {"sums": str, "first": int, "last": int, "share": str})
CHOOSING = Kind("choosing-is-a-release", Caveat, {}, binds=False)()
OWN_NOTE = Kind("own-note", Caveat, {"of": str, "text": str})

# Notes on several runs side by side

EPSILON_SHOWN = Kind(
    "epsilon-shown",
    Note,
    {**_OF_LINE, "deltas": tuple[float, ...], "proven": bool},
)
EPSILON_COMPARED = Kind("epsilon-compared", Note, {**_OF_LINE, "delta": float})
NOT_OF_CLIENT = Kind("not-of-client", Note, _OF_LINE)
HOUSE_PROVES = Kind("proven-by-fedldp", Note, {})()
NOT_PROVEN_HERE = Kind("not-proven-here", Note, {"of": tuple[str, ...]})
ONLY_IDEALISED = Kind("only-idealised", Note, {"of": tuple[str, ...]})
SCORES_RELEASED = Kind("scores-released", Note, {"of": str, "what": tuple[Unprotected, ...]})
SCORES_LOGGED = Kind("scores-logged", Note, {})()
ALL_PRIVATE = Kind("all-private", Note, {})()
ASKED_ALONE = Kind("asked-alone", Note, {})()
ROW_NOT_PERSON = Kind("row-not-person", Note, {})()
PUBLIC_BEGINNING = Kind("public-beginning", Note, {"digest": str})
SHOWN_WITHOUT_SHUFFLER = Kind("shown-without-shuffler", Note, {})()
MODEL_SO_FAR = Kind("model-so-far", Note, {"done": int, "of": int})
BEST_OF_EPSILON = Kind(
    "best-of-epsilon", Note, {"epsilon": float, "best": str, "close": tuple[str, ...]}
)
EPSILON_OF_MEAN = Kind("epsilon-of-mean", Note, {"delta": float})
OF_STUDY = Kind("of-study", Note, {})()
OTHER_FLEET = Kind("other-fleet", Note, {})()
NOISE_OF_MEAN = Kind(
    "noise-of-mean", Note, {"ratio": float, "reports": int, "times": float | NoneType}
)
FITTED_AGAIN = Kind("fitted-again", Note, {})()
SCORED_BY_USER = Kind("scored-by-user", Note, {})()
DOUBTFUL_RUNS = Kind("doubtful-runs", Note, {"runs": int, "of": int, "first": Doubt})

# Doubts about scores. They hold scores, so where scores are hidden, hide the doubts as a whole.

CLASS_MISSING = Kind("class-missing", Doubt, {"classes": tuple[str, ...], "more": int})
ONE_CLASS = Kind("one-class", Doubt, {})()
_SCORES = {"accuracy": float, "most_frequent": float}
NOT_ABOVE_CHANCE = Kind("not-above-chance", Doubt, {"auc": float, **_SCORES, **_TESTED_ON})
NOT_ABOVE_MOST_FREQUENT = Kind(
    "not-above-most-frequent", Doubt, {**_SCORES, "auc": float | NoneType, **_TESTED_ON}
)
NOT_ABOVE_GUESSING = Kind(
    "not-above-guessing",
    Doubt,
    {
        "balanced_accuracy": float,
        "classes": int,
        "auc": float | NoneType,
        "threshold": bool,
        **_TESTED_ON,
    },
)
NOT_ABOVE_MEAN = Kind("not-above-mean", Doubt, {"r2": float, **_TESTED_ON})
FEW_EXAMPLES_AT_CLIENTS = Kind(
    "clients-with-few-examples", Doubt, {"clients": int, "fewer_than": int}
)
BETTER_KNOWN = Kind(
    "better-known",
    Doubt,
    {
        "mechanism": str,
        "accuracy": float,
        "data": str,
        "clients": int,
        "epsilon": float,
        "delta": float,
        "adversary": str,
    },
)
FEW_EXAMPLES = Kind("few-examples", Doubt, {"fewer_than": int})
ONE_SEED = Kind("one-seed", Doubt, {})()
IMBALANCED_TEST = Kind("imbalanced", Doubt, {"most_frequent": float})
PRIVATE_ROWS = Kind("private-rows", Doubt, {})()
TRAINED_ON = Kind("trained-on", Doubt, {})()
NOT_CALIBRATED = Kind("not-calibrated", Doubt, {"error": float})

# Status of a server or a site's agent. The text of an error (why) is shown, and never compared.

NOT_RUNNING = Kind("not-running", Status, {"of": str})
SILENT = Kind("silent", Status, {"of": str, "since": str})
ENDED = Kind("ended", Status, {"why": str})
STOPPED = Kind("stopped", Status, {"why": str})
QUORUM_MISSED = Kind("quorum-missed", Status, {"times": int})
SITE_AMISS = Kind("site-amiss", Status, {"site": str, "state": str, "detail": str | NoneType})
REFUSES = Kind("refuses", Status, {"why": str})
UNREACHABLE = Kind("unreachable", Status, {"why": str, "since": str | NoneType})
CANNOT_PAY = Kind(
    "cannot-pay",
    Status,
    {"run": str, "cost": float | NoneType, "left": float, "kind": str, "unit": str},
)
NOT_SERVED = Kind("not-served", Status, {"run": str, "why": str})
CANNOT_BE_READ = Kind("cannot-be-read", Status, {"what": str, "why": str})
EXPIRED = Kind("expired", Status, {"what": str, "on": str})
EXPIRES = Kind("expires", Status, {"what": str, "on": str, "days": int})
