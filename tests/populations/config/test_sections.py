"""The section ``stop``."""

from __future__ import annotations

import pytest

from arena.errors import ConfigError
from populations.config.run_config import validate_config


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ({"evaluation": {"player": "bot:other:Bot", "score": 0.9}}, "evaluation.bots"),
        ({"evaluation": {"player": "bot:random"}}, "one of score and return"),
        ({"evaluation": {"player": "bot:random", "score": 1.0}}, "stop.evaluation.score"),
        ({"success_rate": 0.0}, "stop.success_rate"),
        ({"members": "most"}, "stop.members"),
    ],
)
def test_a_goal_that_breaks_a_rule_is_named(stop: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        validate_config({"environment": {"id": "a"}, "stop": stop})


@pytest.mark.parametrize("goal", [{"score": 0.9}, {"return": 10.0}])
def test_a_goal_is_written_as_it_is_read(goal: dict[str, float]) -> None:
    document = {"player": "bot:random", **goal}
    config = validate_config({"environment": {"id": "a"}, "stop": {"evaluation": document}})
    written = config.model_dump(mode="json")
    assert written["stop"]["evaluation"] == document
    assert validate_config(written) == config


def test_without_normalizers_there_is_nothing_to_warm_up() -> None:
    document = {
        "environment": {"id": "a.b:c"},
        "populations": {
            "player": {
                "network": {"normalize_observations": False},
                "normalizer_warm_up": {"agent_steps": 10},
            }
        },
    }
    with pytest.raises(
        ConfigError, match=r"normalizer_warm_up must be null where network\.normalize"
    ):
        validate_config(document)
