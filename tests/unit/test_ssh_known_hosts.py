"""known_hosts: which key of a host is trusted, and what the answer says when one is not."""

from __future__ import annotations

import base64
import hmac
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, SSHCertificateBuilder, SSHCertificateType

from assistant.errors import ConfigError
from assistant.ports import Failure
from assistant.transports.ssh_hosts import Host
from assistant.transports.ssh_keys import KnownHostRefusal, KnownHosts, KnownHostsFiles, read_known_hosts

NOW = datetime.now(UTC)
AUTHORITY = Ed25519PrivateKey.generate()
NODE = Ed25519PrivateKey.generate()
OTHER = Ed25519PrivateKey.generate()
CURVE = generate_private_key(SECP256R1())
Private = Ed25519PrivateKey
CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"


def public(key: object) -> str:
    text: bytes = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)  # type: ignore[attr-defined]
    return text.decode()


def wire(text: str) -> tuple[str, bytes]:
    kind, blob = text.split()[:2]
    return kind, base64.b64decode(blob)


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(hmac.digest(salt, name.encode(), 'sha1')).decode()}"


def judged(
    tmp_path: Path, lines: str, *, host: str = "node03", port: int = 22, shown: str = "", revoked: Path | None = None
) -> KnownHostRefusal | None:
    path = tmp_path / "known_hosts"
    path.write_text(lines)
    about = Host(host, host, "root", port, known_hosts=(path,), revoked_keys=revoked)
    return KnownHosts(read_known_hosts(path)).refusal(about, *wire(shown or public(NODE)), now=NOW)


def case(_: object) -> str:
    """Name cases by their number: the keys in them are new in every run."""
    return "case"


@pytest.mark.parametrize(
    "line",
    [
        f"node03 {public(NODE)} a remark",
        f"node01,node03,10.0.0.3 {public(NODE)}",
        f"NODE03 {public(NODE)}",
        f"node* {public(NODE)}",
        f"node0? {public(NODE)}",
        f"*,!login* {public(NODE)}",
        f"{hashed('node03')} {public(NODE)}",
        f"# a remark\n\nnonsense\nnode03 ssh-ed25519\nnode03 ssh-ed25519 !!!\n  node03 {public(NODE)}",
        f"node03 {public(CURVE)}\nnode03 {public(NODE)}",
        f"node03 {public(OTHER)}\nnode03 {public(NODE)}",
        f"@revoked node03 {public(OTHER)}\nnode03 {public(NODE)}",
        f"@revoked other {public(NODE)}\nnode03 {public(NODE)}",
    ],
    ids=case,
)
def test_a_key_that_is_written_down_is_trusted(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, line) is None


@pytest.mark.parametrize(
    ("line", "failure", "says"),
    [
        ("", Failure.UNKNOWN_KEY, "ssh-keyscan -t ed25519 node03 >> "),
        (f"node04 {public(NODE)}", Failure.UNKNOWN_KEY, "is not known: ssh-ed25519 SHA256:"),
        (f"*,!node03 {public(NODE)}", Failure.UNKNOWN_KEY, "is not known"),
        (f"{hashed('node04')} {public(NODE)}", Failure.UNKNOWN_KEY, "is not known"),
        (f"|2|AAAA|AAAA {public(NODE)}\n|1|oops {public(NODE)}", Failure.UNKNOWN_KEY, "is not known"),
        (f"node03 {public(CURVE)}", Failure.UNKNOWN_KEY, "known is only ecdsa-sha2-nistp256"),
        (f"@cert-authority node03 {public(NODE)}", Failure.UNKNOWN_KEY, "is not known"),
        (f"# one\nnode03 {public(OTHER)}", Failure.KEY_MISMATCH, "known_hosts:2: ssh-ed25519 SHA256:"),
        (f"{hashed('node03')} {public(OTHER)}", Failure.KEY_MISMATCH, "ssh-keygen -R 'node03' -f "),
        (f"node03 {public(NODE)}\n@revoked * {public(NODE)}", Failure.KEY_REVOKED, "known_hosts:2 revokes"),
    ],
    ids=case,
)
def test_any_other_key_is_refused_with_the_way_to_mend_it(line: str, failure: Failure, says: str, tmp_path: Path) -> None:
    refusal = judged(tmp_path, line)
    assert refusal is not None
    assert refusal.failure is failure
    assert says in refusal.why


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        (f"[node03]:2222 {public(NODE)}", None),
        (f"[node0*]:2222 {public(NODE)}", None),
        (f"{hashed('[node03]:2222')} {public(NODE)}", None),
        (f"node03 {public(NODE)}", None),  # OpenSSH looks without the port, too
        (f"node03 {public(OTHER)}", Failure.UNKNOWN_KEY),  # but accuses nobody on that ground
        (f"[node03]:2222 {public(OTHER)}\nnode03 {public(NODE)}", Failure.KEY_MISMATCH),
        (f"[node03]:2223 {public(NODE)}", Failure.UNKNOWN_KEY),
    ],
    ids=["its port", "glob", "hashed", "no port", "other key, no port", "other key on its port", "other port"],
)
def test_a_host_on_another_port_is_another_host(line: str, failure: Failure | None, tmp_path: Path) -> None:
    refusal = judged(tmp_path, line, port=2222)
    assert (refusal.failure if refusal else None) == failure


