"""One example of each message."""

from __future__ import annotations

from msgspec import structs

from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    LearnerId,
    PairScore,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    Tally,
    WeightsRef,
)
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Evaluate,
    Failed,
    Finished,
    Goodbye,
    Header,
    Heartbeat,
    Hello,
    InFlight,
    Message,
    Pairing,
    Published,
    Refuse,
    Stop,
    Train,
    Trainee,
    Welcome,
)

LEARNER = LearnerId("host-4711-0a1b2c3d")
RUN = "6f1c7b1e-2f0a-4a52-9c55-0d2f8f1b9a77"
POLICY = PolicyId("player/p003")
GHOST = PlayerId("player/p004@000000120000")
DIGEST = Digest("0123456789abcdef" * 4)
GHOST_WEIGHTS = WeightsRef(
    digest=DIGEST, key="populations/player/p004/ghosts/000000120000-01234567"
)
CHECKPOINT = CheckpointRef(
    digest=Digest("f" * 64), key="populations/player/p003/checkpoints/000000130000-ffffffff"
)
SEATING = Seating(
    players=(Player(player=PlayerId(POLICY)), Player(player=GHOST, weights=GHOST_WEIGHTS))
)
HEADER = Header(run=RUN, epoch=2, learner=LEARNER, sequence=17)
HELLO = Hello(
    learner=LEARNER,
    pid=4711,
    host="host.example",
    protocol=PROTOCOL_VERSION,
    arena_version="0.1.0",
    environment_digest=DIGEST,
    config_digest=DIGEST,
    device="cpu",
    slots=1,
    populations=("player",),
    store=DIGEST,
)
HEARTBEAT = Heartbeat(
    assignment_id=AssignmentId(12), attempt=1, progress=99, agent_steps=2048, rss_bytes=1 << 28
)
TRAIN = Train(
    assignment_id=AssignmentId(12),
    attempt=1,
    trainees=(
        Trainee(
            policy=POLICY,
            generation=2,
            agent_steps=120000,
            learner_updates=300,
            checkpoint=CHECKPOINT,
            donor=PolicyId("player/p001"),
            initial_weights=None,
            hyperparameters={"learning_rate": 0.0003, "num_epochs": 4, "entropy_coef": 0.0},
        ),
    ),
    opponents=(SEATING,) * 8,
    carried=(SEATING,),
    agent_steps=10000,
    episodes=3,
    episode_length=42.5,
    seed=2**62 + 1,
    may_stop_early=True,
)
FINISHED = Finished(
    assignment_id=AssignmentId(12),
    attempt=1,
    checkpoints=(Published(policy=POLICY, checkpoint=CHECKPOINT),),
    tallies=(
        Tally(
            entrants=(Entrant("player/p003#2"), Entrant(DIGEST)),
            matches=3,
            pairs=(
                PairScore(
                    first=0,
                    second=1,
                    wins=2,
                    draws=0,
                    losses=1,
                    score_sum=2.0,
                    square_sum=2.0,
                ),
            ),
            return_sum=(1.0, -1.0),
            return_sum_of_squares=(3.0, 3.0),
            length_sum=31,
            distinct=3,
        ),
    ),
    metrics={"train/loss": -0.25},
    duration_s=3.5,
    in_flight=(InFlight(entrants=(Entrant("player/p003#2"), Entrant(DIGEST)), num_envs=7),),
    dropped=(PolicyId("player/p001"),),
)
EXAMPLES: tuple[Message, ...] = (
    HELLO,
    HEARTBEAT,
    FINISHED,
    Failed(
        assignment_id=AssignmentId(12),
        attempt=2,
        kind="checkpoint",
        reason="weights.safetensors is truncated",
        policy=POLICY,
        key=GHOST_WEIGHTS.key,
    ),
    Goodbye(reason="SIGTERM"),
    Welcome(heartbeat_s=1.0),
    Refuse(reason="configuration differs"),
    TRAIN,
    Evaluate(
        assignment_id=AssignmentId(13),
        attempt=1,
        pairings=(Pairing(seating=SEATING, num_matches=64),),
        seed=5,
    ),
    Acknowledge(assignment_id=AssignmentId(12), attempt=1),
    Stop(grace_s=30.0),
)

PLAYERS = SEATING.players
ENTRANTS = FINISHED.tallies[0].entrants
# One of two hundred seats belongs to another player.
OF_MANY_SEATS: dict[str, Message] = {
    "train": structs.replace(
        TRAIN, opponents=(Seating(players=(PLAYERS[1],) * 3 + PLAYERS[:1] + (PLAYERS[1],) * 196),)
    ),
    "finished": structs.replace(
        FINISHED,
        tallies=(
            structs.replace(
                FINISHED.tallies[0],
                entrants=(ENTRANTS[1],) * 3 + ENTRANTS[:1] + (ENTRANTS[1],) * 196,
                pairs=(PairScore(first=0, second=3, wins=38, draws=0, losses=19),),
                return_sum=(-0.5,) * 3 + (1.0,) + (-0.5,) * 196,
                return_sum_of_squares=(3.0,) * 200,
            ),
        ),
        in_flight=(InFlight(entrants=ENTRANTS[1:] * 200, num_envs=7),),
    ),
}
"""Messages in which few players have many seats."""
