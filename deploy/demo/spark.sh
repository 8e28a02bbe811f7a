#!/usr/bin/env bash
# Print the address of the consumer's Spark UI, and open it. If a port is in use, Spark takes the next one.
source "$(dirname "$0")/../common.sh"

first=${LAKE_SPARK_UI_PORT:-4040}
if [[ -x $BIN/lakeproof ]]; then first=$(setting spark_ui_port); fi # not needed for containers
for port in $(seq "$first" $((first + 16))); do
  # A minute: the first answer of a UI takes half of that on a busy machine.
  if curl --silent --fail --noproxy "*" --max-time 60 "http://127.0.0.1:$port/api/v1/applications" | grep -q '"lakeproof consumer'; then
    say "The consumer's Spark UI: http://127.0.0.1:$port"
    "$(command -v xdg-open || command -v open || echo true)" "http://127.0.0.1:$port" >/dev/null 2>&1 || true
    exit
  fi
done
fail "No running consumer found on the ports $first to $((first + 16))." "Run make start, then try again."
