"""The playing and learning half of Arena: environments, networks, learners. It knows no league.

The public API is what `interface.md` names: the Protocols of `arena.core`, `arena.envs.base`,
`arena.envs.batched.game` and `arena.metrics.sink`, the values of `arena.types` and
`arena.environment_spec`, and the exceptions of `arena.errors`. Everything else may change without
notice.
"""

__version__ = "0.1.0"
