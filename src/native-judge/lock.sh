#!/usr/bin/env bash
# crates.lock has the version and the hash of each crate, and names no registry. Cargo wants it named.
#   lock.sh        write Cargo.lock from crates.lock, with the registry that cargo uses here
#   lock.sh pin    write crates.lock from Cargo.lock, after a change of Cargo.toml
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ ${1:-} == pin ]]; then
  grep -v '^source = ' Cargo.lock >crates.lock
  exit
fi
# One that cargo has written by itself is not pinned.
if [[ -f Cargo.lock ]] && cmp -s crates.lock <(grep -v '^source = ' Cargo.lock); then exit 0; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
touch "$folder/src/lib.rs"
cp Cargo.toml "$folder"
(cd "$folder" && cargo generate-lockfile --quiet)
registry=$(grep -m 1 '^source = ' "$folder/Cargo.lock")
awk -v registry="$registry" '/^checksum = / { print registry } { print }' crates.lock >"$folder/whole.lock"
mv "$folder/whole.lock" Cargo.lock
