//! Times of shapes that were not measured.
//!
//! A trend, t = a + b flops + c bytes with a, b, c ≥ 0, is fitted to the shapes that
//! were, the nearest of them: for least squares of relative errors, the nearer ones
//! weighing more and those far off the trend less. Then the trend is corrected by what it is wrong by
//! at the neighbours, in logarithms, by their nearness (Shepard 1968): a kernel that
//! reaches a third of the peak on a layer's shapes will do so on another piece of it.
//!
//! How wrong this is is found by leaving out each of the nearest shapes and
//! predicting it from the others.

use super::history::median;
use super::work::{Features, Form};

/// A shape that was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point<'a> {
    pub(super) form: &'a Form,
    pub(super) features: Features,
    pub(super) nanos: f64,
    /// Bytes per second through memory, where it is known.
    pub(super) demand: Option<f64>,
}

/// What a shape is expected to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Guess {
    pub(super) nanos: f64,
    /// Relative; `None` where nothing was left to predict from.
    pub(super) error: Option<f64>,
    pub(super) demand: Option<f64>,
}

/// How many shapes a guess is made from.
const NEAREST: usize = 16;

/// How many of them are left out, one at a time.
const LEFT_OUT: usize = 6;

/// Rounds in which shapes far off the trend lose weight.
const ROUNDS: usize = 3;

/// What decides between coefficients that fit equally well: constants are the least
/// likely.
const RIDGE: [f64; 3] = [1e-3, 1e-5, 1e-5];

/// The guess for a shape, or `None` where nothing like it was measured.
pub(super) fn guess(points: &[Point<'_>], form: &Form, features: Features) -> Option<Guess> {
    let near = Near::new(points, form, features, None);
    let nanos = near.predict(features)?;
    let nearest = near.distances.iter().take(LEFT_OUT);
    let errors = nearest
        .filter_map(|&(distance, i)| Some((nearness(distance), left_out(points, i)?.powi(2))));
    let error = weighted(errors).map(f64::sqrt);
    let demands = near.distances.iter();
    let demands = demands.filter_map(|&(d, i)| Some((nearness(d), points[i].demand?)));
    Some(Guess { nanos, error, demand: weighted(demands) })
}

/// How wrong a shape is predicted from the others: the logarithm of the ratio.
pub(super) fn left_out(points: &[Point<'_>], i: usize) -> Option<f64> {
    let Point { form, features, nanos, .. } = points[i];
    let found = Near::new(points, form, features, Some(i)).predict(features)?;
    Some((found / nanos).ln())
}

/// The weight of a neighbour.
fn nearness(distance: f64) -> f64 {
    (distance + 0.05).powi(-3)
}

/// The mean of some (weight, number).
fn weighted(items: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (weights, sum) = items.fold((0.0, 0.0), |(w, s), (weight, x)| (w + weight, s + weight * x));
    (weights > 0.0).then(|| sum / weights)
}

/// The measured shapes that are most like a wanted one.
struct Near<'a> {
    points: &'a [Point<'a>],
    /// The nearest first.
    distances: Vec<(f64, usize)>,
}