def certificate(
    *,
    signer: Private = AUTHORITY,
    names: tuple[bytes, ...] = (b"node03",),
    kind: SSHCertificateType = SSHCertificateType.HOST,
    start: float = -60,
    end: float = 3600,
    critical: bool = False,
) -> str:
    now = time.time()
    builder = SSHCertificateBuilder().public_key(NODE.public_key()).type(kind).key_id(b"node03")
    builder = builder.valid_principals(list(names)) if names else builder.valid_for_all_principals()  # type: ignore[no-untyped-call]
    builder = builder.valid_after(int(now + start)).valid_before(int(now + end))
    if critical:
        builder = builder.add_critical_option(b"unheard-of", b"")
    return builder.sign(signer).public_bytes().decode()


TRUSTED = f"@cert-authority node* {public(AUTHORITY)}\n"


@pytest.mark.parametrize(
    ("lines", "shown", "failure", "says"),
    [
        (TRUSTED, certificate(), None, ""),
        (TRUSTED, certificate(names=(b"node0*", b"x")), None, ""),
        (f"@cert-authority * {public(OTHER)}\nnode03 {public(NODE)}\n", certificate(), None, ""),
        (TRUSTED, certificate(signer=OTHER), Failure.UNKNOWN_KEY, "which no @cert-authority line"),
        (TRUSTED.replace("node*", "gpu*"), certificate(), Failure.UNKNOWN_KEY, "which no @cert-authority line"),
        (TRUSTED, certificate(names=(b"node04",)), Failure.KEY_MISMATCH, "is for node04, not for node03"),
        (TRUSTED, certificate(names=()), Failure.KEY_MISMATCH, "is for nobody"),
        (TRUSTED, certificate(kind=SSHCertificateType.USER), Failure.KEY_MISMATCH, "for users, not for hosts"),
        (TRUSTED, certificate(start=-100, end=-50), Failure.KEY_MISMATCH, "has run out on"),
        (TRUSTED, certificate(start=600), Failure.KEY_MISMATCH, "not valid yet"),
        (TRUSTED, certificate(critical=True), Failure.KEY_MISMATCH, "critical options"),
        (TRUSTED + f"@revoked * {public(AUTHORITY)}\n", certificate(), Failure.KEY_REVOKED, "revokes"),
        (TRUSTED + f"@revoked * {public(NODE)}\n", certificate(), Failure.KEY_REVOKED, "revokes"),
    ],
    ids=case,
)
def test_a_host_certificate_counts_when_its_signer_name_and_time_do(
    lines: str, shown: str, failure: Failure | None, says: str, tmp_path: Path
) -> None:
    refusal = judged(tmp_path, lines, shown=shown)
    assert (refusal.failure if refusal else None) == failure
    assert says in (refusal.why if refusal else "")


def test_a_certificate_with_one_bit_turned_is_refused(tmp_path: Path) -> None:
    kind, blob = wire(certificate())
    bent = f"{kind} {base64.b64encode(blob[:-5] + bytes([blob[-5] ^ 1]) + blob[-4:]).decode()}"
    refusal = judged(tmp_path, TRUSTED, shown=bent)
    assert refusal is not None
    assert refusal.failure is Failure.KEY_MISMATCH


def test_a_host_is_asked_for_the_kinds_of_key_that_are_known(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"node03 {public(CURVE)}\n@cert-authority node04 {public(AUTHORITY)}\n")
    known = KnownHosts(read_known_hosts(path))
    assert known.kinds(Host("node03", "node03", "root")) == ["ecdsa-sha2-nistp256"]
    assert known.kinds(Host("node04", "node04", "root")) == ["-cert-v01@openssh.com"]
    assert known.kinds(Host("node05", "node05", "root")) == []


def test_a_list_of_revoked_keys_is_heeded(tmp_path: Path) -> None:
    listed = tmp_path / "revoked"
    listed.write_text(f"# stolen\n{public(NODE)}\n")
    refusal = judged(tmp_path, f"node03 {public(NODE)}", revoked=listed)
    assert refusal is not None
    assert refusal.failure is Failure.KEY_REVOKED


@pytest.mark.parametrize("content", [None, b"SSHKRL\n\0\xff\xfe", b"no key at all\n"])
def test_without_its_list_of_revoked_keys_no_host_is_trusted(content: bytes | None, tmp_path: Path) -> None:
    listed = tmp_path / "revoked"
    if content is not None:
        listed.write_bytes(content)
    with pytest.raises(ConfigError, match="RevokedHostKeys"):
        judged(tmp_path, f"node03 {public(NODE)}", revoked=listed)


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    files = KnownHostsFiles()
    assert files.of((path,)).about("node03") == []
    path.write_text(f"node03 {public(NODE)}\n")
    first = files.of((path,))
    assert len(first.about("node03")) == 1
    assert files.of((path,)) is first


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(b"\xff\xfe\x00 garbage\nnode03 " + public(NODE).encode() + b"\n")
    assert len(read_known_hosts(path)) == 1
