"""Checks of an environment against PettingZoo's rules and Arena's: `arena envs check`."""
