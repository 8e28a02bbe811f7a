"""The application around the layers: sessions of Spark, running queries, the screen, status and repair."""
