"""The export of a mixture: files, cards, and the standalone player."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from msgspec import structs

from arena.checkpoints.files import sha256_bytes
from arena.checkpoints.tensors import serialize
from arena.errors import CheckpointCorrupt
from arena.export.actor import ExportedActor
from arena.export.card import Card, CardMember, MixtureCard, read_any_card, read_card
from arena.export.champion import Champion
from arena.export.write import Written, write_mixture

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]
PROBABILITIES = (0.75, 0.25)


def always(policy: Policy, action: int) -> Policy:
    """The same with weights that always play one action."""
    card, weights = policy
    changed = {name: tensor.clone() for name, tensor in weights.items()}
    changed["head.weight"].zero_()
    changed["head.bias"].zero_()[action] = 100.0
    digest = sha256_bytes(serialize(changed))
    update = {"weights_digest": digest, "player": f"player/p00{action}", "record": ()}
    return structs.replace(card, **update), changed


@pytest.fixture(scope="module")
def members(number_policy: Policy) -> list[Policy]:
    """Numbers go in, and the actions 10 to 13 come out."""
    return [always(number_policy, 1), always(number_policy, 3)]


@pytest.fixture(scope="module")
def card(number_policy: Policy, members: list[Policy]) -> MixtureCard:
    first = number_policy[0]
    return MixtureCard(
        created=first.created,
        run=first.run,
        population=first.population,
        player="player/mixture",
        agents=first.agents,
        seats=first.seats,
        environment=first.environment,
        observation=first.observation,
        action=first.action,
        mask=first.mask,
        record=first.record,
        versions=first.versions,
        members=tuple(
            CardMember(
                directory=f"members/{index:02d}",
                player=member.player,
                probability=probability,
                agent_steps=member.agent_steps,
                generation=member.generation,
                weights_digest=member.weights_digest,
                rating=member.rating,
            )
            for index, ((member, _), probability) in enumerate(
                zip(members, PROBABILITIES, strict=True)
            )
        ),
        num_players=7,
        worst_score=0.49,
        cyclicity=0.8,
    )


@pytest.fixture(scope="module")
def written(
    card: MixtureCard, members: list[Policy], tmp_path_factory: pytest.TempPathFactory
) -> Written[MixtureCard]:
    directory = tmp_path_factory.mktemp("mixture") / "champion"
    return write_mixture(directory, card=card, members=members)


@pytest.mark.slow
def test_every_member_is_an_export_and_every_file_is_on_the_card(
    written: Written[MixtureCard],
) -> None:
    directory = written.directory
    names = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    single = {"policy.onnx", "policy.safetensors", "card.json", "card.md", "champion.py"}
    own = {"card.json", "card.md", "champion.py"}
    assert names == own | {f"members/0{m}/{name}" for m in (0, 1) for name in single}
    document = json.loads((directory / "card.json").read_text())
    assert set(document["files"]) == names - {"card.json"}
    for name, record in document["files"].items():
        data = (directory / name).read_bytes()
        assert record == {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    assert document["schema"] == 1
    assert document["kind"] == "mixture"
    assert read_any_card(directory) == written.card
    for index, member in enumerate(written.card.members):
        own_card = read_card(directory / f"members/0{index}")
        assert own_card.weights_digest == member.weights_digest
        assert own_card.kind == "policy"
    assert len(written.differences) == 2


@pytest.mark.slow
def test_people_read_who_is_in_it_with_which_probability(written: Written[MixtureCard]) -> None:
    text = (written.directory / "card.md").read_text()
    assert "A mixture of 2 policies" in text
    assert "| members/00 | player/p001 | 0.7500 | 812 (95%: 790 to 835) | 120000 |" in text
    assert "| cyclicity of the league | 0.800 |" in text
    assert "| bot:random | greedy | player_0 | 10 | 9 | 7 | 1 | 2 | 0.750 | 0.500 |" in text
    assert "members/01/policy.onnx" in text


@pytest.mark.slow
def test_a_member_plays_its_episode_to_the_end(written: Written[MixtureCard]) -> None:
    champion = Champion(written.directory, seed=3)
    played = set()
    for _ in range(20):
        champion.reset()
        actions = {champion.act(5), champion.act(6, sample=True), champion.act(7, seed=1)}
        assert actions == {(11, 13)[champion.member]}
        played |= actions
        champion.reset(seed=len(played))
    assert played == {11, 13}


@pytest.mark.slow
def test_a_seed_decides_who_is_drawn(written: Written[MixtureCard]) -> None:
    def episodes(champion: Champion) -> list[int]:
        drawn = [champion.member]
        for _ in range(30):
            champion.reset()
            drawn.append(champion.member)
        return drawn

    champion = Champion(written.directory, seed=1)
    first = episodes(champion)
    assert episodes(Champion(written.directory, seed=1)) == first
    assert episodes(Champion(written.directory, seed=2)) != first
    champion.reset(seed=1)
    assert episodes(champion) == first


@pytest.mark.slow
def test_a_mixture_is_no_policy(written: Written[MixtureCard]) -> None:
    with pytest.raises(CheckpointCorrupt, match="kind: must be 'policy', got 'mixture'"):
        ExportedActor(written.directory)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"probability": 0.3}, "must sum to 1"),
        ({"probability": 0.0}, "must be float > 0"),
        ({"directory": "members/00/../../.."}, "must be a member's directory"),
        ({"directory": "members/00"}, "a directory of its own"),
    ],
)
@pytest.mark.slow
def test_a_damaged_card_is_refused(
    written: Written[MixtureCard], tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    document = json.loads((written.directory / "card.json").read_text())
    document["members"][1] |= change
    (tmp_path / "card.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointCorrupt, match=complaint):
        read_any_card(tmp_path)
