#!/usr/bin/env bash
# Retrieve the jars of a configuration of ivy.xml into target/jars/<it>, and check each against its list of hashes.
#   scripts/jars.sh [spark]   Spark's (jars.sha256); nothing is done where they are there already
#   scripts/jars.sh rest      those of the tests' REST catalog (jars-rest.sha256)
#   scripts/jars.sh --lock    retrieve both, and write both lists anew: after a change of ivy.xml
# Ivy comes with the PySpark of .venv. IVY_SETTINGS names other settings, for a mirror.
source "$(dirname "$0")/common.sh"

# retrieve NAME LIST [--lock]
retrieve() {
  local name=$1 list=$2 lock=${3:-} jars=target/jars/$1 new=target/jars/new-$1.$$ wanted found pyspark
  [[ $lock == --lock ]] || ! fresh "$jars.stamp" ivy.xml "$list" || [[ ! -d $jars ]] || return 0

  pyspark=$("$BIN/python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
  mkdir -p target/jars
  # shellcheck disable=SC2064 # this very folder
  trap "rm -rf '$new'" EXIT
  say "Retrieving the jars of $name (once) …"
  if ! "$JAVA" -cp "$pyspark/jars/*" org.apache.ivy.Main -warn -settings "${IVY_SETTINGS:-ivysettings.xml}" -ivy ivy.xml \
    -confs "$name" -retrieve "$new/[artifact]-[revision](-[classifier]).[ext]" >target/jars/ivy.log 2>&1; then
    tail -n 20 target/jars/ivy.log >&2
    fail "The jars could not be retrieved; all of it is in target/jars/ivy.log." \
      "Check the network, then run it again. For a mirror of Maven Central: IVY_SETTINGS=<your ivysettings.xml> make setup."
  fi
  if [[ $lock == --lock ]]; then
    (cd "$new" && sha256 ./*.jar) >"$list"
  fi
  wanted=$(sed 's/^[0-9a-f]* [ *]//' "$list" | sort)
  found=$(cd "$new" && find . -name '*.jar' | sort)
  [[ $wanted == "$found" ]] || fail "The jars retrieved are not those of $list." "If ivy.xml was changed: make jars-lock."
  (cd "$new" && sha256 --check --quiet "$ROOT/$list") ||
    fail "A jar is not what $list says; nothing was installed." "Remove it from ~/.ivy2/cache and try again; else do not trust its source."
  rm -rf "$jars"
  mv "$new" "$jars"
  sha256 ivy.xml "$list" >"$jars.stamp"
}

case ${1:-spark} in
  spark) retrieve spark jars.sha256 ;;
  rest) retrieve rest jars-rest.sha256 ;;
  --lock)
    retrieve spark jars.sha256 --lock
    retrieve rest jars-rest.sha256 --lock
    ;;
  *) fail "There is no configuration $1 in ivy.xml." "Use one of: spark, rest." ;;
esac
