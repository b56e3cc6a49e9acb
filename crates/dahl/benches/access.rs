//! What reading an element costs: through a typed tensor and through the guard
//! of a session, beside a plain slice, in the same run.
//!
//! `cargo bench -p dahl --bench access`

use dahl::exec::Session;
use dahl::graph::{Builder, Class, Program, Programs, Store};
use dahl::native::Native;
use dahl::ops::Meta;
use dahl::planner::Grain;
use dahl::tensor::{Arena, Matrix, Vector};
use dahl::units::PersistentId;
use dahl::{DType, Element};
use std::hint::black_box;
use std::time::Instant;

/// 256 KiB of f32: within the second-level cache, so that the index counts and
/// not the memory.
const ROWS: usize = 256;
const COLUMNS: usize = 256;
const REPETITIONS: usize = 41;
/// Sums in one measurement.
const SUMS: usize = 20;

fn main() -> dahl::Result<()> {
    println!("sum of {} elements by index, {REPETITIONS} interleaved runs\n", ROWS * COLUMNS);
    println!("{:24} {:>9} {:>9} {:>11}", "", "best ns", "median ns", "of a slice");
    elements::<f32>(DType::F32, |a, b| a + b)?;
    elements::<f64>(DType::F64, |a, b| a + b)?;
    elements::<i64>(DType::I64, |a, b| a.wrapping_add(b))
}

fn elements<E: Element>(dtype: DType, add: impl Fn(E, E) -> E + Copy) -> dahl::Result<()> {
    let values: Vec<E> = (0..ROWS * COLUMNS).map(|i| E::from_f64((i % 7) as f64)).collect();
    let arena = Arena::new();
    let vector = Vector::from_slice(&arena, [ROWS * COLUMNS], &values)?;
    let matrix = Matrix::from_slice(&arena, [ROWS, COLUMNS], &values)?;
    let mut session = session(dtype)?;
    let value = PersistentId(0);
    session.write(value, &mut |mut to| {
        to.as_mut_slice::<E>().copy_from_slice(&values);
        Ok(())
    })?;
    let slice = || sum(black_box(&values[..]), add);
    let by_vector = || {
        let (v, mut sum) = (black_box(&vector), E::from_f64(0.0));
        for i in 0..v.shape()[0] {
            sum = add(sum, v[[i]]);
        }
        sum
    };
    let slice2 = || {
        let (s, mut sum) = (black_box(&values[..]), E::from_f64(0.0));
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                sum = add(sum, s[i * COLUMNS + j]);
            }
        }
        sum
    };
    let by_matrix = || {
        let (m, mut sum) = (black_box(&matrix), E::from_f64(0.0));
        let [rows, columns] = m.shape();
        for i in 0..rows {
            for j in 0..columns {
                sum = add(sum, m[[i, j]]);
            }
        }
        sum
    };
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..REPETITIONS {
        times[0].push(time(slice));
        times[1].push(time(by_vector));
        session.read(value, &mut |tensor| {
            times[2].push(time(|| sum(black_box(tensor.as_slice::<E>()), add)));
        })?;
        times[3].push(time(slice2));
        times[4].push(time(by_matrix));
    }
    let names = ["slice", "vector[[i]]", "guard's slice", "slice, two loops", "matrix[[i, j]]"];
    let best = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    for (i, (name, of)) in names.iter().zip(&times).enumerate() {
        let mut sorted = of.clone();
        sorted.sort_by(f64::total_cmp);
        let base = best(&times[if i < 3 { 0 } else { 3 }]);
        let label = format!("{dtype} {name}");
        let ratio = 100.0 * best(of) / base;
        println!("{label:24} {:9.0} {:9.0} {ratio:10.1}%", best(of), sorted[sorted.len() / 2]);
    }
    Ok(())
}

fn sum<E: Element>(s: &[E], add: impl Fn(E, E) -> E) -> E {
    let mut sum = E::from_f64(0.0);
    #[expect(clippy::needless_range_loop, reason = "the cost of the index is measured")]
    for i in 0..s.len() {
        sum = add(sum, s[i]);
    }
    sum
}

/// Nanoseconds a call.
fn time<E>(sum: impl Fn() -> E) -> f64 {
    let start = Instant::now();
    for _ in 0..SUMS {
        black_box(sum());
    }
    start.elapsed().as_nanos() as f64 / SUMS as f64
}

/// A session with one value and a program that does nothing.
fn session(dtype: DType) -> dahl::Result<Box<dyn Session>> {
    use dahl::exec::Engine;
    let mut store = Store::default();
    let mut builder = Builder::new(&mut store);
    let value = builder.persistent("x", Meta::new([ROWS, COLUMNS], dtype), Class::Buffer);
    builder.fetch("x", value);
    let graph = builder.finish()?;
    let program = Program { name: "idle".to_owned(), graph, output_slots: 1, turn: 0 };
    let programs = Programs { store, programs: vec![program], ..Programs::default() };
    let plan = Grain::for_workers(1).plan(&programs)?;
    Native::default().prepare(&plan)
}
