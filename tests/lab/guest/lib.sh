# lib.sh: what a command in the guest may use, by `. /lib.sh`.

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "not in time: $*" >&2; return 1; }
    sleep 0.05
  done
}

# wait_listen PORT: until something listens on the TCP port.
wait_listen() { wait_for 10 grep -qi ":$(printf %04X "$1") 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; }

# netdev_of PCI: the network interface of a PCI function. A virtio interface's device is a virtioN
# below the function; other drivers' is the function itself.
netdev_of() { ls -d /sys/bus/pci/devices/"$1"/{,virtio*/}net/* 2>/dev/null | sed 's,.*/,,'; }

# slot_of PCI: the hot plug slot that the function is in.
slot_of() { grep -lx "${1%.*}" /sys/bus/pci/slots/*/address | sed 's,/address,,'; }

# rxe_mod: loads Soft-RoCE and the user's side of verbs.
rxe_mod() { modprobe -a ib_uverbs rdma_ucm rdma_rxe; }

# rxe_pair [MTU]: rxe0 on veth v0 (10.0.0.1) and rxe1 on veth v1 (10.0.0.2).
rxe_pair() {
  modprobe veth
  ip link add v0 mtu "${1:-9000}" type veth peer name v1 mtu "${1:-9000}"
  rxe_join v0 v1 "${1:-9000}"
}

# rxe_join IF0 IF1 [MTU]: rxe0 on IF0 (10.0.0.1) and rxe1 on IF1 (10.0.0.2), which share a wire.
# Both must be in the first network namespace, the only one in which rxe has a socket. There Linux
# delivers between its own addresses through lo, where rxe does not listen; so rules that put this
# traffic on the wire go before the "local" table.
rxe_join() {
  local interface number=0 knobs
  for interface in "$1" "$2"; do
    knobs=/proc/sys/net/ipv4/conf/$interface
    echo 1 >"$knobs/accept_local"; echo 0 >"$knobs/rp_filter"; echo 1 >"$knobs/arp_ignore"; echo 2 >"$knobs/arp_announce"
    echo 1 >"/proc/sys/net/ipv6/conf/$interface/disable_ipv6"
    number=$((number + 1))
    ip link set "$interface" mtu "${3:-9000}"
    ip addr add 10.0.0.$number/24 dev "$interface" noprefixroute
    ip link set "$interface" up
  done
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  ip rule add pref 10 iif lo to 10.0.0.2 lookup 102
  ip rule add pref 11 iif lo to 10.0.0.1 lookup 101
  ip rule add pref 50 lookup local
  ip rule del pref 0 lookup local
  rxe_routes "$1" "$2"
  rdma link add rxe0 type rxe netdev "$1"
  rdma link add rxe1 type rxe netdev "$2"
}

# rxe_routes IF0 IF1: rxe_join's routes once more, after a link was down, which drops them.
rxe_routes() {
  ip route replace 10.0.0.2 dev "$1" src 10.0.0.1 table 102
  ip route replace 10.0.0.1 dev "$2" src 10.0.0.2 table 101
}

# ib_device RXE PCI: gives a Soft-RoCE device, which has none, a `device` link to a PCI function, by
# an overlay over its sysfs folder. Files put into /tmp/overlay/RXE/upper before, such as
# ports/1/counters, appear too; the other attributes stay live.
ib_device() {
  local folder=/sys/devices/virtual/infiniband/$1 overlay=/tmp/overlay/$1 function
  modprobe overlay
  mkdir -p "$overlay/upper" "$overlay/work"
  function=$(readlink -f "/sys/bus/pci/devices/$2")
  ln -sfn "../../../${function#/sys/devices/}" "$overlay/upper/device"
  mount -t overlay "$1" -o "lowerdir=$folder,upperdir=$overlay/upper,workdir=$overlay/work" "$folder"
}

# pids_of PATTERN: the processes whose command line matches, without those that are about to become
# something else.
pids_of() { ps w | awk -v pattern="$1" '$0 ~ pattern && !/fabricpulse limits/ && !/awk/ { print $1 }'; }
