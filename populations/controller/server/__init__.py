"""Sockets, files, processes and the clock: the only room with I/O."""
