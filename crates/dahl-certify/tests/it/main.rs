//! Certificates that hold, and some that were made to be wrong.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod forged;
mod kept;
