"""What the traced program of a model reveals about its layers."""
