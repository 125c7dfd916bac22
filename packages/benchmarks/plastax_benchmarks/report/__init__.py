"""Tables and figures from run folders: `command.report` for the terminal, `figure.draw` for a picture alone."""
