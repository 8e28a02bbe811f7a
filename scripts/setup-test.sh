#!/usr/bin/env bash
# What the checks need beyond `make setup`: their Python packages (a Postgres server is one of them), the jars of an Iceberg
# REST catalog, a MinIO server built from source (4 minutes, once), the loader of Docker Compose, which reads
# docker-compose.yml without an engine, and a proxy that makes faults.
source "$(dirname "$0")/common.sh"

# build NAME MODULE PACKAGE VERSION: target/bin/NAME, where it is not there in this version.
build() {
  local name=$1 module=$2 package=$3 version=$4 folder
  ! go version -m "target/bin/$name" 2>/dev/null | grep -qF "$module	$version" || return 0
  command -v go >/dev/null || fail "Go is missing; the tests build $name with it." "Install Go 1.24 or newer."
  say "Building $name …"
  folder=$(mktemp -d)
  GOBIN=$folder go install "$package@$version" 2>"target/bin/$name.log" || {
    tail -n 20 "target/bin/$name.log" >&2
    fail "$name could not be built." "Check the network, then run it again. All that was said: target/bin/$name.log"
  }
  mv "$folder"/* "target/bin/$name"
  rmdir "$folder"
}

scripts/setup.sh dev
scripts/jars.sh rest
mkdir -p target/bin
build minio github.com/minio/minio github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c
build compose-go github.com/compose-spec/compose-go/v2 github.com/compose-spec/compose-go/v2/cmd v2.16.2
scripts/chaos.sh --setup
