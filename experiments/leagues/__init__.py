"""Leagues, mixtures and populations against plain self-play."""
