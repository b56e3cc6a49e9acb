//! Work on many samples on several threads, handed over in order.

use crate::os::threads::spawn_scoped;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// So many samples a thread takes at a time.
pub(super) const CHUNK: usize = 32;

/// Does `work` on chunks of `0..samples` on threads, and hands what it gives to `join`
/// in the order of the samples, whoever was faster; ends early where `join` breaks.
///
/// Where the system gives no more threads, those that there are do it all, at the least
/// this one.
pub(super) fn in_order<T: Send>(
    samples: usize,
    threads: NonZeroUsize,
    work: impl Fn(Range<usize>) -> T + Sync,
    join: &mut dyn FnMut(T) -> ControlFlow<()>,
) {
    with(threads.get(), samples, work, join);
}

/// The same on so many threads; on the caller's where that is none.
fn with<T: Send>(
    threads: usize,
    samples: usize,
    work: impl Fn(Range<usize>) -> T + Sync,
    join: &mut dyn FnMut(T) -> ControlFlow<()>,
) {
    let chunks = samples.div_ceil(CHUNK);
    // Which chunk is next is all that threads share.
    let next = AtomicUsize::new(0);
    let worker = |results: mpsc::Sender<(usize, T)>| {
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return;
            }
            let begin = chunk * CHUNK;
            let result = work(begin..(begin + CHUNK).min(samples));
            if results.send((chunk, result)).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let (results, arrived) = mpsc::channel();
        let started = (0..threads.min(chunks)).take_while(|_| {
            let (results, worker) = (results.clone(), &worker);
            spawn_scoped(scope, "dahl-samples", move || worker(results)).is_ok()
        });
        let started = started.count();
        drop(results);
        if started == 0 {
            // One at a time: nobody takes results while this thread works.
            for begin in (0..samples).step_by(CHUNK) {
                if join(work(begin..(begin + CHUNK).min(samples))).is_break() {
                    break;
                }
            }
            return;
        }
        let (mut early, mut joined) = (BTreeMap::new(), 0);
        for (chunk, result) in arrived {
            early.insert(chunk, result);
            while let Some(result) = early.remove(&joined) {
                joined += 1;
                if join(result).is_break() {
                    return;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(threads: usize, most: usize) -> Vec<usize> {
        let mut all = Vec::new();
        with(threads, 100, |range| range.collect::<Vec<_>>(), &mut |some| {
            all.extend(some);
            if all.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        all
    }

    #[test]
    fn chunks_come_in_order_whatever_the_threads() {
        for threads in [1, 2, 3, 50] {
            assert_eq!(joined(threads, 1000), (0..100).collect::<Vec<_>>());
            assert_eq!(joined(threads, 33), (0..64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn where_no_thread_can_be_created_the_caller_does_it_all() {
        assert_eq!(joined(0, 1000), (0..100).collect::<Vec<_>>());
        assert_eq!(joined(0, 33), (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn without_threads_no_result_waits_for_another() {
        struct Held<'a>(&'a AtomicUsize);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let held = AtomicUsize::new(0);
        let work = |_| {
            assert_eq!(held.fetch_add(1, Ordering::Relaxed), 0);
            Held(&held)
        };
        with(0, 1000, work, &mut |_| ControlFlow::Continue(()));
        assert_eq!(held.into_inner(), 0);
    }
}
