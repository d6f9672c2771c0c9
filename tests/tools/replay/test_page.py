"""Games on the page: a list with filters, and a game that another process tells."""

from __future__ import annotations

import html
import re
import shutil
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace

from populations.records.games import worst_games
from populations.storage.journal import Journal
from populations.views.questions.inspection import Inspection
from tests.tools.web.conftest import Client


def test_games_are_listed_and_chosen_by_players(kept_run: Path) -> None:
    client = Client([kept_run])

    def listed(query: str = "") -> list[str]:
        answer = client.get(f"/kept/games.html{query}")
        assert answer.status_code == 200
        return re.findall(r'href="game-(\d+-\d+)\.html"', answer.text)

    every = [f"{pairing}-{number}" for pairing in (4, 3, 2, 1) for number in (2, 1, 0)]
    assert listed() == every
    assert listed("?player=bot:random") == every[:6]
    assert listed("?player=player/p000") == every[3:]
    assert listed("?player=player/p000&opponent=player/p001") == every[6:]
    assert len(client.get("/kept/games.json").json()["games"]) == 12
    assert client.get("/kept/games.csv").text.count("\n") == 13


def test_a_player_has_its_worst_games(kept_run: Path) -> None:
    page = Client([kept_run]).get("/kept/player-p000.html").text
    section = page.partition('id="games-that-are-kept-its-worst-first"')[2].partition("</section>")
    games = re.findall(r'href="game-(\d+)-(\d+)\.html"', section[0])
    with closing(Inspection.open(kept_run)) as inspection:
        rows, seats = inspection.tables.games, inspection.league.seats
    # The order of `arena replay --worst N`.
    worst = worst_games(rows.values(), ["player/p000"], seats=seats)
    assert [".".join(game) for game in games] == [row.game for row in worst]
    points = [
        row.points[place]
        for row in (rows[".".join(game)] for game in games)
        for place, player in enumerate(row.players)
        if player.startswith("player/p000")
    ]
    assert len(points) == 9
    assert points == sorted(points)


def test_each_cell_of_the_payoff_map_leads_to_the_games_of_the_two(kept_run: Path) -> None:
    client = Client([kept_run])
    page = html.unescape(client.get("/kept/payoff.html").text.replace(r"\u0026", "&"))
    drawn = set(re.findall(r'"href": "(games[.]html[?][^"]*)"', page))
    listed = set(re.findall(r'href="(games[.]html[?][^"]*)"', page))
    scores = [
        {cell["player"], cell["opponent"]}
        for cell in client.get("/kept/payoff.json").json()["payoff"]
    ]
    assert len(drawn) == len(scores) > 1
    # Keys reach those of the table.
    assert listed == drawn
    every = client.get("/kept/games.json").json()["games"]
    for address in drawn:
        pair = {value for _, value in parse_qsl(urlsplit(address).query)}
        assert pair in scores
        own = [
            one["game"]
            for one in every
            if {name.partition("@")[0] for name in one["players"]} == pair
        ]
        shown = re.findall(r'href="game-(\d+-\d+)[.]html"', client.get(f"/kept/{address}").text)
        assert shown == [game.replace(".", "-") for game in own]
    # A player's own results lead there, too.
    player = html.unescape(client.get("/kept/player-p000.html").text)
    assert 'href="games.html?player=player%2Fp000&opponent=bot%3Arandom"' in player


def test_games_that_no_choice_leaves_are_not_said_to_be_none(kept_run: Path) -> None:
    page = Client([kept_run]).get("/kept/games.html?player=nobody").text
    assert "0 of 12" in page
    assert "no games yet" not in page


@pytest.mark.slow
def test_a_game_is_told_by_another_process(kept_run: Path) -> None:
    client = Client([kept_run])
    page = client.get("/kept/game-1-0.html")
    assert page.status_code == 200
    told = client.get("/kept/game-1-0.json").json()
    assert page.text.count('<section id="step-') == len(told["steps"])
    assert page.text.count('<figure class="picture"><svg') == len(told["steps"])
    # It is over: nobody asks for it again.
    assert 'data-poll-s="0.0"' in page.text


@pytest.mark.slow
def test_a_game_that_cannot_be_shown_says_why(kept_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "parted"
    shutil.copytree(kept_run, run)
    with closing(Journal.open(run / "journal.db")) as journal:
        row = journal.load().games["1.0"]
        journal.commit([replace(row, shown=row.shown[:-1] + bytes([row.shown[-1] ^ 1]))])
    client = Client([run])
    assert "does not follow its seed" in client.get("/parted/game-1-0.html").text
    assert "has kept no game" in client.get("/parted/game-7-0.html").text
    for name in ("game-1.0", "game-x-1", "game-1-0-0", "game-1-22", "game-../x-1"):
        assert client.get(f"/parted/{name}.html").status_code == 404
