//! How much memory a function takes.
#![expect(unsafe_code, reason = "an allocator that counts and hands everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of this thread's bytes. A test binary that measures
/// has it as its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static TOTAL: Cell<usize> = const { Cell::new(0) };
}

fn grow(bytes: usize) {
    let live = LIVE.get() + bytes as isize;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
    TOTAL.set(TOTAL.get() + bytes);
}

fn shrink(bytes: usize) {
    LIVE.set(LIVE.get() - bytes as isize);
}

// SAFETY: every call goes to `System` with the arguments that came. The counters are cells
// without destructors, so that counting allocates nothing and works at a thread's end too.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there while the content is copied.
        grow(size);
        shrink(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that a function took on its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The most at one time, beyond what there was before.
    pub peak: usize,
    /// All allocations together: a measure of work that no clock disturbs.
    pub total: usize,
}

/// Runs a function, and says what it took; zeros where [`Counting`] is not the allocator.
pub fn used<T>(run: impl FnOnce() -> T) -> (T, Used) {
    let (live, total) = (LIVE.get(), TOTAL.get());
    PEAK.set(live);
    let result = run();
    let peak = (PEAK.get() - live) as usize;
    (result, Used { peak, total: TOTAL.get() - total })
}
