"""Page of a policy or ghost: its life and card."""

from __future__ import annotations

import html
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.types import Entrant, PolicyId
from populations.league.names import short_names
from populations.records.rows import EventRow, GenerationRow
from populations.storage.journal import Journal
from tests.support import run_process
from tests.tools.web.conftest import Client
from tools.league.documents import view_document
from tools.web.runs import named_runs
from tools.web.site import Address, Site

GHOST = "player/p000@000000060000"


@pytest.fixture(scope="module")
def lived(board_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the run with a few events of a life."""
    run = tmp_path_factory.mktemp("lived") / "run"
    shutil.copytree(board_run, run)
    told: list[tuple[str, str, dict[str, Any]]] = [
        ("policy_created", "player/p000", {"role": "main", "hyperparameters": {"gamma": 0.9}}),
        ("ghost_created", GHOST, {"policy": "player/p000", "agent_steps": 60_000}),
        (
            "exploited",
            "player/p000",
            {"donor": "player/p001", "donor_agent_steps": 90_000, "agent_steps": 70_000,
             "generation": 1},
        ),
        ("learner_joined", "learner", {"host": "lab"}),
    ]  # fmt: skip
    events = [
        EventRow(
            sequence=number,
            time=f"2026-01-01T00:00:0{number}.000+00:00",
            kind=kind,
            subject=subject,
            data=data,
        )
        for number, (kind, subject, data) in enumerate(told, 1)
    ]
    generations = [
        GenerationRow(
            entrant=Entrant(f"player/p000#{number}"),
            policy=PolicyId("player/p000"),
            population="player",
            generation=number,
            cause="exploit" if number else "start",
            parent=Entrant("player/p001#0") if number else None,
            parent_agent_steps=90_000 if number else None,
            hyperparameters={"gamma": 0.9},
            agent_steps_begin=begin,
            agent_steps_end=end,
        )
        for number, begin, end in ((0, 0, 70_000), (1, 70_000, None))
    ]
    with Journal.open(run / "journal.db") as journal:
        journal.commit([*events, *generations])
    return run


def section(text: str, anchor: str) -> str:
    """Return a section of a page, as text that is not escaped."""
    return html.unescape(text.split(f'<section id="{anchor}"')[1].split("</section>")[0])


@pytest.mark.parametrize(("player", "entries"), [("player/p000", 5), (GHOST, 2)])
def test_a_life_is_that_of_why_the_newest_first(lived: Path, player: str, entries: int) -> None:
    why: Any = view_document(lived, "why", player=player)
    assert len(why["entries"]) == entries
    client = Client([lived])
    standings = json.loads(client.get("/run/standings.json").text)["populations"]["player"]
    (line,) = [one for one in standings if one["player"] == player]
    name = "player-p000" if player == "player/p000" else f"weights-{line['weights'][:16]}"
    life = section(client.get(f"/run/{name}.html").text, "life-the-newest-first")
    told = [short_names(one["sentence"], populations=["player"]) for one in why["entries"]]
    places = [life.find(f"<bdi>{one}</bdi>") for one in told]
    assert -1 not in places
    assert places == sorted(places, reverse=True)
    assert "learner joined" not in life.lower()


def test_a_card_is_that_of_an_export(board_run: Path) -> None:
    client = Client([board_run])
    card = section(client.get("/board/player-p000.html").text, "card")
    assert "classic/connect_four-v3 {}" in card
    assert "Box [6, 7, 2] int8, from 0 to 1" in card
    # 300 with a deviation of 10: 1.96 deviations to each side; its only match was won.
    assert "300 (95%: 280 to 320)" in card
    assert "1.000 in 1 matches" in card
    cards = json.loads(client.get("/board/cards.json").text)["cards"]
    assert cards["player/p000"]["summary"]["learner updates"] == 1_200
    lineage = [(one["policy"], one["generation"]) for one in cards["player/p000"]["lineage"]]
    # The ghost's weights, from which it went on.
    assert lineage == [("player/p000", 0)]
    # One that was never trained has none, nor do bots.
    assert sorted(cards) == [
        "player/p000",
        GHOST,
        "player/p001",
        "player/p001@000000090000",
    ]
    assert "<section" in client.get("/board/player-p002.html").text


def test_without_weights_there_is_no_card(board_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(board_run, run)
    shutil.rmtree(run / "populations" / "player" / "p000" / "checkpoints")
    client = Client([run])
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
    # A server of pages would have 300 MB of it.
    assert done.stdout == "4 False\n"


def test_a_players_document_has_what_its_page_shows(lived: Path) -> None:
    client = Client([lived])
    found = json.loads(client.get("/run/player-p000.json").text)
    why: Any = json.loads(json.dumps(view_document(lived, "why", player="p000")))
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


def test_each_result_of_two_players_is_a_line_to_copy(
    board_client: Client, board_run: Path
) -> None:
    line = "player/p000 against bot:random: 1 won, 0 drawn, 0 lost of 1, score 1.000"
    assert f'data-line="{line}"' in board_client.get("/board/player-p000.html").text
    # A cell of the map leads to the line where games cannot be chosen.
    site = Site(named_runs([board_run]), is_static=True)
    payoff = site.page("board", Address(name="payoff"))
    assert payoff
    assert '"href": "player-p000.html#vs-bot-random"' in payoff
    assert 'id="vs-bot-random"' in board_client.get("/board/player-p000.html").text


@pytest.mark.slow
def test_the_champions_page_has_the_record_of_its_export(
    board_run: Path, tmp_path: Path, command: Any
) -> None:
    run = tmp_path / "run"
    shutil.copytree(board_run, run)
    client = Client([run])
    assert "Record of its export" not in client.get("/run/player-p000.html").text
    exported = command("export", run, "--matches", 2, "--json")["exports"]["player"]
    (run / "champion" / "other").mkdir()
    client = Client([run])
    text = client.get("/run/player-p000.html").text
    assert "Record of its export" in text
    found = json.loads(client.get("/run/player-p000.json").text)["card"]["record"]
    assert found == exported["record"]
    assert 'data-line="player/p000 against bot:random as player_0, greedy: ' in text
    # Whatever stands there instead breaks no page.
    (run / "champion" / "card.json").write_text("{")
    assert Client([run]).get("/run/player-p000.html").status_code == 200
