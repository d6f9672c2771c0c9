from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.bots.asking import make_object
from arena.bots.ids import MAX_LENGTH, BotId, canonical_bot, check_options, parse_bot, split_options
from arena.codec import from_msgpack, to_msgpack
from arena.errors import ConfigError, DecodeError
from arena.types import Entrant, Player, PlayerId, Tally


def arrived(player: str) -> str:
    sent = to_msgpack(Player(player=PlayerId(player)), limit=4096)
    return from_msgpack(sent, Player, limit=4096).player


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
LITERALS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["depth", "name", "a_b", "x"]), LITERALS, max_size=3))
def test_every_bot_has_one_spelling_that_means_it(arguments: dict[str, object]) -> None:
    # The oracle is Python's own parser.
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    if len(written) > 150:
        return
    bot = parse_bot(f"bot:my.module:Bot({written})")
    assert bot is not None
    assert bot.reference == "my.module:Bot"
    assert dict(bot.arguments) == arguments
    assert list(bot.arguments) == sorted(arguments)
    spelled = str(bot)
    assert parse_bot(spelled) == bot
    assert spelled.isascii()
    assert spelled.isprintable()
    for name, value in bot.arguments.items():
        assert f"{name}=" in spelled
        assert ast.literal_eval(repr(value)) == value


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("bot:random", "bot:random"),
        ("bot:a.b:C", "bot:a.b:C"),
        ("bot:a.b:C()", "bot:a.b:C"),
        ("bot:a:C( name='x',depth = 3 )", 'bot:a:C(depth=3, name="x")'),
        ("bot:a:C(x=-1, s='say \"a\"\\n', e='€')",
         'bot:a:C(e="\\u20ac", s="say \\"a\\"\\n", x=-1)'),
        ("bot:a:C(x=(1,), y=[True, None], z={'k': .5})",
         'bot:a:C(x=(1,), y=[True, None], z={"k": 0.5})'),
    ],
)  # fmt: skip
def test_spellings(written: str, spelled: str) -> None:
    assert canonical_bot(written) == spelled
    assert canonical_bot(spelled) == spelled


@pytest.mark.parametrize(
    ("player", "rule"),
    [
        ("bot:greedy", "a bot is bot:random, bot:package.module:Class"),
        ("player/p000", "a bot is bot:random"),
        ("bot:a:C(3)", "a bot takes keywords with literals"),
        ("bot:a:C(**{})", "no \\*\\*"),
        ("bot:a:C(x=1, x=2)", "each keyword once, x occurs twice"),
        ("bot:a:C(x=__import__('os').getcwd())", "x of .* must be a literal: .* kind Call"),
        ("bot:a:C(x=open)", "must be a literal"),
        ("bot:a:C(x=1 + 1)", "must be a literal"),
        ("bot:a:C(x=f'{1}')", "must be a literal"),
        ("bot:a:C(x=[y for y in ()])", "must be a literal"),
        ("bot:a:C(x={1, 2})", "must be a literal"),
        ("bot:a:C(x=b'1')", "must be a literal"),
        ("bot:a:C(x=1j)", "must be a literal"),
        ("bot:a:C(x=-True)", "must be a literal"),
        ("bot:a:C(x=1e999)", "must be finite"),
        ("bot:a:C(x=--1)", "must be a literal"),
        ("bot:a:C(x=1)(y=2)", "a bot takes keywords"),
        ("bot:a:C(x=1).run()", "a bot takes keywords"),
        ("bot:a:C(x=1) or (2)", "a bot takes keywords"),
        ("bot:a:C(x=1", "put the id in quotes"),
        ("bot:a:C(x=[[[)", "it cannot be read"),
        ("bot:a:C(x=" + "-" * 350 + "1)", "must be a literal"),
        ("bot:a:C(x='" + "a" * MAX_LENGTH + "')", f"at most {MAX_LENGTH} characters"),
        # The id is short as typed, but its canonical spelling is too long.
        ("bot:a:C(x='" + "€" * 100 + "')", f"at most {MAX_LENGTH} characters"),
    ],
)
def test_nothing_but_keyword_literals_is_taken(player: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        parse_bot(player)


def test_an_id_travels_and_is_an_entrant() -> None:
    longest = "bot:a:C(x=" + '"' + "y" * (MAX_LENGTH - 13) + '")'
    assert len(longest) == MAX_LENGTH
    for player in ('bot:a:C(depth=3, name="it\'s {[<")', longest):
        assert canonical_bot(player) == player
        tally = Tally(
            entrants=(Entrant(player), Entrant("bot:random")),
            matches=0,
            pairs=(),
            return_sum=(0.0, 0.0),
            return_sum_of_squares=(0.0, 0.0),
            length_sum=0,
        )
        assert from_msgpack(to_msgpack(tally, limit=4096), Tally, limit=4096) == tally
        assert arrived(player) == player


@pytest.mark.parametrize("player", ["bot:a:C(x=1)y", "bot:a:C(x=1\n)", "bot:a:C(é=1)", "bot:a b:C"])
def test_what_is_no_id_does_not_travel(player: str) -> None:
    with pytest.raises(DecodeError):
        arrived(player)


def test_a_bot_without_arguments_is_its_reference() -> None:
    assert str(BotId(reference="a:C")) == "bot:a:C"


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
