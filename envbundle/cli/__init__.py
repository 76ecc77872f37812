"""One file per command: parse, call one api function, render. Exit statuses are given only here."""
