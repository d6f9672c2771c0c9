"""Keys that a resumed run may have otherwise, and the reasons for which others may not change."""

from __future__ import annotations

from fnmatch import fnmatchcase

MAY_CHANGE = (
    "stop",
    "learners",
    "endpoint",
    "remote_learners",
    "store_endpoint",
    "device",
    "learner_cores",
    "learner_nice",
    "environment.num_env_workers",
    "launcher",
    "ray",
    "evaluation",
    "journal",
    "metrics",
    "alerts",
    "hooks",
    "pbt",
    "populations.*.pbt",
    "populations.*.search_space",
    "populations.*.hyperparameters",
    "ghosts",
    "checkpoints",
    "replays",
    "matchmaking",
)
"""Keys, with all below them, that a resumed run may have otherwise; * is a population's name."""

_COPIED = "the weights of its players were copied when the run was made"
_KEPT = (
    "weights of players of other runs were copied when the run was made, by their places in "
    "matchmaking.bots and then evaluation.bots, so bots may only follow"
)
_WITH_BOTS = ("matchmaking", "evaluation")
_NOT_ANY_MORE = {
    "environment": "all results and weights are about the environment that they were made in",
    "populations.*.network": "weights fit one architecture",
    "populations.*.algorithm": "checkpoints belong to one algorithm",
    "populations.*.algorithm_settings": "policies of one run are compared under equal settings",
    "populations.*.schedule": "what is replayed was chosen at launch",
    "populations": "the members of a population were made with the run",
    "seed": "draws go on from it",
    "deterministic": "the run's order of work began with it",
    "payoffs": "results were folded with it",
    "roles": "policies were dealt their roles when the run was made",
    "assignment": "assignments that are open were made with it",
    "precision": "learners of one run compute alike",
}


def is_under(key: str, pattern: str) -> bool:
    """Return whether a key is the one that a pattern names, or below it."""
    # A prefix of equal length: names in keys may have dots of their own.
    depth = pattern.count(".") + 1
    return fnmatchcase(".".join(key.split(".")[:depth]), pattern)


def why_not(key: str, before: object, after: object, *, moves_players: bool = False) -> str | None:
    """Return the reason for which a resume cannot change a key; None: it can.

    Args:
        key: Dotted path of the value that would be other.
        before: Value in the run.
        after: Value that was asked for.
        moves_players: Whether other players of other runs would be named, or in other places.
    """
    if any(is_under(key, f"{section}.initial") for section in ("pbt", "populations.*.pbt")):
        return _NOT_ANY_MORE["populations"]
    is_immigrant = any(
        is_under(key, f"{section}.immigration.from") for section in ("pbt", "populations.*.pbt")
    )
    if is_immigrant:
        return _COPIED
    if moves_players and any(is_under(key, f"{section}.bots") for section in _WITH_BOTS):
        return _KEPT
    if is_under(key, "populations.*.search_space") and _moves_names(before, after):
        return "policies have them by their places in the list, so others may only follow"
    # Below `matchmaking`, which may change.
    if is_under(key, "matchmaking.teammates"):
        return _NOT_ANY_MORE["assignment"]
    # Below `evaluation`, which may change.
    if is_under(key, "evaluation.kwargs"):
        return _NOT_ANY_MORE["environment"]
    if is_under(key, "evaluation.greedy"):
        return "results of sampled and of greedy play are never in one fit"
    if any(is_under(key, pattern) for pattern in MAY_CHANGE):
        return None
    return next(
        (reason for pattern, reason in _NOT_ANY_MORE.items() if is_under(key, pattern)),
        "it was fixed when the run was made",
    )


def _moves_names(before: object, after: object) -> bool:
    """Return whether choices by name are not the first ones of a list any more."""
    if not isinstance(before, list) or not any(isinstance(name, str) for name in before):
        return False
    # Without any, the setting is not explored any more, and its number is read no more.
    return isinstance(after, list) and after[: len(before)] != before
