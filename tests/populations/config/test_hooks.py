"""The section ``hooks``: what is a hook, and what is refused with which words."""

from __future__ import annotations

import pytest

from arena.errors import ConfigError
from populations.config.hooks import HooksConfig
from populations.config.run_config import RunConfig, load_config, validate_config


def hooks_of(value: object) -> HooksConfig:
    config: RunConfig = validate_config({"environment": {"id": "a:b"}, "hooks": value})
    # Of run.yaml, which a resume reads, they are the same.
    assert validate_config(config.model_dump(mode="json")) == config
    return config.hooks


def test_functions_and_commands_are_hooks_and_numbers_are_text() -> None:
    hooks = hooks_of({"on_end": ["a.b:c", ["notify", "--level", 3, 0.5]]})
    assert hooks.by_kind == {"on_end": ("a.b:c", ("notify", "--level", "3", "0.5"))}


def test_without_hooks_there_is_none() -> None:
    assert hooks_of({}).by_kind == {}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hooks={on_end: [x]}", "hooks.on_end.0: a hook must be package.module:function or a list"),
        ("hooks={on_end: [[]]}", "hooks.on_end.0: a hook must be package.module:function or a lis"),
        ("hooks={on_end: [[a, {b: 1}]]}", "each part text or a number, got ['a', {'b': 1}]"),
        ("hooks={on_end: [[a, true]]}", "each part text or a number, got ['a', True]"),
        ("hooks={on_end: [a:b, a:b]}", "hooks.on_end: each hook must be named once"),
        ("hooks={on_end: 'a:b'}", "hooks.on_end: must be a list"),
        ("hooks={on_edn: [a:b]}", "did you mean 'hooks.on_end'?"),
        ("hooks.time_limit_s=0", "hooks.time_limit_s: must be greater than 0, got 0"),
        ("hooks.queue=0", "hooks.queue: must be at least 1, got 0"),
    ],
)
def test_a_wrong_hook_is_refused_with_rule_and_value(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("connect_four", [override])
    assert said in str(refused.value)
