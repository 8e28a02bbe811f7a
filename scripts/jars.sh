#!/usr/bin/env bash
# Retrieve the jars of ivy.xml into target/jars/spark and check each against jars.sha256.
#   scripts/jars.sh           nothing is done where they are there already
#   scripts/jars.sh --lock    retrieve, and write jars.sha256 anew: after a change of ivy.xml
# Ivy comes with the PySpark of .venv. IVY_SETTINGS names other settings, for a mirror.
source "$(dirname "$0")/common.sh"

jars=target/jars/spark
stamp=target/jars/spark.stamp
lock=${1:-}

[[ $lock == --lock ]] || ! fresh "$stamp" ivy.xml jars.sha256 || [[ ! -d $jars ]] || exit 0

pyspark=$("$BIN/python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
new=target/jars/new.$$
trap 'rm -rf "$new"' EXIT
mkdir -p target/jars
say "Retrieving Spark's jars (84 MB, once) …"
if ! "$JAVA" -cp "$pyspark/jars/*" org.apache.ivy.Main -warn -settings "${IVY_SETTINGS:-ivysettings.xml}" -ivy ivy.xml \
  -confs spark -retrieve "$new/[artifact]-[revision].[ext]" >target/jars/ivy.log 2>&1; then
  tail -n 20 target/jars/ivy.log >&2
  fail "The jars could not be retrieved; all of it is in target/jars/ivy.log." \
    "Check the network, then run it again. For a mirror of Maven Central: IVY_SETTINGS=<your ivysettings.xml> make setup."
fi
if [[ $lock == --lock ]]; then
  (cd "$new" && sha256 ./*.jar) >jars.sha256
fi
wanted=$(sed 's/^[0-9a-f]* [ *]//' jars.sha256 | sort)
found=$(cd "$new" && find . -name '*.jar' | sort)
[[ $wanted == "$found" ]] || fail "The jars retrieved are not those of jars.sha256." "If ivy.xml was changed: make jars-lock."
(cd "$new" && sha256 --check --quiet ../../../jars.sha256) ||
  fail "A jar is not what jars.sha256 says; nothing was installed." "Remove it from ~/.ivy2/cache and try again; else do not trust its source."
rm -rf "$jars"
mv "$new" "$jars"
sha256 ivy.xml jars.sha256 >"$stamp"
