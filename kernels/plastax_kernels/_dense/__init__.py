"""Dense layers with tangents, and the curvature products that are made of them."""
