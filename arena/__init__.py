"""The playing and learning half of Arena: environments, networks, learners. It knows no league."""

__version__ = "0.1.0"
