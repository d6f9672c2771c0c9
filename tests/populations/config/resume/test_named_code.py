from __future__ import annotations

from populations.config.resume import named_code
from populations.config.run_config import validate_config

EVERYWHERE = {
    "environment": {"id": "game:Game", "outcome": "rules:outcome"},
    "matchmaking": {"kind": "rules:Matchmaker", "bots": {"bot:rules:Bot(depth=2)": 0.5}},
    "ghosts": {"thinning": "rules:Thinning"},
    "evaluation": {"bots": ["bot:random", "bot:rules:Hard"]},
    "pbt": {"exploit": "rules:Exploit", "explore": "rules:Explore"},
    "populations": {
        "player": {
            "algorithm": "learn:Algorithm",
            "network": {"encoder": "learn:Encoder", "normalize_observations": True},
            "normalizer_warm_up": {"agent_steps": 10, "player": "bot:rules:Warm"},
            "pbt": {"exploit": "rules:OwnExploit"},
        }
    },
    "metrics": {"sinks": ["jsonl", "figures:Sink"]},
    "hooks": {"on_ghost": [["command", "a:b"], "figures:hook"]},
}


def test_every_key_that_names_code_is_found() -> None:
    assert named_code(validate_config(EVERYWHERE)) == {
        "environment.outcome": "rules:outcome",
        "matchmaking.kind": "rules:Matchmaker",
        "ghosts.thinning": "rules:Thinning",
        "evaluation.bots[1]": "rules:Hard",
        "matchmaking.bots": "rules:Bot",
        "pbt.exploit": "rules:Exploit",
        "pbt.explore": "rules:Explore",
        "populations.player.algorithm": "learn:Algorithm",
        "populations.player.network.encoder": "learn:Encoder",
        "populations.player.normalizer_warm_up.player": "rules:Warm",
        "populations.player.pbt.exploit": "rules:OwnExploit",
        "metrics.sinks[1]": "figures:Sink",
        "hooks.on_ghost[1]": "figures:hook",
    }


def test_arenas_own_kinds_are_no_code() -> None:
    assert named_code(validate_config({"environment": {"id": "classic/connect_four-v3"}})) == {}
