//! Chromium without a window, asked through its DevTools protocol.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long something may take that is sure to come: only a test that hangs ends by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    stream: TcpStream,
    profile: PathBuf,
    asked: u64,
    /// Errors of the console and exceptions.
    pub(crate) errors: Vec<String>,
}

fn executable() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let there = |name: &&str| {
        let mut command = Command::new(name);
        let command = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    names.into_iter().find(there)
}

impl Browser {
    /// Starts it; `None` where there is none, which is said.
    pub(crate) fn start(name: &str, size: [u32; 2]) -> Option<Self> {
        let Some(program) = executable() else {
            crate::support::skipped("Chromium");
            return None;
        };
        let profile =
            std::env::temp_dir().join(format!("dahl-browser-{name}-{}", std::process::id()));
        let mut child = Command::new(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0"])
            .arg("--remote-allow-origins=*")
            .arg(format!("--window-size={},{}", size[0], size[1]))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium starts");
        let lines = BufReader::new(child.stderr.take().expect("its words")).lines();
        let mut listening = lines.map_while(Result::ok);
        let address = listening
            .find_map(|line| Some(line.split_once("DevTools listening on ws://")?.1.to_owned()))
            .expect("an address");
        // It must not wait for somebody to read what else it says.
        std::thread::spawn(move || listening.for_each(drop));
        let host = address.split('/').next().expect("a host").to_owned();
        let pages: Value = serde_json::from_str(&get(&host, "/json/list")).expect("pages");
        let page = pages.as_array().expect("pages").iter().find(|p| p["type"] == "page");
        let url = page.expect("a page")["webSocketDebuggerUrl"].as_str().expect("its address");
        let path = url.trim_start_matches("ws://").trim_start_matches(&host).to_owned();
        let stream = connect(&host, &path);
        let mut browser = Self { child, stream, profile, asked: 0, errors: Vec::new() };
        for domain in ["Runtime", "Page", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(size);
        Some(browser)
    }

    /// The size of the window.
    pub(crate) fn resize(&mut self, [width, height]: [u32; 2]) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1,
                          "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Light or dark.
    pub(crate) fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Goes to an address and waits until the page is drawn.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.until("document.documentElement.dataset.ready !== undefined");
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let wait = format!(
            "new Promise((done, fail) => {{ const end = Date.now() + 500000; const look = () => {{ \
             let is; try {{ is = {expression}; }} catch (e) {{ is = false; }} \
             if (is) done(true); else if (Date.now() > end) fail('never'); \
             else setTimeout(look, 20); }}; look(); }})"
        );
        assert_eq!(self.value(&wait), json!(true), "{expression}");
    }

    /// The value of an expression.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let what = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", what);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key.len() == 1 && kind == "keyDown" { json!(key) } else { Value::Null };
            let mut event = json!({"type": kind, "key": key});
            if text.is_string() {
                event["text"] = text;
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Turns the wheel, presses or moves the mouse.
    pub(crate) fn mouse(&mut self, event: Value) {
        self.call("Input.dispatchMouseEvent", event);
    }

    /// A picture of the whole page, or of the window.
    pub(crate) fn picture(&mut self, file: &Path, whole: bool) {
        let shot = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": whole}));
        let bytes = decoded(shot["data"].as_str().expect("a picture"));
        std::fs::write(file, bytes).expect("a file");
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        send(&mut self.stream, &json!({"id": id, "method": method, "params": params}).to_string());
        loop {
            let text = receive(&mut self.stream).expect("an answer");
            let message: Value = serde_json::from_str(&text).expect("JSON");
            if message["id"] == json!(id) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.errors.push(message.to_string()),
                Some("Runtime.consoleAPICalled") if message["params"]["type"] == "error" => {
                    self.errors.push(message.to_string());
                }
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.errors.push(message.to_string());
                }
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// The body of an answer.
pub(crate) fn get(host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(host).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (None, String::new());
    while reader.read_line(&mut line).expect("a line") > 2 {
        let (name, value) = line.split_once(':').unwrap_or(("", ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
        line.clear();
    }
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body).expect("a body");
    String::from_utf8(body).expect("text")
}

/// A web socket, as far as this needs one.
fn connect(host: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(host).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

fn send(stream: &mut TcpStream, text: &str) {
    let length = text.len() as u64;
    let mut frame = vec![0x81];
    match length {
        0..126 => frame.push(0x80 | length as u8),
        126..65536 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend(length.to_be_bytes());
        }
    }
    // A mask of zeros is one.
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    stream.write_all(&frame).expect("a message");
}

fn receive(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head)?;
        let length = match head[1] & 0x7f {
            126 => {
                let mut long = [0; 2];
                stream.read_exact(&mut long)?;
                u64::from(u16::from_be_bytes(long))
            }
            127 => {
                let mut long = [0; 8];
                stream.read_exact(&mut long)?;
                u64::from_be_bytes(long)
            }
            short => u64::from(short),
        };
        let mut part = vec![0; length as usize];
        stream.read_exact(&mut part)?;
        // Pings and the like are no part of a message.
        if head[0] & 0x0f <= 2 {
            message.extend(part);
            if head[0] & 0x80 != 0 {
                return Ok(String::from_utf8(message).expect("text"));
            }
        }
    }
}

fn decoded(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().fold(0, |bits, &c| bits << 6 | digit(c)) << (6 * (4 - chunk.len()));
        bytes.extend(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}
