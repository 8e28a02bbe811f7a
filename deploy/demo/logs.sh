#!/usr/bin/env bash
# Follow the log of a program of the demo: deploy/demo/logs.sh producer|consumer
source "$(dirname "$0")/../common.sh"

if docker_responds && [[ -n $(docker compose ps --all --quiet "$1") ]]; then exec docker compose logs --follow --tail 50 "$1"; fi
log=$(setting logs)/$1.log
[[ -f $log ]] || fail "No log of the $1 found at $log." "Run make start."
exec tail -n 50 -F "$log"
