"""What tables have committed goes on to topics and files."""
