"""What a benchmark compares: programs that do the work, and print their figures as JSON in their last line."""
