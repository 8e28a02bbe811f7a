"""The modes on Kafka alone: `dedupe` and `windows`, which need no lake."""
