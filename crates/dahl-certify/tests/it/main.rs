//! Certificates that hold, and some that were made to be wrong.

mod forged;
mod kept;
