"""Fixed documents of views, as `arena league --json` has them."""

from __future__ import annotations

from typing import Any

from tests.populations.views import documents as made

HOSTILE = "\x1b[31m[bold]=1+1\u202egnp"
"""Text that colours, is markup, begins a formula and reverses."""


UNPROVEN = {
    "what": "nobody is surely better than untrained: player/p000 has 0 agent steps",
    "reasons": ["too little training so far", "rewards that cannot be learned from"],
}


def players(count: int = 6) -> list[str]:
    """Return policies, a ghost of each, and the bot: the best first."""
    names = [f"player/p{n:03d}" for n in range(count)]
    return [*names, *(f"{name}@{2_100_000 + n:012d}" for n, name in enumerate(names)), "bot:random"]


def standings(count: int = 6, *, rated: bool = True) -> dict[str, Any]:
    """Return standings in which ratings fall by 50 from player to player."""
    twin = f"player/p{count - 2:03d}"
    lines = [
        {
            "player": name,
            "kind": "policy",
            "role": "main",
            "generation": place % 3,
            "agent_steps": 1_400_000 + place,
            "rating": 900.4 - 50 * place if rated else None,
            "rating_low": 850.2 - 50 * place if rated else None,
            "rating_high": 950.3 - 50 * place if rated else None,
            "rank_low": place + 1 if rated else None,
            "rank_high": place + 2 if rated else None,
            "matches": 1234,
            "wins": 600,
            "draws": 34,
            "losses": 600,
            "score": 0.5,
            "mean_return": 0.123 + place,
            "parent": "player/p001" if place == 2 else None,
            "state": "quarantined" if place == 3 else "active",
            "exploitability": None,
            "champion": place == 1 and rated,
            # The policy that was rated next to last has just left a ghost.
            "same_as": twin if name.startswith(f"{twin}@") else None,
        }
        for place, name in enumerate(players(count))
    ]
    return {"run": "r", "populations": {"player": lines}, "cyclicity": {}, "fit": {}}


def payoff(count: int = 4) -> dict[str, Any]:
    """Return results of everybody against everybody: the later in the list, the weaker."""
    names = players(count)
    cells = [
        {
            "population": "player",
            "player": one,
            "opponent_population": "player",
            "opponent": other,
            "matches": 100,
            "wins": 50 + 3 * (second - first),
            "draws": 0,
            "losses": 50 - 3 * (second - first),
            "score": 0.5 + 0.03 * (second - first),
            "mean_return": 0.0,
        }
        # Not in the order of ratings.
        for first, one in reversed(list(enumerate(names)))
        for second, other in enumerate(names)
        if first != second
    ]
    rated = [
        {"population": "player", "player": name, "rating": 900.0 - 50 * place}
        for place, name in enumerate(names)
    ]
    return {"run": "r", "payoff": cells, "players": rated, "merged_matches": 0}


def ratings() -> dict[str, Any]:
    """Return two curves: one rises and copies, the other falls and changes."""

    def points(values: list[float], cause: str) -> list[dict[str, Any]]:
        return [
            made.point(
                *(1_000_000 * place, value),
                rating_low=value - 40,
                generation=int(place >= 2),
                cause=cause if place >= 2 else "start",
            )
            for place, value in enumerate(values)
        ]

    return {
        "run": "r",
        "populations": {
            "player": [
                {"player": "player/p000", "points": points([700, 500, 300, 0], "explore")},
                {"player": "player/p001", "points": points([0, 300, 500, 800], "exploit")},
                {"player": "player/p002", "points": []},
            ]
        },
        "champions": [
            {
                "population": "player",
                "player": "player/p001",
                "since": "2026-01-01T00:03:00+00:00",
                "until": None,
            }
        ],
    }


