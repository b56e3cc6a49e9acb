//! Serves the page of the running job.

use super::http::{Refused, Request, answer, read};
use super::prometheus;
use dahl::os::threads::spawn;
use dahl::report::{Mode, content_security_policy, page, runs_json};
use dahl::run::View;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Answers at a time to those who have the token; more are refused.
const ANSWERS: usize = 8;
/// Connections at a time that have not shown the token; a newer one ends the oldest.
const STRANGERS: usize = 32;
/// Maximum time of a whole request.
const ASKED: Duration = Duration::from_secs(2);
/// Maximum time of a whole response.
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

    /// The remaining time; an error if there is none.
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

/// The connections that are open.
///
/// Whoever has no token cannot keep those out who have it: a request is read within
/// milliseconds of its connection, and only as many newer connections would end it before.
#[derive(Default)]
struct Visitors {
    /// The number of the next one.
    next: u64,
    /// Those that have not shown the token, the oldest first.
    strangers: VecDeque<(u64, TcpStream)>,
    /// Maximum number of simultaneous connections with the token.
    answered: usize,
}

impl Visitors {
    /// Lets one in; its number.
    fn enter(&mut self, stream: &TcpStream) -> io::Result<u64> {
        let handle = stream.try_clone()?;
        if self.strangers.len() >= STRANGERS
            && let Some((_, oldest)) = self.strangers.pop_front()
        {
            // Its thread reads the end of the stream.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        self.next += 1;
        self.strangers.push_back((self.next, handle));
        Ok(self.next)
    }

    /// One leaves that was a stranger until now.
    fn leave(&mut self, number: u64) {
        self.strangers.retain(|(other, _)| *other != number);
    }

    /// One has shown the token; whether it is answered now.
    fn admit(&mut self, number: u64) -> bool {
        self.leave(number);
        let room = self.answered < ANSWERS;
        self.answered += usize::from(room);
        room
    }
}

/// One visitor, whose place is free again however its thread ends.
struct Visit<'a> {
    visitors: &'a Mutex<Visitors>,
    number: u64,
    admitted: bool,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut visitors = lock(self.visitors);
        visitors.leave(self.number);
        visitors.answered -= usize::from(self.admitted);
    }
}

fn lock(visitors: &Mutex<Visitors>) -> MutexGuard<'_, Visitors> {
    visitors.lock().unwrap_or_else(|e| e.into_inner())
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
    pub(super) fn start(address: SocketAddr, shared: Arc<View>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (token, ended): (Arc<str>, _) = (token().into(), Arc::new(AtomicBool::new(false)));
        let (secret, over) = (token.clone(), ended.clone());
        let visitors = Arc::new(Mutex::new(Visitors::default()));
        let body = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let Ok(number) = lock(&visitors).enter(&stream) else { continue };
                let (shared, secret, all) = (shared.clone(), secret.clone(), visitors.clone());
                let serve = move || {
                    let mut visit = Visit { visitors: &all, number, admitted: false };
                    serve(&stream, (&shared, &secret), &mut visit);
                };
                if spawn("dahl-http", serve).is_err() {
                    lock(&visitors).leave(number);
                }
            }
        };
        let thread = spawn("dahl-dashboard", body)?;
        Ok(Self { address, token, ended, thread: Some(thread) })
    }

    /// A warning if other machines can reach it.
    pub(super) fn warning(&self) -> Option<String> {
        warning(self.address)
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

/// A warning for a server on an address.
fn warning(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "the dashboard on {address} is not encrypted: whoever reads the network traffic \
             sees the token and the run; serve it on 127.0.0.1 and use an SSH tunnel"
        )
    })
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn same(a: &str, b: &str) -> bool {
    let differ = a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differ == 0
}

