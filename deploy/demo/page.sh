#!/usr/bin/env bash
# Serve the page of the lake, in a container if the demo runs in Docker.
source "$(dirname "$0")/../common.sh"

if docker_responds && [[ -n $(docker compose ps --all --quiet minio) ]]; then
  exec docker compose run --rm --publish 127.0.0.1:8282:8282 duckdb reader page --serve --host 0.0.0.0
fi
deploy/setup.sh demo
exec "$BIN/reader" page --serve