def lineage() -> dict[str, Any]:
    """Return two policies of which the second copied the first and changed itself twice."""

    def generation(policy: int, number: int, parent: str | None, cause: str) -> dict[str, Any]:
        begin = 1_000_000 * number
        name = f"player/p00{policy}"
        return {
            **made.generation(name, number, begin, cause, end=begin + 1_000_000, parent=parent),
            "parent_agent_steps": 900_000 if parent else None,
            # Of the fits of their times, which cannot be subtracted.
            "rating_begin": 5000.0 * number,
            "rating_end": -5000.0 * number,
            "elo_begin": 100.0 * number,
            "elo_end": 100.0 * number + 250,
            "elo_gain": 250.0,
        }

    return {
        "run": "r",
        "started": "2026-01-01T00:00:00+00:00",
        "policies": [
            {
                "policy": f"player/p00{policy}",
                "generation": number,
                "agent_steps": 3_000_000,
                "rating": 700.0,
                "state": "active",
            }
            for policy, number in ((0, 0), (1, 2))
        ],
        "generations": [
            generation(0, 0, None, "start"),
            generation(1, 0, None, "start"),
            generation(1, 1, "player/p000#0", "exploit"),
            generation(1, 2, "player/p001#1", "explore"),
        ],
        "exploits": [
            {
                "time": "2026-01-01T00:01:30+00:00",
                "kind": "exploited",
                "subject": "player/p001",
                "generation": 1,
            }
        ],
        "immigrants": [],
    }


def hyperparameters() -> dict[str, Any]:
    """Return four policies with many values, of which one differs."""
    values = {f"parameter_{letter}": 0.5 for letter in "abcdefghijkl"}
    return {
        "run": "r",
        "policies": {
            f"player/p00{n}": {"learning_rate": 0.001 * (n + 1), **values} for n in range(4)
        },
        "factors": {},
        "changes": [
            {
                "time": "2026-01-01T00:01:30+00:00",
                "kind": "exploited",
                "subject": "player/p001",
                "donor": "player/p000",
                "agent_steps": 1_234_567,
                "old": {"learning_rate": 0.003, "gamma": 0.9},
                "new": {"learning_rate": 0.002, "gamma": 0.9},
            }
        ],
    }


def event(sequence: int, kind: str, **data: Any) -> dict[str, Any]:
    """Return an event a minute after the one before it."""
    time = f"2026-01-01T{sequence // 60:02d}:{sequence % 60:02d}:00+00:00"
    return {"sequence": sequence, "time": time, "kind": kind, "subject": "player/p001", **data}


def events() -> dict[str, Any]:
    """Return a decision between assignments, and one that somebody made up."""
    said = "player/p001 copied player/p000@000002100000: better with probability 0.997. " * 3
    return {
        "run": "r",
        "events": [
            event(1, "train_assigned", opponents=[["player/p000"] * 500]),
            event(2, "exploited", donor="player/p000", sentence=said.strip()),
            event(3, "ratings_fitted"),
            event(4, "assignment_failed", reason=HOSTILE * 50),
        ],
    }


def matches() -> dict[str, Any]:
    """Return two results."""
    tallies = [
        {
            "sequence": n,
            "assignment": n,
            "kind": "evaluate",
            "seats": {"player_0": "player/p000@000002100000", "player_1": HOSTILE},
            "matches": 62,
            "distinct": None,
            "pairs": [{"first": 0, "second": 1, "wins": 40 + n, "draws": 2, "losses": 20 - n}],
            "mean_return": [0.3, -0.3],
            "mean_length": 12.5,
        }
        for n in (1, 2)
    ]
    return {"run": "r", "tallies": tallies}


def checkpoints() -> dict[str, Any]:
    """Return a deleted one after one that is kept."""
    rows = [
        {
            "policy": "player/p000",
            "agent_steps": 4_583_758 + n,
            "generation": n,
            "learner_updates": 5408,
            "state": state,
            "assignment_id": n,
            "pins": ["latest", "best"] if n == 1 else [],
            "digest": f"{n}" * 64,
        }
        for n, state in ((1, "present"), (2, "deleted"), (3, "present"))
    ]
    return {"run": "r", "checkpoints": rows, "ghosts": []}


def calibration() -> dict[str, Any]:
    """Return pairs with names that are digests, and hostile."""
    rows = [
        {
            "population": "player",
            "player": "a" * 64,
            "opponent_population": "player",
            "opponent": opponent,
            "matches": 62,
            "score": 0.75,
            "predicted": 0.5,
            "deviations": -3.25,
        }
        for opponent in (HOSTILE, "player/p001", "bot:" + "very.long." * 20)
    ]
    return {"run": "r", "calibration": rows, "fit": {}}


def cross_play() -> dict[str, Any]:
    """Return one policy beside another."""
    row = {"player": "player/p000", "partner": "player/p001", "matches": 5, "score": 0.25}
    return {"run": "r", "cross_play": [{**row, "mean_return": 1.5}]}


