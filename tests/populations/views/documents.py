"""Documents for charts, small enough to check by eye."""

from __future__ import annotations

from typing import Any

HOSTILE = "bot:a:B(name='$\\frac{1}$ _^ \u202e\n<b>&\x00 " + "\u4e2d" * 1000 + "')"


def point(agent_steps: int, rating: float, **more: Any) -> dict[str, Any]:
    return {
        "agent_steps": agent_steps,
        "time": f"2026-01-01T00:{agent_steps // 1000:02}:00+00:00",
        "rating": rating,
        "rating_low": rating - 30.0,
        "rating_high": rating + 40.0,
        "generation": 0,
        "cause": "start",
        **more,
    }


def ratings(num_policies: int = 3) -> dict[str, Any]:
    lines = [
        {
            "player": f"player/p{index:03}",
            "points": [
                point(0, 0.0),
                point(1000, 50.0 + index, generation=1, cause="explore"),
                # The last policy is the best.
                point(3000, 100.0 + 10 * index, generation=2, cause="exploit"),
            ],
        }
        for index in range(num_policies)
    ]
    lines.append({"player": f"player/p{num_policies:03}", "points": []})
    champions = [
        {
            "population": "player",
            "player": "player/p001@000000001000",
            "since": "2026-01-01T00:01:00+00:00",
            "until": "2026-01-01T00:02:30+00:00",
        },
        {
            "population": "player",
            "player": "player/p002",
            "since": "2026-01-01T00:02:30+00:00",
            "until": None,
        },
    ]
    return {"run": "x", "populations": {"player": lines}, "champions": champions}


def standing(player: str, kind: str, rating: float | None, **more: Any) -> dict[str, Any]:
    return {
        "player": player,
        "kind": kind,
        "rating": rating,
        "rating_low": None if rating is None else rating - 30.0,
        "rating_high": None if rating is None else rating + 40.0,
        "same_as": None,
        "champion": False,
        "agent_steps": 0,
        **more,
    }


def standings(*extra: dict[str, Any]) -> dict[str, Any]:
    lines = [
        standing("player/p000", "policy", 100.0, agent_steps=4000),
        standing("player/p001", "policy", 300.0, agent_steps=3500, champion=True),
        standing("player/p001@000000001000", "ghost", 200.0),
        standing("player/p002", "policy", None, agent_steps=3000),
        # With one distinct game there is no interval.
        standing("bot:random", "bot", 0.0, rating_low=None, rating_high=None),
        *extra,
    ]
    lines.sort(key=lambda line: (line["rating"] is None, -(line["rating"] or 0.0)))
    return {"run": "x", "populations": {"player": lines}}


def cell(player: str, opponent: str, score: float | None) -> dict[str, Any]:
    return {
        "population": "player",
        "player": player,
        "opponent_population": "player",
        "opponent": opponent,
        "score": score,
    }


def payoff(*extra: dict[str, Any]) -> dict[str, Any]:
    cells = [
        cell("player/p000", "player/p001", 0.25),
        cell("player/p001", "player/p000", 0.75),
        cell("player/p001", "bot:random", 1.0),
        cell("bot:random", "player/p001", 0.0),
        cell("player/p000", "bot:random", None),
        *extra,
    ]
    return {"run": "x", "payoff": cells}


def generation(
    policy: str,
    number: int,
    begin: int,
    cause: str,
    *,
    end: int | None = None,
    gain: float | None = None,
    parent: str | None = None,
    **values: Any,
) -> dict[str, Any]:
    return {
        "entrant": f"{policy}#{number}",
        "policy": policy,
        "population": "player",
        "generation": number,
        "cause": cause,
        "parent": parent,
        "agent_steps_begin": begin,
        "agent_steps_end": end,
        "elo_gain": gain,
        "hyperparameters": {
            "learning_rate": 1e-3,
            "gamma": 0.99,
            "clip_coef": 0.2,
            "mode": "a",
            **values,
        },
    }


