#!/usr/bin/env bash
# Update the guide's table of settings from the model that describes them.
source "$(dirname "$0")/../deploy/common.sh"

page=docs/guide.md
table=$("$BIN/lakeproof" settings --markdown)
# Passed in the environment: awk interprets escapes in its own variables.
TABLE=$table awk '
  /^<!-- settings: end/ { print ENVIRON["TABLE"]; inside = 0 }
  !inside { print }
  /^<!-- settings: made/ { inside = 1 }
' "$page" >"$page.part"
mv "$page.part" "$page"
