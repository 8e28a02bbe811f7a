"""Spark: its session, its cluster, and the process from which its Python workers are forked."""
