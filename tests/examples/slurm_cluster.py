"""A Slurm cluster of one host: Debian's slurm-wlm, with all of its files in one directory and its ports on the loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be none here."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)}): apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "Slurm's daemons are started as root only"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def slurm(directory: Path) -> Iterator[dict[str, str]]:
    """The environment in which its commands are run. `directory` has a short path: a socket's may have 107 characters."""
    directory.chmod(0o755)
    for name in ("state", "spool"):
        (directory / name).mkdir()
    key = directory / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    controller, node = _free_ports(2)
    conf = directory / "slurm.conf"
    conf.write_text(CONF.format(host=socket.gethostname(), directory=directory, controller=controller, node=node))
    environment = os.environ | {"SLURM_CONF": str(conf)}
    munge = [f"--{name}={directory / file}" for name, file in [("key-file", "key"), ("socket", "munge.socket")]]
    munge += [f"--{name}-file={directory / f'munge.{name}'}" for name in ("pid", "log", "seed")]
    commands = [["munged", "--foreground", "--force", *munge], ["slurmctld", "-D"], ["slurmd", "-D"]]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (directory / f"{command[0]}.out").open("wb") as out:
                started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            sleep(0.5)
        until = monotonic() + 30
        while (
            "idle" not in subprocess.run(["sinfo"], env=environment, capture_output=True, text=True, check=False).stdout
        ):
            if monotonic() > until:
                raise RuntimeError((directory / "slurmctld.out").read_text() + (directory / "slurmd.out").read_text())
            sleep(0.2)
        yield {"SLURM_CONF": str(conf)}
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)
