#!/usr/bin/env bash
# Stop producer and consumer, in containers and as local processes. MinIO keeps running; --all stops it, too.
source "$(dirname "$0")/../common.sh"

stopped=
export COMPOSE_PROFILES=kafka,sensors,clickstream,monitoring # also what these profiles started
if docker_responds && [[ -n $(docker compose ps --all --quiet) ]]; then
  if [[ ${1:-} == --all ]]; then
    docker compose down
  else
    docker compose stop {producer,consumer}{,-sensors,-clickstream} collector
    say "MinIO is still running. make clean stops it and removes the data."
  fi
  stopped=yes
fi

demo_settings
if [[ -n $RUN ]]; then
  pid=$(supervisor pid)
  say "Stopping what the demo started. The consumer finishes its micro-batch first …"
  supervisor shutdown >/dev/null
  while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
  rm -rf "$RUN" "$HOME_DIR/.demo"
  say "Stopped. The data is in $HOME_DIR."
  stopped=yes
fi
[[ -n $stopped ]] || say "Nothing is running."
