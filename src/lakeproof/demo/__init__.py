"""The demo without containers: producer, consumer and the page of the lake as processes in the background."""
