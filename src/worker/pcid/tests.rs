use std::{os::unix::net::UnixStream, thread};

use super::{super::recorded::Machine, *};

const RDMA: &str = include_str!("../../../tests/fixtures/lab-rdma.tree");

/// A reader that ends by itself when nobody has asked for half a second.
fn serving(machine: &Machine) -> (PathBuf, thread::JoinHandle<anyhow::Result<()>>) {
    let path = machine.path().join("pcid.sock");
    let listener = listener(Some(&path)).unwrap();
    let sysfs = machine.roots().sysfs;
    (path, thread::spawn(move || serve(&listener, &sysfs, Duration::from_millis(500))))
}

fn raw(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_answers_for_gpus_nics_and_bridges_and_for_nothing_else() {
    let machine = Machine::of(RDMA);
    let (path, server) = serving(&machine);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let names = ["0000:24:00.0", "0000:41:00.0", "0000:20:00.0", "0000:25:00.0", "0000:99:00.0"];
    let answer = ask(&path, &names.map(str::to_string)).unwrap();
    for pci in &names[..3] {
        assert!(matches!(&answer[*pci], Config::Read(space) if space.express.is_some()), "{pci}");
    }
    assert_eq!(answer["0000:25:00.0"], Config::Hidden("it is no GPU, NIC or bridge".into()));
    assert_eq!(answer["0000:99:00.0"], Config::Hidden("there is no such function".into()));
    server.join().unwrap().unwrap();
}

#[test]
fn no_request_but_a_list_of_whole_addresses_is_taken() {
    let machine = Machine::of(RDMA);
    let (path, server) = serving(&machine);
    let many: Vec<String> = vec!["\"0000:24:00.0\"".into(); FUNCTIONS + 1];
    let table = [
        ("".to_string(), "the request is not"),
        ("{\"functions\":[\"../../../etc/shadow\"]}".to_string(), "is not a PCI address"),
        ("{\"functions\":[\"0000:24:00.0/../0000:25:00.0\"]}".to_string(), "is not a PCI address"),
        ("{\"functions\":[\"24:00.0\"]}".to_string(), "is not a PCI address"),
        ("{\"functions\":[],\"path\":\"/\"}".to_string(), "unknown field"),
        (format!("{{\"functions\":[{}]}}", many.join(",")), "more than 1024 functions"),
    ];
    for (request, why) in table {
        let answer = raw(&path, &request);
        assert!(answer.starts_with("{\"refused\":") && answer.contains(why), "{request:.60}: {answer}");
    }
    assert!(matches!(ask(&path, &["x".into()]), Err(AskError::Refused { .. })));
    server.join().unwrap().unwrap();
}

#[test]
fn a_client_that_stalls_or_floods_does_not_keep_others_waiting() {
    let machine = Machine::of(RDMA);
    let (path, server) = serving(&machine);
    let stalled = UnixStream::connect(&path).unwrap();
    let flood = "x".repeat(usize::try_from(REQUEST_BYTES).unwrap() + 8192);
    let mut flooding = UnixStream::connect(&path).unwrap();
    let begun = Instant::now();
    // The reader may hang up before all of it is taken, which is what it should do.
    let taken = flooding.write_all(flood.as_bytes());
    assert!(ask(&path, &["0000:24:00.0".into()]).unwrap().contains_key("0000:24:00.0"));
    assert!(begun.elapsed() < CLIENT_TIME + Duration::from_secs(1), "{:?} {taken:?}", begun.elapsed());
    drop(stalled);
    server.join().unwrap().unwrap();
}

#[test]
fn a_reader_that_is_not_there_is_named() {
    let error = ask(Path::new("/nowhere/pcid.sock"), &[]).unwrap_err();
    assert_eq!(error.to_string(), "pcid at /nowhere/pcid.sock");
}

#[test]
fn a_function_whose_read_hung_is_left_alone_for_a_while() {
    let machine = Machine::of(RDMA);
    let class = machine.file("0000:24:00.0", "class").canonicalize().unwrap();
    std::fs::remove_file(&class).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &class, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let (path, server) = serving(&machine);
    let names = ["0000:24:00.0", "0000:41:00.0"].map(str::to_string);
    for (words, quick) in [("class: no answer in time", false), ("earlier: no answer in time", true)] {
        let began = Instant::now();
        let answer = ask(&path, &names).unwrap();
        let hung = &answer["0000:24:00.0"];
        assert!(matches!(hung, Config::Hidden(why) if why.contains(words)), "{hung:?}");
        assert!(matches!(&answer["0000:41:00.0"], Config::Read(_)));
        assert_eq!(began.elapsed() < Duration::from_secs(1), quick);
    }
    server.join().unwrap().unwrap();
}
