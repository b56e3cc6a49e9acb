//! Serves the page of the running job.

use super::http::{Refused, Request, answer, read};
use super::prometheus;
use super::state::Shared;
use dahl::report::{Mode, page, runs_json};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time; more are refused.
const CONNECTIONS: usize = 8;
/// How long a whole request may take: whoever has no token blocks a connection for no longer.
const ASKED: Duration = Duration::from_secs(2);
/// How long a whole answer may take.
const ANSWERED: Duration = Duration::from_secs(20);

/// A connection until a time.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl<'a> Until<'a> {
    fn new(stream: &'a TcpStream, time: Duration) -> Self {
        Self { stream, end: Instant::now() + time }
    }

    /// What is left; an error where nothing is.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A server that ends when it is dropped.
pub(super) struct Server {
    address: SocketAddr,
    token: Arc<str>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// 128 bits that nobody guesses: the standard library's hashers have keys from the system.
fn token() -> String {
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", word(), word())
}

impl Server {
    pub(super) fn start(address: SocketAddr, shared: Arc<Shared>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (token, ended): (Arc<str>, _) = (token().into(), Arc::new(AtomicBool::new(false)));
        let (secret, over) = (token.clone(), ended.clone());
        let open = Arc::new(AtomicUsize::new(0));
        let body = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    let busy = (503, "Service Unavailable");
                    let mut stream = Until::new(&stream, Duration::from_millis(10));
                    let _ = answer(&mut stream, busy, ("text/plain", b"too many connections\n"));
                    continue;
                }
                let (shared, secret, mine) = (shared.clone(), secret.clone(), open.clone());
                let serve = move || {
                    serve(&stream, &shared, &secret);
                    mine.fetch_sub(1, Ordering::Relaxed);
                };
                let thread = std::thread::Builder::new().name("dahl-http".to_owned());
                if thread.spawn(serve).is_err() {
                    open.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let thread = std::thread::Builder::new().name("dahl-dashboard".to_owned()).spawn(body)?;
        Ok(Self { address, token, ended, thread: Some(thread) })
    }

    /// Where to look.
    pub(super) fn url(&self) -> String {
        let Self { token, .. } = self;
        // Every address is none that a browser can go to.
        match self.address.ip().is_unspecified() {
            true => {
                let port = self.address.port();
                format!(
                    "http://127.0.0.1:{port}/?token={token} (and this machine's other addresses)"
                )
            }
            false => format!("http://{}/?token={token}", self.address),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        // Wakes the thread, so that it sees that it is over.
        if TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn same(a: &str, b: &str) -> bool {
    let differ = a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differ == 0
}

fn serve(stream: &TcpStream, shared: &Shared, token: &str) {
    let Some(request) = read(&mut Until::new(stream, ASKED)) else { return };
    let page = request.and_then(|request| route(&request, shared, token));
    let stream = &mut Until::new(stream, ANSWERED);
    let _ = match page {
        Ok((kind, body)) => answer(stream, (200, "OK"), (kind, body.as_bytes())),
        Err((status, reason)) => {
            answer(stream, (status, reason), ("text/plain", format!("{reason}\n").as_bytes()))
        }
    };
}

fn route(
    request: &Request,
    shared: &Shared,
    token: &str,
) -> Result<(&'static str, String), Refused> {
    if !request.token.as_deref().is_some_and(|given| same(given, token)) {
        return Err((403, "Forbidden: the token of the address is missing or wrong"));
    }
    match request.path.as_str() {
        "/" => {
            let runs = runs_json(&[shared.record()], None);
            Ok(("text/html", page(&runs, Mode::Live)))
        }
        "/data.json" => Ok(("application/json", runs_json(&[shared.record()], None).to_string())),
        "/metrics" => Ok(("text/plain; version=0.0.4", prometheus::text(shared))),
        _ => Err((404, "Not Found")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::energy::Meters;
    use crate::metered::Metered;
    use dahl::exec::Gauge;
    use dahl::meter::Sampler;
    use dahl::trace::{Activity, CellCount, CodeletCount, ShapeCount, WorkerTime};
    use dahl::train::Pass;

    struct Nothing;

    impl Gauge for Nothing {
        fn codelets(&self) -> Vec<CodeletCount> {
            Vec::new()
        }
        fn shapes(&self) -> Vec<ShapeCount> {
            vec![ShapeCount {
                codelet: "linear.gemm".to_owned(),
                shape: "f32[\"2\"]".to_owned(),
                calls: 3,
                nanos: 2_000_000_000,
                ..ShapeCount::default()
            }]
        }
        fn cells(&self) -> Vec<CellCount> {
            Vec::new()
        }
        fn activity(&self) -> Activity {
            let worker = WorkerTime { busy: 2_000_000_000, spinning: 0, parked: 0 };
            Activity { elapsed: 4_000_000_000, workers: vec![worker] }
        }
    }

    fn server() -> Server {
        let sampler = Sampler::start(Vec::new(), Duration::from_secs(1)).unwrap();
        let (warnings, hints) = (Vec::new(), Vec::new());
        let meters = Meters { sampler, warnings, hints, platform: None };
        let metered = Arc::new(Metered::begin(Arc::new(Nothing), meters));
        let shared = Shared::new(["</script><b>x", "lr = 1"], metered, Vec::new());
        shared.step(1, 7, &Pass { samples: 10, correct: 5, total_loss: 20.0 });
        Server::start(([127, 0, 0, 1], 0).into(), Arc::new(shared)).unwrap()
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn nothing_is_said_without_the_token() {
        let server = server();
        assert!(server.url().starts_with("http://127.0.0.1:"));
        for path in ["/", "/metrics", "/data.json", "/?token=", "/?token=0123"] {
            let answer = ask(&server, &format!("GET {path} HTTP/1.1\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
        }
        let wrong = format!("GET /?token={}x HTTP/1.1\r\n\r\n", server.token);
        assert!(ask(&server, &wrong).starts_with("HTTP/1.1 403 "));
        assert!(ask(&server, "DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(&server, "rubbish\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn pages_and_metrics_are_served() {
        let server = server();
        let get = |path: &str| {
            ask(&server, &format!("GET {path}?token={} HTTP/1.1\r\n\r\n", server.token))
        };
        let page = get("/");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{page}");
        assert!(!page.contains("</script><b>x"), "a name that is no markup");
        let metrics = get("/metrics");
        assert!(metrics.contains("\ndahl_steps_total 1\n"), "{metrics}");
        let labels = "{codelet=\"linear.gemm\"}";
        assert!(metrics.contains(&format!("\ndahl_codelet_seconds_total{labels} 2\n")));
        assert!(get("/data.json").contains("\"all\""));
        assert!(get("/other").starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn a_request_that_drips_in_has_an_end() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Each byte is in time, all together never are.
        let drip = std::thread::spawn(move || {
            while slow.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let (stream, _) = listener.accept().unwrap();
        assert!(read(&mut Until::new(&stream, Duration::from_millis(100))).is_none());
        drop(stream);
        drip.join().unwrap();
    }

    #[test]
    fn a_silent_visitor_keeps_nobody_out() {
        let server = server();
        let silent: Vec<TcpStream> =
            (0..CONNECTIONS - 1).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        let request = format!("GET /metrics?token={} HTTP/1.1\r\n\r\n", server.token);
        assert!(ask(&server, &request).starts_with("HTTP/1.1 200 "));
        drop(silent);
    }
}
