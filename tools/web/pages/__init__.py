"""Pages of a run, each made of sections of views and of charts."""
