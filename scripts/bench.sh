#!/usr/bin/env bash
# Run benchmarks: scripts/bench.sh [NAME ...] [OPTION ...]; see --help. They use the whole machine: run nothing else.
source "$(dirname "$0")/common.sh"

scripts/setup.sh bench
[[ -x target/bin/minio ]] || scripts/setup-test.sh
exec "$BIN/python" -m benchmarks "$@"
