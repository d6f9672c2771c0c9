"""The controller's half of Arena: scheduling, matchmaking, PBT, ratings; it never imports torch.

The public API is what `interface.md` names: the Protocols of `populations.core` with the values
that they exchange, and the exceptions of `populations.errors`. Everything else may change without
notice.
"""
