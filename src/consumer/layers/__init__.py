"""The layers of a lake. Each follows the one before it and keeps its progress in the tables that it fills."""
