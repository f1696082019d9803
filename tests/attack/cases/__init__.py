"""The table, a module a topic. A module has `CASES`, and is found by being here."""
