"""Page of a policy or ghost: its life and card."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from populations.storage.journal import Journal
from tests.populations.rows import make_event, make_generation
from tests.support import run_process
from tests.tools.web.conftest import Client
from tools.league.documents import view_document

GHOST = "player/p000@000000060000"


def test_a_card_is_that_of_an_export(board_run: Path) -> None:
    client = Client([board_run])
    # The rating is 300 with a deviation of 10: 1.96 deviations to each side.
    assert "300 (95%: 280 to 320)" in client.get("/board/player-p000.html").text
    cards = json.loads(client.get("/board/cards.json").text)["cards"]
    assert cards["player/p000"]["summary"]["learner updates"] == 1_200
    lineage = [(one["policy"], one["generation"]) for one in cards["player/p000"]["lineage"]]
    # The parent is the ghost's weights, from which the policy continued.
    assert lineage == [("player/p000", 0)]
    # A policy that was never trained has no card, nor do bots.
    assert sorted(cards) == [
        "player/p000",
        GHOST,
        "player/p001",
        "player/p001@000000090000",
    ]
    assert "<section" in client.get("/board/player-p002.html").text


def test_without_weights_there_is_no_card(own_run: Path) -> None:
    shutil.rmtree(own_run / "populations" / "player" / "p000" / "checkpoints")
    client = Client([own_run])
    text = client.get("/run/player-p000.html").text
    assert 'id="record"' in text
    assert 'id="card"' not in text
    assert 'id="card"' in client.get("/run/player-p001.html").text


def test_cards_have_no_rows_as_csv(client: Client) -> None:
    assert client.get("/board/cards.csv").status_code == 404


def test_cards_are_made_without_torch(board_run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tools.web.runs import Run; "
        "run = Run(Path(sys.argv[1]), 'run'); print(len(run.documents(['cards'])['cards']['cards'])"
        ", 'torch' in sys.modules)"
    )
    done = run_process(
        [sys.executable, "-c", code, str(board_run)], cwd=Path(__file__).parents[3], check=True
    )
    # Importing them would take 300 MB in a server of pages.
    assert done.stdout == "4 False\n"


def test_a_players_document_has_what_its_page_shows(own_run: Path) -> None:
    rows = [
        make_event("policy_created", "player/p000", role="main", hyperparameters={"gamma": 0.9}),
        make_generation("player/p000", 0, agent_steps_end=70_000),
        make_generation("player/p000", 1, agent_steps_begin=70_000),
    ]
    with Journal.open(own_run / "journal.db") as journal:
        journal.commit(rows)
    client = Client([own_run])
    found = json.loads(client.get("/run/player-p000.json").text)
    why: Any = json.loads(json.dumps(view_document(own_run, "why", player="p000")))
    assert found["life"] == why["entries"]
    cards = json.loads(client.get("/run/cards.json").text)["cards"]
    assert found["card"] == cards["player/p000"]
    assert found["standing"]["player"] == found["player"] == "player/p000"
    assert [line["generation"] for line in found["generations"]] == [0, 1]
    for key in ("results", "checkpoints", "events"):
        assert found[key], key
    page = client.get("/run/player-p000.html").text
    assert 'href="player-p000.json"' in page
    for name in ("player-p009.json", "weights-0000.json", "player-p000.csv"):
        assert client.get(f"/run/{name}").status_code == 404


@pytest.mark.slow
def test_the_champions_page_has_the_record_of_its_export(own_run: Path, command: Any) -> None:
    client = Client([own_run])
    assert "Record of its export" not in client.get("/run/player-p000.html").text
    exported = command("export", own_run, "--matches", 2, "--json")["exports"]["player"]
    (own_run / "champion" / "other").mkdir()
    client = Client([own_run])
    text = client.get("/run/player-p000.html").text
    assert "Record of its export" in text
    found = json.loads(client.get("/run/player-p000.json").text)["card"]["record"]
    assert found == exported["record"]
    assert 'data-line="player/p000 against bot:random as player_0, greedy: ' in text
    # Any content of the file leaves the page working.
    (own_run / "champion" / "card.json").write_text("{")
    assert Client([own_run]).get("/run/player-p000.html").status_code == 200
