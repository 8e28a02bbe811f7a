#!/usr/bin/env bash
# Prepare what the checks need in addition to `make setup`: Python packages (one contains a Postgres server), the jars of an
# Iceberg REST catalog, of a Kafka broker and of a schema registry (140 MB), a MinIO server built from source (4 minutes,
# once), and the loader of Docker Compose, which reads docker-compose.yml without an engine.
source "$(dirname "$0")/../deploy/common.sh"

# build NAME MODULE PACKAGE VERSION: build target/bin/NAME, unless it has this version already. The user's cache keeps a copy
# for other clones.
build() {
  local name=$1 module=$2 package=$3 version=$4 folder
  local kept=${XDG_CACHE_HOME:-$HOME/.cache}/lakeproof/$name-$version
  ! is_built "target/bin/$name" "$module	$version" || return 0
  if is_built "$kept" "$module	$version"; then
    cp "$kept" "target/bin/$name"
    return
  fi
  command -v go >/dev/null || fail "Go is missing. The tests need it to build $name." "Install Go 1.24 or newer."
  say "Building $name …"
  folder=$(mktemp -d)
  GOBIN=$folder go install "$package@$version" 2>"target/bin/$name.log" || {
    tail -n 20 "target/bin/$name.log" >&2
    fail "Cannot build $name. Log: target/bin/$name.log" "Check the network, then try again."
  }
  mv "$folder"/* "target/bin/$name"
  rmdir "$folder"
  # If the cache cannot be written, the next clone builds again.
  { mkdir -p "${kept%/*}" && cp "target/bin/$name" "$kept.$$" && mv "$kept.$$" "$kept"; } 2>/dev/null || true
}

is_built() { go version -m "$1" 2>/dev/null | grep -qF "$2"; }

deploy/setup.sh dev
deploy/jars.sh rest
deploy/jars.sh kafka
deploy/jars.sh registry
"$BIN/python" -m tests.archives
mkdir -p target/bin
build minio github.com/minio/minio github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c
build compose-go github.com/compose-spec/compose-go/v2 github.com/compose-spec/compose-go/v2/cmd v2.16.2
