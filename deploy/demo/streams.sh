# shellcheck shell=bash disable=SC2034 # used by deploy/demo/start.sh
# Sourced by deploy/demo/start.sh: what the demo runs for STREAM. PRODUCER and CONSUMER are the arguments of the programs; FROM is
# where batches are, as a value of the programs' options.
case $STREAM in
events)
  PRODUCER="events --data-sink $FROM --batch-size 100 --sleep-between-batches-seconds 1 --corruption-chance .05 --invalid-schema-chance .05 --extra-field-chance .05 --duplicate-chance .05"
  CONSUMER="events --maintain --data-source $FROM"
  ;;
sensors)
  PRODUCER="sensors --data-sink $FROM --batch-size 100 --sleep-between-batches-seconds 1 --devices 20 --anomaly-chance .02 --duplicate-chance .02"
  CONSUMER="sensors --maintain --data-source $FROM"
  ;;
clickstream)
  PRODUCER="clickstream --data-sink http --batch-size 100 --sleep-between-batches-seconds 1 --invalid-schema-chance .05 --extra-field-chance .05 --duplicate-chance .05"
  CONSUMER="clickstream --maintain --data-source kafka --silver-topic acme.clickstream.latest.events --dead-letter-topic acme.clickstream.dead.events"
  ;;
esac
