"""Plot data products over time, as an image or in the terminal."""
