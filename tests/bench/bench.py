"""What `make bench` prints: jobs done by other collections' modules and by ours, side by side, under the same Ansible.

Requests are counted by a proxy before the server. CPU seconds are those of ansible-playbook and of everything it started,
the servers left out. Each number is the median of ROUNDS. Ansible's own start is measured as well, since it is the same
for both: the second ratio leaves it out.

Usage: bench.py ROOT TOOLS, the checkout and the folder of the programs of its .venv.
"""

import contextlib
import dataclasses
import getpass
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from proxy import Proxy, make_certificate

ROUNDS = 3
TASKS = 20
HOSTS = 50
HERE = Path(__file__).parent
PLAYBOOK = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent))
# The other collections' modules need the libraries that this Python has.
ONE_HOST = ("--inventory", "localhost,", "--extra-vars", f"ansible_python_interpreter={sys.executable}")
TOKEN = {"user": "bench@pve", "token_id": "bench", "token_secret": "5f1b7c1e-90ab-4f7e-8d0c-000000000000"}


@dataclasses.dataclass
class Cost:
    """Of one run, or the median of several."""

    requests: float
    wall: float
    cpu: float


def play(folder: Path, playbook: Path, variables: dict, arguments: tuple = ONE_HOST) -> Cost:
    """Runs a playbook to its good end; requests are the caller's to count."""
    environment = {
        **os.environ, "HOME": str(folder), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder), "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
    }
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [PLAYBOOK, *arguments, "--extra-vars", json.dumps(variables), playbook]
    run = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        raise SystemExit(run.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(0, time.monotonic() - began, cpu)


def median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(cost, field.name) for cost in costs) for field in dataclasses.fields(Cost)))


def counted(proxy: Proxy, run: Callable[[], Cost]) -> Cost:
    proxy.count = 0
    cost = run()
    return dataclasses.replace(cost, requests=proxy.count)


def ratio(theirs: float, ours: float) -> str:
    return f"{theirs / ours:8.1f}x" if ours > 0 else "        -"


def show(job: str, theirs: tuple[str, Cost], ours: tuple[str, Cost], start: Cost) -> None:
    print(f"\n{job}\n    {'':22}{theirs[0]:>24}{ours[0]:>16}    ratio   without Ansible's start")
    rows = (("requests", "requests", "8.0f"), ("wall time, seconds", "wall", "8.2f"), ("CPU time, seconds", "cpu", "8.2f"))
    for title, field, form in rows:
        they, we, base = (getattr(cost, field) for cost in (theirs[1], ours[1], start))
        without = ratio(they - base, we - base) if field != "requests" else ""
        if they or we:
            print(f"    {title:22}{they:>24{form[1:]}}{we:>16{form[1:]}}{ratio(they, we)}   {without}")


@contextlib.contextmanager
def child(*command: object, **options: object) -> Iterator[subprocess.Popen]:
    """A server of ours, ended with the block."""
    process = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        if time.monotonic() > until:
            raise SystemExit("a server of the bench does not get ready")
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def ansible_alone(folder: Path) -> Cost:
    """A play of one task that nobody has to run."""
    nothing = folder / "nothing.yml"
    nothing.write_text("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.meta: noop\n")
    return median([play(folder, nothing, {}) for _ in range(ROUNDS)])


# ------------------------------------------------------------------ a VM on fakepve

def template() -> dict:
    config = {
        "boot": "order=scsi0", "cores": 2, "memory": "2048", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "ostype": "l26",
        "scsi0": "local-lvm:base-8001-disk-0,size=10G", "scsihw": "virtio-scsi-single", "template": 1,
    }
    return {"kind": "qemu", "vmid": 8001, "name": "fedora-server-42-1.1", "node": "pve1", "template": True,
            "status": "stopped", "config": config}


