"""Games on the page: a list with filters, and a game that another process tells."""

from __future__ import annotations

import gc
import html
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from populations.records.games import worst_games
from populations.storage.journal import Journal
from populations.views.questions.inspection import Inspection
from tests.support import exit_code
from tests.tools.league.test_watch import TIMEOUT_S, Terminal
from tests.tools.web.conftest import Client
from tools.league.documents import Opened
from tools.replay import files
from tools.replay.retelling import retold


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
    # The order is that of `arena replay --worst N`.
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
    # The keys of the JSON are those of the table.
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
    # A player's own results link there, too.
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
    # A finished game is not polled.
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


HOSTILE = "</script><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def told(kept_run: Path) -> Opened:
    return retold(kept_run, game="1.0")


def test_a_page_is_one_file_that_loads_nothing(told: Opened, tmp_path: Path) -> None:
    page = tmp_path / "game.html"
    files.write_file(told, page)
    text = page.read_text(encoding="utf8")
    # Addresses of XML namespaces are never loaded.
    assert not re.findall(r"(?:src|href|url\()\s*=?\s*[\"']?(?:https?:|//|static/)", text)
    steps = len(told.document["steps"])
    assert len(re.findall(r'id="step-\d+"', text)) == steps
    assert text.count("<svg ") == steps
    assert text.count("unsafe-inline") == 0


def test_hostile_names_stay_text(told: Opened, tmp_path: Path) -> None:
    document = deepcopy(dict(told.document))
    document["environment"] = HOSTILE
    document["notes"] = [HOSTILE]
    for seat in document["seats"]:
        seat["seat"] = seat["player"] = HOSTILE
    for step in document["steps"]:
        step["rewards"] = {HOSTILE: 1.0}
        for decision in step["decisions"]:
            decision["agent"] = decision["player"] = HOSTILE
    hostile = told._replace(document=document)
    files.write_file(hostile, tmp_path / "game.html")
    files.write_file(hostile, tmp_path / "game.txt")
    text = (tmp_path / "game.html").read_text(encoding="utf8")
    assert HOSTILE not in text
    assert "&lt;/script&gt;" in text


def test_text_has_all_steps_in_plain_characters(told: Opened, tmp_path: Path) -> None:
    path = tmp_path / "game.txt"
    files.write_file(told, path)
    text = path.read_bytes().decode("ascii")
    # A move has a name, which is that of its column in the next picture.
    chosen = [one["action"] for step in told.document["steps"] for one in step["decisions"]]
    steps = text.partition("\nstep 0")[2]
    assert re.findall(r"^player_\d +\S+ +(\d) ", steps, flags=re.MULTILINE) == [
        str(column + 1) for column in chosen
    ]
    assert re.findall(r": column (\d)", text) == [str(column + 1) for column in chosen]
    assert max(map(len, text.splitlines())) <= files.TEXT_WIDTH
    assert text.count("\nstep ") == len(told.document["steps"])


# imageio leaves closing its pipe to ffmpeg to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_films_show_each_step(told: Opened, tmp_path: Path) -> None:
    iio = pytest.importorskip("imageio.v3", reason="imageio is not installed (extra video)")
    files.write_file(told, tmp_path / "game.gif")
    files.write_file(told, tmp_path / "game.mp4")
    steps = len(told.document["steps"])
    moving = iio.imread(tmp_path / "game.gif")
    # Equal frames at the end may be stored as one that stays longer.
    assert steps <= len(moving) <= steps + files.LAST_STEPS - 1
    assert moving.shape[2] == files.FILM_WIDTH
    with iio.imopen(tmp_path / "game.mp4", "r", plugin="FFMPEG") as file:
        film = np.stack(list(file.iter()))
    assert len(film) == steps + files.LAST_STEPS - 1
    # Each step adds a piece, so consecutive frames differ.
    apart = [np.abs(film[n].astype(int) - film[n + 1]).max() for n in range(steps - 1)]
    assert min(apart) > 50
    gc.collect()


def test_a_game_without_pictures_has_no_film(told: Opened, tmp_path: Path) -> None:
    pytest.importorskip("imageio.v3", reason="imageio is not installed (extra video)")
    document = deepcopy(dict(told.document))
    for step in document["steps"]:
        del step["picture"]
    with pytest.raises(ConfigError, match="has no pictures, of which a film could be made"):
        files.write_file(told._replace(document=document), tmp_path / "game.gif")
    assert not (tmp_path / "game.gif").exists()


Command = Callable[..., dict[str, Any]]
CODE = """
import sys
from tools.main import main
main(["replay", sys.argv[1], "--id", "1.0"])
"""


def text_of(run: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    ended = exit_code("replay", run, *arguments)
    output = capsys.readouterr()
    assert ended == 0, output.err
    return output.out


@pytest.mark.slow
def test_all_steps_are_printed_where_there_are_no_keys(
    kept_run: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    told = command("replay", kept_run, "--id", "1.0", "--json")
    assert told["run"] == str(kept_run)
    assert told["game"] == "1.0"
    num_steps = len(told["steps"]) - 1
    text = text_of(kept_run, capsys, "--id", "1.0")
    assert f"game 1.0 of classic/connect_four-v3, {num_steps} steps" in text
    assert re.findall(r"^step (\d+)$", text, flags=re.MULTILINE) == [
        str(number) for number in range(num_steps + 1)
    ]
    # The last picture has a piece for each step.
    last = text.rpartition(f"step {num_steps}\n")[2]
    rows = [line for line in last.splitlines() if line and set(line) <= set(" .xo[]")]
    assert len(rows) == 6
    assert sum(row.count("x") + row.count("o") for row in rows) == num_steps


@pytest.mark.slow
def test_keys_go_through_a_game_and_the_terminal_comes_back(kept_run: Path) -> None:
    terminal = Terminal(kept_run, code=CODE)
    try:
        terminal.wait_for("step 0 of ")
        for keys, step in (
            *((b"\n", 1), (b"\x1b[C", 2), (b"b", 1), (b"\x1b[D", 0), (b"b", 0)),
            # In pasted text each key counts; one of them has no meaning.
            (b"\n\x1b[C\x1bx\n", 3),
        ):
            terminal.press(keys)
            terminal.wait_for(f"step {step} of ")
        terminal.press(b"q\n")
        assert terminal.process.wait(timeout=TIMEOUT_S) == 0
    finally:
        terminal.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--id", "1.0", "--worst", "1"), "--id and --worst exclude each other"),
        (("--id", "7.7"), "has kept no game '7.7'; its newest is 4.2"),
        (("--player", "p009"), "has no policy 'p009'"),
        (("--worst", "0"), "--worst"),
        (
            ("--to", "game.avi"),
            "--to takes a name that ends in .html, .gif, .mp4, .txt, .json, got 'game.avi'",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    kept_run: Path, command: Command, arguments: tuple[str, ...], says: str
) -> None:
    assert says in command("replay", kept_run, *arguments, code=2)["error"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path, command: Command) -> None:
    assert "is no run directory" in command("replay", tmp_path, code=2)["error"]
