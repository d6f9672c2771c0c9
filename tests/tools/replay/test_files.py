"""Files of a game: a page that needs nothing else, films, and text."""

from __future__ import annotations

import gc
import re
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from arena.errors import ConfigError
from tools.league.documents import Opened
from tools.replay import files
from tools.replay.retelling import retold

HOSTILE = "</script><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def told(kept_run: Path) -> Opened:
    return retold(kept_run, game="1.0")


def test_a_page_is_one_file_that_loads_nothing(told: Opened, tmp_path: Path) -> None:
    page = tmp_path / "game.html"
    files.write_file(told, page)
    text = page.read_text(encoding="utf8")
    # Names of namespaces are no addresses that anything is loaded from.
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
    # A move has its name, which is that of its column in the next picture.
    chosen = [one["action"] for step in told.document["steps"] for one in step["decisions"]]
    steps = text.partition("\nstep 0")[2]
    assert re.findall(r"^player_\d +\S+ +(\d) ", steps, flags=re.MULTILINE) == [
        str(column + 1) for column in chosen
    ]
    assert re.findall(r": column (\d)", text) == [str(column + 1) for column in chosen]
    assert max(map(len, text.splitlines())) <= files.TEXT_WIDTH
    assert text.count("\nstep ") == len(told.document["steps"])


# imageio leaves its pipe to ffmpeg to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_films_show_each_step(told: Opened, tmp_path: Path) -> None:
    iio = pytest.importorskip("imageio.v3", reason="imageio is not installed (extra video)")
    files.write_file(told, tmp_path / "game.gif")
    files.write_file(told, tmp_path / "game.mp4")
    steps = len(told.document["steps"])
    moving = iio.imread(tmp_path / "game.gif")
    # Equal frames at the end may be one that stays longer.
    assert steps <= len(moving) <= steps + files.LAST_STEPS - 1
    assert moving.shape[2] == files.FILM_WIDTH
    with iio.imopen(tmp_path / "game.mp4", "r", plugin="FFMPEG") as file:
        film = np.stack(list(file.iter()))
    assert len(film) == steps + files.LAST_STEPS - 1
    # Each step adds a piece, so no frame is the one before.
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
