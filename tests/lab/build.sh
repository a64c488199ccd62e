#!/usr/bin/env bash
# build.sh DIR: makes DIR/vmlinux and DIR/initramfs.cpio, the lab's kernel and its whole file system.
#
# Does nothing when they are up to date. Needs the packages of ./packages; the kernel's package is
# fetched by apt and only unpacked, never installed.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
exec 9>"$dir/lock"
flock 9

# The metapackage names the present kernel. Its "cloud" flavour has no rdma_rxe, 9p, nvme or e1000e.
version=${KVER:-$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: linux-image-\(.*\)$/\1/p' | head -1)}
[ -n "$version" ] || { echo "build.sh: apt knows no linux-image-amd64; run apt-get update" >&2; exit 1; }
stamp="$version $(cat build.sh guest/* | sha256sum | cut -c1-64)"
[ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ] || exit 0
rm -f "$dir/stamp"

kernel=$dir/kernel-$version
if [ ! -d "$kernel" ]; then
  rm -rf "$dir/fetched" "$kernel.part"
  mkdir -p "$dir/fetched" "$kernel.part"
  (cd "$dir/fetched" && apt-get -qq -o APT::Sandbox::User=root download "linux-image-$version")
  dpkg -x "$dir/fetched"/*.deb "$kernel.part"
  rm -r "$dir/fetched"
  find "$kernel.part/lib/modules" -name '*.ko.xz' -exec xz -d {} +
  depmod -b "$kernel.part" "$version"
  mv "$kernel.part" "$kernel"
fi

# QEMU enters an uncompressed ELF kernel by PVH. Under TCG that saves the 9 s in which a vmlinuz
# unpacks itself. The payload starts at an xz header; what follows it makes xz complain, so only the
# result is looked at.
for offset in $(LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$kernel/boot/vmlinuz-$version" | cut -d: -f1); do
  tail -c+$((offset + 1)) "$kernel/boot/vmlinuz-$version" | xz -dc --single-stream >"$dir/vmlinux.full" 2>/dev/null || true
  readelf -h "$dir/vmlinux.full" >/dev/null 2>&1 && break
done
strip -o "$dir/vmlinux" "$dir/vmlinux.full"
rm "$dir/vmlinux.full"

root=$dir/root
rm -rf "$root"
mkdir -p "$root"/{bin,dev,etc,lab,lib/modules,proc,root,run,sys,tmp,usr/lib,usr/share/misc,var/run}
ln -s bin "$root/sbin"
ln -s lib "$root/lib64"
ln -s ../bin "$root/usr/bin"
ln -s ../bin "$root/usr/sbin"

# crc32_pclmul is left out on purpose: the generic one is faster under TCG.
for module in virtio_pci virtio_net 9p 9pnet_virtio overlay e1000e aer_inject \
  ib_uverbs rdma_ucm rdma_rxe veth sch_netem sch_tbf crc32_generic crc32c_generic; do
  modprobe -d "$kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
  mkdir -p "$root/$(dirname "${file#"$kernel"/}")"
  cp "$file" "$root/${file#"$kernel"/}"
done
cp "$kernel/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/"
depmod -b "$root" "$version"

# add FILE [DEST]: a program with the libraries that it needs.
add() {
  mkdir -p "$root/$(dirname "${2:-bin/x}")"
  rm -f "$root/${2:-bin/$(basename "$1")}"
  cp -L "$1" "$root/${2:-bin/$(basename "$1")}"
  ldd "$1" 2>/dev/null | awk '/=> \//{print $3} $1 ~ /^\/lib/{print $1}' | while read -r library; do
    [ -e "$root/lib/$(basename "$library")" ] || cp -L "$library" "$root/lib/"
  done
}
cp /bin/busybox "$root/bin/busybox"
for applet in $(/bin/busybox --list); do [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"; done
for program in bash lspci setpci ip tc rdma ibv_devinfo ib_write_bw ib_write_lat; do
  path=$(command -v "$program") || { echo "build.sh: no $program; install the packages of tests/lab/packages" >&2; exit 1; }
  add "$path"
done
# What a Rust program needs beyond the libraries of the above.
cp -L /lib/x86_64-linux-gnu/lib{gcc_s,m}.so.* "$root/lib/"
# libibverbs opens its providers from an absolute folder, named by *.driver files.
add /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
mkdir -p "$root/etc/libibverbs.d"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
cp -L /usr/share/misc/pci.ids "$root/usr/share/misc/"
printf 'root:x:0:0:root:/root:/bin/bash\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
cp guest/lib.sh "$root/lib.sh"
install -m 755 guest/init "$root/init"

# Left uncompressed: QEMU reads it in no time, TCG unpacks slowly.
(cd "$root" && find . | LC_ALL=C sort | cpio -o -H newc --quiet -R 0:0) >"$dir/initramfs.cpio"
rm -r "$root"
echo "$stamp" >"$dir/stamp"
