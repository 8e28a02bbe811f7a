"""From silver to gold: the windows of data products, corrected by each row that is kept later."""
