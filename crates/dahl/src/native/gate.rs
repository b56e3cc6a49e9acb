//! Counters that only grow, and waiting for them: spin, then park.
//!
//! Each worker has a counter that it alone advances; anyone may wait for a
//! counter to reach a value. The protocol is in README.md beside this file.

use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, lock, spin_loop, wait,
};

/// The run has been stopped: nothing that was waited for will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// Whether a wait was over at once, after spinning, or after sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There was nothing to wait for.
    Not,
    /// It spun.
    Spun,
    /// It spun and then slept.
    Parked,
}

/// A counter alone in its cache lines: neighbours are fetched in pairs.
#[repr(align(128))]
struct Padded(AtomicU64);

/// A set of growing counters.
pub(crate) struct Gate {
    counters: Box<[Padded]>,
    sleepers: AtomicUsize,
    stopped: AtomicBool,
    mutex: Mutex<()>,
    wake: Condvar,
    spins: u32,
}

impl Gate {
    /// `counters` counters at 0; a waiter looks `spins` times before it sleeps.
    pub(crate) fn new(counters: usize, spins: u32) -> Self {
        Self {
            counters: (0..counters).map(|_| Padded(AtomicU64::new(0))).collect(),
            sleepers: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            mutex: Mutex::new(()),
            wake: Condvar::new(),
            spins,
        }
    }

    /// Advances a counter. Everything written before is seen by whoever has
    /// waited for the value.
    #[inline]
    pub(crate) fn publish(&self, counter: usize, value: u64) {
        // Release: pairs with the Acquire of `reached`.
        self.counters[counter].0.store(value, Ordering::Release);
        self.notify();
    }

    /// Whether a counter has reached a value.
    #[inline]
    pub(crate) fn reached(&self, counter: usize, value: u64) -> bool {
        self.counters[counter].0.load(Ordering::Acquire) >= value
    }

    /// Waits until a counter has reached a value.
    #[inline]
    pub(crate) fn wait(&self, counter: usize, value: u64) -> Result<Waited, Stopped> {
        if self.reached(counter, value) {
            return Ok(Waited::Not);
        }
        self.wait_slowly(counter, value)
    }

    #[cold]
    fn wait_slowly(&self, counter: usize, value: u64) -> Result<Waited, Stopped> {
        for _ in 0..self.spins {
            if self.reached(counter, value) {
                return Ok(Waited::Spun);
            }
            if self.is_stopped() {
                return Err(Stopped);
            }
            spin_loop();
        }
        let mut guard = lock(&self.mutex);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `notify`: either the publisher sees this
        // sleeper, or this look sees the published value.
        fence(Ordering::SeqCst);
        while !self.reached(counter, value) && !self.is_stopped() {
            guard = wait(&self.wake, guard);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
        if self.reached(counter, value) { Ok(Waited::Parked) } else { Err(Stopped) }
    }

    /// Ends all waiting, now and later.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.notify();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    #[inline]
    fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // The lock is held by a sleeper from its announcement until it
            // waits: taking it means that the wake-up is not lost.
            drop(lock(&self.mutex));
            self.wake.notify_all();
        }
    }
}
