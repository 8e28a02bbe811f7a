"""What a contract that is not applied would make of what has landed."""
