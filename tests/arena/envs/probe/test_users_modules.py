from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.environment_spec import EnvironmentRequest
from arena.envs.chance import episode_seed, episode_seeds, seed_of_episode, uniform, uniforms
from arena.envs.describe import environment_facts
from arena.envs.inspect import inspect_and_play, inspect_environment, module_digests
from arena.envs.probe.chance import find_chance
from arena.errors import ConfigError
from arena.types import Digest, canonical_digest
from tests.test_imports import ROOT

NIM = (ROOT / "examples" / "own_game" / "nim.py").read_text()
FILES = {
    "game.py": f"{NIM}\nimport tables.rules\n",
    "tables/__init__.py": "",
    "tables/rules.py": "SIZE = 3\n",
    "tables/unused.py": "SIZE = 4\n",
    "other.py": "import sys, numpy\n\ndef function(): ...\n",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def digests(code: Path, **named: str) -> dict[str, Digest]:
    request = EnvironmentRequest("game:Nim", launch_directory=str(code))
    return dict(inspect_and_play(request, play=None, code=named).code)


def test_the_code_of_a_run_is_all_of_the_users_that_is_imported_and_nothing_else(
    code: Path,
) -> None:
    first = digests(code)
    assert first.keys() == {"game", "tables"}
    assert digests(code, hook="other:function") == {**first, "other": first_of(code, "other")}
    # An edited module changes its digest; a file that is not imported changes none.
    (code / "tables" / "rules.py").write_text("SIZE = 5\n")
    (code / "tables" / "unused.py").write_text("SIZE = 5\n")
    edited = digests(code)
    assert edited["game"] == first["game"]
    assert edited["tables"] != first["tables"]
    (code / "tables" / "rules.py").write_text("SIZE = 3\n")
    assert digests(code) == first


def test_a_module_whose_file_is_a_pipe_by_now_has_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "piped.py"
    os.mkfifo(pipe)
    module = ModuleType("piped")
    module.__file__ = str(pipe)
    monkeypatch.setitem(sys.modules, "piped", module)
    assert module_digests()["piped"] == canonical_digest({"piped": ""})


def first_of(code: Path, module: str) -> Digest:
    """By hand: a digest of the digests of a package's modules, here of one."""
    import hashlib

    data = (code / f"{module}.py").read_bytes()
    return canonical_digest({module: hashlib.sha256(data).hexdigest()})


def test_all_code_that_is_gone_or_broken_is_named_with_its_key(code: Path) -> None:
    (code / "broken.py").write_text("1 / 0\n")
    named = {
        "hooks.on_end[0]": "gone:Hook",
        "a": "other:Nothing",
        "b": "broken:B",
        "c": "other:sys",
    }
    with pytest.raises(ConfigError) as caught:
        digests(code, **named)
    told = str(caught.value)
    assert "hooks.on_end[0]: gone:Hook: there is no module 'gone'" in told
    assert "a: other:Nothing: other has no 'Nothing'" in told
    assert "b: broken:B: importing broken raised ZeroDivisionError" in told
    assert "other:sys" not in told


@pytest.mark.parametrize(
    ("environment_id", "chance"),
    [
        ("classic/rps_v2", False),
        ("openspiel:kuhn_poker", True),
        pytest.param("classic/tictactoe_v3", False, marks=pytest.mark.slow),
        pytest.param("openspiel:connect_four", False, marks=pytest.mark.slow),
        pytest.param("mpe2/simple_tag_v3", True, marks=pytest.mark.slow),
    ],
)
def test_chance_is_what_seeds_change(environment_id: str, chance: bool, assets: str) -> None:
    request = EnvironmentRequest(environment_id, launch_directory=assets)
    assert find_chance(environment_facts(request), request) == chance


@pytest.mark.slow
def test_the_child_finds_it_where_it_is_asked_for(assets: str) -> None:
    request = EnvironmentRequest("classic/rps_v2", launch_directory=assets)
    spec = inspect_environment(request)
    assert spec.chance is None
    asked = inspect_environment(replace(request, asks_chance=True))
    assert asked == replace(spec, chance=False)
    assert asked.digest == spec.digest


SEEDS = st.integers(0, 2**63 - 1)


def test_the_hash_is_splitmix64() -> None:
    # The expected value is the first output of SplitMix64 seeded with 0 (Vigna's reference),
    # shifted to 53 bits.
    assert uniform(0, draw=0) == (0xE220A8397B1DCDAF >> 11) * 2.0**-53


@given(seeds=st.lists(SEEDS, min_size=1, max_size=20), episode=st.integers(0, 2**40))
def test_tensors_and_integers_give_the_same_episode_seeds(seeds: list[int], episode: int) -> None:
    many = episode_seeds(torch.tensor(seeds), episodes=torch.full((len(seeds),), episode))
    assert many.tolist() == [episode_seed(seed, episode=episode) for seed in seeds]


@given(seed=SEEDS, episode=st.integers(0, 2**40))
def test_an_episode_is_the_first_one_of_another_seed(seed: int, episode: int) -> None:
    found = seed_of_episode(seed, episode=episode)
    assert 0 <= found < 2**63
    assert episode_seed(found, episode=0) == episode_seed(seed, episode=episode)


@given(keys=st.lists(SEEDS, min_size=1, max_size=20), draw=st.integers(0, 10_000))
def test_tensors_and_integers_draw_the_same_numbers(keys: list[int], draw: int) -> None:
    many = uniforms(torch.tensor(keys), draw=draw)
    assert many.dtype == torch.float64
    assert many.tolist() == [uniform(key, draw=draw) for key in keys]
    assert all(0.0 <= number < 1.0 for number in many.tolist())


def test_draws_are_uniform_and_independent_of_their_neighbours() -> None:
    keys = episode_seeds(torch.arange(20_000), episodes=torch.zeros(20_000, dtype=torch.int64))
    first, second = uniforms(keys, draw=0), uniforms(keys, draw=1)
    for draws in (first, second):
        counts = torch.histc(draws, bins=10, min=0.0, max=1.0)
        chi_square = float(((counts - 2000.0) ** 2 / 2000.0).sum())
        assert chi_square < 27.9  # one in a thousand at 9 degrees of freedom
    correlation = torch.corrcoef(torch.stack((first, second)))[0, 1]
    assert abs(float(correlation)) < 0.025


def test_episodes_of_one_seed_and_seeds_of_one_episode_differ() -> None:
    by_episode = episode_seeds(torch.full((1000,), 3), episodes=torch.arange(1000))
    by_seed = episode_seeds(torch.arange(1000), episodes=torch.full((1000,), 3))
    assert len(set(by_episode.tolist())) == len(set(by_seed.tolist())) == 1000
    assert int(by_episode.min()) >= 0
    assert int(by_episode.max()) < 2**31
