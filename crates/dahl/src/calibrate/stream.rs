//! A processor that reads from memory all the time: how much it gets, and a
//! neighbour to measure beside.

use crate::native::{available_bytes, pin, processors};
use crate::perf::Bandwidth;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More than a cache holds.
const BYTES: u64 = 128 << 20;
/// How much is read between looks at the clock.
const CHUNK: usize = (1 << 20) / 8;
/// How long streams are measured.
const LONG: Duration = Duration::from_millis(150);

/// What a thread reads round and round.
pub(super) struct Stream(Vec<u64>);

impl Stream {
    /// As large as the machine's memory allows.
    pub(super) fn new() -> Self {
        let most = available_bytes().map_or(BYTES, |bytes| BYTES.min(bytes / 8));
        Self(vec![1; (most as usize / 8).max(CHUNK)])
    }

    /// Reads until `stop` says so, at most for a time; bytes a second.
    fn read(&self, most: Duration, stop: impl Fn() -> bool) -> f64 {
        let (begin, mut bytes) = (Instant::now(), 0);
        for chunk in self.0.chunks(CHUNK).cycle() {
            let sum = black_box(chunk).iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
            black_box(sum);
            bytes += size_of_val(chunk);
            if begin.elapsed() >= most || stop() {
                break;
            }
        }
        bytes as f64 / begin.elapsed().as_secs_f64()
    }

    /// Runs `body` while another thread reads, on the last processor and for a time
    /// at most.
    pub(super) fn beside<T>(&self, most: Duration, body: impl FnOnce() -> T) -> T {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            // It ends the other thread when it is dropped, also by a panic.
            let stop = &stop;
            let ended = Ended(stop);
            scope.spawn(move || {
                processors().last().map(|&last| pin(last));
                self.read(most, || stop.0.load(Ordering::Relaxed))
            });
            let result = body();
            drop(ended);
            result
        })
    }
}

#[derive(Default)]
struct Stop(AtomicBool);

struct Ended<'a>(&'a Stop);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// What one and two streams get from memory; `None` where there is one processor.
pub fn bandwidth() -> Option<Bandwidth> {
    (processors().len() > 1).then(|| of_streams([&Stream::new(), &Stream::new()]))
}

pub(super) fn of_streams(streams: [&Stream; 2]) -> Bandwidth {
    let one = streams[0].read(LONG, || false);
    let start = Barrier::new(2);
    let read = |stream: &Stream| {
        start.wait();
        stream.read(LONG, || false)
    };
    let two = std::thread::scope(|scope| {
        let other = scope.spawn(|| read(streams[1]));
        read(streams[0]) + other.join().expect("no panic")
    });
    Bandwidth { one, two }
}
