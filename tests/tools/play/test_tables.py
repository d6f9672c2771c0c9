"""Games in processes: what they answer, how many there are, and how they end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, cast

import httpx
import psutil
import pytest

from arena.errors import ConfigError
from tests.tools.play.conftest import GameOf
from tests.tools.web.conftest import TOKEN
from tools.play import tables as module
from tools.play.answers import answer
from tools.play.site import METHODS, make_app
from tools.play.tables import Ended, Full, Tables
from tools.web.security import Access

TABLE: Mapping[str, object] = {
    "player": "bot:random",
    "environment": "classic/tictactoe-v3",
    "seat": None,
    "trust": False,
}


TIMEOUT_S = 60.0


def test_answers_are_what_a_page_shows(game_of: GameOf) -> None:
    game = game_of("bot:random", environment="classic/tictactoe-v3")
    begun = answer(game, {"do": "look"})
    assert (begun["steps"], begun["undoes"]) == (0, False)
    assert begun["svg"].startswith("<svg")
    assert begun["moves"][0] == {"name": "1,1", "cells": ((0, 0),)}
    assert begun["svg"].count("data-cell=") == 9
    moved = answer(game, {"do": "move", "move": "2,2", "steps": 0})
    assert (moved["steps"], moved["undoes"]) == (2, True)
    assert moved["told"][0].startswith("player_2: ")
    assert moved["refusal"] == ""
    for request in (
        {"do": "move", "move": "2,2", "steps": 2},
        {"do": "move", "move": "9", "steps": 2},
        {"do": "move", "steps": 2},
    ):
        refused = answer(game, request)
        assert "is no legal move" in refused["refusal"]
        assert refused["steps"] == 2
    stale = answer(game, {"do": "undo", "steps": 0})
    assert stale["refusal"] == "the game went on in another tab: this is where it stands"
    assert stale["steps"] == 2
    assert "has no probabilities" in answer(game, {"do": "think"})["refusal"]
    assert json.loads(answer(game, {"do": "save"})["file"])["row"]["steps"] == 2
    assert answer(game, {"do": "undo", "steps": 2})["steps"] == 0


def test_games_are_processes_that_end_idle_killed_or_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_GAMES", 2)
    with Tables(TABLE, seed=1) as tables:
        first = tables.new()
        with monkeypatch.context() as context:
            context.setattr(module, "IDLE_S", 0.01)
            second = tables.new()
        with pytest.raises(Full, match="2 games are played"):
            tables.new()
        processes = [psutil.Process(one.pid) for one in tables._games.values()]
        tables.ask(first, {"do": "move", "move": "1,1", "steps": 0})
        processes[1].wait(TIMEOUT_S)
        assert processes[0].is_running()
        with pytest.raises(Ended, match="after 10 minutes without a move"):
            tables.ask(second, {"do": "look"})
        assert tables.ask(first, {"do": "look"})["steps"] == 2
        third = tables.new()
        tables._games[third].kill_group()
        with pytest.raises(Ended, match="has ended"):
            tables.ask(third, {"do": "look"})
        assert list(tables._games) == [first]
        # A game that is not requested any more makes room, too.
        unasked = tables.new()
        tables._games[unasked].kill_group()
        tables.new()
        assert unasked not in tables._games
    assert not processes[0].is_running()


@pytest.mark.slow
def test_a_game_that_is_asked_for_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 3.0)
    with Tables(TABLE, seed=1) as tables:
        game, until_s = tables.new(), time.monotonic() + 4.0
        while time.monotonic() < until_s:
            assert tables.ask(game, {"do": "look"})["steps"] == 0
    # An invalid request is refused before there is an address.
    with pytest.raises(ConfigError, match="there is no player 'nobody'"):
        Tables({**TABLE, "player": "nobody"}, seed=1).__enter__()


class FakeTables:
    """Games that answer with what they were asked."""

    def new(self) -> str:
        return "abc"

    def ask(self, game: str, request: dict[str, Any]) -> dict[str, Any]:
        if game != "abc":
            raise Ended("it has ended")
        return {"asked": request, "file": "{}"}


ACCESS = Access.to("127.0.0.1", 8518, token=TOKEN, methods=METHODS)
JSON = {"content-type": "application/json"}


def request(method: str, path: str, **how: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {TOKEN}", **how.pop("headers", {})}

    async def send() -> httpx.Response:
        app = cast("Any", make_app(cast("Tables", FakeTables()), ACCESS))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost:8518"
        ) as client:
            return await client.request(method, path, headers=headers, **how)

    return asyncio.run(send())


def test_a_new_game_has_an_address_of_its_own_and_its_page_is_confined() -> None:
    answered = request("GET", "/")
    assert (answered.status_code, answered.headers["location"]) == (303, "games/abc")
    page = request("GET", "/games/abc")
    assert '<script defer src="../static/play.js' in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert request("GET", "/static/play.js").status_code == 200
    # The page's title links to this address.
    assert request("GET", "/index.html").headers["location"] == "games/abc"
    wanted = {"do": "move", "move": "1"}
    asked = request("POST", "/games/abc/do", json=wanted)
    assert asked.json()["asked"] == wanted
    kept = request("GET", "/games/abc/game.json")
    assert kept.headers["content-disposition"] == 'attachment; filename="game-abc.json"'
    gone = request("POST", "/games/xyz/do", json={"do": "look"})
    assert (gone.status_code, gone.text) == (410, "it has ended\n")
    assert request("PUT", "/games/abc/do", json={}).status_code == 405


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"headers": {**JSON, "authorization": "Bearer wrong-token"}, "content": "{}"}, 401),
        ({"headers": {**JSON, "origin": "http://evil.example"}, "content": "{}"}, 403),
        ({"headers": {**JSON, "sec-fetch-site": "cross-site"}, "content": "{}"}, 403),
        ({"headers": {**JSON, "host": "evil.example"}, "content": "{}"}, 403),
        # A form of another page can send these requests.
        ({"headers": {"content-type": "text/plain"}, "content": "{}"}, 415),
        ({"content": "{}"}, 415),
        ({"headers": JSON, "content": "[1]"}, 400),
        ({"headers": JSON, "content": "{"}, 400),
        ({"headers": JSON, "content": b"\xff"}, 400),
        ({"headers": JSON, "content": " " * 100_000}, 413),
    ],
)
def test_a_request_that_is_not_the_pages_own_is_refused(how: dict[str, Any], status: int) -> None:
    assert request("POST", "/games/abc/do", **how).status_code == status
