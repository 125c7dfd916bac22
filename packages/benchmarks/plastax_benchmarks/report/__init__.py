"""Tables and figures from run folders. `figure.draw` makes only the figure."""