GENERATIONS = [
    generation("player/p000", 0, 0, "start", end=2000, gain=50.0),
    generation(
        *("player/p001", 0, 0, "start"),
        end=1000,
        gain=-20.0,
        learning_rate=3e-3,
        mode="$b\n" * 999,
    ),
    generation("player/p001", 1, 1000, "explore", parent="player/p001#0", learning_rate=2e-3),
    generation("player/p000", 1, 2000, "exploit", parent="player/p001#1", gamma=0.995),
    generation("player/p002", 0, 0, "start", end=2500),
    generation("player/p002", 1, 2500, "exploit", parent="player/p001#1"),
]


def lineage() -> dict[str, Any]:
    policies = [
        {"policy": f"player/p{index:03}", "agent_steps": steps, "rating": 100.0 + 10 * index}
        for index, steps in enumerate((4000, 3500, 3000))
    ]
    exploits = [
        {
            "subject": subject,
            "donor": "player/p001",
            "donor_agent_steps": 1900,
            "agent_steps": steps,
            "generation": 1,
        }
        for subject, steps in (("player/p000", 2000), ("player/p002", 2500))
    ]
    return {"run": "x", "policies": policies, "generations": GENERATIONS, "exploits": exploits}


def hyperparameters() -> dict[str, Any]:
    space = {
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "gamma": {"low": 0.9, "high": 0.999, "log": True, "complement": True},
    }
    return {"run": "x", "generations": GENERATIONS, "search_space": {"player": space}}


def metrics(names: list[str] | None = None) -> dict[str, Any]:
    lines = [
        {"policy": "player/p000", "agent_steps": 1000, "policy/entropy": 1.5, "loss/value": 0.5},
        {"policy": "player/p001", "agent_steps": 1000, "policy/entropy": 1.4},
        {"policy": "player/p000", "agent_steps": 2000, "policy/entropy": 1.2, "loss/value": 0.4},
        {"policy": "run", "agent_steps": 3000, "environment/$ \n_mean": 7.0},
    ]
    return {"run": "x", "names": names, "metrics": lines}


def opening(window: int, action: int | None, count: int, of: int, **more: Any) -> dict[str, Any]:
    """A first decision in a window of 1000 agent steps, with half of the points."""
    return {
        "population": "player",
        "seat": "player_0",
        "player": None,
        "window": window,
        "agent_steps_from": 1000 * window,
        "agent_steps_to": 1000 * window + 999,
        "matches": of,
        "action": action,
        "label": "others" if action is None else f"action {action}",
        "count": count,
        "share": count / of,
        "score": 0.5,
        **more,
    }


def openings(*extra: dict[str, Any]) -> dict[str, Any]:
    rows = [
        opening(0, 4, 60, 100),
        opening(0, 2, 40, 100, score=0.75),
        # Window 1 has no match; five matches of window 2 are too few for a score.
        opening(2, 7, 15, 20, score=1.0),
        opening(2, 4, 5, 20, score=0.2),
        opening(2, 2, 10, 10, player="player/p001"),
        *extra,
    ]
    return openings_of(rows)


def openings_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of rows: a summary of each seat and player is beside them."""
    keys = ("population", "seat", "player")
    seats = dict.fromkeys(tuple(row[key] for key in keys) for row in rows)
    summary = [
        {
            **dict(zip(keys, seat, strict=True)),
            "is_counted": True,
            "favourites": 1,
            "mean_change": None,
            "period_agent_steps": None,
        }
        for seat in seats
    ]
    return {"run": "x", "summary": summary, "openings": rows}


def everything() -> dict[str, dict[str, Any]]:
    return {
        "ratings": ratings(),
        "standings": standings(standing(HOSTILE, "bot", 50.0)),
        "payoff": payoff(cell(HOSTILE, "player/p000", 0.5)),
        "lineage": lineage(),
        "hyperparameters": hyperparameters(),
        "metrics": metrics(),
        "openings": openings(opening(0, 1, 9, 9, seat=HOSTILE, label=HOSTILE, score=None)),
    }
