#!/usr/bin/env bash
# Follow the log of a program of the demo: deploy/demo/logs.sh producer|consumer
source "$(dirname "$0")/../common.sh"

program=$1
export COMPOSE_PROFILES=$PROFILES

# follow_container [--all]: follow the log of the program's first running (or any) container, if a stream has one.
follow_container() {
  local service
  docker_responds || return 0
  for service in "$program"{,-sensors,-clickstream}; do
    if [[ -n $(docker compose ps "$@" --quiet "$service") ]]; then exec docker compose logs --follow --tail 50 "$service"; fi
  done
}

follow_container
log=
if [[ -x $BIN/lakeproof ]]; then log=$(setting logs)/$program.log; fi
if [[ -f $log ]]; then exec tail -n 50 -F "$log"; fi
follow_container --all
fail "No log of the $program found${log:+ at $log}." "Run make start."
