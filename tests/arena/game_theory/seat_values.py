"""Winnings of one seat, by the arithmetic that exploitability is made of."""

from __future__ import annotations

from arena.game_theory.exploitability import Policy, _chosen, _value
from arena.game_theory.game_tree import GameTree


def best_response_value(tree: GameTree, policy: Policy, *, agent: str) -> float:
    """The expected winnings of a best response to a policy of the other agent."""
    return _value(tree, _chosen(tree, policy), agent=tree.agents.index(agent), responds=True)


def policy_value(tree: GameTree, policy: Policy, *, agent: str) -> float:
    """The expected winnings of an agent where one policy plays both."""
    return _value(tree, _chosen(tree, policy), agent=tree.agents.index(agent), responds=False)
