//! Leases: buffers of a session that are lent out.
//!
//! # Invariant
//! There is one [`Lease`] of a buffer at a time, and no task uses the buffer while it lives.
#![expect(unsafe_code, reason = "reaches bytes that a lease has for itself")]

use super::sync::{AtomicBool, Ordering};
use crate::exec::{Buffer, Lent};
use std::sync::Arc;

/// Tells whether a lease that was given its [`Held`] is still alive. A flag and
/// not `Arc::strong_count`, which orders nothing: the reads under the lease
/// could then still be going on while the engine writes.
pub(crate) struct Token(Arc<AtomicBool>);

/// Lives as long as a lease.
pub(crate) struct Held(Arc<AtomicBool>);

impl Token {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Whether it is held. Once it says no, everything that was done under the
    /// lease has happened before.
    pub(crate) fn is_held(&self) -> bool {
        // Acquire: pairs with the Release of `Held`'s drop.
        self.0.load(Ordering::Acquire)
    }

    /// Holds it; it must not be held.
    pub(crate) fn hold(&self) -> Held {
        assert!(!self.is_held(), "one lease at a time");
        self.0.store(true, Ordering::Relaxed);
        Held(self.0.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Exclusive use of a buffer, handed to whoever fills or reads a slot.
pub(crate) struct Lease {
    buffer: Arc<Buffer>,
    /// Lives as long as the lease, so that the engine can see whether it does.
    _held: Held,
}

impl Lease {
    /// # Safety
    /// No other lease of the buffer lives, and no task uses it until this one
    /// is dropped.
    pub(crate) unsafe fn new(buffer: Arc<Buffer>, held: Held) -> Self {
        Self { buffer, _held: held }
    }
}

impl Lent for Lease {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the lease is exclusive.
        unsafe { self.buffer.slice(0, self.buffer.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the lease is exclusive.
        unsafe { self.buffer.slice_mut(0, self.buffer.len()) }
    }
}
