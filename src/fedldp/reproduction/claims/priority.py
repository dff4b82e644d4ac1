"""The claims of Talaei, Izadi 2024, "Adaptive Differential Privacy in Federated Learning"."""

from __future__ import annotations

import math

from fedldp.reproduction.claims import PaperClaim, differences, halves
from fedldp.reproduction.statements import least_epsilon

_FIG5 = tuple(f"nbafl-mnist-fig5-eps{epsilon}" for epsilon in ("10", "5", "1", "0.5"))
_CLOSE = 2.5
"""The loss in points by noise that counts as "no effect on the quality of the model"."""

_MUCH = 3.0
"""Points that are a "profound difference"."""


def _of(figure: int, *shares: str) -> tuple[str, ...]:
    return tuple(f"priority-mnist-fig{figure}-{share}" for share in shares)


CLAIMS = (
    PaperClaim(
        place="IV",
        says="the weights of 20 % of the features are about 0.19 of all weights",
        derive=lambda found: [(0.2 * 784 * 256) / (785 * 256 + 257 * 10)],
        ours="{:.3f}, by its own formula",
        holds=lambda found: abs(found[0] - 0.19) < 0.01,
    ),
    PaperClaim(
        place="III-A, IV",
        says="(0.5, 0.01) for one sample, over all uploads (Fig. 5)",
        derive=lambda found: [least_epsilon(_FIG5[3], "record")],
        ours="ε {:.1f} is proven",
        holds=lambda found: found[0] <= 0.5,
        cause="2C/m is not the sensitivity of SGD from a broadcast: the clip proves 2C",
    ),
    PaperClaim(
        place="IV, Fig. 5",
        says="ε above 1 does not affect the quality, in comparison with ε of 1 or less",
        cells=("fedavg-mnist-fig5", *_FIG5),
        derive=lambda found: [found[0] - each for each in found[1:]],
        ours="{:.1f}, {:.1f}, {:.1f} and {:.1f} points below no noise at ε 10, 5, 1 and 0.5",
        holds=lambda found: max(found[:2]) <= _CLOSE < min(found[2:]),
    ),
    PaperClaim(
        place="IV, Fig. 5",
        says="a lower ε reduces accuracy",
        cells=_FIG5,
        ours="{:.1f}, {:.1f}, {:.1f}, {:.1f} at ε 10, 5, 1, 0.5",
        above=tuple(((place,), (place + 1,)) for place in range(3)),
        cause="between 1 and 0.5 no more than the scatter of three seeds; not between the others",
    ),
    PaperClaim(
        place="IV, Fig. 5",
        says="(ours) with the clipping value 5 on gradients, the literal reading, nothing changes",
        cells=(
            *(_FIG5[0], _FIG5[3]),
            *(f"nbafl-mnist-tried-gradients-eps{epsilon}" for epsilon in ("10", "0.5")),
        ),
        derive=lambda found: [found[2] - found[0], found[3] - found[1]],
        ours="{:+.1f} points at ε 10, {:+.1f} at 0.5 (one seed beside three)",
        holds=lambda found: max(map(abs, found)) <= 1,
        cause="not known in full: weights with much noise have long gradients, and clipped "
        "gradients remove the noise more slowly",
    ),
    PaperClaim(
        place="IV, Fig. 6",
        says="(ours) the same with noise on the 20 % least and most important features",
        cells=(
            *_of(6, "least20", "most20"),
            *(f"priority-mnist-tried-gradients-{end}20" for end in ("least", "most")),
        ),
        derive=lambda found: [found[2] - found[0], found[3] - found[1]],
        ours="{:+.1f} and {:+.1f} points (one seed beside three)",
        holds=lambda found: max(map(abs, found)) <= 1,
        cause="not known in full: as above",
    ),
    PaperClaim(
        place="I, IV, Fig. 6",
        says="noise on the 20 % most important features costs far more than on the 20 % least",
        cells=_of(6, "least20", "most20"),
        ours="{:.1f} for {:.1f}, by variance",
        holds=lambda found: found[0] - found[1] >= _MUCH,
    ),
    PaperClaim(
        place="IV, Fig. 6",
        says="and more than on the 40 % least important ones",
        cells=_of(6, "least40", "most20"),
        ours="{:.1f} for {:.1f}",
        above=halves(2),
    ),
    PaperClaim(
        place="IV, Fig. 7",
        says="with 50 and 80 % of the features the priority matters less",
        cells=_of(6, "least20", "most20") + _of(7, "least50", "most50", "least80", "most80"),
        derive=lambda found: [found[place] - found[place + 1] for place in (0, 2, 4)],
        ours="{:+.1f}, {:+.1f} and {:+.1f} points between least and most with 20, 50 and 80 %",
        holds=lambda found: max(abs(found[1]), abs(found[2])) < abs(found[0]) / 2,
    ),
    PaperClaim(
        place="IV, Fig. 7",
        says="the difference is more obvious in the first few iterations",
        cells=(
            *(f"{each}@5" for each in _of(6, "least20", "most20")),
            *_of(6, "least20", "most20"),
        ),
        derive=lambda found: [found[0] - found[1], found[2] - found[3]],
        ours="{:.1f} points between least and most with 20 % after 5 rounds, {:.1f} after 25",
        above=(((0, 3), (1, 2)),),
    ),
    PaperClaim(
        place="IV, Fig. 7",
        says="and the worse model may overtake the other in the end",
        cells=_of(7, "most50", "most80", "least50", "least80"),
        derive=differences(2),
        ours="{:+.1f} and {:+.1f} points in favour of noise on the most important, after 25 rounds",
        above=(((1,), (3,)),),
    ),
    PaperClaim(
        place="IV, Fig. 8",
        says="by sensitivity the results are similar",
        cells=_of(8, "least20", "least40", "most20"),
        ours="{:.1f} and {:.1f} with 20 and 40 % least important, {:.1f} with 20 % most",
        above=(((0,), (2,)), ((1,), (2,))),
    ),
    PaperClaim(
        place="IV, Fig. 8",
        says="variance prioritises more precisely than sensitivity",
        cells=_of(6, "least20") + _of(8, "least20") + _of(6, "most20") + _of(8, "most20"),
        derive=differences(2),
        ours="with 20 % the two ends are {:.1f} points apart by variance, {:.1f} by sensitivity",
        above=(((0, 3), (1, 2)),),
    ),
    PaperClaim(
        place="V",
        says="the same noise on different parts brings the same overall privacy level (Fig. 6)",
        derive=lambda found: [
            least_epsilon(each, "record") for each in _of(6, "least20", "least40", "most20")
        ],
        ours="ε {:g}, {:g} and {:g} for one sample: nothing is proven",
        holds=lambda found: max(found) < math.inf,
        cause="which features get more noise depends on the examples, and a report shows it",
    ),
)
