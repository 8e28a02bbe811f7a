#!/usr/bin/env bash
# Build the docs site in target/site: pages, a reference, search, the page of a sample lake. A broken link is an error.
source "$(dirname "$0")/common.sh"
deploy/setup.sh dev
"$BIN/python" -m deploy.site.build target/site
say "The docs site is in target/site: python3 -m http.server --bind 127.0.0.1 --directory target/site"
