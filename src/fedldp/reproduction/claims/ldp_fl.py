"""The claims of Sun, Qian, Chen 2021, "LDP-FL", in the order of its text."""

from __future__ import annotations

import math

import numpy as np

from fedldp.algorithms.recipes import find_recipe
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.reproduction.claims import (
    Numbers,
    PaperClaim,
    differences,
    halves,
    mean_difference,
    near,
    rising,
)
from fedldp.reproduction.known import KNOWN
from fedldp.reproduction.statements import lines_of, statement_of

_CLOSE = 1.32
"""Points within which two accuracies are "close": the largest of the paper's own losses."""

_SAME = 0.28
"""Points within which there is "no obvious difference": the paper's own."""

_MUCH = 5.0
"""Points from which an accuracy "drops significantly"."""


def _variances(found: Numbers) -> Numbers:
    """Return a mean's least and largest variance, over r^2 K^2/n: at a range's end and middle."""
    mechanism = TwoPoint(1.0)
    ends = mechanism.variance(np.array([1.0, 0.0])) / mechanism.scale**2
    return [float(each) for each in ends]


def _bias(found: Numbers) -> Numbers:
    """Return the largest distance between a report's expectation and the weight, in radii."""
    mechanism = TwoPoint(1.0)
    weights = np.linspace(-1, 1, 101)
    ones = np.array(mechanism.thresholds(weights), dtype=np.float64) / 2**mechanism.integer_bits
    return [float(np.abs(mechanism.scale * (2 * ones - 1) - weights).max())]


def _corollary(found: Numbers) -> Numbers:
    """Return both ends of the variance for radii of 1 and 3, over the Corollary's formulas."""
    mechanism = TwoPoint(1.0)
    lowest, highest = mechanism.mean_variance([1.0, 3.0])
    square = ((math.e + 1) / (math.e - 1)) ** 2
    return [lowest / ((square - 1) * 10 / 4), highest / (square * 10 / 4)]


def _larger(found: Numbers) -> Numbers:
    """Return how a mean's variance changes with twice the radius, and with 100 clients, not one."""
    one, twice, many = (
        TwoPoint(1.0).mean_variance(radii)[1] for radii in ([1.0], [2.0], [1.0] * 100)
    )
    return [twice / one, one / many]


def _common(found: Numbers) -> Numbers:
    """Return how many reports are possible for both of two clients, with radii of 1 and 3."""
    scale = TwoPoint(1.0).scale
    return [float(len({-scale, scale} & {-3 * scale, 3 * scale}))]


def _behind_a_shuffler(found: Numbers) -> Numbers:
    lines = lines_of("ldp-fl-mnist", "client-round", "shuffled-server")
    return [max(line["lower"] for line in lines)]


def _model_shuffling(found: Numbers) -> Numbers:
    """Return the bounds for a client's run if each report is shuffled as a whole."""
    config = find_recipe("ldp-fl-mnist").config.changed(chunk=21_840)
    (line,) = (
        line
        for line in statement_of(config)["guarantees"]
        if (line["unit"], line["adversary"]) == ("client-run", "shuffled-server")
    )
    return [line["lower"], line["epsilon"]]


def _condensed() -> list[float]:
    config = find_recipe("cldp-fed-fmnist").config.model_dump()
    return [config["alpha"] * 2 * config["clip"] * 10.0 ** config["precision"] / 1e10]


