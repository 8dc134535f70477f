"""Readings for which no single program exists: short constant scripts of plain shell that start as few programs as they can."""

from __future__ import annotations

PCI = (
    "sh",
    "-c",
    "for d in /sys/bus/pci/devices/*; do [ -r $d/class ] || continue; read -r c <$d/class; "
    "case $c in 0x03*|0x12*|0x0207*|0x0680*|0x0108*) ;; *) continue ;; esac; v=-; read -r v <$d/vendor; "
    "w=-; W=-; [ -r $d/current_link_width ] && { read -r w <$d/current_link_width; read -r W <$d/max_link_width; } "
    "2>/dev/null; "
    'f=-; n=-; k=-; for a in fatal nonfatal correctable; do [ -r "$d/aer_dev_$a" ] || continue; '
    "while read -r key x; do case $key in TOTAL*) case $a in fatal) f=$x ;; nonfatal) n=$x ;; *) k=$x ;; esac ;; "
    'esac; done <"$d/aer_dev_$a"; '
    "done; echo pci ${d##*/} $c $v $w $W $f $n $k; done; "
    "for f in /dev/ipmi0 /dev/nvidia[0-9]* /dev/kfd /sys/class/infiniband/*; do [ -e $f ] && echo device $f; done; echo end",
)
"""`pci ADDRESS CLASS VENDOR WIDTH WIDEST FATAL NONFATAL CORRECTED` for GPUs, NVSwitches, HCAs and NVMe; then `device
PATH`, `end`."""

INFINIBAND = (
    "sh",
    "-c",
    "cd /sys/class/infiniband 2>/dev/null || { echo end; exit 0; }; for p in */ports/*; do [ -r $p/state ] ||"
    " continue; h=${p%%/*}; "
    "for f in $h/hca_type $p/state $p/phys_state $p/rate $p/link_layer $p/counters/symbol_error "
    "$p/counters/link_error_recovery "
    "$p/counters/link_downed $p/counters/port_rcv_errors $p/counters/port_xmit_discards "
    "$p/counters/local_link_integrity_errors "
    "$p/counters/excessive_buffer_overrun_errors $p/hw_counters/out_of_sequence $p/hw_counters/packet_seq_err "
    "$p/hw_counters/local_ack_timeout_err $p/hw_counters/rnr_nak_retry_err $h/device/net/*/carrier_changes; do "
    'x=; { [ -r $f ] && read -r x <$f; } 2>/dev/null; [ -n "$x" ] && echo port $h ${p##*/} ${f##*/} $x; done; done; echo end',
)
"""`port HCA NUMBER NAME VALUE` for each value of each port; then `end`."""

MOUNTS = (
    "sh",
    "-c",
    'ask() { r=$(timeout -k 1 2 stat -f -c \'%S %b %a %c %d\' -- "$(printf %b "$1")" 2>&1); s=$?; printf \'answer %s '
    '%s %s\\n\' "$1" $s "$r"; }; '
    "[ -r /sys/fs/lustre/health_check ] && { read -r h </sys/fs/lustre/health_check; echo lustre $h; }; "
    "while read -r s t m o r; do case $s in '#'*|'') continue ;; esac; case $m in nfs|nfs4|lustre|gpfs|beegfs|"
    "ceph) ;; *) continue ;; esac; "
    "case ,$o, in *,noauto,*|"
    '*,x-systemd.automount,*) ;; *) printf \'wanted %s %s\\n\' "$m" "$t" ;; esac; done </etc/fstab 2>/dev/null; '
    "while read -r s t m o r; do case $m in nfs|nfs4|lustre|gpfs|beegfs|ceph|cifs|fuse.*|ext[234]|xfs|btrfs|zfs|"
    "overlay|tmpfs) ;; *) continue ;; esac; "
    "case $m:$t in overlay:/|tmpfs:/dev/shm) ;; "
    "overlay:*|tmpfs:/dev|tmpfs:/run/*|tmpfs:/sys/*|tmpfs:/proc/*|*:/var/lib/docker/*|*:/var/lib/kubelet/*|*:/snap/*) continue ;; "
    "esac; "
    'printf \'mount %s %s %s\\n\' "$m" "$t" "$o"; ask "$t" & done </proc/mounts; wait; echo end',
)
"""`wanted TYPE PLACE` (fstab), `mount TYPE PLACE OPTIONS`, `answer PLACE STATUS SIZE BLOCKS FREE INODES FREE`; `end`
when none hangs."""

PROCESSES = (
    "sh",
    "-c",
    "ps -eo pid=,ppid=,stat=,etimes=,comm= || exit $?; echo again; sleep 1; ps -eo pid=,ppid=,stat=,etimes=,comm=; echo end",
)
"""All processes at two looks, a second apart."""

DAEMONS = (
    "sh",
    "-c",
    "[ -r /etc/slurm/slurm.conf ] && command -v slurmd >/dev/null && printf 'wanted slurmd\\nwanted munged\\n'; "
    "command -v nv-fabricmanager >/dev/null && grep -qs 0x0680 /sys/bus/pci/devices/*/class && echo wanted nv-fabricmanager; "
    "[ -x /usr/lpp/mmfs/bin/mmfsd ] && echo wanted mmfsd; command -v chronyd >/dev/null && echo wanted chronyd; "
    "ps -eo comm= || exit $?; echo end",
)
"""`wanted NAME` for each daemon whose program and configuration are there, then the names of all processes, then `end`."""

CLOCK = (
    "sh",
    "-c",
    "date +%s.%N; command -v chronyc >/dev/null 2>&1 && timeout 1 chronyc -c -n tracking 2>/dev/null; exit 0",
)
"""Seconds since 1970; then, where chrony runs, its state as comma-separated values."""
