"""Environments that step in processes of their own, in shared memory."""
