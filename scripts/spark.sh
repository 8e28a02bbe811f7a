#!/usr/bin/env bash
# Say where the page of the consumer's Spark is, and open it. Spark takes the next port where one is in use.
source "$(dirname "$0")/common.sh"

first=$(setting spark_ui_port)
for port in $(seq "$first" $((first + 16))); do
  if curl --silent --fail --noproxy "*" --max-time 10 "http://127.0.0.1:$port/api/v1/applications" | grep -q '"lakeproof consumer'; then
    say "Spark's page of the consumer: http://127.0.0.1:$port"
    "$(command -v xdg-open || command -v open || echo true)" "http://127.0.0.1:$port" >/dev/null 2>&1 || true
    exit
  fi
done
fail "No consumer runs, so Spark has no page (looked at the ports $first to $((first + 16)))." "make start, then again."
