//! The lab: the agent in a virtual machine whose PCIe tree changes while it runs.

mod lspci;
mod machine;
mod registers;

#[test]
fn record() {
    use registers::Register;
    let t = std::time::Instant::now();
    let mut machine = machine::Machine::boot();
    println!("boot {:?}", t.elapsed());
    machine.sh("modprobe -a e1000e nvme");
    let t = std::time::Instant::now();
    machine.find_registers();
    println!("find {:?}", t.elapsed());
    let r = machine.registers();
    let e = |f: &str, o, s| r.express(f, o, s).unwrap();
    for f in r.functions() {
        println!("{f} {:?} {:?}", e(&f, 0, 2), r.extended(&f, 0xd, 6, 2));
    }
    for f in ["0000:20:00.0", "0000:21:00.0", "0000:23:00.0"] {
        r.set(f, e(f, 0xc, 4), 0x3ff, 5 | 16 << 4);
        r.set(f, e(f, 0x2c, 4), 0xfe, 0x3e);
        r.set(f, e(f, 0x12, 2), 0x3ff, 5 | 16 << 4);
    }
    let f = "0000:23:00.0";
    r.set(f, e(f, 0x12, 2), 0x3ff, 3 | 8 << 4);
    r.set(f, e(f, 4, 4), 7, 2);
    r.allow(f, e(f, 8, 2), 0x7fff);
    r.set(f, e(f, 0x28, 2), 0x1000, 0x1000);
    println!("{}", machine.sh("setpci -s 23:00.0 CAP_EXP+8.w=0050:70f0; setpci -s 20:00.0 ECAP_ACS+6.w=1d; lspci -vvvn >/lab/vvvn; time lspci -vvvn >/dev/null"));
    std::fs::copy(machine.shared("vvvn"), "/tmp/ltest/lspci.txt").unwrap();
    let _ = Register { offset: 0, size: 0 };
}
