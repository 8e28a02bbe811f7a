"""From bronze to silver: one row per primary key, and a verdict on every other row."""
