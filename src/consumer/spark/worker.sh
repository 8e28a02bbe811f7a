#!/bin/sh
# The Python of Spark's workers. Spark puts zipped copies of its own packages first on their path; the installed ones,
# unzipped and compiled, import in a third of the time.
PYTHONPATH=$(printf '%s' "$PYTHONPATH" | tr ':' '\n' | grep -v '/python/lib/[^/]*\.zip$' | paste -sd: -)
export PYTHONPATH
# NumPy's linear algebra, which nothing here uses, would start a thread for each core: a third of such a start.
export OPENBLAS_NUM_THREADS=1
# The driver has started a process that becomes the daemon, with the imports done.
if [ -n "$LAKEPROOF_DAEMON" ] && [ "$*" = "-m consumer.spark.worker_daemon pyspark.worker" ]; then
  "$LAKEPROOF_PYTHON" -I -S "${0%worker.sh}hand_over.py" "$LAKEPROOF_DAEMON" && exit
fi
exec nice -n "${LAKEPROOF_NICENESS:-0}" "$LAKEPROOF_PYTHON" "$@"
