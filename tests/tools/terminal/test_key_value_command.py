"""Keys that were written as options."""

from __future__ import annotations

import pytest
import typer

from arena.errors import ConfigError
from tools.terminal.options import Overrides, TakesKeys


def run(*arguments: str) -> None:
    app = typer.Typer()

    @app.command(cls=TakesKeys)
    def launch(overrides: Overrides = None) -> None:
        """Launch."""

    app(args=list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--seed", "3"), "seed=3"),
        (("--seed=3",), "seed=3"),
        (("--seed",), "seed=VALUE"),
        (("--num-envs", "8"), "environment.num_envs=8"),
        (("--stop.duration-s", "60"), "stop.duration_s=60"),
        (("--seed", "--learners", "3"), "seed=VALUE"),
    ],
)
def test_the_key_is_named(arguments: tuple[str, ...], hint: str) -> None:
    with pytest.raises(ConfigError, match="there is no option") as error_info:
        run(*arguments)
    assert str(error_info.value).endswith(hint)


def test_other_options_are_left_to_the_parser() -> None:
    with pytest.raises(Exception, match="No such option") as error_info:
        run("--no-such-key")
    assert not isinstance(error_info.value, ConfigError)


def test_keys_are_taken() -> None:
    run("seed=3", "learners=2")
