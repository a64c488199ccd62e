//! The pages in a real browser: what a person sees of a node with one port down, and pictures of
//! it, which are left in `target/page` to be looked at.
#![expect(clippy::disallowed_methods, reason = "a test starts the browser")]

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::agent::{Agent, Machine};

const BROKEN: &str = "ionic_3";

/// A full node with a port down, after all of its parts were judged.
fn node() -> (Machine, Agent) {
    let machine = Machine::recorded("mi300x");
    for (file, text) in [("state", "1: DOWN\n"), ("phys_state", "2: Polling\n")] {
        fs::write(machine.file(&format!("sys/class/infiniband/{BROKEN}/ports/1/{file}")), text).unwrap();
    }
    let agent = machine.start();
    agent.settled(33);
    (machine, agent)
}

/// Debian's Chromium, without a window and without a word to anybody but the agent.
fn chromium(arguments: &[String]) -> Vec<u8> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--timeout=20000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .output()
        .expect("chromium is a package of Debian; tests/run installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The document as the browser has it.
fn dom(agent: &Agent, path: &str) -> String {
    let text = chromium(&["--dump-dom".to_string(), format!("http://{}{path}", agent.address)]);
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains("<script"), "a page works without script: {text}");
    text
}

/// The words that are seen: no markup, nothing out of closed `details`.
fn seen(dom: &str) -> String {
    let mut body = dom.split_once("<main>").expect("a page has a main part").1.to_string();
    while let Some(start) = body.find("<details>") {
        let end = start + body[start..].find("</details>").expect("the browser closes details");
        let inside = &body[start + "<details>".len()..end];
        let summary = inside.split_once("</summary>").map_or("", |(summary, _)| summary).to_string();
        body.replace_range(start..end + "</details>".len(), &summary);
    }
    let mut text = String::new();
    for piece in body.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, words)| words));
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_port_that_is_down_leads_from_the_headline_to_its_evidence() {
    let (_machine, agent) = node();
    let front = dom(&agent, "/");
    let words = seen(&front);
    for text in [
        "One part has failed",
        &format!("{BROKEN} port state"),
        "found 1: DOWN, 2: Polling",
        "expected 4: ACTIVE, 5: LinkUp",
        "ip link show benic4p1",
    ] {
        assert!(words.contains(text), "{text:?} is not to be seen: {words}");
    }
    let tree = words.split_once("Parts root complex").expect("the tree").1;
    assert_eq!(tree.matches("GPU AMD Instinct").count(), 8, "{tree}");
    assert_eq!(tree.matches(" NIC ionic_").count(), 8, "{tree}");
    assert_eq!(tree.split("Node and other checks").next().unwrap().matches(" fail").count(), 1, "{tree}");

    let link = format!("href=\"/part/{BROKEN}\"");
    assert!(front.contains(&link), "the part is not linked");
    let part = dom(&agent, &format!("/part/{BROKEN}"));
    let words = seen(&part);
    assert!(words.contains("found 1: DOWN") && words.contains("below 0000:"), "{words}");

    let nic = part.split_once("<h2>nic</h2>").expect("what nic says of the part").1;
    let run = nic.split_once("href=\"/run/").expect("a link to the run").1.split('"').next().unwrap();
    let words = seen(&dom(&agent, &format!("/run/{run}")));
    for text in ["found 1: DOWN", "expected 4: ACTIVE", "are not for everybody"] {
        assert!(words.contains(text), "{text:?} is not to be seen: {words}");
    }
}

#[test]
fn the_page_is_drawn_light_and_dark_wide_and_narrow() {
    let (_machine, agent) = node();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../page");
    fs::create_dir_all(&folder).unwrap();
    // By Blink's own numbers.
    let schemes = [("light", 1, [0xfb, 0xfb, 0xfa]), ("dark", 0, [0x13, 0x14, 0x16])];
    for (scheme, number, background) in schemes {
        for (shape, size) in [("wide", "1200,1900"), ("narrow", "500,2600")] {
            let file = folder.join(format!("{scheme}-{shape}.png"));
            let _ = fs::remove_file(&file);
            chromium(&[
                format!("--window-size={size}"),
                format!("--blink-settings=preferredColorScheme={number}"),
                format!("--screenshot={}", file.display()),
                format!("http://{}/", agent.address),
            ]);
            let picture = Picture::read(&file);
            assert_eq!(picture.at(0, 0), background, "{}", file.display());
            let drawn = picture.rows_drawn(background);
            assert!(drawn * 4 > picture.height, "{}: {drawn} of {} rows", file.display(), picture.height);
            // What is drawn over the right margin makes a phone scroll sideways.
            let edge = picture.width - 1;
            let over = (0..picture.height).find(|row| picture.at(edge, *row) != background);
            assert_eq!(over, None, "{}: something reaches the right edge", file.display());
        }
    }
}

/// A picture as the browser writes it: PNG, 8 bits of red, green and blue, perhaps alpha.
struct Picture {
    file: PathBuf,
    width: usize,
    height: usize,
    depth: usize,
    bytes: Vec<u8>,
}

impl Picture {
    fn read(file: &Path) -> Picture {
        let png = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let (width, height) = (number(16), number(20));
        let depth = match (png[24], png[25]) {
            (8, 2) => 3,
            (8, 6) => 4,
            other => panic!("{}: bits and colour type {other:?}", file.display()),
        };
        let (mut packed, mut at) = (Vec::new(), 8);
        while at < png.len() {
            if &png[at + 4..at + 8] == b"IDAT" {
                packed.extend_from_slice(&png[at + 8..at + 8 + number(at)]);
            }
            at += number(at) + 12;
        }
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        let mut picture = Picture { file: file.to_path_buf(), width, height, depth, bytes };
        picture.unfilter();
        picture
    }

    /// Each row begins with the number of the prediction that its bytes are differences to.
    fn unfilter(&mut self) {
        let stride = self.width * self.depth + 1;
        assert_eq!(self.bytes.len(), stride * self.height, "{}", self.file.display());
        for row in 0..self.height {
            let filter = self.bytes[row * stride];
            for column in 1..stride {
                let at = row * stride + column;
                let left = if column > self.depth { self.bytes[at - self.depth] } else { 0 };
                let up = if row > 0 { self.bytes[at - stride] } else { 0 };
                let corner =
                    if row > 0 && column > self.depth { self.bytes[at - stride - self.depth] } else { 0 };
                let guess = match filter {
                    0 => 0,
                    1 => left,
                    2 => up,
                    3 => u8::midpoint(left, up),
                    4 => {
                        let (a, b, c) = (i32::from(left), i32::from(up), i32::from(corner));
                        let distance = |value: i32| (a + b - c - value).abs();
                        if distance(a) <= distance(b) && distance(a) <= distance(c) {
                            left
                        } else if distance(b) <= distance(c) {
                            up
                        } else {
                            corner
                        }
                    }
                    other => panic!("{}: filter {other}", self.file.display()),
                };
                self.bytes[at] = self.bytes[at].wrapping_add(guess);
            }
        }
    }

    fn at(&self, column: usize, row: usize) -> [u8; 3] {
        let at = row * (self.width * self.depth + 1) + 1 + column * self.depth;
        self.bytes[at..at + 3].try_into().unwrap()
    }

    /// Rows with anything in them but background.
    fn rows_drawn(&self, background: [u8; 3]) -> usize {
        let drawn = |row: &usize| (0..self.width).any(|column| self.at(column, *row) != background);
        (0..self.height).filter(drawn).count()
    }
}
