"""The figures of the paper: the runs that each one needs, its drawing, and whether it agrees with the paper."""
