#!/usr/bin/env bash
# Write the guide's table of settings anew, from the model that describes them.
source "$(dirname "$0")/common.sh"

page=docs/guide.md
table=$("$BIN/lakeproof" settings --markdown)
# By the environment, since awk would read escapes in a variable of its own.
TABLE=$table awk '
  /^<!-- settings: end/ { print ENVIRON["TABLE"]; inside = 0 }
  !inside { print }
  /^<!-- settings: made/ { inside = 1 }
' "$page" >"$page.part"
mv "$page.part" "$page"
