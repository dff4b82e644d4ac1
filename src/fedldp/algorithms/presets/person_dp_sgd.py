"""DP-SGD for people at a few sites, against any server: every site adds the noise to its own sum.

    Broadcast: weights W
        |
        v
    local_update  for each person one gradient at W, scaled down to the norm `clip`, as integers;
        |         all people added up
        |         Sensitive sum
        v
    encoder       the sum on a coarser grid, plus discrete Gaussian noise
        |         Report: whole bytes for each weight
        v
    server_step   sum over sites / people, times -`learning_rate`
                       -> step of `server_optimizer` -> weights of the next Broadcast

With ``channel = named`` each site adds all the noise that each of its people needs against any
server and the other sites. With ``channel = sum`` a secure sum hides each report, and every site
adds a share of noise; together, the shares are as much noise as one site would add. With ``channel
= central`` sites send sums in the clear to a server that they trust, which draws the noise to
protect against those who see only broadcasts. All people take part in every step; in a simulation
with ``sample_rate`` below 1, a secret Poisson sample of the people takes part.

Source: inter-silo record-level privacy as in A. Lowy, M. Razaviyayn, "Private Federated Learning
Without a Trusted Server", ICLR 2023; the noise in a sum as in P. Kairouz, Z. Liu, T. Steinke, "The
Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation", ICML 2021;
clipped gradients as in M. Abadi et al., CCS 2016. The person as the unit of protection, and exact
integers from the gradients on, are ours.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedldp.algorithms.composition import Composition
from fedldp.algorithms.people import PeopleSettings, PersonClip, sums_over_people
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import LearningRate, Offers, RunBudget


class PersonDpSgd(Offers):
    """The settings of DP-SGD for people, besides those of sums."""

    epsilon: RunBudget
    """epsilon, at delta, for everything that is sent about one person in a run: against any server
    with channel = named, against a server that sees only sums with channel = sum, and against those
    who see only broadcasts with channel = central"""
    clip: PersonClip = 1.0
    """largest L2 norm of one person's gradient; longer gradients are scaled down to this norm"""
    learning_rate: LearningRate
    """the server's step size along the mean gradient"""
    average: Annotated[float, Field(ge=0, le=1)] | None = None
    """share of the rounds, counted from the last, whose weights are averaged to give the model that
    is tested and saved; 0 means the last weights alone; if not set, 0.5"""


@preset(PersonDpSgd, PeopleSettings)
def person_dp_sgd(settings: Settings) -> Composition:
    """DP-SGD whose noise every site adds: a guarantee for a person, against any server."""
    return sums_over_people(settings)
