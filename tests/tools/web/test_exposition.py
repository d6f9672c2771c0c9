from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from tests.tools.web.conftest import Client
from tools.web.exposition import _labels


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_prometheus_reads_the_figures(client: Client, accept: str) -> None:
    answer = client.get("/metrics", headers={"accept": accept})
    parse = openmetrics if "openmetrics" in accept else prometheus
    assert answer.headers["content-type"].startswith(accept.split(";")[0])
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(answer.text)
        for sample in family.samples
    }
    run = ("run", "board")
    assert samples["arena_agent_steps_total", run] == 0.0
    assert samples["arena_run_state", run, ("state", "stopped")] == 1.0
    assert samples["arena_run_state", run, ("state", "running")] == 0.0
    # Its rating is that of board_run's fixture.
    assert samples["arena_rating_elo", ("player", "player/p000"), run] == 300.0
    assert samples["arena_ghosts", run] == 2.0


def test_labels_may_have_any_characters() -> None:
    name = 'a"b\\c\nd'
    text = f"# TYPE x gauge\nx{_labels({'player': name})} 1.0\n"
    (family,) = prometheus(text)
    assert family.samples[0].labels == {"player": name}
