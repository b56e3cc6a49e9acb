//! A processor that reads from memory all the time: how much it gets, and a
//! neighbour to measure beside.

use crate::error::{Error, Result};
use crate::native::{available_bytes, pin, processors};
use crate::os::threads::{spawn_scoped, together};
use crate::perf::Bandwidth;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// More than a cache holds.
const BYTES: u64 = 128 << 20;
/// How much is read between looks at the clock.
const CHUNK: usize = (1 << 20) / 8;
/// Words of a page, on machines with the smallest.
const PAGE: usize = 4096 / 8;
/// How long streams are measured; in a debug build, which mostly measures itself, a tenth of it.
const LONG: Duration = Duration::from_millis(if cfg!(debug_assertions) { 15 } else { 150 });

/// What a thread reads round and round.
pub(super) struct Stream(Vec<u64>);

impl Stream {
    /// As large as the machine's memory allows.
    pub(super) fn new() -> Self {
        let most = available_bytes().map_or(BYTES, |bytes| BYTES.min(bytes / 8));
        let mut words = vec![0; (most as usize / 8).max(CHUNK)];
        // Pages that were never written to are all the same one.
        words.iter_mut().step_by(PAGE).for_each(|word| *word = 1);
        Self(words)
    }

    /// Reads until `stop` says so, at most for a time; bytes per second.
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
    ///
    /// # Errors
    /// Where there is no other thread to be had, or those of `body`.
    pub(super) fn beside<T>(&self, most: Duration, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            // It ends the other thread when it is dropped, also by a panic.
            let stop = &stop;
            let ended = Ended(stop);
            let other = spawn_scoped(scope, THREAD, move || {
                processors().last().map(|&last| pin(last));
                self.read(most, || stop.0.load(Ordering::Relaxed))
            });
            other.map_err(|source| Error::thread(THREAD, source))?;
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
///
/// # Errors
/// [`Error::Thread`] where there is no thread for the second.
pub fn bandwidth() -> Result<Option<Bandwidth>> {
    let two = processors().len() > 1;
    two.then(|| of_streams([&Stream::new(), &Stream::new()])).transpose()
}

pub(super) fn of_streams(streams: [&Stream; 2]) -> Result<Bandwidth> {
    let one = streams[0].read(LONG, || false);
    let next = AtomicUsize::new(0);
    let read = || streams[next.fetch_add(1, Ordering::Relaxed)].read(LONG, || false);
    let two = together(2, THREAD, read).map_err(|source| Error::thread(THREAD, source))?;
    Ok(Bandwidth { one, two: two.iter().sum() })
}

/// The name of the threads that read.
const THREAD: &str = "dahl-stream";
