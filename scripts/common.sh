# shellcheck shell=bash
# Sourced by the scripts beside it: the project's folder as working directory, and the few words they share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$(pwd -P)
cd "$ROOT"
BIN=$ROOT/.venv/bin
# shellcheck disable=SC2034 # for those who source this
JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java

say() { printf '%s\n' "$*"; }

# fail MESSAGE [HINT]: one line that says what is wrong, one that says what to do next.
fail() {
  printf 'Error: %s\n' "$1" >&2
  [[ $# -lt 2 ]] || printf '  %s\n' "$2" >&2
  exit 1
}

sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi
}

# fresh STAMP INPUT...: whether STAMP was written when the inputs were as they are now.
fresh() {
  local stamp=$1
  shift
  [[ -f $stamp ]] && [[ $(<"$stamp") == "$(sha256 "$@")" ]]
}

# setting NAME: a setting as the programs see it, from the environment or .env.
setting() { "$BIN/lakeproof" settings "$1"; }

# docker_answers: whether there is a Docker engine, with compose, to talk to.
docker_answers() {
  docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1
}

# demo_settings: HOME_DIR, LOGS and RUN (the folder of the running demo's socket, empty where none runs) of the local demo.
# RUN is a link, since the lake may lie in a folder too deep for a socket's path.
demo_settings() {
  HOME_DIR='' LOGS='' RUN=''
  if [[ -x $BIN/lakeproof ]]; then
    { read -r HOME_DIR && read -r LOGS; } < <("$BIN/lakeproof" settings home logs) || exit 1
  else # nothing can run from here, and only the default can be told
    HOME_DIR=${LAKE_HOME:-$ROOT/target/lake} LOGS=$HOME_DIR/logs
  fi
  RUN=$(readlink "$HOME_DIR/.demo" || true)
  supervisor pid >/dev/null 2>&1 || RUN=''
}

# supervisor ARGS...: ask the running demo's supervisord.
supervisor() { DEMO_RUN=$RUN DEMO_LOGS=$LOGS DEMO_STORAGE='' "$BIN/supervisorctl" -c "$ROOT/demo/supervisord.conf" "$@"; }