def status() -> dict[str, Any]:
    """Return the state of a run that goes on."""
    return {
        "run": "422dfacd",
        "state": "running",
        "reason": HOSTILE,
        "elapsed_s": 750.0,
        "agent_steps": 18_578_431,
        "matches": 904_120,
        "alerts": [{"name": "kl_high", "what": "kl is 0.2", "advice": "Lower the rate."}],
        "quarantined": ["player/p003"],
        "learners": [{"learner": "vm-1", "state": "training", "assignment": 7}],
        "champion": {
            "player": {
                "player": "player/p000",
                "rating": 939.3,
                "rating_low": 847.0,
                "rating_high": 1031.7,
                "unproven": UNPROVEN,
            }
        },
    }


def champion() -> dict[str, Any]:
    """Return a champion that copied another policy."""
    return {
        "run": "r",
        "champions": [
            {
                "population": "player",
                "player": "player/p000",
                "agent_steps": 4_863_054,
                "rating": 939.3,
                "rating_low": 847.0,
                "rating_high": 1031.7,
                "since": "2026-01-01T00:03:00+00:00",
                "changes": 27,
                "next": "player/p003",
                "lead": 72.5,
                "lead_low": -9.9,
                "lead_high": 105.2,
                "unproven": UNPROVEN,
                "line": [
                    {"policy": "player/p001", "cause": "start", "begin": 0, "agent_steps": 7},
                    {"policy": "player/p000", "cause": "exploit", "begin": 7, "agent_steps": 9},
                ],
                "opponents": [
                    {
                        "opponent_population": "player",
                        "opponent": f"player/p{place:03d}@{2_100_000:012d}",
                        "matches": 62,
                        "wins": place,
                        "draws": 0,
                        "losses": 62 - place,
                        "score": place / 62,
                        "score_low": 0.0,
                        "score_high": 1.0,
                        "mean_return": 0.0,
                    }
                    for place in range(1, 14)
                ],
            }
        ],
    }


def learners() -> dict[str, Any]:
    """Return a learner at work with a fault, and one that has gone."""
    common = {"mean_agent_steps_per_s": 52_682.2, "share_training": 0.94, "share_evaluation": 0.05}
    return {
        "run": "r",
        "state": "running",
        "learners": [
            {
                **common,
                "learner": "vm-1",
                "state": "waiting",
                "share_waiting": 0.01,
                "doing": "trains",
                "policies": ["player/p003"],
                "progress": 35_184,
                "since": "2026-01-01T00:03:00+00:00",
                "waits_for": HOSTILE,
                "agent_steps_per_s": 61_000.0,
                "faults": ["first", "second"],
                "left": None,
            },
            {
                **common,
                "learner": "vm-2" + "x" * 60,
                "state": "gone",
                "share_waiting": 0.02,
                "left": "2026-01-01T00:04:00+00:00",
                "left_reason": "lost",
                "faults": [],
            },
        ],
    }


def why() -> dict[str, Any]:
    """Return a life of two sentences."""
    entries = [
        {
            "time": f"2026-01-01T00:0{n}:00+00:00",
            "agent_steps": None if n else 1_019_355,
            "generation": n,
            "kind": "exploited",
            "sentence": f"player/p003 copied player/p000@000002100000, number {n}. " + HOSTILE * 9,
        }
        for n in range(2)
    ]
    return {
        "run": "r",
        "player": "player/p003",
        "kind": "policy",
        "role": "main",
        "state": "active",
        "generation": 2,
        "agent_steps": 4_863_054,
        "entries": entries,
    }


def openings() -> dict[str, Any]:
    """Return first decisions of a seat, with a hostile label, and of one without a rival."""
    ends = {"share_low": 0.742, "share_high": 0.757, "score_low": 0.49, "score_high": 0.51}
    row = made.opening(0, 4, 9_360, 12_480, label=HOSTILE, **ends)
    alone = {"player": "player/p001", "score": None, "score_low": None, "score_high": None}
    return {"run": "r", "summary": [], "openings": [row, {**row, **alone, "label": "action 3"}]}


def games() -> dict[str, Any]:
    """Return a game of players with hostile names, of which one has no weights any more."""
    row = {
        "game": "418.127",
        "time": "2026-11-28T01:23:14+00:00",
        "seats": ["player_0", "player_1"],
        "players": [HOSTILE, "player/p001@000002100000"],
        "weights": [None, "0" * 64],
        "points": [1.0, 0.0],
        "returns": [1.0, -1.0],
        "margins": [1.0, -1.0],
        "steps": 12_345,
        "holds": False,
    }
    return {"run": "r", "games": [row]}


