#!/usr/bin/env bash
# Serve the page of the lake, in a container if the demo runs in Docker.
source "$(dirname "$0")/../common.sh"

if docker_responds && [[ -n $(docker compose ps --all --quiet minio) ]]; then
  exec docker compose run --rm --publish 127.0.0.1:8282:8282 duckdb reader page --serve --host 0.0.0.0
fi
deploy/setup.sh demo
answers() { [[ $(curl --silent --output /dev/null --noproxy "*" --max-time 10 --write-out '%{http_code}' "http://127.0.0.1:$1/version") == 200 ]]; }

demo=$(setting home)/.demo # while the demo of this lake runs
port=$(cat "$demo/page" 2>/dev/null || true)
# A demo that was killed leaves its files, and another lake may have taken the port.
if [[ -n $port ]] && kill -0 "$(cat "$demo/supervisord.pid" 2>/dev/null)" 2>/dev/null && answers "$port"; then
  say "The page is served at http://127.0.0.1:$port/ already."
  "$(command -v xdg-open || command -v open || echo true)" "http://127.0.0.1:$port/" >/dev/null 2>&1 || true
  exit
fi
exec "$BIN/reader" page --serve
