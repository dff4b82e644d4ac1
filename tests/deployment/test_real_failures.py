"""The table of failures: agents and a server as processes, with TLS, and SIGKILL.

After each failure, every site has paid once for each of its releases, and no process, port or file
remains.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from https_proxies import RecordingProxy
from real_processes import (
    DiesAtEveryFile,
    DiesInAnAnswer,
)
from stages import lines, playing

pytestmark = pytest.mark.slow


OF_A_RUN = ("checkpoint", "metrics.jsonl@0", "privacy.json", "summary.json")
PHASES = 4


@pytest.mark.parametrize(
    ("channel", "after", "within"), [("sum", False, "journal"), ("named", True, "")]
)
def test_a_server_that_dies_at_every_file_comes_back_and_the_run_continues(
    tmp_path: Path, channel: str, after: bool, within: str
) -> None:
    """No agent is touched meanwhile: each finds the server again by itself.

    With a sum, the server dies at the requests of all phases.
    """
    with playing(tmp_path, channel) as stage:
        for agent in stage.agents:
            agent.start()
        death = DiesAtEveryFile(tmp_path / "done", after, within)
        deaths = 0
        stage.server.start(death)
        while stage.server.wait() == -9:
            deaths += 1
            stage.server.start(death)
        assert stage.server.wait() == 0, stage.server.text()[-2000:]
        stage.assert_whole()
        done = death.done.read_text().splitlines()
        names = {str(Path(name).relative_to(tmp_path)) for name in done}
        assert deaths == len(names)
        if channel == "sum":
            assert {name.partition("@")[0] for name in names} == {"server/journal"}
            assert len(names) > PHASES
        else:
            files = "journal", "journal@17", *OF_A_RUN
            agreement = stage.env.agreement
            receipts = {f"receipts/{site.key}.{agreement.run}" for site in agreement.sites}
            assert names >= receipts | {f"server/{name}" for name in files}
        assert all(len(lines(agent)) < 40 + 6 * deaths for agent in stage.agents)
        stage.close()


def test_an_agent_that_dies_with_half_an_answer_sent_comes_back_and_pays_once(
    tmp_path: Path,
) -> None:
    """It dies in each phase of a round; ``test_power_cuts`` has all other steps."""
    with (
        playing(tmp_path, "sum", between=True) as stage,
        RecordingProxy(stage.port, stage.behind, tmp_path / "tls") as recorded,
    ):
        for agent in stage.agents[1:]:
            agent.start()
        stage.server.start()
        # When asked again, it answers with the same bytes at once, and dies in the next phase.
        for phase in range(PHASES):
            stage.agents[0].start(DiesInAnAnswer(2 if phase else 1))
            assert stage.agents[0].wait() == -9
        stage.agents[0].start()
        assert stage.server.wait() == 0
        stage.assert_whole(recorded)
        again = "answered again, with the same bytes and at no cost"
        assert stage.agents[0].text().count(again) == PHASES
        (own, *_others) = stage.env.agreement.sites
        assert len(recorded.parts[own.key]) == PHASES
        for agent in stage.agents:
            agent.end()
    stage.close()
