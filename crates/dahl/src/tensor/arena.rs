//! Memory that is handed out piece by piece and taken back at once.
//!
//! # Invariants
//! - Every buffer is aligned to 64 bytes, initialised, and disjoint from all
//!   others: the bump allocator hands out each byte once.
//! - A buffer borrows from the arena, so [`Arena::reset`], which needs the
//!   arena exclusively, cannot run while one is left.
#![expect(unsafe_code, reason = "hands out disjoint buffers of one arena")]

use crate::error::{Error, Result};
use crate::units::Bytes;
use bumpalo::Bump;
use dahl_kernels::Element;
use std::alloc::Layout;
use std::cell::Cell;

/// The alignment of every buffer: a cache line, and the widest vectors.
const ALIGN: usize = 64;

/// Where tensors live until it is reset.
///
/// ```
/// use dahl::tensor::{Arena, Vector};
/// let mut arena = Arena::with_limit(1 << 20);
/// let x = Vector::full(&arena, [100], 1.0f32);
/// assert_eq!(arena.used().0, 448); // 400 bytes, rounded up to 64
/// arena.reset();
/// assert_eq!(arena.used().0, 0);
/// ```
///
/// A tensor does not outlive a reset:
/// ```compile_fail,E0502
/// use dahl::tensor::{Arena, Vector};
/// let mut arena = Arena::new();
/// let x = Vector::full(&arena, [100], 1.0f32);
/// arena.reset();
/// assert_eq!(x[[0]], 1.0);
/// ```
#[derive(Debug)]
pub struct Arena {
    bump: Bump,
    used: Cell<usize>,
    limit: usize,
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Arena {
    /// An arena that grows as needed.
    pub fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// An arena that hands out at most `bytes`.
    pub fn with_limit(bytes: usize) -> Self {
        Self { bump: Bump::new(), used: Cell::new(0), limit: bytes }
    }

    /// Takes back everything that was handed out. Nothing may borrow from the
    /// arena any more.
    pub fn reset(&mut self) {
        self.bump.reset();
        self.used.set(0);
    }

    /// What has been handed out since the last reset, each buffer rounded up
    /// to 64 bytes.
    pub fn used(&self) -> Bytes {
        Bytes(self.used.get() as u64)
    }

    /// A buffer of `length` zeros, or an error where the limit is passed.
    #[expect(clippy::mut_from_ref, reason = "each call hands out other bytes")]
    pub fn try_zeros<E: Element>(&self, length: usize) -> Result<&mut [E]> {
        let bytes =
            length.checked_mul(size_of::<E>()).and_then(|b| b.checked_next_multiple_of(ALIGN));
        let used = bytes.and_then(|b| self.used.get().checked_add(b));
        let layout = bytes.and_then(|b| Layout::from_size_align(b, ALIGN).ok());
        let (used, layout) = match (used, layout) {
            (Some(used), Some(layout)) if used <= self.limit => (used, layout),
            _ => {
                let expected = format!("at most {} in use", Bytes(self.limit as u64));
                let found = format!("{length} more {} on top of {}", E::DTYPE, self.used());
                return Err(Error::shape("arena", expected, found));
            }
        };
        let start = self.bump.try_alloc_layout(layout).map_err(|_| {
            let found = Bytes(layout.size() as u64);
            Error::shape("arena", "memory that the system has", found)
        })?;
        self.used.set(used);
        let start = start.cast::<E>().as_ptr();
        // SAFETY: the allocation has `layout.size()` ≥ `length` elements'
        // bytes, aligned to 64 ≥ the element's alignment, is nobody else's
        // until a reset, and is zeroed, which is a value of every element type.
        unsafe {
            start.cast::<u8>().write_bytes(0, layout.size());
            Ok(std::slice::from_raw_parts_mut(start, length))
        }
    }
}
