//! Integration tests, in one binary.

mod ops;
mod tensor;
