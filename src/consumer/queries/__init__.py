"""One module per running query: it names, triggers and stops a stream and holds no column logic."""
