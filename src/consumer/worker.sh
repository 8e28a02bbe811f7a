#!/bin/sh
# The Python of Spark's workers. Spark puts zipped copies of its own packages first on their path; the installed ones,
# unzipped and compiled, import in a third of the time.
PYTHONPATH=$(printf '%s' "$PYTHONPATH" | tr ':' '\n' | grep -v '/python/lib/[^/]*\.zip$' | paste -sd: -)
export PYTHONPATH
# NumPy's linear algebra, which nothing here uses, would start a thread for each core: a third of such a start.
export OPENBLAS_NUM_THREADS=1
exec nice -n "${LAKEPROOF_NICENESS:-0}" "$LAKEPROOF_PYTHON" "$@"
