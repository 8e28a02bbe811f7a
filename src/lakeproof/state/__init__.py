"""The small database beside the checkpoint: what was discovered, who writes, which contract holds."""
