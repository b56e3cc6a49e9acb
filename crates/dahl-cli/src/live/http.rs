//! As much of HTTP/1.1 as a page on this machine needs: GET, one request a connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The most bytes of a request.
const LONGEST: usize = 8 * 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) path: String,
    /// The token of the query or of `Authorization: Bearer`.
    pub(super) token: Option<String>,
    /// The machine that was asked, as the other end calls it.
    pub(super) host: String,
}

impl Request {
    /// Whether the machine is called by an address, or `localhost`. A page of elsewhere whose
    /// name was made to lead here (DNS rebinding) asks by that name.
    pub(super) fn is_by_address(&self) -> bool {
        let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
        let name = match self.host.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            _ => &self.host,
        };
        let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<Ipv4Addr>().is_ok()
            || v6.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok())
    }
}

/// Why a request is not answered: the status.
pub(super) type Refused = (u16, &'static str);

/// Reads a request up to the empty line behind its head. `None` where the other end has
/// gone.
pub(super) fn read(stream: &mut dyn Read) -> Option<Result<Request, Refused>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if let Some(end) = find(&head, b"\r\n\r\n").or_else(|| find(&head, b"\n\n")) {
            head.truncate(end);
            return Some(parse(&head));
        }
        if head.len() > LONGEST {
            return Some(Err((431, "Request Header Fields Too Large")));
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => head.extend_from_slice(&buffer[..n]),
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn parse(head: &[u8]) -> Result<Request, Refused> {
    let bad = (400, "Bad Request");
    let text = std::str::from_utf8(head).map_err(|_| bad)?;
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(bad);
    }
    if method != "GET" {
        return Err((405, "Method Not Allowed"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut token = None;
    for pair in query.split('&') {
        if let Some(value) = pair.strip_prefix("token=") {
            token = Some(value.to_owned());
        }
    }
    let mut host = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(bad)?;
        if name.eq_ignore_ascii_case("host") && host.replace(value.trim().to_owned()).is_some() {
            return Err(bad);
        }
        if name.eq_ignore_ascii_case("authorization") {
            token = value.trim().strip_prefix("Bearer ").map(str::to_owned).or(token);
        }
    }
    Ok(Request { path: path.to_owned(), token, host: host.ok_or(bad)? })
}

/// Writes an answer and ends the connection; `policy` is what a page may load and run.
pub(super) fn answer(
    stream: &mut dyn Write,
    (status, reason): (u16, &str),
    (kind, body): (&str, &[u8]),
    policy: &str,
) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}; charset=utf-8\r\n\
         Content-Length: {}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
         Content-Security-Policy: {policy}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Option<Result<Request, Refused>> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn a_request_is_read() {
        let request = asked("GET /metrics?x=1&token=abc HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let (path, token, host) = ("/metrics".to_owned(), Some("abc".to_owned()), "x".to_owned());
        assert_eq!(request, Ok(Request { path, token, host }));
        let bearer = "GET / HTTP/1.0\r\nhost: x\r\nauthorization: Bearer t\r\n\r\n";
        let bearer = asked(bearer).unwrap();
        assert_eq!(bearer.unwrap().token.as_deref(), Some("t"));
    }

    #[test]
    fn a_machine_is_asked_by_its_address() {
        let check = |host: &str, expected: bool| {
            let request = asked(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let request = request.unwrap().unwrap();
            assert_eq!(request.is_by_address(), expected, "{host}");
        };
        for host in
            ["127.0.0.1", "127.0.0.1:8080", "10.1.2.3:1", "[::1]:80", "[::1]", "LocalHost:1"]
        {
            check(host, true);
        }
        for host in ["", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "::1", "1"]
        {
            check(host, false);
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (text, status) in [
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("GET /\r\n\r\n", 400),
            ("GET / HTTP/2\r\n\r\n", 400),
            ("GET http://x/ HTTP/1.1\r\n\r\n", 400),
            ("GET / x HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nnonsense\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nx: y\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nhost: x\r\n\r\n", 400),
            ("\r\n\r\n", 400),
        ] {
            assert_eq!(asked(text).unwrap().unwrap_err().0, status, "{text:?}");
        }
        assert_eq!(read(&mut &b"GET /\xff HTTP/1.1\r\n\r\n"[..]).unwrap().unwrap_err().0, 400);
        let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(3 * LONGEST));
        assert_eq!(asked(&long).unwrap().unwrap_err().0, 431);
        assert!(asked("GET / HTT").is_none(), "it has gone");
    }
}
