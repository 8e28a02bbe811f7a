"""The page of the lake: data read from the lake as frozen dataclasses, and templates that render them."""
