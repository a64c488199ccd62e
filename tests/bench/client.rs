//! A scraper: one connection, requests one after the other, answers read to their end.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// Nobody answers this late: the figure would be worthless anyway.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a scraper asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Whether the connection is kept for the next request.
    pub(crate) keep: bool,
    pub(crate) gzip: bool,
}

/// A scraper of one address.
pub(crate) struct Client<'a> {
    address: &'a str,
    manner: Manner,
    kept: Option<BufReader<TcpStream>>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(address: &'a str, manner: Manner) -> Client<'a> {
        Client { address, manner, kept: None }
    }

    /// Gets a path, and gives the status and the bytes of the body as they came over the wire.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<(u16, usize)> {
        let mut stream = match self.kept.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                BufReader::new(stream)
            }
        };
        let gzip = if self.manner.gzip { "Accept-Encoding: gzip\r\n" } else { "" };
        let close = if self.manner.keep { "" } else { "Connection: close\r\n" };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: node-a\r\nAccept: text/plain;version=0.0.4\r\n{gzip}{close}\r\n"
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let answer = read_answer(&mut stream)?;
        if self.manner.keep {
            self.kept = Some(stream);
        }
        Ok(answer)
    }
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> io::Result<(u16, usize)> {
    let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let first = line(stream)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| odd(&first))?;
    let (mut length, mut chunked) = (None, false);
    loop {
        let header = line(stream)?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        chunked |= header.starts_with("transfer-encoding:") && header.ends_with("chunked");
    }
    if !chunked {
        let length = length.ok_or_else(|| odd("neither a length nor chunks"))?;
        skip(stream, length)?;
        return Ok((status, length));
    }
    let mut all = 0;
    loop {
        let size = line(stream)?;
        let size = usize::from_str_radix(&size, 16).map_err(|_| odd(&size))?;
        skip(stream, size + "\r\n".len())?;
        all += size;
        if size == 0 {
            return Ok((status, all));
        }
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_string())
}

fn skip(stream: &mut BufReader<TcpStream>, bytes: usize) -> io::Result<()> {
    let mut bytes_left = stream.take(bytes as u64);
    match io::copy(&mut bytes_left, &mut io::sink())? {
        read if read == bytes as u64 => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
