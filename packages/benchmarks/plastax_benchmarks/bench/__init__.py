"""Programs that compare two implementations in one run, and print ratios."""
