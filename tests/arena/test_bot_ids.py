from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.bots.ids import MAX_LENGTH, BotId, canonical_bot, parse_bot
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
    # The other reading is Python's own.
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
        # Short as it is written, long as it is spelled.
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
