"""Give the network of a trial's sandbox the interfaces of its node by name and address; nothing leads out of it.

Ranks find each other over the interface that GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names, and a process group cannot be made
where it is missing. It travels as text with `sandbox_program.py`, so it imports nothing but the standard library and runs on
Python 3.6.
"""

# What a newer Python would write does not run on the nodes' 3.6.
# ruff: noqa: UP006, UP035

import fcntl
import socket
import struct
from typing import List, Tuple

Interface = Tuple[str, bytes]
"""Name and IPv4 address, which is empty where it has none."""
MOST_INTERFACES = 16
KINDS = (b"dummy", b"ifb", b"bridge")
"""Links that need no other end; which of them a kernel has differs."""
RTM_NEWLINK, NLM_F_REQUEST_ACK_CREATE_EXCL = 16, 0x605
IFLA_IFNAME, IFLA_LINKINFO, IFLA_INFO_KIND = 3, 18, 1
SIOCSIFFLAGS, SIOCGIFADDR, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8915, 0x8916, 0x891C
ALONE = b"\xff\xff\xff\xff"
"""A mask by which an address has no neighbours: whoever asks another machine hears at once that it cannot be reached."""


def interface_call(name: str, request: int, argument: bytes = b"") -> bytes:
    """Return what the kernel answers of an interface; raise OSError where it refuses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        return fcntl.ioctl(link, request, struct.pack("16s24s", name.encode(), argument))


def switch_on(name: str) -> None:
    """Switch an interface on."""
    interface_call(name, SIOCSIFFLAGS, struct.pack("h", 1 | 64))  # up, running


def interfaces_of() -> List[Interface]:
    """Return the interfaces of this network, without the loopback."""
    interfaces = []  # type: List[Interface]
    for _, name in socket.if_nameindex():
        try:
            address = interface_call(name, SIOCGIFADDR)[20:24]
        except OSError:
            address = b""
        if name != "lo":
            interfaces.append((name, address))
    return sorted(interfaces, key=lambda interface: not interface[1])[:MOST_INTERFACES]  # those with an address first


def add_interfaces(interfaces: List[Interface]) -> None:
    """Make interfaces with those names and addresses; one that the kernel refuses stays away."""
    for name, address in interfaces:
        try:
            if not any(is_made(name, kind) for kind in KINDS):
                continue
            if address:
                interface_call(name, SIOCSIFADDR, struct.pack("HH4s", socket.AF_INET, 0, address))
                interface_call(name, SIOCSIFNETMASK, struct.pack("HH4s", socket.AF_INET, 0, ALONE))
            switch_on(name)
        except OSError:
            continue


def is_made(name: str, kind: bytes) -> bool:
    """Make an interface of a kind, and tell whether the kernel did."""
    info = attribute(IFLA_IFNAME, name.encode() + b"\0") + attribute(IFLA_LINKINFO, attribute(IFLA_INFO_KIND, kind))
    text = struct.pack("BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0) + info
    header = struct.pack("IHHII", 16 + len(text), RTM_NEWLINK, NLM_F_REQUEST_ACK_CREATE_EXCL, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(5)
        link.send(header + text)
        answer = link.recv(4096)
    return len(answer) >= 20 and struct.unpack_from("i", answer, 16)[0] == 0


def attribute(kind: int, text: bytes) -> bytes:
    """Return an attribute of a netlink message (rtnetlink(7))."""
    return struct.pack("HH", 4 + len(text), kind) + text + b"\0" * (-len(text) % 4)
