#!/usr/bin/env bash
# In the consumer's image as `executor`: Spark starts its pods on Kubernetes with this argument and these variables, as
# for the entrypoint of its own image.
set -euo pipefail

options=()
for ((number = 0; ; number++)); do
  name=SPARK_JAVA_OPT_$number
  [[ -v $name ]] || break
  options+=("${!name}")
done
SPARK_HOME=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME
# An executor keeps jars and archives of the driver in its working folder, which must be writable.
cd "${SPARK_LOCAL_DIRS%%,*}"
exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_CONF_DIR:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