fn serve(stream: &TcpStream, (shared, token): (&View, &str), visit: &mut Visit<'_>) {
    let Some(request) = read(&mut Until::new(stream, ASKED)) else { return };
    let allowed = request.and_then(|request| allowed(&request, token).map(|()| request));
    visit.admitted = allowed.is_ok() && lock(visit.visitors).admit(visit.number);
    let page = match (allowed, visit.admitted) {
        (Ok(request), true) => route(&request, shared),
        (Ok(_), false) => Err((503, "Service Unavailable: too many requests at once")),
        (Err(refused), _) => Err(refused),
    };
    let (stream, policy) = (&mut Until::new(stream, ANSWERED), content_security_policy(Mode::Live));
    let _ = match page {
        Ok((kind, body)) => answer(stream, (200, "OK"), (kind, body.as_bytes()), &policy),
        Err((status, reason)) => {
            let body = format!("{reason}\n");
            answer(stream, (status, reason), ("text/plain", body.as_bytes()), &policy)
        }
    };
}

/// Refuses those who have no token, and pages of elsewhere.
fn allowed(request: &Request, token: &str) -> Result<(), Refused> {
    if !request.is_by_address() {
        return Err((421, "Misdirected Request: ask by an IP address or localhost"));
    }
    if !request.token.as_deref().is_some_and(|given| same(given, token)) {
        return Err((403, "Forbidden: the token of the address is missing or wrong"));
    }
    Ok(())
}

fn route(request: &Request, shared: &View) -> Result<(&'static str, String), Refused> {
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
    use dahl::exec::Counters;
    use dahl::meter::Sampler;
    use dahl::run::Metered;
    use dahl::run::Meters;
    use dahl::trace::{Activity, CodeletCount, ShapeCount, WorkerCounts, WorkerTime};
    use dahl::train::Pass;

    struct Nothing;

    impl Counters for Nothing {
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
        fn by_worker(&self) -> Vec<WorkerCounts> {
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
        let shared = View::new(["</script><b>x", "lr = 1"], metered, Vec::new());
        shared.step(1, 7, &Pass { samples: 10, correct: 5, total_loss: 20.0 });
        Server::start(([127, 0, 0, 1], 0).into(), Arc::new(shared)).unwrap()
    }

    /// The response to a method with a path.
    fn ask(server: &Server, what: &str) -> String {
        let Server { address, .. } = server;
        sent(server, &format!("{what} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
    }

    fn sent(server: &Server, request: &str) -> String {
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
            let answer = ask(&server, &format!("GET {path}"));
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
        }
        let wrong = format!("GET /?token={}x", server.token);
        assert!(ask(&server, &wrong).starts_with("HTTP/1.1 403 "));
        assert!(ask(&server, "DELETE /").starts_with("HTTP/1.1 405 "));
        assert!(sent(&server, "rubbish\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn pages_and_metrics_are_served() {
        let server = server();
        let get = |path: &str| ask(&server, &format!("GET {path}?token={}", server.token));
        let page = get("/");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{page}");
        assert!(!page.contains("</script><b>x"), "a name that is no markup");
        let head = page.split("\r\n\r\n").next().unwrap();
        assert!(
            head.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-")
        );
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
    fn a_page_of_another_name_gets_nothing() {
        let server = server();
        let by = |host: &str| {
            let path = format!("/data.json?token={}", server.token);
            sent(&server, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        };
        let port = server.address.port();
        assert!(by(&format!("evil.example:{port}")).starts_with("HTTP/1.1 421 "));
        assert!(by(&format!("localhost:{port}")).starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn visitors_without_the_token_keep_nobody_out() {
        let server = server();
        let strangers: Vec<TcpStream> =
            (0..2 * STRANGERS).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        let answer = ask(&server, &format!("GET /metrics?token={}", server.token));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop(strangers);
    }

    #[test]
    fn an_address_of_the_network_is_warned_of() {
        assert_eq!(warning(([127, 0, 0, 1], 7).into()), None);
        for address in [[0, 0, 0, 0], [192, 168, 0, 7]] {
            let told = warning((address, 7).into()).unwrap();
            assert!(told.contains("is not encrypted"), "{told}");
        }
    }
}
