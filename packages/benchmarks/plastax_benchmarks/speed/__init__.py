"""How fast things are on the machine at hand."""
