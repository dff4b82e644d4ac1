"""The claims of Talaei, Izadi 2024, "Adaptive Differential Privacy in Federated Learning"."""

from __future__ import annotations

import math

from fedldp.reproduction.claims import PaperClaim, differences, halves
from fedldp.reproduction.statements import least_epsilon

_FIG5 = tuple(f"nbafl-mnist-fig5-eps{epsilon}" for epsilon in ("10", "5", "1", "0.5"))
_MUCH = 3.0
"""The smallest difference, in points, that counts as a "profound difference"."""


def _of(figure: int, *shares: str) -> tuple[str, ...]:
    return tuple(f"priority-mnist-fig{figure}-{share}" for share in shares)


def _after5(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}@5" for name in names)


_ENDS = _of(6, "least20", "most20") + _of(7, "least50", "most50", "least80", "most80")
"""Recipes with noise on the least or the most important 20, 50 or 80 % of the features."""


CLAIMS = (
    PaperClaim(
        place="abstract, I",
        says="the amount of noise, the share of features with more noise and the number of "
        "iterations change the outcome",
        cells=(_FIG5[0], _FIG5[3], *_of(6, "least20"), *_of(7, "least80"), *_after5(_FIG5[3:])),
        derive=lambda found: [found[0] - found[1], found[2] - found[3], found[1] - found[4]],
        ours="{:.1f} points between ε = 10 and ε = 0.5, {:.1f} between noise on the 20 % and on "
        "the 80 % least important features, {:.1f} between rounds 5 and 25 at ε = 0.5",
        above=(((0,), (1,)), ((2,), (3,)), ((1,), (4,))),
    ),
    PaperClaim(
        place="I, III-D",
        says="storing all weights, or going backward through the layers as [16] does, is "
        "computationally expensive",
        ours="",
        cost="not timed: neither is implemented here",
    ),
    PaperClaim(
        place="II-A",
        says="the weights that connect to the pixels affect the output most",
        ours="",
        cost="`priority` has no setting for more noise on the second layer only",
    ),
    PaperClaim(
        place="III-B",
        says="federated learning with non-IID data also benefits",
        ours="",
        cost="this would take Fig. 6's recipes and `nbafl-mnist-fig5-eps10` with `--set "
        "partition=dirichlet:0.5 --set min_client_examples=100`; a run of "
        "`priority-mnist-fig6-least20` took 1.5 CPU minutes",
    ),
    PaperClaim(
        place="III-B",
        says="distributed GPUs that work in parallel reduce the delays",
        ours="",
        cost="not timed: all clients share one machine here",
    ),
    PaperClaim(
        place="III-D",
        says="the weights of more important features change more, so FI is roughly proportional to "
        "a feature's effect on the output",
        ours="",
        cost="this would take the rank correlation between the two methods' importances in one run "
        "of `benchmarks/priority_maps.py`, 1.1 CPU minutes",
    ),
    PaperClaim(
        place="IV, Fig. 4",
        says="the outer region is the least important",
        ours="",
        cost="this would take the border's share of the importance that "
        "`benchmarks/priority_maps.py` draws, 1.1 CPU minutes",
    ),
    PaperClaim(
        place="IV",
        says="the weights of 20 % of the features are a share of about 0.19 of all weights",
        derive=lambda found: [(0.2 * 784 * 256) / (785 * 256 + 257 * 10)],
        ours="{:.3f} by the paper's own formula",
        holds=lambda found: abs(found[0] - 0.19) < 0.005,
        cause="the paper truncates 0.197 to 0.19; rounded, it is 0.20",
    ),
    PaperClaim(
        place="III-A, IV",
        says="(ε, δ)-DP holds for one sample over L uploads, at ε = 0.5 (Fig. 5; δ = 0.01 and L = "
        "T are our readings of the paper)",
        derive=lambda found: [least_epsilon(_FIG5[3], "record")],
        ours="ε = {:.1f} is proven",
        holds=lambda found: found[0] <= 0.5,
        cause="2C/m is not the sensitivity of SGD that starts from a broadcast model: the clipping "
        "only bounds it by 2C",
    ),
    PaperClaim(
        place="IV, Fig. 5",
        says="ε above 1 does not affect the quality, unlike ε of 1 or less",
        cells=("fedavg-mnist-fig5", *_FIG5),
        derive=lambda found: [found[0] - each for each in found[1:]],
        ours="{:.1f}, {:.1f}, {:.1f} and {:.1f} points below training without noise at ε = 10, 5, "
        "1 and 0.5",
        holds=lambda found: max(found[:2]) < min(found[2:]) / 4,
    ),
    PaperClaim(
        place="IV, Fig. 5",
        says="a lower ε reduces accuracy",
        cells=_FIG5,
        ours="{:.1f}, {:.1f}, {:.1f}, {:.1f} at ε = 10, 5, 1, 0.5",
        above=tuple(((place,), (place + 1,)) for place in range(3)),
        cause="from ε = 1 to ε = 0.5 accuracy falls by less than the standard error of three "
        "seeds; the other two steps agree",
    ),
    PaperClaim(
        place="IV",
        says="the network improves even with much noise",
        cells=(_FIG5[3], *_after5(_FIG5[3:])),
        ours="{1:.1f} after 5 rounds, {0:.1f} after 25, at ε = 0.5",
        above=halves(2),
    ),
    PaperClaim(
        place="IV, Fig. 5",
        says="(ours) nothing changes if the clipping value 5 applies to gradients, which is the "
        "literal reading",
        cells=(
            *(_FIG5[0], _FIG5[3]),
            *(f"nbafl-mnist-tried-gradients-eps{epsilon}" for epsilon in ("10", "0.5")),
        ),
        derive=lambda found: [found[2] - found[0], found[3] - found[1]],
        ours="{:+.1f} points at ε = 10, {:+.1f} at ε = 0.5 (one seed, compared with three)",
        holds=lambda found: max(map(abs, found)) <= 1,
        cause="not known in full: weights with much noise have gradients of large norm, and "
        "clipped gradients remove the noise more slowly",
    ),
    PaperClaim(
        place="IV, Fig. 6",
        says="(ours) nor does anything change with noise on the 20 % least or most important "
        "features",
        cells=(
            *_of(6, "least20", "most20"),
            *(f"priority-mnist-tried-gradients-{end}20" for end in ("least", "most")),
        ),
        derive=lambda found: [found[2] - found[0], found[3] - found[1]],
        ours="{:+.1f} points (least important) and {:+.1f} points (most important) (one seed, "
        "compared with three)",
        holds=lambda found: max(map(abs, found)) <= 1,
        cause="not known in full: as above",
    ),
    PaperClaim(
        place="I, IV, Fig. 6",
        says="noise on the 20 % most important features costs far more than on the 20 % least",
        cells=_of(6, "least20", "most20"),
        ours="by variance, {:.1f} with noise on the least important, {:.1f} on the most important",
        holds=lambda found: found[0] - found[1] >= _MUCH,
    ),
    PaperClaim(
        place="IV, Fig. 6",
        says="noise on the 20 % most important features costs more than on the 40 % least "
        "important ones",
        cells=_of(6, "least40", "most20"),
        ours="{:.1f} with noise on the least important, {:.1f} on the most important",
        above=halves(2),
    ),
    PaperClaim(
        place="I, IV, Fig. 6",
        says="more noise on the 20 % least important features causes no loss of accuracy",
        cells=(_FIG5[0], *_of(6, "least20")),
        ours="{1:.1f} with more noise on them, {0:.1f} with ε = 10 everywhere",
        not_above=halves(2),
        cause="accuracy falls by more than the standard error of three seeds",
    ),
    PaperClaim(
        place="IV, Fig. 7",
        says="with noise on 50 or 80 % of the features, priority matters less",
        cells=_ENDS,
        derive=lambda found: [found[place] - found[place + 1] for place in (0, 2, 4)],
        ours="{:+.1f}, {:+.1f} and {:+.1f} points between noise on the least and on the most "
        "important 20, 50 and 80 %",
        holds=lambda found: max(abs(found[1]), abs(found[2])) < abs(found[0]) / 2,
    ),
    PaperClaim(
        place="IV, Fig. 7",
        says="priority may matter less because MNIST has few important features",
        ours="",
        cost="this would take Fig. 6's and Fig. 7's recipes with `--set dataset=covertype`; a run "
        "of `priority-mnist-fig6-least20` took 0.8 CPU minutes",
    ),
    PaperClaim(
        place="IV, Figs. 6, 7",
        says="the difference is more obvious in the first few iterations",
        cells=_after5(_ENDS) + _ENDS,
        derive=lambda found: [
            found[place] - found[place + 1] for start in (0, 2, 4) for place in (start, start + 6)
        ],
        ours="between noise on the least and on the most important 20 %, {:+.1f} points after 5 "
        "rounds and {:+.1f} after 25; {:+.1f} and {:+.1f} with 50 %; {:+.1f} and {:+.1f} with 80 %",
        above=tuple(((place, place + 7), (place + 1, place + 6)) for place in (0, 2, 4)),
        cause="with 80 %, noise on the most important features costs no more than on the least "
        "important, early or late; with 20 and 50 %, the difference is larger early",
    ),
    PaperClaim(
        place="IV, Fig. 7",
        says="the worse model may overtake the other in the end",
        cells=_after5(_of(7, "least50", "most50")) + _of(7, "most50", "least50"),
        derive=lambda found: [found[0] - found[1], found[2] - found[3]],
        ours="with 50 %, noise on the most important features is {:.1f} points worse after 5 "
        "rounds, and {:.1f} better after 25",
        above=(((0,), (1,)), ((2,), (3,))),
        cause="after 25 rounds it is better by no more than the standard error of three seeds",
    ),
    PaperClaim(
        place="IV, Fig. 8",
        says="the results with ranking by sensitivity are similar",
        cells=_of(8, "least20", "least40", "most20", "least50", "most50", "least80", "most80"),
        ours="{:.1f} and {:.1f} with noise on the 20 and 40 % least important, {:.1f} on the 20 % "
        "most important; {:.1f} and {:.1f} with 50 %, {:.1f} and {:.1f} with 80 % (least, most)",
        above=(((0,), (2,)), ((1,), (2,))),
    ),
    PaperClaim(
        place="V, Fig. 8",
        says="both methods are valid: by sensitivity, too, noise on the 20 % most important "
        "features costs more than on the 20 % least",
        cells=_of(8, "least20", "most20"),
        ours="{:.1f} with noise on the least important, {:.1f} on the most important",
        above=halves(2),
    ),
    PaperClaim(
        place="IV, Fig. 8",
        says="variance prioritises more precisely than sensitivity",
        cells=_of(6, "least20") + _of(8, "least20") + _of(6, "most20") + _of(8, "most20"),
        derive=differences(2),
        ours="noise on the least and on the most important 20 % gives accuracies {:.1f} points "
        "apart by variance, {:.1f} by sensitivity",
        above=(((0, 3), (1, 2)),),
    ),
    PaperClaim(
        place="III-D, IV, V",
        says="the same noise on different parts gives the same overall privacy level (Fig. 6)",
        derive=lambda found: [
            least_epsilon(each, "record") for each in _of(6, "least20", "least40", "most20")
        ],
        ours="ε = {:g}, {:g} and {:g} for one sample: nothing is proven",
        holds=lambda found: max(found) < math.inf,
        cause="which features get more noise depends on the examples, and a report reveals which "
        "features these are",
    ),
)
