"""A real Slurm on this machine, if its daemons are installed and may be started."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment for sbatch and scancel; munged, slurmctld and slurmd run while the test does."""
    if os.geteuid() != 0 or not all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd", "sbatch")):
        pytest.skip("Slurm's daemons are not installed (apt-get install slurm-wlm munge), or may not be started")
    folder = tmp_path_factory.mktemp("slurm")
    for place in (folder, folder / "state", folder / "spool"):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(CONFIGURATION.format(host=socket.gethostname().split(".")[0], ports=_ports(2), folder=folder))
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    commands = (
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files],
        ["slurmctld", "-D", "-f", str(conf)],
        ["slurmd", "-D", "-f", str(conf)],
    )
    daemons: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    try:
        for command in commands:
            log = (folder / f"{command[0]}.txt").open("wb")
            daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
            log.close()
            time.sleep(1)
        _wait_for_node(environment)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def _wait_for_node(environment: dict[str, str]) -> None:
    for _ in range(60):
        answer = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, check=False)
        if answer.stdout.strip() == b"idle":
            return
        time.sleep(1)
    pytest.skip("Slurm's daemons do not come up here")


def _ports(count: int) -> list[int]:
    """Ports that are free now."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports
