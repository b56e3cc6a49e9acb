//! Integration tests, in one binary.
#![expect(clippy::unwrap_used, reason = "a test fails where a value is missing")]

mod ops;
mod tensor;
