"""Trains a GPT on tokens that tokpress prepared, or on text that is tokenized beside the training.

    tokpress demo && python examples/train.py --data tokpress-demo/tokens --out run
    python examples/train.py --live 'data/*.jsonl' --tokenizer tokenizer.json --out run
    torchrun --nproc-per-node 8 examples/train.py --config small --data tokens --compile --out run

The same command again goes on where the run was: the checkpoint holds the loader's state too, and on a CPU the losses are
those of a run that was never interrupted, bit for bit. Ctrl-C ends with a checkpoint. Nothing is read from the device but
at log steps, and the log says what a step's time is made of.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from model import GPT, SHAPES
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tokpress
from tokpress.errors import UsageError
from tokpress.figure import new_figure

MAX_GRADIENT_NORM = 1.0
WEIGHT_DECAY = 0.1
WARMUP_SHARE = 0.05  # of the steps
LAST_LR_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is taken where the command says nothing."""

    seq_len: int = 1024
    batch_size: int = 8
    steps: int = 10_000
    lr: float


RECIPES = {
    "tiny": Recipe(seq_len=64, steps=150, lr=2e-3),
    "small": Recipe(lr=6e-4),
    "medium": Recipe(lr=3e-4),
    "large": Recipe(lr=2.5e-4),
}


@dataclass(frozen=True)
class Ranks:
    """This process among those that torchrun started; alone without it."""

    rank: int
    count: int
    device: torch.device

    @classmethod
    def start(cls) -> Ranks:
        rank, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        if count > 1:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(rank, count, device)

    def mean(self, value: Tensor) -> Tensor:
        """The same on all ranks; each of them has to ask."""
        if self.count == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.count

    def close(self) -> None:
        if self.count > 1:
            dist.destroy_process_group()


