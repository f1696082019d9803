"""Attacks as a table: how each is made, and what must come of it.

table    Case, Outcome and the checks that a case names as what must come of it
scene    an empty directory with a bystander, and ways to run tokpress there
cases/   the table, a module a topic: `CASES` of each is collected
test_attack    runs them: a seeded few of each topic in `make test`, all in `make attack`
"""
