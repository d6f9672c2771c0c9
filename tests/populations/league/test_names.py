"""Short names of players, and counts in few characters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from arena.errors import ConfigError
from arena.types import PolicyId
from populations.league.names import (
    Subject,
    compact,
    find_player,
    is_name,
    short_name,
    short_names,
)
from populations.records.tables import Tables


@pytest.mark.parametrize(
    ("player", "alone", "among"),
    [
        ("player/p002", "p002", "player/p002"),
        ("player/p001@000002100000", "p001@2.1M", "player/p001@2.1M"),
        ("player/p1234@000000000512", "p1234@512", "player/p1234@512"),
        ("bot:random", "bot:random", "bot:random"),
        ("outsider:exports/one@2", "exports/one@2", "exports/one@2"),
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


P0 = PolicyId("player/p000")


def tables_of(*policies: str, kept: tuple[int, ...] = (), removed: tuple[int, ...] = ()) -> Tables:
    """Return the rows of policies, and of ghosts and checkpoints of the first one.

    Every second one that is kept is a ghost.
    """
    rows = {name: SimpleNamespace(population=name.split("/")[0]) for name in policies}
    ghosts = {i: SimpleNamespace(agent_steps=n, is_present=True) for i, n in enumerate(kept[::2])}
    states = [(n, "present") for n in kept[1::2]] + [(n, "removed") for n in removed]
    checkpoints = {i: SimpleNamespace(agent_steps=n, state=s) for i, (n, s) in enumerate(states)}
    for one in (*ghosts.values(), *checkpoints.values()):
        one.policy = policies[0]
    return cast("Tables", SimpleNamespace(policies=rows, checkpoints=checkpoints, ghosts=ghosts))


TABLES = tables_of(
    *("player/p000", "player/p001"),
    kept=(0, 950, 120_000, 4_627_600, 4_628_499, 4_628_501, 4_700_000),
    removed=(4_699_990, 5_000_000),
)


@pytest.mark.parametrize(
    ("name", "agent_steps"),
    [
        ("p000", None),
        ("player/p000", None),
        ("p000@120000", 120_000),
        ("player/p000@000000120000", 120_000),
        ("p000@120k", 120_000),
        ("player/p000@4.629M", 4_628_501),
        ("p000@0", 0),
        ("p000@950", 950),
    ],
)
def test_a_player_is_found_by_any_of_its_names(name: str, agent_steps: int | None) -> None:
    assert is_name(name)
    found = find_player(name, TABLES)
    assert found == Subject(policy=P0, agent_steps=agent_steps)
    # Its full name and the one that is shown mean it, too.
    assert find_player(found.player, TABLES) == found
    assert find_player(short_name(found.player, populations=["player"]), TABLES) == found


def test_of_what_is_removed_only_the_row_is_found() -> None:
    assert find_player("p000@5M", TABLES).agent_steps == 5_000_000
    with pytest.raises(ConfigError, match="keeps nothing of player/p000 at 5M agent steps; the "):
        find_player("p000@5M", TABLES, kept=True)
    # 4,699,990 is written as 4.7M, too, but nobody could mean it.
    assert find_player("p000@4.7M", TABLES, kept=True).agent_steps == 4_700_000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("p000@4.628M", "may be player/p000@000004627600 or player/p000@000004628499$"),
        ("p000@4.7M", "may be player/p000@000004699990 or player/p000@000004700000$"),
        ("player/p002", "the run has no policy 'player/p002'; policies: player/p000, player/p001"),
        (
            "p000@119999",
            "has nothing of player/p000 at 119999 .* ghosts: player/p000@0*,",
        ),
        ("p001@1M", "nearest of its checkpoints and ghosts: none"),
        ("p000@1e5", "agent steps are written as 4628301 or 4.628M"),
        ("p000@", "agent steps are written"),
        ("p000@\u0663", "agent steps are written"),
        ("bot:random", "is not trained"),
        ("", "no policy ''"),
    ],
)
def test_an_unknown_or_ambiguous_name_is_refused_with_candidates(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_player(name, TABLES)


def test_a_name_that_two_populations_have_needs_the_population() -> None:
    tables = tables_of("fox/p000", "hen/p000")
    with pytest.raises(ConfigError, match="may be fox/p000 or hen/p000: name its population too"):
        find_player("p000", tables)
    assert find_player("p000", tables, population="hen").policy == "hen/p000"


def test_of_many_policies_the_nearest_are_listed() -> None:
    tables = tables_of(*(f"player/p{number:03}" for number in range(100)))
    with pytest.raises(ConfigError, match=r"runs/a has no .*policies: player/p099, .* and 92 more"):
        find_player("player/p0999", tables, where="runs/a")


@pytest.mark.parametrize(
    "name", ["bot:random", "../p000", "p00", "p000@", "p000@-1", "p000@4,6M", "p000@bestk", ""]
)
def test_other_texts_are_no_names(name: str) -> None:
    assert not is_name(name)
