"""Whether an environment keeps PettingZoo's rules and Arena's: `arena envs check`."""
