//! Threads: all of dahl's are started here, and none is taken for granted.

use super::{Op, perform};
use std::io;
use std::sync::{PoisonError, RwLock};
use std::thread::{Scope, ScopedJoinHandle};

// The model checks of the engine start its workers here too, as threads that loom schedules.
#[cfg(loom)]
use loom::thread::Builder;
#[cfg(loom)]
pub use loom::thread::JoinHandle;
#[cfg(not(loom))]
use std::thread::Builder;
#[cfg(not(loom))]
pub use std::thread::JoinHandle;

/// Starts a thread.
///
/// # Errors
/// Where the system has no thread to give.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    perform(Op::Spawn(name), || Builder::new().name(name.to_owned()).spawn(body))
}

/// Starts a thread with a stack of so many bytes.
///
/// # Errors
/// Where the system has no thread to give.
pub fn spawn_with_stack<T: Send + 'static>(
    name: &str,
    bytes: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = || Builder::new().name(name.to_owned()).stack_size(bytes);
    perform(Op::Spawn(name), || builder().spawn(body))
}

/// Starts a thread that ends within a scope.
///
/// # Errors
/// Where the system has no thread to give.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let builder = || std::thread::Builder::new().name(name.to_owned());
    perform(Op::Spawn(name), || builder().spawn_scoped(scope, body))
}

/// Does the same on so many threads, of which the caller's is one, when all of them are there.
///
/// # Errors
/// Where one cannot be started; then none has done anything.
///
/// # Panics
/// Where `work` does.
pub fn together<T: Send>(
    threads: usize,
    name: &str,
    work: impl Fn() -> T + Sync,
) -> io::Result<Vec<T>> {
    let gate = RwLock::new(false);
    let (gate, work) = (&gate, &work);
    std::thread::scope(|scope| {
        // They wait at the gate, and go home where it does not open.
        let mut open = gate.write().unwrap_or_else(PoisonError::into_inner);
        let body = move || gate.read().is_ok_and(|open| *open).then(work);
        let others: io::Result<Vec<_>> =
            (1..threads).map(|_| spawn_scoped(scope, name, body)).collect();
        *open = others.is_ok();
        drop(open);
        let others = others?;
        let mut results = vec![work()];
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        Ok(results)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_work_together_when_all_are_there() {
        for threads in [1, 2, 5] {
            let start = std::sync::Barrier::new(threads);
            let seen = together(threads, "dahl-test", || start.wait().is_leader()).unwrap();
            assert_eq!(seen.len(), threads);
            assert_eq!(seen.iter().filter(|leader| **leader).count(), 1);
        }
    }
}
