"""Tables outside of the warehouse of a copied or moved lake."""
