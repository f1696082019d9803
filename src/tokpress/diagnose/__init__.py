"""Where the time of somebody's training script goes, and what to do about it.

In: a command line, run as it is. Out: its exit code, and a `Diagnosis`: shares of a step, faults with the lines that cause
them, advice.

    inside/    runs in the user's processes: counts and times the calls that starve a loop; no import of tokpress
    observe    starts the command, gathers what its processes report: the watch, a StepMeter, py-spy's samples
    samples    py-spy's stacks -> compute, data, other; the lines in which most time is spent
    findings   all of that -> shares, faults, advice
    tokenizing what each way of tokenizing costs a training step

A script that has a `StepMeter` is believed; else shares come from the watch, and py-spy splits what the watch does not know.
"""
