"""Reference pages, made from the code when the documents are built. See `sphinx_directive`."""
