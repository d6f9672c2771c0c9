"""Sockets, files, processes and the clock: the only package of the controller with I/O."""
