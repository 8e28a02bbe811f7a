"""How other programs read this lake: snippets that work as they are printed."""