def diff() -> dict[str, Any]:
    """Return two runs that differ in long keys and values, of which only one has two policies."""

    def player(name: str, rating: float | None, **more: Any) -> dict[str, Any]:
        low, high = (None, None) if rating is None else (rating - 50, rating + 50)
        return {
            "player": name,
            "rating": rating,
            "rating_low": low,
            "rating_high": high,
            "agent_steps": 1_400_000,
            "generation": 2,
            "matches": 100,
            **more,
        }

    def result(score: float | None, rating: float) -> dict[str, Any]:
        low, high = (None, None) if score is None else (score - 0.1, score + 0.1)
        return {
            **player("player/p000", rating, matches=None if score is None else 128),
            "score": score,
            "score_low": low,
            "score_high": high,
        }

    def entry(key: str, first: Any, second: Any, **labels: str) -> dict[str, Any]:
        return {**labels, "key": key, "first": first, "second": second}

    of = {"population": "player"}
    values = {"learning_rate": 0.001, "gamma": 0.99}
    return {
        "run": "r",
        "runs": {
            "first": {"run": "r", "run_dir": "runs/old", "label": "old"},
            "second": {"run": "s", "run_dir": "runs/" + HOSTILE, "label": HOSTILE * 3},
        },
        "same_environment": True,
        "figures": [
            entry("name", "connect_four", "connect_four"),
            entry("init_from", None, None),
            entry("reason", "", "stop.duration_s: " + HOSTILE * 9),
            entry("elapsed_s", 750.0, 3_700.0),
            entry("agent_steps", 18_600_000, 902_000_000),
            entry("matches", 1_000_001, 1_000_002),
        ],
        "versions": {"equal": 6, "different": [entry("torch", "2.13.0", None)]},
        "configuration": {
            "equal": 158,
            "different": [
                entry("populations.player.hyperparameters." + "learning_rate", 3e-4, 1e-3),
                entry("evaluation.bots", ["bot:" + "a" * 200 + "1"], ["bot:" + "a" * 200 + "2"]),
                entry("learners", None, 2),
            ],
        },
        "evolution": [
            entry("policies", 4, 4, **of),
            entry("exploited", 10, 628, **of),
            entry("reset", 0, 0, **of),
        ],
        "champions": [
            entry(
                "champion",
                player("player/p000", 939.2, hyperparameters=values),
                player("player/p009", 812.0, hyperparameters={**values, "gamma": 0.95}),
                **of,
            )
        ],
        "standings": [
            entry(
                str(place),
                player(f"player/p00{place}", 950.0 - place),
                player(HOSTILE, None) if place == 1 else None,
                **of,
            )
            for place in range(1, 8)
        ],
        "opponents": [
            entry("bot:random", result(0.98, 0.0), result(None, 0.0), **of),
            entry("bot:" + HOSTILE, result(0.6, 151.0), result(0.7, 260.0), **of),
        ],
        "alerts": [entry("kl_high", None, "kl is 0.2 " + HOSTILE * 40, subject="player")],
        "notes": ["Ratings are on each run's own scale. " * 4],
        "evaluate": {"command": "arena evaluate runs/old runs/" + "new" * 21, "reason": None},
    }


def mixture() -> dict[str, Any]:
    member = {
        "population": "player",
        "player": "player/p000@000002100000",
        "kind": "ghost",
        "probability": 0.6251,
        "rating": 900.0,
        "rating_low": 850.0,
        "rating_high": 950.0,
        "agent_steps": 2_100_000,
        "weights": "b0" * 32,
    }
    other = {**member, "player": HOSTILE, "probability": 0.3749, "rating_low": None}
    return {
        "run": "r",
        "populations": {
            "player": {"cyclicity": 0.62, "num_players": 40, "worst_score": 0.4987},
            "rival": {"cyclicity": None, "num_players": None, "worst_score": None},
        },
        "mixture": [member, other],
        "reason": f"population rival has no mixture: {HOSTILE}",
    }


DOCUMENTS: dict[str, dict[str, Any]] = {
    "standings": standings(),
    "ratings": ratings(),
    "payoff": payoff(),
    "cross-play": cross_play(),
    "calibration": calibration(),
    "lineage": lineage(),
    "hyperparameters": hyperparameters(),
    "matches": matches(),
    "checkpoints": checkpoints(),
    "events": events(),
    "status": status(),
    "learners": learners(),
    "champion": champion(),
    "why": why(),
    "openings": openings(),
    "games": games(),
    "diff": diff(),
    "mixture": mixture(),
}
"""A document of each view."""
