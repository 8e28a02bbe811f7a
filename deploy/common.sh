# shellcheck shell=bash
# Sourced by the other scripts. It changes to the project's folder, and defines the functions that they share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$(pwd -P)
cd "$ROOT"
BIN=$ROOT/.venv/bin
# shellcheck disable=SC2034 # used by the other scripts
JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java

# shellcheck disable=SC2034
JARS_LIST=src/lakeproof/install/jars.sha256

# Profiles of docker-compose.yml that start something in the background.
# shellcheck disable=SC2034
PROFILES=kafka,sensors,clickstream,monitoring,cluster

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

# fresh STAMP INPUT...: whether the inputs are unchanged since STAMP was written.
fresh() {
  local stamp=$1
  shift
  [[ -f $stamp ]] && [[ $(<"$stamp") == "$(sha256 "$@")" ]]
}

# setting NAME: the value of a setting as the programs see it, from the environment or .env.
setting() { "$BIN/lakeproof" settings "$1"; }

# docker_responds: whether a Docker engine with compose responds.
docker_responds() {
  docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1
}
