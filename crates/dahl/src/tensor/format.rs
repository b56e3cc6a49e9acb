//! Tensors as text, digits under digits.

use super::view::{AsView, following};
use super::{Tensor, TensorView, TensorViewMut};
use dahl_kernels::Element;
use std::fmt;

/// Rows of aligned columns, decimal points under each other; `{:.3}` sets the
/// digits after the point.
impl<E: Element, const R: usize> fmt::Display for TensorView<'_, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<String> = self
            .iter()
            .map(|x| match f.precision() {
                Some(digits) if E::DTYPE.is_float() => format!("{x:.digits$}"),
                _ => format!("{x}"),
            })
            .collect();
        if R == 0 {
            return f.pad_integral(true, "", &cells[0]);
        }
        if cells.is_empty() {
            return write!(f, "[] of shape {:?}", self.shape());
        }
        let columns = self.shape()[R - 1];
        let widths: Vec<(usize, usize)> = (0..columns)
            .map(|j| {
                let column = cells.iter().skip(j).step_by(columns);
                column.fold((0, 0), |(before, after), cell| {
                    let (b, a) = around_point(cell);
                    (before.max(b), after.max(a))
                })
            })
            .collect();
        let mut at = Some([0; R]);
        let mut cells = cells.iter();
        while let Some(here) = at {
            // Brackets that open here: one for each trailing axis at its start.
            let opening = here.iter().rev().take_while(|&&i| i == 0).count();
            let (column, cell) = (here[R - 1], cells.next().map_or("", String::as_str));
            if column == 0 {
                write!(f, "{:>pad$}{}", "", "[".repeat(opening), pad = R - opening)?;
            }
            let (before, after) = widths[column];
            let (b, a) = around_point(cell);
            write!(f, "{:>left$}{cell}", "", left = before - b)?;
            at = following(here, &self.shape());
            let closing = at.map_or(R, |next| next.iter().rev().take_while(|&&i| i == 0).count());
            if closing == 0 {
                write!(f, "{:>right$}, ", "", right = after - a)?;
            } else {
                write!(f, "{:>right$}{}", "", "]".repeat(closing), right = after - a)?;
            }
            if closing > 0 && at.is_some() {
                write!(f, ",{}", "\n".repeat(closing))?;
            }
        }
        Ok(())
    }
}

/// Number of characters before the decimal point, and from it on.
fn around_point(cell: &str) -> (usize, usize) {
    let before = cell.find('.').unwrap_or(cell.len());
    (before, cell.len() - before)
}

/// The element type and shape, then as [`Display`](fmt::Display).
impl<E: Element, const R: usize> fmt::Debug for TensorView<'_, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} ", E::DTYPE, self.shape())?;
        fmt::Display::fmt(self, f)
    }
}

macro_rules! as_its_view {
    ($owner:ident) => {
        impl<E: Element, const R: usize> fmt::Display for $owner<'_, E, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&AsView::as_view(self), f)
            }
        }

        impl<E: Element, const R: usize> fmt::Debug for $owner<'_, E, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&AsView::as_view(self), f)
            }
        }
    };
}
as_its_view!(Tensor);
as_its_view!(TensorViewMut);