impl<'a> Near<'a> {
    fn new(
        points: &'a [Point<'a>],
        form: &Form,
        features: Features,
        without: Option<usize>,
    ) -> Self {
        let others = points.iter().enumerate().filter(|(i, _)| Some(*i) != without);
        let distances = others.filter_map(|(i, point)| {
            Some((form.distance(point.form, [features, point.features])?, i))
        });
        let mut distances: Vec<(f64, usize)> = distances.collect();
        distances.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        distances.truncate(NEAREST);
        Self { points, distances }
    }

    fn predict(&self, features: Features) -> Option<f64> {
        let trend = self.trend()?;
        let at = |features: Features| dot(trend, row(features)).max(f64::MIN_POSITIVE);
        let wrong = self.distances.iter().map(|&(d, i)| {
            let point = &self.points[i];
            (nearness(d), (point.nanos / at(point.features)).ln())
        });
        Some(at(features) * weighted(wrong)?.exp())
    }

    /// a, b and c.
    fn trend(&self) -> Option<[f64; 3]> {
        let relative = |&(distance, i): &(f64, usize)| {
            let Point { features, nanos, .. } = self.points[i];
            (row(features).map(|x| x / nanos), (1.0 + distance).powi(-2))
        };
        let near: Vec<([f64; 3], f64)> = self.distances.iter().map(relative).collect();
        let mut rows = near.clone();
        let mut trend = fit(&rows)?;
        for _ in 1..ROUNDS {
            let off: Vec<f64> =
                near.iter().map(|(row, _)| (1.0 - dot(trend, *row)).abs()).collect();
            let mut sorted = off.clone();
            sorted.sort_by(f64::total_cmp);
            let usual = 2.0 * median(&sorted)?.max(0.02);
            for ((row, (_, weight)), off) in rows.iter_mut().zip(&near).zip(off) {
                row.1 = weight * (usual / off.max(usual));
            }
            trend = fit(&rows)?;
        }
        Some(trend)
    }
}

fn row(features: Features) -> [f64; 3] {
    [1.0, features.flops as f64, features.bytes as f64]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(&b).map(|(a, b)| a * b).sum()
}

/// The coefficients ≥ 0 by which weighted rows come nearest to 1: the best of all
/// choices of those that are not 0.
fn fit(rows: &[([f64; 3], f64)]) -> Option<[f64; 3]> {
    let weights: f64 = rows.iter().map(|(_, w)| w).sum();
    // Columns are scaled to a mean square of 1.
    let scale = [0, 1, 2].map(|j| {
        let square: f64 = rows.iter().map(|(row, w)| w * row[j] * row[j]).sum();
        (square / weights).sqrt()
    });
    let usable: Vec<usize> = (0..3).filter(|&j| scale[j] > 0.0 && scale[j].is_finite()).collect();
    let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for &j in &usable {
        for &k in &usable {
            let sum: f64 = rows.iter().map(|(row, w)| w * row[j] * row[k]).sum();
            matrix[j][k] = sum / (weights * scale[j] * scale[k]);
        }
        matrix[j][j] += RIDGE[j];
        right[j] = rows.iter().map(|(row, w)| w * row[j]).sum::<f64>() / (weights * scale[j]);
    }
    let choices = (1u8..8).filter_map(|choice| {
        let chosen: Vec<usize> = (0..3).filter(|j| choice >> j & 1 == 1).collect();
        if !chosen.iter().all(|j| usable.contains(j)) {
            return None;
        }
        let x = solve(&matrix, &right, &chosen)?;
        let square: f64 = (0..3).map(|j| x[j] * (dot(matrix[j], x) - 2.0 * right[j])).sum();
        x.iter().all(|x| *x >= 0.0).then_some((square, x))
    });
    let (_, best) = choices.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some([0, 1, 2].map(|j| if usable.contains(&j) { best[j] / scale[j] } else { 0.0 }))
}

/// The solution of some of the equations; the other unknowns are 0. The matrix is
/// symmetric and, by the ridge, positive definite: no pivots are needed.
fn solve(matrix: &[[f64; 3]; 3], right: &[f64; 3], chosen: &[usize]) -> Option<[f64; 3]> {
    let (mut m, mut v) = (*matrix, *right);
    for (i, &j) in chosen.iter().enumerate() {
        for &k in &chosen[i + 1..] {
            let factor = m[k][j] / m[j][j];
            for &l in chosen {
                m[k][l] -= factor * m[j][l];
            }
            v[k] -= factor * v[j];
        }
    }
    let mut x = [0.0; 3];
    for &j in chosen.iter().rev() {
        x[j] = (v[j] - dot(m[j], x)) / m[j][j];
    }
    x.iter().all(|x| x.is_finite()).then_some(x)
}

#[cfg(test)]
mod tests;
