"""The checks, each with a name, its SQL and its findings; :mod:`reader.verify.registry` lists them."""
