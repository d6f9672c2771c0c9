"""The reference lists every key, command, option, metric, event, alert and column of the code."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from docs.generate import alerts, commands, configuration, events, journal, metrics, python_api
from populations.config.run_config import RunConfig
from populations.config.sections import AlertKind
from populations.config.validation import known_paths
from populations.controller.indexes.alert_kinds import KINDS
from populations.records.event_kinds import EVENT_KINDS
from populations.records.tables import SEAL, TABLES
from populations.views.sentences import SENTENCES

# The tests run in the group of the import tests, which read the same files.
pytestmark = pytest.mark.xdist_group("sources")
PREFIX = "populations.NAME."


def test_every_key_of_the_configuration_is_listed() -> None:
    # A population's own section pbt has the keys of the general one.
    known = {
        ".".join("NAME" if part == "*" else part for part in path)
        for path in known_paths(RunConfig)
        if path[:3] != ("populations", "*", "pbt") or len(path) == 3
    }
    known |= {f"{PREFIX}hyperparameters.{name}" for name in PpoHyperparameters.model_fields}
    known |= {f"{PREFIX}algorithm_settings.{name}" for name in PpoSettings.model_fields}
    text = configuration.page()
    sections = set(re.findall(r"^## `(\S+)`$", text, re.MULTILINE))
    listed = set(re.findall(r"^```\{confval\} (\S+)$", text, re.MULTILINE))
    assert known - listed - sections == set()
    assert len(known) > 150


@pytest.mark.slow
def test_every_key_has_a_sentence_values_and_a_default() -> None:
    found = {key.name: key for key in configuration.all_keys()}
    bare = [name for name, key in found.items() if len(key.sentence) < 5 or not key.values]
    assert bare == []
    # The values are worked out by hand from sections.py and default.yaml.
    share = found["evaluation.share"]
    assert (share.default, share.values) == ("0.1", "number, ≥ 0, ≤ 0.9")
    assert share.sentence == "Share of learner seconds; of assignments in a deterministic run."
    assert "`populations.controller.evaluation`" in share.readers
    assert found["environment.backend"].values == "`auto` or `pettingzoo` or `batched`"
    assert found["matchmaking.delta"].readers[0] == "kind `delta_uniform`"
    assert found["ghosts.keep"].values == "integer or null, ≥ 16, ≤ 1,000,000"
    assert found["hooks.on_end"].values == "list of (text or list of text)"
    # A key has no default if it is required or has keys of its own.
    assert found["stop.evaluation.player"].default == ""
    assert found["environment.id"].default == ""
    assert found["environment.id"].values == "text, required"
    assert found["environment.curriculum.until.agent_steps"].default == "null"


def test_every_command_argument_and_option_is_listed() -> None:
    text = commands.page()
    sections = dict(
        zip(
            *[iter(re.split(r"^## (arena[a-z ]*)$", text, flags=re.MULTILINE)[1:])] * 2, strict=True
        )
    )
    assert sections.keys() == commands.commands().keys()
    assert {"arena", "arena envs check", "arena launch", "arena bench"} <= sections.keys()
    for path, command in commands.commands().items():
        for parameter in command.params:
            if parameter.name != "help":
                written = parameter.opts[0] if parameter.opts[0][0] == "-" else ""
                assert f"{{option}} {written}" in sections[path], (path, parameter.name)
    launch = sections["arena launch"]
    assert "arena launch [OPTIONS] [CONFIG] [KEY=VALUE]..." in launch
    assert "{option} --init-from [POPULATION=]PLAYER" in launch
    assert "Default: `200`." in sections["arena export"]


@pytest.mark.slow
def test_every_event_of_the_code_is_listed_and_no_other() -> None:
    emitted = events.emitted_kinds()
    assert {kind: path for kind, path in emitted.items() if kind not in EVENT_KINDS} == {}
    assert EVENT_KINDS.keys() - emitted.keys() == set()
    # `arena league` shows each kind as a sentence.
    assert {kind: path for kind, path in emitted.items() if kind not in SENTENCES} == {}
    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", events.page(), re.MULTILINE)
    assert [kind for kind, _ in listed] == list(EVENT_KINDS)
    assert all(meaning.strip() for _, meaning in listed)
    assert len(listed) > 60


def test_every_metric_of_the_code_is_listed_and_no_other() -> None:
    known = metrics.patterns()
    published = dict(metrics.published_names())
    unlisted = {
        name: path
        for name, path in published.items()
        if not any(pattern.fullmatch(name) for pattern in known)
        # The name is a prefix, which the code completes.
        and not (name.endswith(("_", "/", "x")) and any(k.startswith(name.partition("x")[0])
                                                        for k in metrics.known_names()))
    }  # fmt: skip
    assert unlisted == {}
    # Names that are composed at run time are in tests/integration/test_reward_weights.py.
    plain = [name for name in metrics.known_names() if "<" not in name and name[:7] != "rating/"]
    assert [name for name in plain if name not in published] == []
    assert len(plain) > 45
    page = metrics.page()
    assert all(f"| `{name}` |" in page for name in metrics.known_names())


def test_every_alert_of_the_code_is_listed() -> None:
    assert set(get_args(AlertKind)) == KINDS.keys()
    listed = re.findall(r"^\| `(\w+)` \| .+ \| .+ \| .+ \|$", alerts.page(), re.MULTILINE)
    assert listed == [*KINDS, "storage_full", "stalled"]


def test_every_column_of_the_journal_is_listed() -> None:
    text = journal.page()
    for table in TABLES:
        found = journal.columns(table)
        assert [name for name, _, _ in found] == [*table.names, SEAL]
        assert [name for name, _, meaning in found if not meaning] == []
        assert f"## `{table.name}`" in text
    policies = {name: (type_, text) for name, type_, text in journal.columns(TABLES[1])}
    assert policies["policy"] == ("TEXT, key", "Policy's id.")
    assert policies["checkpoint"][0] == "TEXT or NULL"


@pytest.mark.parametrize("module", ["arena", "arena.testing"])
def test_every_public_name_is_listed(module: str) -> None:
    page = python_api.page()
    for name in python_api.public_names(module):
        assert f":: {module}.{name}\n" in page or f"automodule:: {name}\n" in page
    for name in python_api.PROTOCOLS:
        assert f"automodule:: {name}\n" in page


def test_a_module_without_public_names_has_none() -> None:
    assert python_api.public_names("arena.no_such_module") == []
    assert python_api.public_names("arena.errors") == []