CLAIMS = (
    PaperClaim(
        place="4, Theorem 1",
        says="eq. 2 is ε-LDP for one number in its range",
        derive=lambda found: [TwoPoint(1.0).realised_epsilon],
        ours="the integers that are drawn at ε 1 have {:.6f}",
        holds=lambda found: 0.99 < found[0] <= 1,
    ),
    PaperClaim(
        place="4, Lemma 1",
        says="no bias in the average",
        derive=_bias,
        ours="at most {:.0e} of the radius, for weights within the range",
        holds=lambda found: found[0] < 1e-12,
    ),
    PaperClaim(
        place="4, Lemma 2",
        says="a report's variance is r² K²",
        derive=_variances,
        ours="{:.2f} of it for a weight at an end of the range, {:.2f} at the centre (ε 1)",
        holds=lambda found: min(found) > 0.999,
        cause="the statement leaves out -(w - c)², which is in its own proof (eq. 6)",
    ),
    PaperClaim(
        place="4, Lemma 3, Corollary 1",
        says="a mean's variance is within (K² - 1) and K² times the sum of r_u² over n²",
        derive=_corollary,
        ours="{:.6f} and {:.6f} of these, for radii of 1 and 3",
        holds=lambda found: all(math.isclose(each, 1, rel_tol=1e-9) for each in found),
    ),
    PaperClaim(
        place="3.1, 4, Lemma 3",
        says="a larger r gives a larger variance, and more clients a smaller one",
        derive=_larger,
        ours="{:.0f} times with twice the radius, 1/{:.0f} with 100 clients for one",
        holds=lambda found: min(found) > 1,
    ),
    PaperClaim(
        place="4, Adaptive Range Setting",
        says="with each client's own c and r, LDP is still satisfied",
        derive=_common,
        ours="{:.0f} reports in common between radii of 1 and 3",
        holds=lambda found: found[0] > 0,
        cause="a report reveals which range was used, and the range depends on the weights",
    ),
    PaperClaim(
        place="4, Parameter Shuffling",
        says="without shuffling the budget grows to T d ε",
        derive=lambda found: [
            max(
                line["epsilon"]
                for line in lines_of("ldp-fl-mnist", "client-run", "server")
                if line["delta"] == 0
            )
        ],
        ours="{:,.0f} with T 10, d 21,840 (ours) and ε 1, as pure ε",
        holds=near(218_400, 1),
    ),
    PaperClaim(
        place="4, Parameter Shuffling",
        says="model shuffling reduces the budget to d ε, 21,840 here",
        derive=_model_shuffling,
        ours="at least {:,.0f} and at most {:,.0f}, both at δ 1e-5",
        holds=lambda found: found[1] <= 21_840,
        cause="pure ε stays T d ε: a shuffler hides nothing if all clients send the same report; "
        "whether d ε holds at a small δ is not known",
    ),
    PaperClaim(
        place="4, Parameter Shuffling",
        says="with parameter shuffling, ε for each weight is sufficient, in a round and over "
        "rounds (MNIST, ε 1)",
        derive=_behind_a_shuffler,
        ours="at least {:.0f} for a client's round, behind a perfect shuffler",
        holds=lambda found: found[0] <= 1,
        cause="no message need be linked: the server sees all of them, and all weights of a client "
        "depend on the same data ([what holds](#what-holds))",
    ),
    PaperClaim(
        place="4, Theorem 2",
        says="an error of O(r √(-log β)/(ε √n)), so half the error with twice the ε",
        derive=lambda found: [
            TwoPoint(epsilon).error_bound(0.075, 100, 0.05)
            / TwoPoint(2 * epsilon).error_bound(0.075, 100, 0.05)
            for epsilon in (0.5, 4.0)
        ],
        ours="with the constants of its proof {:.2f} times at ε 0.5, {:.2f} at ε 4 (n = 100)",
        holds=lambda found: all(math.isclose(each, 2, abs_tol=0.1) for each in found),
        cause="K falls to 1, not to 0, as ε grows: beyond ε 2 the bound and Lemma 3's variance "
        "hardly fall",
    ),
    PaperClaim(
        place="5",
        says="PyTorch's default network has about 50 % on CIFAR-10, without noise",
        ours="",
        cost="a separate model, and 1 CPU hour",
    ),
    PaperClaim(
        place="1, 5.2",
        says="96.24 % on MNIST at ε 1, n = 100",
        cells=("ldp-fl-mnist",),
        ours="{:.2f}",
        holds=near(96.24, 1.5),
    ),
    PaperClaim(
        place="1, 5.2",
        says="86.26 % on Fashion-MNIST at ε 4, n = 200, in the printed range (0, 0.015)",
        cells=("ldp-fl-fmnist", "ldp-fl-fmnist-fig5b-eps4"),
        ours="{:.2f}; {:.2f} with ten times that range",
        holds=near(86.26, 1.5),
        cause=KNOWN["ldp-fl-fmnist"],
    ),
    PaperClaim(
        place="1, 5.2",
        says="61.46 % on CIFAR-10 at ε 10, n = 500",
        cells=("ldp-fl-cifar10",),
        ours="{:.2f}",
        holds=near(61.46, 1.5),
        cause=KNOWN["ldp-fl-cifar10"],
    ),
    PaperClaim(
        place="1",
        says="0.97 % accuracy loss on MNIST",
        cells=("fedavg-mnist", "ldp-fl-mnist"),
        derive=differences(1),
        ours="{:.2f} points",
        holds=near(0.97, 0.485),
        cause=KNOWN["ldp-fl-text52: MNIST, LDP-FL against FedAvg"],
    ),
    PaperClaim(
        place="1",
        says="1.32 % accuracy loss on Fashion-MNIST",
        cells=("fedavg-fmnist", "ldp-fl-fmnist-fig5b-eps4"),
        derive=differences(1),
        ours="{:.2f} points, with ten times the printed range",
        holds=near(1.32, 0.66),
    ),
    PaperClaim(
        place="1",
        says="1.09 % accuracy loss on CIFAR-10",
        cells=("fedavg-cifar10", "ldp-fl-cifar10"),
        derive=differences(1),
        ours="{:.2f} points",
        holds=near(1.09, 0.545),
        cause=KNOWN["ldp-fl-text52: CIFAR-10, LDP-FL against FedAvg"],
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="too small an f_r does not affect MNIST (500 clients)",
        cells=("ldp-fl-mnist-fig3-n500", "ldp-fl-mnist-fig4-n500-fr0.1"),
        ours="{:.1f} with all 500 clients, {:.1f} with 50 of them in a round",
        holds=lambda found: abs(found[0] - found[1]) <= _CLOSE,
        cause="a mean of 50 reports has 3.2 times the noise of one of 500 (Lemma 3); not known why "
        "the paper's result is not affected",
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="the same with the 100 clients of the caption",
        cells=("ldp-fl-mnist-fig4-fr1", "ldp-fl-mnist-fig4-fr0.1"),
        ours="{:.1f} with all 100, {:.1f} with 10",
        holds=lambda found: abs(found[0] - found[1]) <= _CLOSE,
        cause="as above, with a mean over 10 reports",
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="too small an f_r affects Fashion-MNIST significantly (200 clients)",
        cells=("ldp-fl-fmnist-fig4-fr1", "ldp-fl-fmnist-fig4-fr0.1"),
        ours="{:.1f} with all 200, {:.1f} with 20",
        holds=lambda found: found[0] - found[1] >= _MUCH,
        cause="not known; the noise of 20 reports at ε 5 accounts for 2 points, and no more",
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="too small an f_r affects CIFAR-10 significantly",
        cells=("ldp-fl-cifar10-fig4-fr1", "ldp-fl-cifar10-fig4-fr0.1"),
        ours="{:.1f} with all 500, {:.1f} with 50",
        holds=lambda found: found[0] - found[1] >= _MUCH,
    ),
    PaperClaim(
        place="5.1, Fig. 5 a",
        says="with f_r close to 1, almost the noise-free accuracy on MNIST",
        cells=("fedavg-mnist", "ldp-fl-mnist"),
        derive=differences(1),
        ours="{:.2f} points below",
        holds=lambda found: found[0] <= _CLOSE,
        cause="the loss of Section 1, above",
    ),
    PaperClaim(
        place="5.1, Fig. 5 b",
        says="the same on Fashion-MNIST",
        cells=("fedavg-fmnist", "ldp-fl-fmnist-fig3-n200"),
        derive=differences(1),
        ours="{:.2f} points below, at ε 5",
        holds=lambda found: found[0] <= _CLOSE,
        cause="not known: the noise costs as much at ε 10 (5.4, below)",
    ),
    PaperClaim(
        place="5.1, Fig. 5 c",
        says="the same on CIFAR-10",
        cells=("fedavg-cifar10", "ldp-fl-cifar10"),
        derive=differences(1),
        ours="{:.2f} points below",
        holds=lambda found: found[0] <= _CLOSE,
        cause="the loss of Section 1, above",
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="more communication rounds give a better model on MNIST",
        cells=("ldp-fl-mnist-fig4-fr1", "ldp-fl-mnist-fig4-rounds"),
        ours="{:.2f} after 10 rounds, {:.2f} after 20",
        above=rising(2),
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="and on Fashion-MNIST",
        cells=("ldp-fl-fmnist-fig4-fr1", "ldp-fl-fmnist-fig4-rounds"),
        ours="{:.2f} after 15 rounds, {:.2f} after 20",
        above=rising(2),
    ),
    PaperClaim(
        place="5.1, Fig. 4",
        says="also on CIFAR-10, which needs more rounds",
        cells=("ldp-fl-cifar10", "ldp-fl-cifar10-fig4-rounds"),
        ours="{:.2f} after 15 rounds, {:.2f} after 20",
        above=rising(2),
    ),
    PaperClaim(
        place="5.1, Fig. 3",
        says="with more clients LDP-FL comes close to noise-free training (MNIST)",
        cells=(
            *(f"fedavg-mnist-fig3-n{n}" for n in (50, 100, 200, 500)),
            *(f"ldp-fl-mnist-fig3-n{n}" for n in (50, 100, 200, 500)),
        ),
        derive=differences(4),
        ours="{:.1f}, {:.1f}, {:.1f} and {:.1f} points below with 50, 100, 200 and 500 clients",
        holds=lambda found: found[-1] <= _CLOSE,
        cause="not known in full: the clients share one training set, so that both rows fall as "
        "each client has less data, whatever Lemma 3 says about the noise; more clients with "
        "as many examples each as 50 clients have were not tried, because MNIST has too few",
    ),
    PaperClaim(
        place="5.1, Fig. 3",
        says="the same on Fashion-MNIST",
        cells=(
            *(f"fedavg-fmnist-fig3-n{n}" for n in (50, 500)),
            *(f"ldp-fl-fmnist-fig3-n{n}" for n in (50, 500)),
        ),
        derive=differences(2),
        ours="{:.1f} and {:.1f} points below with 50 and 500 clients",
        holds=lambda found: found[-1] <= _CLOSE,
        cause="not known in full: as on MNIST",
    ),
    PaperClaim(
        place="5.1, Fig. 3",
        says="and on CIFAR-10",
        ours="",
        cost="12 CPU hours, and as many for the noise-free twins",
    ),
    PaperClaim(
        place="5.1, Fig. 3",
        says="a more complex task needs more clients: Fashion-MNIST 200 where MNIST has 100",
        cells=("ldp-fl-fmnist-fig3-n200", "ldp-fl-fmnist-fig3-n50"),
        ours="{:.1f} with 200 clients on Fashion-MNIST, {:.1f} with 50",
        above=halves(2),
        cause="not known in full: each of 50 clients has four times the examples, which is worth "
        "more at ε 5 than the noise that 200 average away",
    ),
    PaperClaim(
        place="5.3, Fig. 5",
        says="a more complex task needs more ε: at 1 it costs more on Fashion-MNIST than on MNIST",
        cells=(
            *("fedavg-mnist", "fedavg-fmnist"),
            *("ldp-fl-mnist", "ldp-fl-fmnist-fig5b-eps1"),
        ),
        derive=differences(2),
        ours="{:.1f} points on MNIST, {:.1f} on Fashion-MNIST",
        above=(((1, 2), (0, 3)),),
    ),
    PaperClaim(
        place="5.2",
        says="Geyer et al. have 78 % on MNIST at ε 8 after 11 rounds",
        cells=("central-dp-mnist",),
        ours="{:.1f}, at a claimed ε of 6.8",
        holds=near(78, 3),
        cause=KNOWN["central-dp-mnist"],
    ),
    PaperClaim(
        place="5.2",
        says="LDP-FL is better on MNIST than Geyer et al. after 11 and 54 rounds",
        cells=("ldp-fl-mnist", "central-dp-mnist", "central-dp-mnist-clients1000"),
        ours="{:.1f} against {:.1f} and {:.1f}, at different units: a weight for LDP-FL, a "
        "client for Geyer et al.",
        above=(((0,), (1,)), ((0,), (2,))),
    ),
    PaperClaim(
        place="5.2",
        says="92 % after 54 rounds",
        cells=("central-dp-mnist-clients1000",),
        ours="{:.1f}, with 1,000 clients at a claimed ε of 7.0",
        holds=near(92, 3),
        cause=KNOWN["central-dp-mnist-clients1000"],
    ),
    PaperClaim(
        place="5.2",
        says="96 % after 412 rounds",
        cells=("central-dp-mnist-clients10000",),
        ours="{:.1f}, with 10,000 clients at a claimed ε of 5.6",
        holds=near(96, 3),
        cause=KNOWN["central-dp-mnist-clients10000"],
    ),
    PaperClaim(
        place="5.2",
        says="Bhowmick et al. need more than 200 rounds on MNIST, at ε 500",
        cells=("privunit-fl-mnist", "fedavg-mnist"),
        ours="{:.1f} after 10 rounds, where FedAvg has {:.1f}",
        holds=lambda found: found[1] - found[0] > _CLOSE,
        cause="not known: with our model and clients, PrivUnit's noise hardly matters at ε 500; "
        "its source has others",
    ),
    PaperClaim(
        place="5.2",
        says="LDP-FL needs fewer rounds than existing works: 10 on MNIST",
        cells=("ldp-fl-mnist", "privunit-fl-mnist"),
        ours="{:.1f} after 10 rounds, {:.1f} with Bhowmick et al.'s mechanism at ε 500",
        above=halves(2),
        cause="as in the row above; it does need fewer than Geyer et al., by their rows",
    ),
    PaperClaim(
        place="5.2",
        says="Bhowmick et al. have ε 5000 on CIFAR-10, without an accuracy",
        cells=("privunit-fl-cifar10",),
        ours="{:.1f}",
        holds=lambda found: True,
    ),
    PaperClaim(
        place="5.2",
        says="Truex et al. have 86.93 % on Fashion-MNIST",
        cells=("cldp-fed-fmnist",),
        ours="{:.2f} with LDP-FL's clients and rounds",
        holds=near(86.93, 2),
        cause=KNOWN["cldp-fed-fmnist"],
    ),
    PaperClaim(
        place="5.2",
        says="better performance than prior works, here Truex et al. on Fashion-MNIST",
        cells=("ldp-fl-fmnist-fig5b-eps4", "cldp-fed-fmnist"),
        ours="{:.1f} for {:.1f}, with ten times the printed range",
        above=halves(2),
        cause="nor is it in the paper's own numbers, 86.26 for 86.93",
    ),
    PaperClaim(
        place="5.2",
        says="with ε = 2αc times ten to the power ρ, for α 1, c 1, ρ 10",
        derive=lambda found: _condensed(),
        ours="{:.0f} · 10¹⁰ by the recipe's settings",
        holds=near(2, 0),
    ),
    PaperClaim(
        place="5.3, Fig. 5 a",
        says="a high accuracy on MNIST for ε above 0.3",
        cells=("ldp-fl-mnist-fig5a-eps0.3", "ldp-fl-mnist-fig5a-eps0.5", "ldp-fl-mnist-fig5a-eps1"),
        ours="{:.1f} at 0.3, {:.1f} at 0.5, {:.1f} at 1",
        holds=lambda found: found[-1] - found[0] <= _MUCH,
        cause="not known: three seeds at 0.3 scatter by 10 points, and do not improve after round "
        "1; the noise of a mean weight at 0.3 is 3.1 times that at 1 (Lemma 3)",
    ),
    PaperClaim(
        place="5.3, Fig. 5 a",
        says="and a significant drop below 0.3",
        cells=("ldp-fl-mnist-fig5a-eps1", "ldp-fl-mnist-fig5a-eps0.2"),
        ours="{:.1f} at 1, {:.1f} at 0.2",
        holds=lambda found: found[0] - found[1] >= _MUCH,
    ),
    PaperClaim(
        place="5.3, Fig. 5 b",
        says="a high accuracy on Fashion-MNIST for ε above 2",
        cells=("ldp-fl-fmnist-fig5b-eps10", "ldp-fl-fmnist-fig5b-eps3"),
        ours="{:.1f} at 10, {:.1f} at 3",
        holds=lambda found: found[0] - found[1] <= _CLOSE,
    ),
    PaperClaim(
        place="5.3, Fig. 5 b",
        says="and a significant drop below 2",
        cells=("ldp-fl-fmnist-fig5b-eps10", "ldp-fl-fmnist-fig5b-eps1"),
        ours="{:.1f} at 10, {:.1f} at 1",
        holds=lambda found: found[0] - found[1] >= _MUCH,
        cause="not known: a mean over 200 reports at ε 1 loses 3 points here",
    ),
    PaperClaim(
        place="5.3, Fig. 5 c",
        says="a high accuracy on CIFAR-10 for ε above 5, and a significant drop below 3",
        cells=tuple(f"ldp-fl-cifar10-fig5c-eps{epsilon}" for epsilon in (10, 5, 3, 2)),
        ours="{:.1f} at 10, {:.1f} at 5, {:.1f} at 3, {:.1f} at 2",
        holds=lambda found: found[0] - found[1] <= _CLOSE and found[0] - found[3] >= _MUCH,
    ),
    PaperClaim(
        place="5.3",
        says="the range of each weight is wider in the complex task",
        ours="",
        cost="2.6 CPU hours of CIFAR-10, in a run that keeps its ranges",
    ),
    PaperClaim(
        place="3.1, Algorithm 1",
        says="(ours) half or twice the radius of the weights does as well (MNIST, ε 5)",
        cells=(
            "ldp-fl-mnist-table1-adaptive-eps5",
            *(f"ldp-fl-mnist-tried-margin{margin}" for margin in ("0.5", "2")),
        ),
        ours="{:.1f} with the radius, {:.1f} with half, {:.1f} with twice",
        holds=lambda found: max(found) - min(found) <= _CLOSE,
        cause="the next radius is computed from averaged reports: half the radius shrinks in every "
        "round until nothing is left, and twice the radius grows, and the noise with it",
    ),
    PaperClaim(
        place="5.4, Table 1",
        says="no obvious difference between adaptive and fixed ranges on MNIST (-0.28 at both ε)",
        cells=tuple(
            f"ldp-fl-mnist-table1-{ranges}-eps{epsilon}"
            for ranges in ("adaptive", "fixed")
            for epsilon in (5, 10)
        ),
        derive=differences(2),
        ours="{:+.2f} at 5, {:+.2f} at 10",
        holds=lambda found: max(map(abs, found)) <= _SAME,
        cause="not known: our difference is larger than the seeds' scatter, and has the opposite "
        "sign; the fixed range clips weights that begin as wide as 0.2, and no run has varied "
        "that alone",
    ),
    PaperClaim(
        place="5.4, Table 1",
        says="an advantage of adaptive ranges on Fashion-MNIST (+1.59, +1.47)",
        cells=tuple(
            f"ldp-fl-fmnist-table1-{ranges}-eps{epsilon}"
            for ranges in ("adaptive", "fixed")
            for epsilon in (5, 10)
        ),
        derive=differences(2),
        ours="{:+.2f} at 5, {:+.2f} at 10",
        holds=lambda found: all(0.735 <= each <= 2.4 for each in found),
        cause="not known; the fixed range of (0, 0.15) is ours, ten times the printed one",
    ),
    PaperClaim(
        place="5.4, Table 1",
        says="45 points between adaptive and fixed ranges on CIFAR-10 (58.89 against 13.54, 60.37 "
        "against 14.28)",
        cells=tuple(
            f"ldp-fl-cifar10-table1-{ranges}-eps{epsilon}"
            for ranges in ("adaptive", "fixed")
            for epsilon in (5, 10)
        ),
        derive=mean_difference,
        ours="{:.1f} points in the mean",
        holds=near(45.7, 22),
    ),
    PaperClaim(
        place="5.4, Fig. 5 d",
        says="with a fixed range, about 20 % on CIFAR-10, whatever r is",
        cells=tuple(f"ldp-fl-cifar10-fig5d-r{r}" for r in (0.01, 0.05, 0.1, 0.5, 1)),
        ours="{:.1f}, {:.1f}, {:.1f}, {:.1f} and {:.1f} with r 0.01, 0.05, 0.1, 0.5 and 1",
        holds=lambda found: all(abs(each - 20) <= 5 for each in found),
    ),
)
