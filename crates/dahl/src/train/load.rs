//! Samples into slots, on as many threads as reading is worth.

use super::pass::Samples;
use crate::data::{Access, Number, Visit};
use crate::error::{Error, Result};
use crate::exec::{Slot, TensorMut};
use crate::ops::Meta;
use crate::os::threads::spawn_scoped;
use dahl_kernels::{DType, Shape};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many threads read a batch: one where samples are in memory, as many as
/// there are processors where each is a file to be decoded.
pub(super) fn threads(samples: &Samples<'_>) -> usize {
    match samples.data.access() {
        Access::Memory => 1,
        Access::File => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Reads the samples of a batch into a slot, those that it wants. What is read does not depend on
/// the number of threads, nor which error is returned.
pub(super) fn fill(
    slot: Slot,
    batch: &[usize],
    samples: &Samples<'_>,
    threads: usize,
) -> Result<Slot> {
    let mut slot = slot;
    let rows = slot.rows().cloned().unwrap_or(0..batch.len());
    let batch = &batch[rows.clone()];
    let mut labels = vec![0.0; batch.len()];
    // The stages of a pipeline may read one of the two only.
    let names: Vec<String> = slot.inputs().map(|(name, _)| name.to_owned()).collect();
    let has = |name: &str| names.iter().any(|own| own == name);
    if has("input") {
        let input = of_rows(slot.input("input")?, &rows);
        match input.meta.dtype {
            DType::F32 => {
                let input: &mut [f32] = bytemuck::cast_slice_mut(input.bytes);
                read(input, &mut labels, batch, samples, threads)?;
            }
            _ => {
                let input: &mut [f64] = bytemuck::cast_slice_mut(input.bytes);
                read(input, &mut labels, batch, samples, threads)?;
            }
        }
    } else {
        let label = |&index: &usize| samples.data.label(index).map(|label| label as f64);
        labels = batch.iter().map(label).collect::<Result<_>>()?;
    }
    if has("target") {
        of_rows(slot.input("target")?, &rows).write_f64(labels)?;
    }
    Ok(slot)
}

/// The part of a tensor that is rows of its first axis.
fn of_rows<'a>(tensor: TensorMut<'a>, rows: &Range<usize>) -> TensorMut<'a> {
    let Meta { shape, dtype } = tensor.meta;
    let row = tensor.meta.bytes() / shape[0].max(1);
    let axes: Vec<usize> = std::iter::once(rows.len()).chain(shape.axes()[1..].to_vec()).collect();
    let bytes = &mut tensor.bytes[rows.start * row..rows.end * row];
    TensorMut { meta: Meta { shape: Shape::new(&axes), dtype }, bytes }
}

/// Reads samples in the precision of the network.
fn read<T: Number>(
    input: &mut [T],
    labels: &mut [f64],
    batch: &[usize],
    samples: &Samples<'_>,
    threads: usize,
) -> Result<()> {
    let places = input.chunks_mut(samples.data.shape().elements().max(1));
    each(batch.iter().zip(places).zip(labels), threads, |index, out: &mut [T]| {
        let visit = Visit { epoch: samples.epoch, index };
        samples.transform.read(samples.data, visit, out)
    })
}

/// Reads samples to their places, and their labels to theirs. A thread takes the
/// next sample when it has done one, since images differ in size.
fn each<'a, E: Send + 'a>(
    work: impl Iterator<Item = ((&'a usize, &'a mut [E]), &'a mut f64)> + Send,
    threads: usize,
    read: impl Fn(usize, &mut [E]) -> Result<usize> + Sync,
) -> Result<()> {
    let samples = work.size_hint().0;
    let work = Mutex::new(work.enumerate());
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let worker = || {
        // Samples are taken in order and read once taken, so the first that
        // fails is always among those that were read.
        while locked(&failed).is_none() {
            let next = locked(&work).next();
            let Some((i, ((&index, out), label))) = next else { return };
            match read(index, out) {
                Ok(read) => *label = read as f64,
                Err(error) => {
                    let mut failed = locked(&failed);
                    if failed.as_ref().is_none_or(|(first, _)| i < *first) {
                        *failed = Some((i, error));
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        // Where the system has no more threads to give, those that are there read it all.
        let others = (1..threads.min(samples)).map(|_| spawn_scoped(scope, "dahl-reader", worker));
        let _ = others.take_while(std::io::Result::is_ok).count();
        worker();
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// No thread panics while it holds one of the locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_read_the_same_and_tell_the_first_error() {
        let batch: Vec<usize> = (0..50).map(|i| (i * 7) % 50).collect();
        let filled = |threads, bad: &[usize]| {
            let (mut input, mut labels) = (vec![0; 100], vec![0.0; 50]);
            let work = batch.iter().zip(input.chunks_mut(2)).zip(&mut labels);
            let result = each(work, threads, |index, out: &mut [usize]| {
                if bad.contains(&index) {
                    return Err(Error::config("sample", "a good one", index));
                }
                out.fill(index);
                Ok(index % 3)
            });
            result.map(|()| (input, labels)).map_err(|error| error.to_string())
        };
        let expected = filled(1, &[]).unwrap();
        assert_eq!(expected.0[2..4], [7, 7]);
        for threads in [2, 3, 100] {
            assert_eq!(filled(threads, &[]).unwrap(), expected, "{threads} threads");
            // Sample 14 is the third, 8 comes later.
            let error = filled(threads, &[8, 14]).unwrap_err();
            assert_eq!(error, "sample: expected a good one, found 14", "{threads} threads");
        }
    }
}
