"""The book's own Sphinx extensions; each file is one, except ``page`` and ``source``, which they share."""
