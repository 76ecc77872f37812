"""Rules as data: what hosts have, which distribution brings which library, what compiles at run time."""
