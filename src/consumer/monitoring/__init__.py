"""What the consumer shows of itself: status, sizes, metrics, lineage, and the lines on the screen."""
