#!/usr/bin/env bash
# Run benchmarks: scripts/bench.sh [NAME ...] [OPTION ...]; see --help. They take the whole machine: run nothing beside them.
source "$(dirname "$0")/common.sh"

scripts/setup.sh bench
[[ -x target/bin/minio ]] || scripts/setup-test.sh
exec "$BIN/python" -m benchmarks "$@"
