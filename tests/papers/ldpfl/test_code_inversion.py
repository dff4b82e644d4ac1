"""Codes of a public encoder show the image; those of a client's own encoder do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenarios import digits, scenario_of

from fedldp.audit.efforts import QUICK
from fedldp.papers.ldpfl.attacks import OWN, attacks

FEW = replace(QUICK, image_count=12, image_public=300)


@pytest.mark.slow
def test_codes_of_a_public_encoder_show_the_image_and_those_of_a_clients_own_do_not() -> None:
    (public,) = attacks(scenario_of(digits("ldpfl-digits-public")), FEW)
    assert public.succeeds
    assert public.note == ""
    own = digits("ldpfl-digits", encoder_epochs=2)
    (secret,) = attacks(scenario_of(own), FEW)
    assert not secret.succeeds
    assert secret.note == OWN
    assert attacks(scenario_of(digits("fedavg-digits")), FEW) == []
