"""A training script with the two faults that users have."""

from __future__ import annotations

BAD = """
import sys, time
import tokenizers, torch
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
steps = int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
text = "some words that are tokenized again and again " * 400
tokenizing, began, losses = 0.0, time.perf_counter(), []
for step in range(steps):
    counts = []
    for _ in range(4):
        before = time.perf_counter()
        counts.append(len(tokenizer.encode(text)))  # FAULT: one by one
        if step:
            tokenizing += time.perf_counter() - before
    loss = model(torch.tensor([[float(sum(counts))]])).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())  # FAULT: each step
    if step == 0:
        began = time.perf_counter()
print("own share", tokenizing / (time.perf_counter() - began))
"""


def line_of(script: str, mark: str) -> int:
    return next(number for number, line in enumerate(script.splitlines(), start=1) if mark in line)
