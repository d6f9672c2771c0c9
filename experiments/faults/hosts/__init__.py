"""A run on several hosts, which are network namespaces of one machine."""
