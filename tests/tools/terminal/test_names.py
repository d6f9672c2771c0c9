"""Short names of players, and counts in few characters."""

from __future__ import annotations

import pytest

from tools.terminal.names import short_name, short_names
from tools.terminal.quantities import compact


@pytest.mark.parametrize(
    ("player", "alone", "among"),
    [
        ("player/p002", "p002", "player/p002"),
        ("player/p001@000002100000", "p001@2.1M", "player/p001@2.1M"),
        ("player/p1234@000000000512", "p1234@512", "player/p1234@512"),
        ("bot:random", "bot:random", "bot:random"),
        ("bot:a.b:C(path='player/p001')", *["bot:a.b:C(path='player/p001')"] * 2),
        ("", "", ""),
    ],
)
def test_a_population_is_named_where_there_are_several(player: str, alone: str, among: str) -> None:
    assert short_name(player, populations=["player"]) == alone
    assert short_name(player, populations=["player", "other"]) == among


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (999, "999"), (1000, "1k"), (12_500, "12.5k"), (999_949, "999.9k"),
        (999_950, "1M"), (2_100_000, "2.1M"), (3_195_847, "3.196M"), (5 * 10**9, "5G"),
        (7 * 10**12, "7T"),
    ],
)  # fmt: skip
def test_a_count_has_four_digits_and_a_unit(number: int, text: str) -> None:
    assert compact(number) == text


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("player/p001 copied player/p000@000000884342.", "p001 copied p000@884.3k."),
        ("runs/p001 and a/player/p001 are paths", "runs/p001 and a/player/p001 are paths"),
        ("player/p001/x.log, player/p001.log", "player/p001/x.log, player/p001.log"),
    ],
)
def test_players_in_a_sentence_are_short_and_paths_stay(text: str, short: str) -> None:
    assert short_names(text, populations=["player"]) == short
