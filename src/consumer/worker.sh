#!/bin/sh
# The Python of Spark's workers. Spark puts zipped copies of its own packages first on their path; the installed ones,
# unzipped and compiled, import in a third of the time, and a query starts half a dozen such processes.
PYTHONPATH=$(printf '%s' "$PYTHONPATH" | tr ':' '\n' | grep -v '/python/lib/[^/]*\.zip$' | paste -sd: -)
export PYTHONPATH
exec "$LAKEPROOF_PYTHON" "$@"
