"""Draw the measures of a data product over time: as an image, or in the terminal."""