@contextlib.contextmanager
def fakepve(root: Path, tools: Path, certificate: tuple[Path, Path]) -> Iterator[Proxy]:
    spec = {
        "host": "127.0.0.1", "port": 0, "cert": str(certificate[0]), "key": str(certificate[1]), "password": "unused",
        "time_scale": 0.0, "clone_secs": 0.0, "start_secs": 0.0, "nodes": ["pve1"], "storages": {}, "grants": [],
        "tokens": {f"{TOKEN['user']}!{TOKEN['token_id']}": TOKEN["token_secret"]}, "guests": [template()],
    }
    server = (tools / "python", root / "tests/lab/fakepve_server.py")
    quiet = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with child(*server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet) as process:
        process.stdin.write(json.dumps(spec) + "\n")
        process.stdin.flush()
        proxy = Proxy(f"127.0.0.1:{json.loads(process.stdout.readline())['port']}", certificate, tls=True)
        try:
            yield proxy
        finally:
            proxy.close()


def proxmox(folder: Path, root: Path, tools: Path, certificate: tuple[Path, Path], start: Cost) -> None:
    theirs = f"community.proxmox {collection_version('proxmox')}"
    made, kept = {}, {}
    with fakepve(root, tools, certificate) as proxy:
        for first, who in ((1000, "theirs"), (2000, "ours")):
            playbook = HERE / f"plays/proxmox_{who}.yml"
            costs = []
            for vmid in range(first, first + ROUNDS):
                variables = {**TOKEN, "api_port": proxy.port, "ca_path": str(certificate[0]), "vmid": vmid,
                             "vm_name": f"bench{vmid}", "mac": f"02:A5:00:00:{vmid >> 8:02X}:{vmid & 255:02X}"}
                costs.append([counted(proxy, lambda: play(folder, playbook, variables)) for _ in range(2)])
            made[who], kept[who] = (median(list(column)) for column in zip(*costs))
    for job, cost in (("Proxmox VE: clone, processors and memory, network card, data disk, grow, start", made),
                      ("Proxmox VE: the same again", kept)):
        show(job, (theirs, cost["theirs"]), ("homelab.anvil", cost["ours"]), start)


# ------------------------------------------------------------------ a server behind the sushy-tools emulator

# Its fake servers take a random time of up to eleven seconds to switch; here always the shortest, at most one. Our module
# waits until the server is on, the other does not.
EMULATOR = """
import random, sys
random.randint = lambda low, high: low
from sushy_tools.emulator.main import main
sys.exit(main())
"""


class CompletingProxy(Proxy):
    """Adds what the emulator lacks and our modules insist on: a serial, and an override for once that is used up."""

    is_once = False

    def sees(self, method: str, path: str, body: bytes) -> None:
        if method == "PATCH" and "/Systems/" in path:
            self.is_once = b'"Once"' in body

    def completes(self, path: str, body: bytes) -> bytes:
        if "/Systems/" not in path or b'"PowerState"' not in body:
            return body
        system = json.loads(body)
        system["SerialNumber"] = "BENCH01"
        if system["PowerState"] == "On":
            self.is_once = False
        system["Boot"]["BootSourceOverrideEnabled"] = "Once" if self.is_once else "Disabled"
        return json.dumps(system).encode()

    def power_off(self) -> None:
        """The server's other side: nobody's module does this."""
        def get(path: str) -> dict:
            return json.loads(self.ask("GET", path, {}, b"").read())

        system = get("/redfish/v1/Systems")["Members"][0]["@odata.id"]
        body, headers = b'{"ResetType": "ForceOff"}', {"Content-Type": "application/json"}
        self.ask("POST", f"{system}/Actions/ComputerSystem.Reset", headers, body).read()
        wait_until(lambda: get(system)["PowerState"] == "Off")


def redfish(folder: Path, tools: Path, certificate: tuple[Path, Path], start: Cost) -> None:
    theirs = f"community.general {collection_version('general')}"
    port = free_port()
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, "TMPDIR": str(folder)}}
    with child(tools / "python", "-c", EMULATOR, "--fake", "-i", "127.0.0.1", "-p", port, **silent):
        wait_until(lambda: listens(port))
        proxy = CompletingProxy(f"127.0.0.1:{port}", certificate)
        variables = {"api_port": proxy.port, "ca_path": str(certificate[0])}
        for job, name in (("Redfish: what a server is", "info"), ("Redfish: boot once from the network, switched on", "boot")):
            cost = {}
            for who in ("theirs", "ours"):
                costs = []
                for _ in range(ROUNDS):
                    proxy.power_off()
                    costs.append(counted(proxy, lambda: play(folder, HERE / f"plays/redfish_{name}_{who}.yml", variables)))
                cost[who] = median(costs)
            show(job, (theirs, cost["theirs"]), ("homelab.anvil", cost["ours"]), start)
        proxy.close()


