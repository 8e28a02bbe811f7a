#!/usr/bin/env bash
# Run a Kafka broker of the demo: one node in KRaft mode, with its data in a folder.
#   deploy/demo/kafka.sh FOLDER HOST:PORT
source "$(dirname "$0")/../common.sh"
folder=$1 address=$2
# The controller is for this broker alone. A port beside the broker's may be in use, by an outgoing connection, too.
controller=127.0.0.1:$("$BIN/python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
pyspark=$("$BIN/python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
# What it logs with comes with PySpark.
classes=$(printf '%s:' target/jars/kafka/*.jar "$pyspark"/jars/slf4j-api-*.jar "$pyspark"/jars/log4j-slf4j2-impl-*.jar)
kafka() { "$JAVA" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=WARN -cp "$classes" "$@"; }

mkdir -p "$folder"
cat >"$folder/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://$address,CONTROLLER://$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$folder/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.replication.factor=1
END
if [[ ! -f $folder/data/meta.properties ]]; then
  kafka kafka.tools.StorageTool format --cluster-id lakeproof-demo-cluster --config "$folder/server.properties"
fi
exec "$JAVA" -Xmx256m -XX:+UseSerialGC -Dlog4j2.level=WARN -cp "$classes" kafka.Kafka "$folder/server.properties"
