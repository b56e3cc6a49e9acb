//! Every op: gradients, cuts, modes, values.

mod cases;
mod cuts;
mod gradients;
mod interpret;
mod modes;
mod odd;
mod values;
