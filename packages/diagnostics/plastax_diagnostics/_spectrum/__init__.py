"""Spectra of operators: Lanczos, quadrature and exact eigenvalues."""
