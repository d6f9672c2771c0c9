"""Presets for ``arena launch``: data only, installed as ``populations.presets``."""
