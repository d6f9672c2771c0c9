"""Trees of OpenSpiel's games, against OpenSpiel's own best responses and the twins' trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from arena.envs.batched.leduc_poker import LeducPoker
from arena.envs.openspiel.game import OpenSpielGame, load_game, openspiel_facts
from arena.game_theory.exploitability import (
    NoRecall,
    Policy,
    exploitability,
    mixture,
)
from arena.game_theory.game_tree import NoGameTree, grow_tree
from arena.game_theory.openspiel_tree import find_tree, grow_openspiel_tree
from tests.arena.game_theory.seat_values import best_response_value, policy_value

pyspiel: Any = pytest.importorskip("pyspiel")


def chances(
    row: npt.NDArray[np.float32], legal: npt.NDArray[np.bool_], agent: str, *, seed: int
) -> npt.NDArray[np.float64]:
    """Some fixed probabilities, by what is seen and nothing else."""
    # The observation includes the player's number only in some games, so it is added to the seed.
    noise = np.random.default_rng([seed, int(agent[-1]), *np.flatnonzero(row).tolist()])
    weights = noise.random(len(legal)) ** 3 * legal
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def random_policy(seed: int) -> Policy:
    def play(observation: torch.Tensor, mask: torch.Tensor, agent: str) -> torch.Tensor:
        rows = [
            chances(row, legal, agent, seed=seed)
            for row, legal in zip(observation.numpy(), mask.numpy(), strict=True)
        ]
        return torch.from_numpy(np.stack(rows))

    return play


def uniform(observation: torch.Tensor, mask: torch.Tensor, agent: str) -> torch.Tensor:
    return mask / mask.sum(dim=1, keepdim=True)


def every_decision(state: Any) -> Iterator[Any]:
    if state.is_terminal():
        return
    if not state.is_chance_node():
        yield state
    for action in state.legal_actions():
        yield from every_decision(state.child(action))


def openspiels_own(loaded: OpenSpielGame, *, seed: int) -> float:
    """OpenSpiel's figure for `random_policy`; where all decide at once, of its own conversion."""
    game, at_once = loaded.game, loaded.api == "parallel"
    if at_once:
        game = pyspiel.convert_to_turn_based(game)
    table: dict[str, list[tuple[int, float]]] = {}
    for state in every_decision(game.new_initial_state()):
        player = state.current_player()
        seen_in = state.simultaneous_game_state() if at_once else state
        legal = np.array(state.legal_actions_mask(player), dtype=np.bool_)
        row = loaded.see(seen_in, player).reshape(-1)
        likely = chances(row, legal, f"player_{player}", seed=seed)
        table[state.information_state_string()] = [
            (action, float(likely[action])) for action in state.legal_actions()
        ]
    return float(pyspiel.exploitability(game, pyspiel.TabularPolicy(table)))


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("kuhn_poker", {}),
        # The game has chance nodes between decisions.
        ("leduc_poker", {}),
        # The policy's observation does not contain earlier bets.
        ("leduc_poker", {"observation": "observation"}),
        ("liars_dice(dice_sides=2)", {}),
        # Both players decide at once: in one node, with chance in between, with hidden or open
        # actions, until one is out.
        ("matrix_rps", {}),
        ("goofspiel(num_cards=3)", {}),
        ("goofspiel(num_cards=3,imp_info=True)", {}),
        ("oshi_zumo(coins=3,size=1,horizon=3)", {}),
        # Nothing is hidden, and several histories lead to one position.
        ("hex(board_size=2)", {}),
    ],
)
@pytest.mark.slow
def test_random_policies_are_as_exploitable_as_openspiel_says(
    name: str, kwargs: dict[str, object]
) -> None:
    game = load_game(f"openspiel:{name}", kwargs)
    tree = grow_openspiel_tree(game)
    for seed in (1, 2):
        found = exploitability(tree, random_policy(seed))
        assert found == pytest.approx(openspiels_own(game, seed=seed), abs=1e-9)
        assert found > 0.05


