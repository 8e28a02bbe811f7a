"""Bronze: judged units become rows of bronze and of the dead letters, in the tasks of a micro-batch."""
