//! The commands as a user runs them.

mod bench;
mod browser;
mod calibrate;
mod campaign;
mod care;
mod commands;
mod config;
mod diff;
mod disk;
mod ends;
mod flows;
mod fuzz;
mod kernels;
mod lost;
mod meters;
mod pipelines;
mod platform;
mod predict;
mod robust;
mod runs;
mod scheduling;
mod see;
mod sets;
mod simulate;
mod support;
mod survival;
