"""``fm2 reproduce``: the tables of the paper from the original logs, next to the published figures."""
