"""A training loop -> where the time of its steps goes.

In: marks that a loop sets. Out: a report. Nothing of a store is needed; `tokpress.StepMeter` fits any loop, and `diagnose`
reads its report from outside.

    meter   StepMeter: steps and their phases, by the host's clock and the device's
    report  StepReport: a line, a table, JSON, a plot; of all ranks
    loggers StepLogger: figures and data digests for TensorBoard, W&B or anything else
"""
