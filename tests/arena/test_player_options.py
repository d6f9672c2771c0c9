from __future__ import annotations

from pathlib import Path

import pytest

from arena.bots.asking import make_object
from arena.bots.ids import canonical_bot, check_options, split_options
from arena.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "name", "options"),
    [
        ("runs/four", "runs/four", {}),
        ("runs/four:player/p003@120000", "runs/four:player/p003@120000", {}),
        ("runs/four/champion:level=3", "runs/four/champion", {"level": "3"}),
        ("a:p003@best:temperature=0.5", "a:p003@best", {"temperature": "0.5"}),
        ("a:level=3:seat=x=y", "a", {"level": "3", "seat": "x=y"}),
        ("bot:m:C(x=1)", "bot:m:C(x=1)", {}),
        ("bot:m:C(x='a:b=c')", "bot:m:C(x='a:b=c')", {}),
        ("bot:m:C(x=1):y=2", "bot:m:C(x=1)", {"y": "2"}),
    ],
)
def test_options_follow_any_name(written: str, name: str, options: dict[str, str]) -> None:
    assert split_options(written) == (name, options)
    assert list(split_options(written)[1]) == list(options)


def test_a_directory_that_is_called_so_is_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run:lr=1").mkdir()
    assert split_options("run:lr=1") == ("run:lr=1", {})
    assert split_options("run:lr=1:level=2") == ("run:lr=1", {"level": "2"})
    assert split_options("run:lr=2") == ("run", {"lr": "2"})


@pytest.mark.parametrize("player", ["a:level=1:level=2", "a:level=", "bot:m:C:x="])
def test_an_option_has_one_value(player: str) -> None:
    with pytest.raises(ConfigError, match="NAME:KEY=VALUE, each key once, got"):
        split_options(player)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("depth=3", "(depth=3)"),
        ("size=(3, 4]", '(size="(3, 4]")'),
        ("name=fast", '(name="fast")'),
        ('name="3"', '(name="3")'),
        ("on=True:x=-2.5", "(on=True, x=-2.5)"),
        ("x=nan", '(x="nan")'),
        ("b=[1, 2]:a=1", "(a=1, b=[1, 2])"),
    ],
)
def test_a_bot_has_one_name_however_its_arguments_are_written(options: str, arguments: str) -> None:
    assert canonical_bot(f"bot:my.module:Bot:{options}") == f"bot:my.module:Bot{arguments}"


def test_a_bot_takes_the_options_of_its_class_and_others_are_refused() -> None:
    made = make_object("bot:arena.bots.connect_four:Tactical", launch_directory=".")
    assert type(made).__name__ == "Tactical"
    with pytest.raises(ConfigError, match="a has no option depth; it has level, temperature"):
        check_options("a", {"depth": "3"}, ("level", "temperature"))
    with pytest.raises(ConfigError, match="bot:random has no option depth; it has no options"):
        make_object("bot:random:depth=3", launch_directory=".")
    with pytest.raises(ConfigError, match="Tactical has no option depth; it has "):
        make_object("bot:arena.bots.connect_four:Tactical:depth=3", launch_directory=".")
    with pytest.raises(ConfigError, match="x occurs twice"):
        canonical_bot("bot:m:C(x=1):x=2")
