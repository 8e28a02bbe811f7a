"""A page of the lake: what is asked of it (frozen dataclasses in :mod:`model`), and templates that render the answers."""
