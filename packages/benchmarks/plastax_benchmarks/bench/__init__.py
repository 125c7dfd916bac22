"""Programs that compare two ways of doing a thing in one run, and print ratios."""