def collection_version(name: str) -> str:
    found = metadata.distribution("ansible").locate_file(f"ansible_collections/community/{name}/MANIFEST.json")
    return json.loads(Path(found).read_text(encoding="utf-8"))["collection_info"]["version"]


# ------------------------------------------------------------------ over ssh

@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[tuple]:
    """A real sshd for this user that is HOSTS hosts; yields the arguments that name them to ansible-playbook."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    (folder / "sshd_config").write_text(f"""
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
MaxStartups 200
Subsystem sftp internal-sftp
""")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    common = (f"ansible_port={port} ansible_user={getpass.getuser()} ansible_ssh_private_key_file={folder}/user "
              f"ansible_python_interpreter=/usr/bin/python3 anvil_cache_dirs=\"['{folder}/cache']\" "
              "ansible_ssh_common_args='-F /dev/null -o HostName=127.0.0.1 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'")
    (folder / "hosts").write_text("".join(f"bench{number} {common}\n" for number in range(1, HOSTS + 1)))
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    with child(program, "-D", "-q", "-f", folder / "sshd_config"):
        wait_until(lambda: listens(port))
        try:
            yield ("--inventory", str(folder / "hosts"))
        finally:
            close_connections(folder)


def close_connections(folder: Path) -> None:
    """Ansible keeps its connections for a minute; they would outlive the bench."""
    for path in folder.iterdir():
        if path.is_socket():
            subprocess.run(["ssh", "-F", "/dev/null", "-o", f"ControlPath={path}", "-O", "exit", "-q", "anybody"], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


MODULES = (("theirs", "ansible.builtin.ping"), ("ours", "homelab.anvil.anvil_ping"))


def over_ssh(folder: Path, start: Cost) -> None:
    with sshd(folder) as everybody:
        tasks, many = {}, {}
        for who, module in MODULES:
            playbook = folder / f"{who}.yml"
            playbook.write_text("- hosts: all\n  gather_facts: false\n  tasks:\n"
                                f"    - {module}:\n      loop: \"{{{{ range(count | int) | list }}}}\"\n")
            one = (*everybody, "--limit", "bench1")
            play(folder, playbook, {"count": 1}, everybody)  # uploads what is kept, opens the connections
            loops = [[play(folder, playbook, {"count": count}, one) for count in (1, TASKS + 1)] for _ in range(ROUNDS)]
            tasks[who] = median([Cost(0, (long.wall - short.wall) / TASKS, (long.cpu - short.cpu) / TASKS)
                                 for short, long in loops])
            many[who] = median([play(folder, playbook, {"count": 1}, (*everybody, "--forks", "25")) for _ in range(ROUNDS)])
        names = [module for _, module in MODULES]
        nothing = Cost(0, 0, 0)
        show(f"ssh: one task, from loops of {TASKS}", (names[0], tasks["theirs"]), (names[1][14:], tasks["ours"]), nothing)
        show(f"ssh: one task on {HOSTS} hosts", (names[0], many["theirs"]), (names[1][14:], many["ours"]), start)


def main() -> None:
    root, tools = (Path(argument).resolve() for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="anvil-bench-") as name:
        folder = Path(name)
        certificate = make_certificate(folder)
        start = ansible_alone(folder)
        print(f"ansible-core {metadata.version('ansible-core')}; its start alone: {start.wall:.2f} s, CPU {start.cpu:.2f} s; "
              f"medians of {ROUNDS}")
        proxmox(folder, root, tools, certificate, start)
        redfish(folder, tools, certificate, start)
        over_ssh(folder, start)


if __name__ == "__main__":
    main()
