"""A page of the lake: what is asked of it, as frozen dataclasses, and templates that render the answers."""
