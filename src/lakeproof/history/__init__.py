"""Which contract was applied to a stream's tables when, and applying one."""