@pytest.mark.slow
def test_positions_that_are_reached_in_several_ways_are_one() -> None:
    """OpenSpiel itself has 294,778 information states; the figure is its own."""
    tree = grow_openspiel_tree(load_game("openspiel:tic_tac_toe", {}))
    assert [len(known.legal) for known in tree.knowledge] == [2423, 2097]
    assert exploitability(tree, uniform) == pytest.approx(0.9598296957671957, abs=1e-9)
    # Such a position does not show the player's own earlier actions.
    with pytest.raises(NoRecall, match="player_0 must see all that it did"):
        mixture(tree, [random_policy(1), uniform], shares=[0.5, 0.5])


@pytest.mark.slow
def test_a_game_and_its_twin_have_one_tree() -> None:
    """Two ways of growing: chance between decisions, and cards dealt beforehand."""
    own, twin = grow_openspiel_tree(load_game("openspiel:leduc_poker", {})), grow_tree(LeducPoker)
    assert [len(known.legal) for known in own.knowledge] == [468, 468]
    for seed in (1, 2):
        policy = random_policy(seed)
        for value in (policy_value, best_response_value):
            assert value(own, policy, agent="player_1") == pytest.approx(
                value(twin, policy, agent="player_1"), abs=1e-12
            )
    policies, shares = [random_policy(1), random_policy(2), uniform], [0.5, 0.2, 0.3]
    one, other = (
        exploitability(tree, mixture(tree, policies, shares=shares)) for tree in (own, twin)
    )
    assert one == pytest.approx(other, abs=1e-12)
    # Mixing hides what each single policy reveals.
    assert one < min(exploitability(own, policy) for policy in policies[:2])


def test_who_decides_second_does_not_see_the_first_choice() -> None:
    """Rock-paper-scissors: whoever always plays rock loses 1 to paper, and a third of each 0."""
    tree = grow_openspiel_tree(load_game("openspiel:matrix_rps", {}))
    assert [len(known.legal) for known in tree.knowledge] == [1, 1]

    def rock(observation: torch.Tensor, mask: torch.Tensor, agent: str) -> torch.Tensor:
        return torch.tensor([[1.0, 0.0, 0.0]])

    assert exploitability(tree, rock) == pytest.approx(1.0)
    assert exploitability(tree, uniform) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kuhn_poker(players=3)", "two players, got 3"),
        ("matrix_pd", "zero-sum, matrix_pd is GENERAL_SUM"),
        ("phantom_ttt(obstype=reveal-nothing)", "must tell them how many decisions came before"),
    ],
)
def test_games_that_do_not_fit_are_refused(name: str, says: str) -> None:
    with pytest.raises(NoGameTree, match=says):
        grow_openspiel_tree(load_game(f"openspiel:{name}", {}))


@pytest.mark.parametrize(
    ("limit", "name", "says"),
    [
        ("game_tree.MAX_INFORMATION_SETS", "tic_tac_toe", "at most 50 information sets"),
        ("game_tree.MAX_INFORMATION_SETS", "leduc_poker", "at most 50 information sets"),
        ("openspiel_tree.MAX_HISTORIES", "leduc_poker", "at most 50 histories of one length"),
        ("openspiel_tree.MAX_ACTIONS", "tic_tac_toe", "at most 50 actions in its tree"),
    ],
)
def test_a_game_that_is_too_large_is_refused(
    limit: str, name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"arena.game_theory.{limit}", 50)
    with pytest.raises(NoGameTree, match=says):
        grow_openspiel_tree(load_game(f"openspiel:{name}", {}))


def test_the_tree_of_an_environment() -> None:
    def size(environment_id: str, **kwargs: object) -> list[int]:
        spec = openspiel_facts(environment_id, kwargs=kwargs)
        tree = find_tree(spec, launch_directory=".")
        return [len(known.legal) for known in tree.knowledge]

    # Without parameters the batched twin is used, else OpenSpiel, because the twin has no
    # parameters.
    assert size("openspiel:kuhn_poker") == [6, 6]
    assert size("openspiel:kuhn_poker", observation="observation") == [6, 6]
    assert size("openspiel:goofspiel", num_cards=3) == [57, 57]
    with pytest.raises(NoGameTree, match="must have two agents, got 3"):
        size("openspiel:kuhn_poker", players=3)
