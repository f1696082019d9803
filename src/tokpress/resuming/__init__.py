"""Does a trainer go on with the very next batch?

In: the command of a trainer. Out: what it trained on in one go, and what when it was killed and started again; the two must
be the same steps.

    record     what a training process was given, step by step: a digest each, in a file
    check      runs a trainer whole, killed, and again; compares
    inside/    what is put into the trainer's process
"""
