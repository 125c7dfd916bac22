"""Statistics of features: units, ranks and norms."""