class Trainer:
    def __init__(self, options: argparse.Namespace, ranks: Ranks) -> None:
        self.options, self.ranks = options, ranks
        self.loader, vocab_size = open_data(options, ranks)
        torch.manual_seed(options.seed)
        torch.backends.cudnn.benchmark = True  # shapes never change
        torch.set_float32_matmul_precision("high")
        self.model = GPT(SHAPES[options.config], vocab_size=vocab_size, seq_len=options.seq_len).to(ranks.device)
        self.optimizer = make_optimizer(options.optimizer, self.model, options.lr)
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=options.precision == "float16")
        self.step = self.logged_step = 0
        self.loss_sum = torch.zeros((), device=ranks.device)  # since the last log
        self.losses: list[tuple[int, float]] = []
        self.checkpoint = options.out / "checkpoint.pt"
        if self.checkpoint.exists():
            self.resume()
        self.forward: Any = torch.compile(self.model) if options.compile else self.model
        if ranks.count > 1:
            self.forward = DistributedDataParallel(self.forward)
        self.meter = tokpress.StepMeter(tokens_per_step=options.batch_size * options.accumulate * options.seq_len)
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupt)

    def interrupt(self, number: int, _: Any) -> None:
        """Ends after this step, or with several ranks at the next log. A second Ctrl-C ends at once; torchrun, which sends
        one of its own, does that by itself after a while."""
        self.interrupted = True
        if self.ranks.count == 1:
            signal.signal(number, signal.default_int_handler)

    def run(self) -> bool:
        """Whether it came to its end."""
        options = self.options
        batches = iter(self.loader) if self.step < options.steps else iter(())
        stop = False
        while self.step < options.steps and not stop:
            with self.meter.step():
                self.loss_sum += self.train_step(batches)
                self.step += 1
                logs = self.step % options.log_every == 0 or self.step == options.steps
                if logs:
                    with self.meter.phase("sync"):
                        loss, stop = self.read()
            if logs:
                self.log(loss)
            if self.ranks.count == 1:
                stop = self.interrupted
            if stop or self.step % options.checkpoint_every == 0 or self.step == options.steps:
                self.save()
        return bool(self.step == options.steps)

    def train_step(self, batches: Iterator[dict[str, Tensor]]) -> Tensor:
        """One step of the optimizer; its loss stays on the device."""
        options, device = self.options, self.ranks.device
        loss = torch.zeros((), device=device)
        for micro in range(1, options.accumulate + 1):
            with self.meter.phase("data"):
                batch = next(batches)
            with self.meter.phase("copy"):
                inputs, labels = (batch[name].to(device, non_blocking=True) for name in ("input_ids", "labels"))
            with self.meter.phase("compute"), self.keep_gradients_here(micro < options.accumulate):
                with torch.autocast(device.type, getattr(torch, options.precision), options.precision != "float32"):
                    part = self.forward(inputs, labels) / options.accumulate
                self.scaler.scale(part).backward()
                loss += part.detach()
        with self.meter.phase("compute"):
            for group in self.optimizer.param_groups:
                group["lr"] = options.lr * lr_share(self.step, options.steps)
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        return loss

    def keep_gradients_here(self, keep: bool) -> AbstractContextManager[Any]:
        """Ranks exchange gradients once a step, with its last part."""
        return self.forward.no_sync() if keep and isinstance(self.forward, DistributedDataParallel) else nullcontext()

    def read(self) -> tuple[float, bool]:
        """The mean loss since the last log, of all ranks, and whether one of them was interrupted. The only wait for
        the device, and for the other ranks."""
        interrupted = torch.tensor(float(self.interrupted), device=self.ranks.device)
        told = torch.stack((self.loss_sum / (self.step - self.logged_step), interrupted))
        loss, interrupted_share = self.ranks.mean(told).tolist()
        self.loss_sum.zero_()
        self.logged_step = self.step
        return loss, interrupted_share > 0

    def log(self, loss: float) -> None:
        self.losses.append((self.step, loss))
        line = self.meter.line()
        if self.ranks.rank == 0:
            said = f"{self.step}/{self.options.steps} · loss {loss:.4f} · {line}{gpu_state(self.ranks.device)}"
            print(said, flush=True)

    def save(self) -> None:
        loss_sum = self.ranks.mean(self.loss_sum)
        if self.ranks.rank:
            return
        state = {
            "history": self.history(),
            "step": self.step,
            "logged_step": self.logged_step,
            "loss_sum": loss_sum,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "loader": self.loader.state_dict(),
        }
        temporary = self.checkpoint.with_suffix(".tmp")
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.checkpoint)  # whole or not there, whenever the run is killed

    def resume(self) -> None:
        state = torch.load(self.checkpoint, map_location=self.ranks.device, weights_only=True)
        for name, now in self.history().items():
            if (then := state["history"].get(name)) != now:
                raise UsageError(
                    f"{self.checkpoint} was trained with {name} {then!r}, now it is {now!r}: the run would be neither "
                    "the one nor the other. Give the same options, or another --out."
                )
        self.step, self.logged_step, self.losses = state["step"], state["logged_step"], state["losses"]
        self.loss_sum.copy_(state["loss_sum"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.loader.load_state_dict(state["loader"])
        if self.ranks.rank == 0:
            print(f"going on after step {self.step} of {self.checkpoint}", flush=True)

    def history(self) -> dict[str, Any]:
        """What a run that goes on must have in common with the one before; the loader looks after the data."""
        options = self.options
        names = ("config", "seq_len", "steps", "lr", "seed", "precision", "optimizer")
        same = {name: getattr(options, name) for name in names}
        return same | {"sequences a step": options.batch_size * options.accumulate * self.ranks.count}

    def plot(self) -> None:
        figure = new_figure(7, 4)
        axes = figure.subplots()
        axes.plot(*zip(*self.losses, strict=True))
        axes.set(xlabel="step", ylabel="loss", title=f"{self.options.config}, last {self.losses[-1][1]:.3f}")
        figure.savefig(self.options.out / "loss.png", dpi=150)
        print(f"the loss curve: {self.options.out / 'loss.png'}", flush=True)


def open_data(options: argparse.Namespace, ranks: Ranks) -> tuple[Any, int]:
    """Batches without end for this rank, and the size of the vocabulary."""
    shared: dict[str, Any] = {
        "batch_size": options.batch_size,
        "rank": ranks.rank,
        "world_size": ranks.count,
        "max_epochs": math.inf,
        "device": str(ranks.device) if ranks.device.type == "cuda" else None,  # copied beside the step
    }
    if options.live:
        live = tokpress.LiveDataset(
            options.live, tokenizer=options.tokenizer, seq_len=options.seq_len, shift_labels=True, **shared
        )
        return live, live.vocab_size
    data = tokpress.PretokenizedDataset(options.data, seq_len=options.seq_len, shift_labels=True)
    return tokpress.Loader(data, seed=options.seed, **shared), data.store.manifest.tokenizer.vocab_size


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Matrices decay, norms do not."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError:
        raise UsageError("--optimizer adamw8bit needs bitsandbytes. Install it: pip install bitsandbytes") from None
    optimizer: torch.optim.Optimizer = AdamW8bit(groups, lr=lr, betas=(0.9, 0.95))
    return optimizer


def lr_share(step: int, steps: int) -> float:
    """Up in a line, then down in half a cosine."""
    warmup = max(round(steps * WARMUP_SHARE), 1)
    if step < warmup:
        return (step + 1) / warmup
    down = (step - warmup) / max(steps - warmup, 1)
    return LAST_LR_SHARE + (1 - LAST_LR_SHARE) * (1 + math.cos(math.pi * down)) / 2


def gpu_state(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    state = f" · {torch.cuda.max_memory_allocated(device) / 1e9:.1f} GB"
    with suppress(ModuleNotFoundError, RuntimeError):  # without NVIDIA's own Python package
        state += f" · GPU use {torch.cuda.utilization(device)} %"
    return state


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="DIR", help="a store that `tokpress build` made")
    source.add_argument("--live", nargs="+", metavar="INPUT", help="text, tokenized beside the training")
    parser.add_argument("--tokenizer", metavar="SPEC", help="with --live; as for `tokpress build`")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the checkpoint and the loss curve")
    parser.add_argument("--config", choices=SHAPES, default="tiny")
    parser.add_argument("--seq-len", type=int, metavar="N")
    parser.add_argument("--batch-size", type=int, metavar="N", help="sequences, for each rank and part of a step")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="parts of a step")
    parser.add_argument("--steps", type=int, metavar="N")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seed", type=int, default=0)
    gpu = torch.cuda.is_available()
    precisions = ["float32", "bfloat16", "float16"]
    parser.add_argument("--precision", choices=precisions, default="bfloat16" if gpu else "float32")
    parser.add_argument("--optimizer", choices=["adamw", "adamw8bit"], default="adamw", help="adamw is the fused one")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--log-every", type=int, default=10, metavar="N")
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="N")
    options = parser.parse_args(arguments)
    for name, value in vars(RECIPES[options.config]).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for name in ("seq_len", "batch_size", "accumulate", "steps", "log_every", "checkpoint_every"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.live and not options.tokenizer:
        parser.error("--live needs a --tokenizer")
    if options.precision == "float16" and not gpu:
        parser.error("--precision float16 needs a GPU; take float32 or bfloat16")
    return options


def main() -> int:
    """0: done; 130: interrupted, to go on with the same command."""
    options = parse()
    ranks = Ranks.start()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(options, ranks)
        done = trainer.run()
        report = trainer.meter.over_ranks()
        if ranks.rank == 0:
            print(f"in {report.steps} steps, by the slowest rank: {report.line()}", flush=True)
        if ranks.rank == 0 and done:
            trainer.plot()
        elif ranks.rank == 0:
            print(f"interrupted after step {trainer.step}; the same command goes on there", flush=True)
        return 0 if done else 130
    except tokpress.TokpressError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        ranks.close()


if __name__ == "__main__":
    sys.exit(main())
