//! Tests of pipelines.

mod brute;
mod known;
mod made;
