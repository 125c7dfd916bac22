"""Curvature as linear operators on parameter pytrees, or on samples x outputs."""
