#!/bin/sh
# Spark's workers, with the mutant that CHAOS_MUTANT names.
exec "$CHAOS_PYTHON" -m tests.chaos.worker "$@"
