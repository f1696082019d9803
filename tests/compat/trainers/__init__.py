"""Trainers that need more than their readers: run by `make trainers`, in an environment beside that of `make compat`."""
