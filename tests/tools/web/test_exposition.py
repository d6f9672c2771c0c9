from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from tests.tools.web.conftest import Client
from tools.web.exposition import FAMILIES, _labels


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
    # The rating is that of the fixture board_run.
    assert samples["arena_rating_elo", ("player", "player/p000"), run] == 300.0
    assert samples["arena_ghosts", run] == 2.0


def test_an_interval_that_is_open_above_ends_at_infinity() -> None:
    line: Any = {
        "player": "player/p000",
        "kind": "policy",
        "rating": 900.0,
        "rating_low": 700.0,
        "rating_high": None,
        "open": True,
    }
    unrated: Any = {**line, "rating": None, "rating_low": None, "open": False}
    standings = {"populations": {"player": [line, unrated]}}
    families = [one for one in FAMILIES if one.name.startswith("arena_rating")]
    found = {one.name: [value for _, value in one.samples({}, standings)] for one in families}
    assert found == {
        "arena_rating_elo": [900.0],
        "arena_rating_low_elo": [700.0],
        "arena_rating_high_elo": [math.inf],
    }


def test_labels_may_have_any_characters() -> None:
    name = 'a"b\\c\nd'
    text = f"# TYPE x gauge\nx{_labels({'player': name})} 1.0\n"
    (family,) = prometheus(text)
    assert family.samples[0].labels == {"player": name}
