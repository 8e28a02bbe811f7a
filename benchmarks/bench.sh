#!/usr/bin/env bash
# Run benchmarks: benchmarks/bench.sh [NAME ...] [OPTION ...]; see --help. They use the whole machine: run nothing else.
source "$(dirname "$0")/../deploy/common.sh"

deploy/setup.sh bench
[[ -x target/bin/minio ]] || tests/setup.sh
exec "$BIN/python" -m benchmarks "$@"
