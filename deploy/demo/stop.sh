#!/usr/bin/env bash
# Stop producer and consumer, in containers and as local processes. MinIO keeps running; --all stops it, too.
source "$(dirname "$0")/../common.sh"

stopped=
export COMPOSE_PROFILES=$PROFILES # also what these profiles started
if docker_responds && [[ -n $(docker compose ps --all --quiet) ]]; then
  if [[ ${1:-} == --all ]]; then
    docker compose down
  else
    docker compose stop {producer,consumer}{,-sensors,-clickstream} consumer-cluster collector
    say "MinIO is still running. make clean stops it and removes the data."
  fi
  stopped=yes
fi

# Without .venv, no process of it is running. With it, some may run beside containers: LAKE_DEMO=local starts them.
if [[ -x $BIN/lakeproof ]] && [[ -z $stopped || -L $(setting home)/.demo ]]; then exec "$BIN/lakeproof" demo stop; fi
[[ -n $stopped ]] || say "Nothing is running."
