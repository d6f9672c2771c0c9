"""What others may read of a configuration."""

from __future__ import annotations

from typing import Any

from populations.config.resume import HIDDEN, without_secrets
from populations.config.run_config import validate_config


def shown(**sections: Any) -> Any:
    config = validate_config({"environment": {"id": "a:b"}, **sections})
    return without_secrets(config.model_dump(mode="json"))


def test_of_commands_of_hooks_the_program_is_shown_alone() -> None:
    command = ["curl", "-H", "Authorization: Bearer S3CRET", "https://host"]
    found = shown(hooks={"on_end": ["a.b:c", command, ["notify"]]})["hooks"]
    assert found["on_end"] == ["a.b:c", ["curl", HIDDEN], ["notify"]]
    assert found["time_limit_s"] == 60.0
    # As a difference, and an event about a change, have it.
    assert without_secrets([command], "hooks.on_end") == [["curl", HIDDEN]]
    assert without_secrets(None, "hooks.on_end") is None


def test_names_of_secrets_and_logins_hide_their_values() -> None:
    kwargs = {
        "api_key": "S3CRET",
        "Token": ["S3CRET", "S3CRET"],
        "inner": {"db_password": "S3CRET", "host": "db"},
        "url": "https://me:S3CRET@host/path",
        "max_tokens": 5,
        "keyboard": "qwerty",
    }
    environment = {"id": "a:b", "kwargs": kwargs}
    assert shown(environment=environment)["environment"]["kwargs"] == {
        "api_key": HIDDEN,
        "Token": [HIDDEN, HIDDEN],
        "inner": {"db_password": HIDDEN, "host": "db"},
        "url": f"https://{HIDDEN}@host/path",
        "max_tokens": 5,
        "keyboard": "qwerty",
    }


def test_everything_else_stays() -> None:
    config = validate_config({"environment": {"id": "a:b"}}).model_dump(mode="json")
    assert without_secrets(config) == config
