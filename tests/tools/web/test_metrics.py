from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tools.web.conftest import Client, asked_for, words
from tools.show.html import MAX_ROWS
from tools.web.export import files_of
from tools.web.pages.log import metrics, parts_of_metrics
from tools.web.runs import named_runs
from tools.web.site import Site


def lines(policies: int, *, points: int = 2) -> list[dict[str, Any]]:
    """Return lines of a metric whose value is the policy's number."""
    return [
        {"policy": f"player/p{index:03d}", "agent_steps": 10 * at, "policy/kl": float(index)}
        for at in range(points)
        for index in range(policies)
    ]


def page_of(found: list[dict[str, Any]], *, number: int = 1) -> Any:
    documents: dict[str, Any] = {"metrics": {"metrics": found}, "standings": {"populations": {}}}
    return list(metrics(asked_for("metrics", number=number, **documents)))


def test_a_page_of_a_big_league_is_bounded() -> None:
    (block,) = page_of(lines(500, points=300))
    assert len(json.dumps(block.chart)) < 300_000
    assert (len(block.rows), block.total) == (MAX_ROWS, 500)


def test_parts_are_the_groups_and_a_number_beyond_them_is_the_last() -> None:
    found = [{"policy": "run", "agent_steps": 1, "run/matches_count": 1.0, "policy/kl": 1.0}]
    asked = asked_for("metrics", metrics={"metrics": found})
    assert parts_of_metrics(asked) == {"training": 1, "policy/": 2, "run/": 3}
    (block,) = page_of(found, number=99)
    assert block.heading == "run/matches_count"
    assert words(block)[0][0] == "run"


def test_pages_and_files_have_what_the_view_has(own_run: Path) -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines(2))
    (own_run / "metrics.jsonl").write_text(text)
    client = Client([own_run])
    document = json.loads(client.get("/run/metrics.json").text)
    assert document["metrics"] == lines(2)
    assert 'href="metrics.html?page=2"' in client.get("/run/metrics.html").text
    files = dict(files_of(Site(named_runs([own_run]), is_static=True)))
    assert b'href="metrics-2.html"' in files["run/metrics.html"]
    assert b"policy/kl" in files["run/metrics-2.html"]
    assert files["run/metrics.csv"].decode().splitlines()[1] == "player/p000,0,policy/kl,0.0"


def test_a_run_without_metrics_says_what_writes_them(client: Client) -> None:
    assert "metrics.sinks names jsonl" in client.get("/board/metrics.html").text
